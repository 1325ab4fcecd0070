#!/usr/bin/env python3
"""Measures clusters of touches in mapped files of slow stores: by regions, and by the kernel on a mount.

    tools/bench_maps.py [--bowwave target/release/bowwave] [--rounds N] [--quick] [--case lustre|s3]...
                        [--device slots=64,latency=5ms]... [--threads N] [--size SIZE] [--json FILE]

Each contender does the same touches (`bowwave read --pattern clustered --mmap`): each 4 KiB page of clusters of 256 to
1024 KiB once, front to back, with the clusters in random order.

    region none, linux          files mapped by this process: no readahead, Linux's read-around
    region before, literal      Lustre's readahead before its patch of 2021, and with the patch as published:
                                --set range_clusters=before and literal
    region range, learned       the same with the patch corrected, and with --set range_clusters=learned
    region stream               bowwave's default
    thread learned, stream      the same, each touch served by the touching thread
    kernel over none            a mount without readahead, mapped by the kernel, which reads around: with the kernel's
                                default of 128 KiB, and with the 256 KiB that the mount sets
    kernel over linux, ...      a mount with readahead

Contenders alternate within a round. Figures are medians of the rounds: the time of a touch (all waiting, over all pages
touched), the time of a fault, the longest fault, faults and requests of a round, and bytes fetched for each byte
touched; then the project's own bars. Stores are emulated in the process: no network and no disk is measured.

`store's part` is the time of a touch that the store alone needs for those requests and bytes, with all its slots always
busy. A time near it is bound by the store. `--device` changes the store: with more slots, or a higher latency, the
number of waits decides. Several devices give a table each. With `--threads`, that many threads touch, each as much as
before.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from mounts import can_mount, end_mounts_when_stopped, mounted

# Store, file, threads, bytes touched per round, and bytes without readahead, which is the slowest
# case.
CASES = {
    "lustre": ("emulate:lustre", "4GiB", 32, "256MiB", "64MiB"),
    "s3": ("emulate:s3", "4GiB", 1, "64MiB", "2MiB"),
}
QUICK = {
    "lustre": ("emulate:lustre", "1GiB", 32, "64MiB", "32MiB"),
    "s3": ("emulate:s3", "1GiB", 1, "8MiB", "512KiB"),
}
# The mapper and its options.
WAYS = {
    "region none": ("region", ["--policy", "none"]),
    "region before": ("region", ["--policy", "range", "--set", "range_clusters=before"]),
    "region literal": ("region", ["--policy", "range", "--set", "range_clusters=literal"]),
    "region range": ("region", ["--policy", "range", "--set", "range_clusters=fixed"]),
    "region learned": ("region", ["--policy", "range", "--set", "range_clusters=learned"]),
    "region stream": ("region", ["--policy", "stream"]),
    "region linux": ("region", ["--policy", "linux"]),
    "thread learned": ("thread", ["--policy", "range", "--set", "range_clusters=learned"]),
    "thread stream": ("thread", ["--policy", "stream"]),
    "kernel 128 over none": ("kernel", ["--policy", "none", "--set", "kernel_readahead=128KiB"]),
    "kernel over none": ("kernel", ["--policy", "none"]),
    "kernel over linux": ("kernel", ["--policy", "linux"]),
    "kernel over range": ("kernel", ["--policy", "range"]),
    "kernel over learned": ("kernel", ["--policy", "range", "--set", "range_clusters=learned"]),
}


# Stores as bowwave_backend's `Device` defines them: cost of a request, cost of a page (us),
# requests at once.
DEVICES = {
    "emulate:lustre": {"latency": 450.0, "page": 16.0, "slots": 8},
    "emulate:s3": {"latency": 30e3, "page": 4096 / 90, "slots": 64},
}


def store_part(store, row, threads, touches):
    """us of a touch that the store needs for the requests and bytes of a row."""
    name, *settings = store.split(",")
    device = dict(DEVICES[name])
    for key, value in (setting.split("=") for setting in settings):
        number = float(value.removesuffix("us").removesuffix("ms")) * (1e3 if value.endswith("ms") else 1)
        if key not in device:
            raise SystemExit(f"--device {key}={value}: only {', '.join(device)} can be changed here")
        device[key] = number
    pages = row["amplification"] * touches
    return (row["requests"] * device["latency"] + pages * device["page"]) / device["slots"] * threads / touches


def of_threads(size, threads, before):
    """Bytes that `threads` threads touch, where `before` threads touch `size`."""
    unit = size[-3:]
    kib = int(size.removesuffix(unit)) * (1024 if unit == "MiB" else 1)
    return f"{kib * threads // before}KiB"


class Bench:
    def __init__(self, options, directory):
        self.bowwave, self.directory = options.bowwave, directory

    def touch(self, way, case, seed):
        """One round of one way: its row, with what the store saw."""
        store, name, threads, size, size_of_none = case
        by, policy = WAYS[way]
        options = ["--pattern", "clustered", "--threads", str(threads), "--seed", str(seed), "--json",
                   "--size", size_of_none if way == "region none" else size]
        if by != "kernel":
            return self.read(f"{store}/{name}", f"--mmap={by}", *policy, *options)
        with mounted(self.bowwave, f"{store}:pattern:/", self.directory, *policy, "--set", "kernel_cache=on",
                     "--read-only") as (at, counters):
            row = self.read(f"{at}/{name}", "--mmap=kernel", *options)
        row["requests"], fetched = counters["requests"], counters["bytes_fetched"]
        row["amplification"] = fetched / row["bytes_wanted"]
        return row

    def read(self, url, *options):
        command = [self.bowwave, "read", url, *options]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(output.stdout)[0]

    def run(self, case, rounds):
        """The rows of all ways, and the ratios of each round."""
        ways = [way for way, (by, _) in WAYS.items() if by != "kernel" or can_mount()]
        rows = {way: [] for way in ways}
        for seed in range(rounds):
            for way in ways:
                rows[way].append(self.touch(way, case, seed))
        return rows


def median(rows, value):
    return statistics.median(value(row) for row in rows)


def show(name, case, rows):
    store, file, threads, size, size_of_none = case
    print(f"\n{name}: {store}/{file}, {threads} threads, {size} touched in a round ({size_of_none} without readahead)")
    print(f"{'':<20} {'a touch':>10} {'a fault':>10} {'longest':>10} {'faults':>8} {'requests':>8} {'fetched/touched':>15}"
          + "store's part".rjust(13))
    for way, of_way in rows.items():
        figures = [median(of_way, lambda row: row["latency_ns"]["mean"]) / 1e3,
                   median(of_way, lambda row: row["map"]["fault_ns"]["mean"]) / 1e3,
                   median(of_way, lambda row: row["latency_ns"]["max"]) / 1e3]
        counts = [median(of_way, lambda row: row["map"]["faults"]), median(of_way, lambda row: row["requests"])]
        print(f"{way:<20} " + " ".join(f"{figure:>7.0f} us" for figure in figures) + " "
              + " ".join(f"{count:>8.0f}" for count in counts)
              + f" {median(of_way, lambda row: row['amplification']):>15.2f}"
              + f" {median(of_way, lambda row: store_part(store, row, threads, row['bytes_wanted'] / 4096)):>9.0f} us", flush=True)


def bars(rows):
    """What was aimed at, as rows of a verdict."""
    mean = {way: [row["latency_ns"]["mean"] for row in of_way] for way, of_way in rows.items()}
    checks = []
    for ours in ("region range", "region learned", "region stream", "thread learned", "thread stream"):
        for other, bar in (("region none", 9.75), ("kernel 128 over none", 3.0), ("kernel over none", 3.0)):
            if other in mean:
                ratios = [one / two for one, two in zip(mean[other], mean[ours])]
                checks.append((f"a touch, {other} / {ours}", ratios, bar, statistics.median(ratios) >= bar))
        fetched = [row["amplification"] for row in rows[ours]]
        checks.append((f"bytes fetched for a byte touched, {ours}", fetched, 2.0, statistics.median(fetched) <= 2.0))
    for what, samples, bar, holds in checks:
        sense = "<=" if "bytes" in what else ">="
        print(f"{what:<50} {statistics.median(samples):7.2f} ({min(samples):.2f}..{max(samples):.2f})  "
              f"{sense} {bar:g} {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return [{"what": what, "samples": samples, "bar": bar, "holds": holds} for what, samples, bar, holds in checks]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--quick", action="store_true", help="less of everything, one round: shows that it works")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--device", action="append", metavar="KEY=VALUE,...")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--size", metavar="SIZE", help="touched in a round, such as 1024MiB")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not os.access(options.bowwave, os.X_OK):
        raise SystemExit(f"{options.bowwave} is not there: cargo build --release --package bowwave-cli")
    end_mounts_when_stopped()
    told = {}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        for name in options.case or CASES:
            for device in options.device or [""]:
                store, file, threads, *sizes = (QUICK if options.quick else CASES)[name]
                if options.threads:
                    sizes = [of_threads(size, options.threads, threads) for size in sizes]
                sizes[0] = options.size or sizes[0]
                case = (f"{store},{device}" if device else store, file, options.threads or threads, *sizes)
                rows = bench.run(case, 1 if options.quick else options.rounds)
                show(name, case, rows)
                told[case[0]] = {"rows": rows, "bars": bars(rows)}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(told, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
