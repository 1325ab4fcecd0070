#!/usr/bin/env python3
"""Checks that the comparisons with the models would notice a wrong constant: changes each constant, and expects a difference.

    tools/test_models.py --bowwave target/debug/bowwave

Each constant is made larger by one, and by half if the comparison does not notice that. Prints the seed at which the
comparison fails. Exits with 1 if a changed constant is not noticed.
"""

import argparse
import sys

import compare_explain_swap
import model_adaptive

# The constants of a model, and the largest number of traces that a change may take to be noticed.
CONSTANTS = {
    model_adaptive: ("STREAMS", "MISSES", "STEPS", "EQUAL", "STRIDE_MAX", "FIRST", "STRIDED_MAX", "REACH", "HITS", "AGE",
                     "STAGES", "ASSUMED", "REMEMBERED", "SCALE", "EXAMINED", "REQUEST"),
}
TRACES = 400


def noticed(bowwave, policy):
    """The first seed at which the comparison fails, if any."""
    for seed in range(TRACES):
        try:
            compare_explain_swap.compare(bowwave, policy, seed)
        except SystemExit:
            return seed
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to compare with")
    options = parser.parse_args()
    missed = []
    for module, names in CONSTANTS.items():
        for name in names:
            true = getattr(module, name)
            for value in (true + 1, true + true // 2):
                setattr(module, name, value)
                seed = noticed(options.bowwave, module.POLICIES[0])
                setattr(module, name, true)
                if seed is not None:
                    print(f"{module.__name__}.{name} = {value} instead of {true}: noticed at seed {seed}", file=sys.stderr)
                    break
            else:
                missed.append(f"{module.__name__}.{name}")
    if missed:
        sys.exit(f"test_models.py: not noticed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
