#!/usr/bin/env python3
"""Measures clusters of touches in mapped files of slow stores: by regions, and by the kernel on a mount.

    tools/bench_maps.py [--bowwave target/release/bowwave] [--rounds N] [--quick] [--case lustre|s3]...
                        [--device slots=64,latency=5ms]... [--threads N] [--size SIZE] [--fio] [--seconds N] [--ra-pages N]
                        [--json FILE]

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

With `--fio`, fio itself reads a file of 200 GiB on emulate:lustre under `bowwave run --map`: the Lustre patch's
benchmark, `--ioengine=mmap` by 32 jobs, for --seconds each. Jobs are threads, so that they share a client as in the
document: processes under `bowwave run` have a store each. fio would advise MADV_RANDOM, at which bowwave reads nothing
ahead and which Lustre ignores: --fadvise_hint=0. The figures are fio's completion latencies.

    randread 128K   the document's command: blocks of 128 KiB at random; the average is also given for each page
    random          the same blocks in reads of 4 KiB (--rw=randread:32), so that fio times each touch of a page
    holes           the document's pattern in reads of 4 KiB: half of the jobs read 1 MiB and jump, a quarter 0.5 MiB,
                    a quarter 0.7 MiB

Its bars are the document's ratios of before to patched: 9.75 for the average, 5.76 for the maximum.
"""

import argparse
import json
import os
import shutil
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

# The policies under which fio runs.
OF_FIO = {way: ["--policy", "range", "--set", f"range_clusters={way}"] for way in ("before", "literal", "fixed", "learned")}
FIO = ["--ioengine=mmap", "--thread", "--fadvise_hint=0", "--fallocate=none", "--randrepeat=0", "--norandommap",
       "--time_based", "--group_reporting", "--output-format=json"]
# Pages of a read, and fio's jobs.
FIO_JOBS = {
    "randread 128K": (32, [["--bs=128K", "--rw=randread", "--numjobs=32"]]),
    "random": (1, [["--bs=4K", "--blockalign=128K", "--rw=randread:32", "--numjobs=32"]]),
    "holes": (1, [["--bs=4K", f"--rw=randread:{pages}", f"--numjobs={jobs}"] for pages, jobs in ((256, 16), (128, 8), (179, 8))]),
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
        self.of_run = ["--ra-pages", options.ra_pages] if options.ra_pages else []

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

    def fio(self, store, options, jobs, seconds):
        """One run of fio: its completion latencies in us, and what the store saw."""
        pages, sections = jobs
        output = os.path.join(self.directory, "fio.json")
        command = [self.bowwave, "run", "--map", f"{store}:pattern:/=/bowwave-fio", *self.of_run, *options,
                   "--stats-on-exit", "--json", "--", "fio", *FIO, f"--aux-path={self.directory}", f"--output={output}"]
        for number, section in enumerate(sections):
            command += [f"--name=job{number}", "--filename=/bowwave-fio/200GiB", f"--runtime={seconds}", *section]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        with open(output, encoding="utf-8") as file:
            text = file.read()
        # Messages of fio stand before its JSON.
        found = json.loads(text[text.index("{"):])["jobs"] if "{" in text else []
        if done.returncode or len(found) != 1 or found[0]["error"]:
            raise SystemExit(f"bench_maps: fio ended with {done.returncode}: {text[:500]} {done.stderr[-500:]}")
        counters, reads = json.loads(done.stderr.strip().splitlines()[-1]), found[0]["read"]
        times, touched = reads["clat_ns"], reads["total_ios"] * pages
        return {"mean": times["mean"] / 1e3, "page": times["mean"] / pages / 1e3, "max": times["max"] / 1e3,
                "p50": times["percentile"]["50.000000"] / 1e3, "p99": times["percentile"]["99.000000"] / 1e3,
                "touched": touched, "faults": counters["faults"], "requests": counters["requests"],
                "amplification": counters["bytes_fetched"] / (touched * 4096)}

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
    return verdict(checks)


def verdict(checks):
    for what, samples, bar, holds in checks:
        sense = "<=" if "bytes" in what else ">="
        print(f"{what:<50} {statistics.median(samples):7.2f} ({min(samples):.2f}..{max(samples):.2f})  "
              f"{sense} {bar:g} {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return [{"what": what, "samples": samples, "bar": bar, "holds": holds} for what, samples, bar, holds in checks]


def bench_fio(bench, store, rounds, seconds):
    """Runs fio by turns, shows medians and ratios; all rows."""
    rows = {name: {way: [] for way in OF_FIO} for name in FIO_JOBS}
    for _ in range(rounds):
        for name, jobs in FIO_JOBS.items():
            for way, policy in OF_FIO.items():
                rows[name][way].append(bench.fio(store, policy, jobs, seconds))
    columns = ("mean", "page", "p50", "p99", "max")
    print(f"\nfio on {store}, 32 jobs, {seconds} s each, {rounds} rounds; times in us")
    print(f"{'':<24}" + "".join(f"{column:>10}" for column in ("a read", "a page", *columns[2:])) + "  pages/s  requests  fetched/touched")
    for name, ways in rows.items():
        for way, of_way in ways.items():
            figures = "".join(f"{median(of_way, lambda row, column=column: row[column]):>10.1f}" for column in columns)
            print(f"{name + ', ' + way:<24}" + figures + f"{median(of_way, lambda row: row['touched'] / seconds):>9.0f}"
                  + f"{median(of_way, lambda row: row['requests']):>10.0f}"
                  + f"{median(of_way, lambda row: row['amplification']):>17.2f}", flush=True)
    checks = []
    for name, ways in rows.items():
        for way in ("literal", "fixed", "learned"):
            for what, bar in (("mean", 9.75), ("max", 5.76)):
                ratios = [one[what] / two[what] for one, two in zip(ways["before"], ways[way])]
                checks.append((f"{name}, {what}, before / {way}", ratios, bar, statistics.median(ratios) >= bar))
    return {"rows": rows, "bars": verdict(checks)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--quick", action="store_true", help="less of everything, one round: shows that it works")
    parser.add_argument("--case", action="append", choices=sorted(CASES))
    parser.add_argument("--device", action="append", metavar="KEY=VALUE,...")
    parser.add_argument("--threads", type=int, metavar="N")
    parser.add_argument("--size", metavar="SIZE", help="touched in a round, such as 1024MiB")
    parser.add_argument("--fio", action="store_true", help="fio itself, under bowwave run")
    parser.add_argument("--seconds", type=int, default=10, metavar="N", help="of each run of fio")
    parser.add_argument("--ra-pages", metavar="N", help="pages of an RPC under fio, by which windows grow")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not os.access(options.bowwave, os.X_OK):
        raise SystemExit(f"{options.bowwave} is not there: cargo build --release --package bowwave-cli")
    if options.fio and not shutil.which("fio"):
        print("bench_maps: left out: fio is missing (try: tools/setup.sh programs)")
        return
    end_mounts_when_stopped()
    told = {}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        if options.fio:
            for device in options.device or [""]:
                store = f"emulate:lustre,{device}" if device else "emulate:lustre"
                rounds, seconds = (1, 2) if options.quick else (options.rounds, options.seconds)
                told[store] = bench_fio(bench, store, rounds, seconds)
        for name in [] if options.fio else options.case or CASES:
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
