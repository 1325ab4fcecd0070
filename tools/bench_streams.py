#!/usr/bin/env python3
"""Compares the requests of streams that are read together with those of the same streams read one by one.

    tools/bench_streams.py [--bowwave target/release/bowwave] [--devices nvme,s3] [--each MIB] [--bs 16KiB] [--rounds N]

The streams are parts of one file. They are read in turn through one handle, or each by a thread with a handle of its
own; and, for comparison, a file of that size is read alone. Requests are those that reach the emulated store, as
medians of the rounds: merging depends on when a processor is free. The bar is at most two requests more for each
stream than alone.
"""

import argparse
import json
import os
import statistics
import subprocess


def requests(options, url, *more):
    """How many requests reach the store; the median."""
    command = [options.bowwave, "read", url, "--bs", options.bs, "--json", *more]
    counts = []
    for _ in range(options.rounds):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        counts.append(json.loads(done.stdout)[0]["requests"])
    return statistics.median(counts)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default=os.path.join(target, "release", "bowwave"))
    parser.add_argument("--devices", default="nvme,s3", help="profiles of emulated stores")
    parser.add_argument("--each", type=int, default=8, metavar="MIB", help="MiB of a stream (default 8)")
    parser.add_argument("--bs", default="16KiB", help="bytes of a read")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| store | streams | one by one | by turns on one handle | a handle each | bar |\n|---|---|---|---|---|---|")
    for device in options.devices.split(","):
        alone = requests(options, f"emulate:{device}/{options.each}MiB")
        for streams in (2, 4, 8, 16, 32, 64):
            url = f"emulate:{device}/{options.each * streams}MiB"
            turns = requests(options, url, "--pattern", "interleaved", "--streams", str(streams))
            handles = requests(options, url, "--threads", str(streams))
            limit = (alone + 2) * streams
            holds = "holds" if max(turns, handles) <= limit else "missed"
            print(f"| {device} | {streams} | {alone * streams:.0f} | {turns:.0f} | {handles:.0f} | {limit:.0f}, {holds} |", flush=True)


if __name__ == "__main__":
    main()
