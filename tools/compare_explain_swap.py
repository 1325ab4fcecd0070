#!/usr/bin/env python3
"""Compares `bowwave explain --policy cluster|vma|adaptive` with tools/model_swap.py and model_adaptive.py on random traces.

    tools/compare_explain_swap.py --bowwave target/release/bowwave -n 100000

A difference prints the seed, the options and the first decision that differs; `--seed S -n 1` repeats it, and `--print`
writes its trace to standard output. Each trace is a call of its own, since regions of one call share slots and hits. All
rows of a trace have one time for `adaptive`: its model knows nothing of time.
"""

import random
import sys

import model_adaptive
import model_swap
from comparing import csv_of, decisions, parser_of, same
from model_swap import PAGE

MODELS = {policy: module.Model for module in (model_swap, model_adaptive) for policy in module.POLICIES}


def trace(seed):
    """The options of a trace and its rows."""
    rng = random.Random(f"swap {seed}")
    reach = rng.choice((60, 400, 3000))
    options = {"page_cluster": rng.choice((0, 1, 2, 3, 3, 3, 4, 5, 6, 9)),
               "pages": rng.choice((None, None, reach, reach // 2 + 1)),
               "slots": rng.choice((1 << 20, 50_000, 40_001)),
               "ra_pages": rng.choice((1, 9, 32, 100, 256, 256))}
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


def streams(seed):
    """The same, with many readers of one region at once, more than a region's streams in some traces."""
    rng = random.Random(f"streams {seed}")
    reach = rng.choice((300, 3000, 20000))
    rows = [(1, "store", "a", 0, reach * PAGE), (1, "evict", "a", 0, reach * PAGE)]
    if rng.random() < 0.2:
        rows = [rows[0], *((1, "evict", "a", page * PAGE, 1) for page in reversed(range(min(reach, 3000))))]
    most, longest = rng.choice((1, 3, 6, 60, 100)), rng.choice((3, 10, 60))
    live, count = [], rng.choice((100, 300, 600) if most < 10 else (600, 2000))
    while len(rows) < count:
        while len(live) < most:
            live.append([rng.randrange(reach), rng.choice((1, 1, 1, -1, -1, 2, 3, -4, 7)), rng.randint(2, longest)])
        reader = rng.choice(live[:rng.choice((1, 3, most))])
        page, step, left = reader
        if left == 0 or not 0 <= page < reach:
            live.remove(reader)
            continue
        rows.append((1, rng.choice(("load", "load", "store")), "a", page * PAGE, 1))
        chance = rng.random()
        if chance < 0.03:
            rows.append((1, "evict", "a", max(page + rng.randint(-40, 60), 0) * PAGE, rng.choice((1, 5, 30, 100, 5000)) * PAGE))
        elif chance < 0.06:
            rows.append((1, "load", "a", rng.randrange(reach) * PAGE, 1))
        elif chance < 0.09:
            page += step * rng.randint(1, 60)
        elif chance < 0.091:
            # The largest stride, or one page more.
            far, stride = rng.randrange(reach), (1 << 20) + rng.choice((0, 1))
            rows += [(1, op, "a", (far + turn * stride) * PAGE, 1) for op in ("store", "evict", "load") for turn in range(1, 7)]
        reader[0], reader[2] = page + step, left - 1
    options = {"page_cluster": 3, "pages": rng.choice((None, reach, reach // 2 + 1)), "slots": 1 << 20,
               "ra_pages": rng.choice((1, 9, 32, 100, 256, 256))}
    return options, rows


def input_of(policy, seed):
    """The options of a trace and its rows; half of those for `adaptive` are of streams."""
    return streams(seed) if policy in model_adaptive.POLICIES and seed % 2 else trace(seed)


def explain(bowwave, policy, options, text):
    command = [bowwave, "explain", "-", "--json", "--policy", policy, "--page-cluster", str(options["page_cluster"]),
               "--slots", str(options["slots"]), "--ra-pages", str(options["ra_pages"])]
    if options["pages"] is not None:
        command += ["--file-pages", str(options["pages"])]
    return decisions(command, text)


def compare(bowwave, policy, seed):
    """The number of decisions, or exits with the first difference."""
    options, rows = input_of(policy, seed)
    still = policy in model_adaptive.POLICIES
    window = options["ra_pages" if still else "page_cluster"]
    model = MODELS[policy](policy, window, options["pages"], options["slots"])
    expected = [decision for row in rows for decision in model.access(*row)]
    found = explain(bowwave, policy, options, csv_of(rows, 0 if still else 1))
    return same(expected, found, f"seed {seed}, {policy}, {options}")


def main():
    parser = parser_of(__doc__, 300)
    parser.add_argument("--policy", action="append", choices=MODELS, help="only this one")
    options = parser.parse_args()
    policies = options.policy or tuple(MODELS)
    if options.print:
        still = policies[0] in model_adaptive.POLICIES
        sys.stdout.write(csv_of(input_of(policies[0], options.seed)[1], 0 if still else 1))
        return
    print(f"comparing {options.n} traces from seed {options.seed} for {', '.join(policies)}", file=sys.stderr)
    seeds = range(options.seed, options.seed + options.n)
    count = sum(compare(options.bowwave, policy, seed) for seed in seeds for policy in policies)
    print(f"{options.n} traces, {count} decisions, no difference", file=sys.stderr)


if __name__ == "__main__":
    main()
