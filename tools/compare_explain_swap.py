#!/usr/bin/env python3
"""Compares `bowwave explain --policy cluster|vma`, decision by decision, with tools/model_swap.py on random traces.

    tools/compare_explain_swap.py --bowwave target/release/bowwave -n 100000

A difference prints the seed, the options and the first decision that differs; `--seed S -n 1` repeats it, and `--print`
writes its trace to standard output. Each trace is a call of its own, since regions of one call share slots and hits.
"""

import argparse
import itertools
import json
import random
import sys

import model_swap
from compare_explain import csv_of, decisions
from model_swap import PAGE


def trace(seed):
    """The options of a trace and its rows."""
    rng = random.Random(f"swap {seed}")
    reach = rng.choice((60, 400, 3000))
    options = {"page_cluster": rng.choice((0, 1, 2, 3, 3, 3, 4, 5, 6, 9)),
               "pages": rng.choice((None, None, reach, reach // 2 + 1)),
               "slots": rng.choice((1 << 20, 50_000, 40_001))}
    regions = [(rng.randint(1, 2), name) for name in rng.choice((["a"], ["a", "b"], ["a", "b", "c"]))]
    rows, most = [], rng.choice((20, 100, 300))
    while len(rows) < most:
        pid, name = rng.choice(regions)
        start, op = rng.randrange(reach), rng.choice(("load", "store"))
        kind = rng.random()
        if kind < 0.25:
            count = rng.choice((1, 8, 30, 100))
            rows.append((pid, "store", name, start * PAGE, count * PAGE))
        elif kind < 0.5:
            rows.append((pid, "evict", name, start * PAGE, rng.choice((1, 5, 40, 200, 600)) * PAGE))
        elif kind < 0.75:
            step = rng.choice((1, 1, 1, -1, -1, 2, 7))
            rows += [(pid, op, name, max(start + step * turn, 0) * PAGE, rng.choice((1, PAGE)))
                     for turn in range(rng.choice((3, 10, 40)))]
        else:
            rows += [(*rng.choice(regions)[:1], op, name, rng.randrange(reach) * PAGE + rng.randrange(PAGE),
                      rng.choice((1, 100, 5000))) for _ in range(rng.choice((1, 4, 12)))]
    return options, rows


def explain(bowwave, policy, options, text):
    command = [bowwave, "explain", "-", "--json", "--policy", policy, "--page-cluster", str(options["page_cluster"]),
               "--slots", str(options["slots"])]
    if options["pages"] is not None:
        command += ["--file-pages", str(options["pages"])]
    return decisions(command, text)


def compare(bowwave, policy, seed):
    """The number of decisions, or exits with the first difference."""
    options, rows = trace(seed)
    model = model_swap.Model(policy, options["page_cluster"], options["pages"], options["slots"])
    expected = [decision for row in rows for decision in model.access(*row)]
    found = explain(bowwave, policy, options, csv_of(rows))
    for want, got in itertools.zip_longest(expected, found):
        if want != got:
            sys.exit(f"seed {seed}, {policy}, {options}:\n  model   {json.dumps(want)}\n  explain {json.dumps(got)}")
    return len(expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to check")
    parser.add_argument("-n", type=int, default=300, help="how many traces")
    parser.add_argument("--seed", type=int, default=0, help="the first trace's seed; each next one has the next")
    parser.add_argument("--policy", action="append", choices=model_swap.POLICIES, help="only this one")
    parser.add_argument("--print", action="store_true", help="write the trace of --seed instead of comparing")
    options = parser.parse_args()
    if options.print:
        sys.stdout.write(csv_of(trace(options.seed)[1]))
        return
    policies = options.policy or model_swap.POLICIES
    print(f"comparing {options.n} traces from seed {options.seed} for {', '.join(policies)}", file=sys.stderr)
    seeds = range(options.seed, options.seed + options.n)
    count = sum(compare(options.bowwave, policy, seed) for seed in seeds for policy in policies)
    print(f"{options.n} traces, {count} decisions, no difference", file=sys.stderr)


if __name__ == "__main__":
    main()
