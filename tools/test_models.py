#!/usr/bin/env python3
"""Checks that the comparisons with the models would notice a wrong constant: changes each constant, and expects a difference.

    tools/test_models.py --bowwave target/debug/bowwave

Each constant of `adaptive` is made larger by one, and by half if the comparison does not notice that; each constant of the
waste budget is made larger and smaller by one. Prints what fails. Exits with 1 if a changed constant is not noticed.
"""

import argparse
import sys

import compare_explain_swap
import compare_waste
import model_adaptive
import model_waste

ADAPTIVE = ("STREAMS", "MISSES", "STEPS", "EQUAL", "STRIDE_MAX", "FIRST", "STRIDED_MAX", "REACH", "HITS", "AGE", "STAGES",
            "ASSUMED", "REMEMBERED", "SCALE", "EXAMINED", "REQUEST")
WASTE = ("PERCENT", "WINDOWS", "EACH")
# Traces that a change may take to be noticed.
TRACES = 400


def adaptive(bowwave):
    for seed in range(TRACES):
        compare_explain_swap.compare(bowwave, "adaptive", seed)


def waste(bowwave):
    compare_waste.check(bowwave, ("apart",), range(compare_waste.ENOUGH))


def noticed(module, name, value, compare):
    """How the comparison fails with this value of a constant, if it does."""
    true = getattr(module, name)
    setattr(module, name, value)
    try:
        compare()
    except SystemExit as failure:
        return f"{module.__name__}.{name} = {value} instead of {true}: {str(failure).splitlines()[0]}"
    finally:
        setattr(module, name, true)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to compare with")
    bowwave = parser.parse_args().bowwave
    # Each entry needs one of its values to be noticed.
    changes = [(model_adaptive, name, (true + 1, true + true // 2), adaptive) for name in ADAPTIVE
               for true in [getattr(model_adaptive, name)]]
    changes += [(model_waste, name, (getattr(model_waste, name) + by,), waste) for name in WASTE for by in (-1, 1)]
    missed = []
    for module, name, values, compare in changes:
        failures = (noticed(module, name, value, lambda compare=compare: compare(bowwave)) for value in values)
        failure = next((failure for failure in failures if failure), None)
        if failure:
            print(failure, file=sys.stderr)
        else:
            missed.append(f"{module.__name__}.{name}")
    if missed:
        sys.exit(f"test_models.py: not noticed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
