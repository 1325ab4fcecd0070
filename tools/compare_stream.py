#!/usr/bin/env python3
"""Compares `bowwave explain --policy stream` with tools/model_stream.py on random traces of readers in order.

    tools/compare_stream.py --bowwave target/release/bowwave -n 10000

Each reader has a handle and one length of request, at most the largest window, and reads upward from page 0 or far from all
others. A first request at page 0 may be as long as the window, or longer. A difference prints the seed and the first decision
that differs; `--seed S -n 1` repeats it, and `--print` writes its trace to standard output. Scores of detectors are not compared.
"""

import random
import sys

import model_stream
from comparing import csv_of, decisions, parser_of, same
from model_ondemand import PAGE


def trace(seed):
    """(ra_pages, rows) of a trace."""
    rng = random.Random(f"stream {seed}")
    ra_pages = rng.choice((8, 16, 32, 33, 64, 100, 128, 256, 1024))
    readers = rng.choice((1, 1, 2, 3, 5))
    places = [(place << 20) * PAGE + rng.randrange(1 << 14) * PAGE + rng.choice((0, 0, rng.randrange(PAGE)))
              for place in rng.sample(range(1, 4000), readers)]
    if rng.random() < 0.5:
        places[0] = 0
    lengths = [min(rng.choice((100, PAGE, 2 * PAGE, 10000, 4 * PAGE, 16 * PAGE, 40 * PAGE, rng.randint(1, ra_pages * PAGE))),
                   (ra_pages - 1) * PAGE) for _ in places]
    rows = []
    for _ in range(rng.choice((10, 40, 120))):
        reader = rng.randrange(readers)
        length = lengths[reader]
        if places[reader] == 0 and rng.random() < 0.5:
            length = rng.randint(ra_pages, 3 * ra_pages) * PAGE
        rows.append((reader + 1, "read", "a", places[reader], length))
        places[reader] += length
    return ra_pages, rows


def compare(bowwave, seed):
    """The number of decisions, or exits with the first difference."""
    ra_pages, rows = trace(seed)
    model = model_stream.Model(ra_pages)
    expected = [decision for row in rows for decision in model.access(*row)]
    command = [bowwave, "explain", "-", "--json", "--policy", "stream", "--ra-pages", str(ra_pages)]
    found = decisions(command, csv_of(rows))
    for decision in found:
        for member in ("detectors", "candidates"):
            decision.pop(member, None)
    return same(expected, found, f"seed {seed}, stream, ra_pages {ra_pages}")


def main():
    options = parser_of(__doc__, 300).parse_args()
    if options.print:
        sys.stdout.write(csv_of(trace(options.seed)[1]))
        return
    print(f"comparing {options.n} traces from seed {options.seed} for stream", file=sys.stderr)
    count = sum(compare(options.bowwave, seed) for seed in range(options.seed, options.seed + options.n))
    print(f"{options.n} traces, {count} decisions, no difference", file=sys.stderr)


if __name__ == "__main__":
    main()
