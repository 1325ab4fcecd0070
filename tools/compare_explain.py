#!/usr/bin/env python3
"""Compares `bowwave explain`, decision by decision, with the models of tools/model_*.py on random traces.

    tools/compare_explain.py --bowwave target/release/bowwave -n 100000

Many traces go into one call of explain, each with its own file names, so that processes do not dominate. A
difference prints the seed, the options and the first decision that differs; `--seed S -n 1` repeats it, and
`--print` writes its trace to standard output.
"""

import itertools
import random
import sys

import models
import random_traces
from comparing import csv_of, decisions, parser_of, same

# Traces per call of explain.
BATCH = 100
RA_PAGES = (8, 16, 32, 32, 33, 64, 100, 128, 256, 500, 1024, 4096)


def batch_options(seed):
    """The options of the batch that trace `seed` belongs to: (ra_pages, file_pages)."""
    rng = random.Random(f"batch {seed // BATCH}")
    ra_pages = rng.choice(RA_PAGES)
    return ra_pages, rng.choice((None, None, rng.randint(1, 4 * ra_pages), rng.randint(100, 3000)))


def rows_of(seed, loads):
    ra_pages, file_pages = batch_options(seed)
    reach = min(file_pages + 20, 5000) if file_pages else max(200, 6 * ra_pages)
    return random_traces.trace(seed, f"trace-{seed}", reach, loads)


def explain(bowwave, policy, options, text):
    ra_pages, file_pages = options
    command = [bowwave, "explain", "-", "--json", "--policy", policy, "--ra-pages", str(ra_pages)]
    if file_pages is not None:
        command += ["--file-pages", str(file_pages)]
    return decisions(command, text)


def compare(bowwave, policy, seeds):
    """Compares the traces of one batch; the number of decisions, or exits with the first difference."""
    options = batch_options(seeds[0])
    rows = [row for seed in seeds for row in rows_of(seed, policy in models.MAPPED)]
    model = models.model(policy, *options)
    expected = [decision for row in rows for decision in model.access(*row)]
    found = explain(bowwave, policy, options, csv_of(rows))

    def where(_number, decision):
        seed = int(decision["file"].split("-")[1].split("/")[0])
        return f"seed {seed}, {policy}, ra_pages {options[0]}, file_pages {options[1]}"

    return same(expected, found, where)


def main():
    parser = parser_of(__doc__, 300)
    parser.add_argument("--policy", action="append", choices=models.POLICIES, help="only this one")
    options = parser.parse_args()
    policies = options.policy or models.POLICIES
    if options.print:
        sys.stdout.write(csv_of(rows_of(options.seed, policies[0] in models.MAPPED)))
        return
    print(f"comparing {options.n} traces from seed {options.seed} for {', '.join(policies)}", file=sys.stderr)
    count = 0
    seeds = range(options.seed, options.seed + options.n)
    for _, group in itertools.groupby(seeds, key=lambda seed: seed // BATCH):
        batch = list(group)
        count += sum(compare(options.bowwave, policy, batch) for policy in policies)
    print(f"{options.n} traces, {count} decisions, no difference", file=sys.stderr)


if __name__ == "__main__":
    main()
