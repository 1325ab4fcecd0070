#!/usr/bin/env python3
"""Compares `bowwave explain --scheduler`, dispatch by dispatch, with the model of tools/model_scheduler.py on random traces.

    tools/compare_scheduler.py --bowwave target/release/bowwave -n 2000

A difference prints the seed, the command and the first dispatch that differs; `--seed S -n 1` repeats it, and `--print`
writes its trace to standard output.
"""

import random
import sys
from concurrent.futures import ThreadPoolExecutor

from comparing import csv_of_timed, decisions, parser_of, same
from model_scheduler import ALGORITHMS, MS, PAGE, PRIORITIES, Model, Scheduler

# Page counts of a row: most are small, some longer than a request or a fill.
LENGTHS = (1, 1, 1, 2, 3, 8, 20, 70, 150)


def trace(rng):
    """Rows (time, pid, op, file, offset, length): bursts of streams, random places, syncs and readahead."""
    rows, now = [], 0
    files = [f"file {number}" for number in range(rng.choice((1, 2, 4)))]
    ops = rng.choice((("read", "write", "fsync", "willneed"), ("read", "willneed", "willneed"), ("write", "fsync"),
                      ("read", "write", "write", "write")))
    streams = {}
    for _ in range(rng.choice((10, 60, 200))):
        now += rng.choice((0, 0, 0, rng.randrange(3 * MS), rng.randrange(40 * MS), rng.randrange(700 * MS)))
        pid, op, file = rng.randrange(4), rng.choice(ops), rng.choice(files)
        length = rng.choice(LENGTHS) * PAGE - rng.choice((0, 0, rng.randrange(PAGE)))
        at = streams.get((pid, file), 0) if rng.random() < 0.6 else rng.randrange(2000) * PAGE
        at += rng.choice((0, 0, 0, rng.randrange(PAGE), 3 * PAGE))
        streams[(pid, file)] = at + length
        rows.append((now, pid, op, file, at, 0 if op == "fsync" else length))
    return rows


def setup(rng):
    """Knobs of the scheduler, the device (ns a request, ns a page, depth, pages of a request), priorities of processes."""
    choices = {
        "sync_expire_ms": (0, 5, 50, 500), "async_expire_ms": (0, 20, 300, 5000), "batch": (1, 2, 4, 16),
        "starved": (0, 1, 2, 5), "contiguous": (0, 1), "front_merges": (0, 1), "seeks": (0, 1, 1), "promotion": (0, 1, 1),
        "aging_ms": (0, 30, 400, 10000), "async_depth": (1, 2, 64), "sync_slowdown": (0, 1, 2),
    }
    knobs = {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.4}
    device = (rng.choice((100_000, 2 * MS, 9 * MS)), rng.choice((0, 8000, 60_000)), rng.choice((1, 1, 2, 5, 30)))
    priorities = {pid: rng.choice(PRIORITIES) for pid in range(4)} if rng.random() < 0.3 else {}
    return knobs, device, rng.choice((16, 128)), priorities, rng.random() < 0.85


def compare(bowwave, algorithm, seed):
    """The number of dispatches, or the first difference."""
    rng = random.Random(seed)
    rows = trace(rng)
    knobs, device, request_pages, priorities, merge = setup(rng)
    request_ns, page_ns, depth = device
    text = ("lustre:page_kb=4,slow_share=0,queue_seeks=1,"
            f"rpc_us={request_ns // 1000},page_us_min={page_ns // 1000},page_us_max={page_ns // 1000},"
            f"request_kb_max={4 * request_pages},queue_merge={int(merge)}")
    scheduler = algorithm + "".join(f"{',' if number else ':'}{name}={value}"
                                    for number, (name, value) in enumerate(knobs.items()))
    command = [bowwave, "explain", "-", "--json", "--scheduler", scheduler, "--device", text,
               "--device-depth", str(depth)]
    for pid, priority in priorities.items():
        command += ["--priority", f"{pid}={priority}"]
    found = decisions(command, csv_of_timed(rows), f"seed {seed}: ")
    model = Model(Scheduler(algorithm, {**knobs, "merge": int(merge)}, request_pages), device)
    expected = list(model.serve(rows, priorities))
    return same(expected, found, lambda number, _: f"seed {seed}, {' '.join(command)}, dispatch {number}")


def main():
    parser = parser_of(__doc__, 100)
    parser.add_argument("--scheduler", action="append", choices=ALGORITHMS, help="only this one")
    options = parser.parse_args()
    if options.print:
        sys.stdout.write(csv_of_timed(trace(random.Random(options.seed))))
        return
    algorithms = options.scheduler or ALGORITHMS
    print(f"comparing {options.n} traces from seed {options.seed} for {', '.join(algorithms)}", file=sys.stderr)
    jobs = [(algorithm, seed) for seed in range(options.seed, options.seed + options.n) for algorithm in algorithms]
    with ThreadPoolExecutor(max_workers=2) as pool:
        dispatches = sum(pool.map(lambda job: compare(options.bowwave, *job), jobs))
    print(f"{options.n} traces, {dispatches} dispatches, no difference", file=sys.stderr)


if __name__ == "__main__":
    main()
