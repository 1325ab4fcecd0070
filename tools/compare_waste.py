#!/usr/bin/env python3
"""Counts unused readahead in what `bowwave explain --policy stream` prints, and compares it with the waste budget.

    tools/compare_waste.py --bowwave target/release/bowwave -n 1000

Two families of random traces. In `apart`, one reader reads runs at unrelated places, so that one stream is active: the
budget must hold, and must nearly be used up. In `together`, several readers and repeating distances deceive the policy:
every stream that it remembers may count as active. A violation prints the seed; `--seed S -n 1` repeats it, and `--print`
writes its trace to standard output.
"""

import random
import sys

import model_waste
from comparing import csv_of, decisions, parser_of
from model_ondemand import PAGE

FILE_PAGES = 1 << 23
FAMILIES = ("apart", "together")
# Of this many traces of `apart`, one comes as near to its budget as this, in windows.
ENOUGH, NEAR = 100, 0.05


def trace(family, seed):
    """(ra_pages, rows) of a trace."""
    rng = random.Random(f"{family} {seed}")
    ra_pages = rng.choice((32, 64, 128))
    usual, pages = rng.choice((5, 8, 20, 20, 40)), rng.choice((1, 2, 4, 4, 8))
    # Runs stay apart: no run comes to the place of another.
    places = [number << 16 for number in range(1, 100)]
    readers = 1 if family == "apart" else rng.choice((1, 2, 3, 5))
    if family == "apart" or rng.random() < 0.3:
        rng.shuffle(places)
    cycle = [rng.choice((1, 2, 3, usual, usual, usual)) for _ in range(rng.choice((2, 3, 5)))]
    runs, rows = [None] * readers, []
    for number, place in enumerate(places):
        length = rng.choice((1, 2, 3, usual, usual, usual)) if family == "apart" else cycle[number % len(cycle)]
        reader = rng.randrange(readers)
        if runs[reader] is not None:
            finish(rows, runs, reader, pages, rng)
        runs[reader] = [place + rng.randrange(1 << 14), length]
    for reader in range(readers):
        if runs[reader] is not None:
            finish(rows, runs, reader, pages, rng)
    return ra_pages, rows


def finish(rows, runs, reader, pages, rng):
    """A reader's run to its end; the others read on meanwhile."""
    while runs[reader][1]:
        for other in [reader] + [other for other in range(len(runs)) if other != reader and rng.random() < 0.5]:
            if runs[other] is not None and runs[other][1]:
                rows.append((other + 1, "read", "a", runs[other][0] * PAGE, pages * PAGE))
                runs[other][0] += pages
                runs[other][1] -= 1
    runs[reader] = None


def compare(bowwave, family, seed):
    """Windows left of the budget, and windows used of it, where they were least and most; or exits with a violation."""
    ra_pages, rows = trace(family, seed)
    command = [bowwave, "explain", "-", "--json", "--policy", "stream", "--ra-pages", str(ra_pages),
               "--file-pages", str(FILE_PAGES)]
    found = {}
    for decision in decisions(command, csv_of(rows)):
        found.setdefault(decision["access"], []).append(decision)
    ledger, nearest, most = model_waste.Ledger(ra_pages), float("inf"), 0
    for number, (pid, _op, _name, offset, length) in enumerate(rows):
        for used, unused in ledger.access(pid, offset, length, found.get(number, ())):
            allowed = ledger.allowed(1 if family == "apart" else model_waste.REMEMBERED)
            excess = ledger.excess(used, unused)
            left = allowed - excess
            nearest, most = min(nearest, left), max(most, excess)
            if left < 0:
                sys.exit(f"seed {seed}, {family}, ra_pages {ra_pages}, row {number}: {unused} pages are unused and {used} used, "
                         f"{-left:.2f} windows beyond the budget")
    return nearest, most


def check(bowwave, families, seeds):
    """Compares all traces, and exits with the first violation."""
    for family in families:
        results = [compare(bowwave, family, seed) for seed in seeds]
        nearest, most = min(left for left, _ in results), max(excess for _, excess in results)
        print(f"{family}: at most {most:.1f} windows beyond the share of used pages; {nearest:.2f} windows left", file=sys.stderr)
        if family == "apart" and len(seeds) >= ENOUGH and nearest > NEAR:
            sys.exit(f"{family}, seeds {seeds}: no trace uses its budget up: it is smaller than the model's")


def main():
    parser = parser_of(__doc__, 100, "traces of each family")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this one")
    options = parser.parse_args()
    families = options.family or FAMILIES
    if options.print:
        sys.stdout.write(csv_of(trace(families[0], options.seed)[1]))
        return
    print(f"counting {options.n} traces from seed {options.seed} for {', '.join(families)}", file=sys.stderr)
    check(options.bowwave, families, range(options.seed, options.seed + options.n))


if __name__ == "__main__":
    main()
