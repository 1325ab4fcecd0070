#!/usr/bin/env python3
"""Measures the mount and slow stores as a user sees them, through the program itself.

    tools/bench.py [--bowwave target/release/bowwave] [--quick | --whole] [--only PART]... [--json FILE]

Prints a table: median, minimum and maximum of several rounds, the project's own bar, and whether the median reaches it.
Contenders alternate within a round, so that noise of the machine affects all alike. Stores are emulated in the process:
no network and no disk is measured. The parts:

    s3      sequential reads of emulate:s3 (30 ms, 90 MB/s a connection, 1.25 GB/s in total), in process and mounted,
            as a share of min(1.25 GB/s, connections * 90 MB/s)
    mount   reads of a mount that hit bowwave's cache. POSIX_FADV_DONTNEED empties the kernel's cache of the file
            before each read (no root needed), and the counters at the end prove it
    md5sum  md5sum of 256 MiB on a mounted emulate:s3, with and without readahead. The run with neither readahead nor
            the kernel's cache uses a shorter file; --whole uses the full size, which takes four minutes a round
    hdd     8 readers of 8 files on emulate:hdd, with and without readahead, in process and mounted

The tool unmounts at its end, also after Ctrl-C and SIGTERM. Without /dev/fuse it measures only what needs no mount.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from mounts import can_mount, end_mounts_when_stopped, mounted

MIB = 1 << 20
TOTAL = 1.25e9
CONNECTION = 90e6
HDD_READERS = 8
HDD_FILE = 8 * MIB


class Table:
    """Rows as they come, on the screen and for --json."""

    def __init__(self):
        self.rows = []
        print(f"{'what':<68} {'median':>8} {'lowest':>8} {'highest':>8}  {'unit':<5} bar")

    def add(self, what, unit, samples, bar=None):
        median = statistics.median(samples)
        verdict = "" if bar is None else f">= {bar:g} {'holds' if median >= bar else 'DOES NOT HOLD'}"
        print(f"{what:<68} {median:8.2f} {min(samples):8.2f} {max(samples):8.2f}  {unit:<5} {verdict}", flush=True)
        self.rows.append({"what": what, "unit": unit, "median": median, "min": min(samples), "max": max(samples),
                          "samples": samples, "bar": bar, "holds": None if bar is None else median >= bar})


class Bench:
    def __init__(self, options, directory):
        self.bowwave = options.bowwave
        self.rounds = options.rounds or (2 if options.quick else 5)
        self.quick = options.quick
        self.whole = options.whole
        self.directory = directory
        self.table = Table()

    def read(self, url, *options):
        """One pass of `bowwave read` over a fresh cache: its row."""
        command = [self.bowwave, "read", url, "--json", *options]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(output.stdout)[0]

    def mount(self, url, *options):
        """A mount: yields its directory, and a dict that holds its counters afterwards."""
        return mounted(self.bowwave, url, self.directory, *options)

    def s3(self):
        cases = [("emulate:s3", 64, 1024), ("emulate:s3", 64, 4096), ("emulate:s3,slots=8", 8, 4096)]
        # A short file is mostly the first round trips, so the bar does not apply.
        bar = None if self.quick else 0.85
        for url, connections, size_mib in cases:
            limit = min(TOTAL, connections * CONNECTION)
            name = f"{size_mib // 16 if self.quick else size_mib}MiB"
            inside, mounted = [], []
            for _ in range(self.rounds):
                row = self.read(f"{url}/{name}", "--ra-pages", "65536", "--bs", "1MiB")
                inside.append(row["throughput"] / limit)
                if can_mount():
                    with self.mount(f"{url}:pattern:/", "--ra-pages", "65536") as (at, _):
                        mounted.append(throughput_of_dd(f"{at}/{name}", MIB) / limit)
            what = f"{url}, {name} sequentially, of {limit / 1e9:.2f} GB/s"
            self.table.add(f"{what}: read", "share", inside, bar)
            if mounted:
                self.table.add(f"{what}: mount", "share", mounted, bar)

    def warm_mount(self):
        size = (128 if self.quick else 512) * MIB
        bars = {MIB: 2.5, 128 << 10: 2.0, 4 << 10: 1.0}
        ours = {block: [] for block in bars}
        kernel = {block: [] for block in bars}
        plain = os.path.join(self.directory, "plain")
        with self.mount("pattern:/", "--cache", "1GiB") as (at, counters):
            path = f"{at}/{size // MIB}MiB"
            shutil.copyfile(path, plain)
            throughput_of_dd(plain, MIB)
            for _ in range(self.rounds):
                for block in bars:
                    drop(path)
                    ours[block].append(throughput_of_dd(path, block) / 1e9)
                    kernel[block].append(throughput_of_dd(plain, block) / 1e9)
        os.remove(plain)
        passes = 1 + self.rounds * len(bars)
        if counters["bytes_fetched"] > size or (counters["hits"] + counters["late"]) * 4096 < 0.9 * size * passes:
            raise SystemExit(f"bench: these reads were not warm in bowwave and cold in the kernel: {counters}")
        for block, bar in bars.items():
            name = f"{block >> 10} KiB sequentially"
            self.table.add(f"mount, warm in bowwave, cold in the kernel: {name}", "GB/s", ours[block], bar)
            self.table.add(f"  beside: a plain file in the kernel's cache: {name}", "GB/s", kernel[block])

    def md5sum(self):
        whole = (64 if self.quick else 256) * MIB
        short = whole if self.whole else (4 if self.quick else 16) * MIB
        # (readahead, kernel's cache, bytes). Without both, each of md5sum's 32 KiB reads waits for
        # a first byte.
        cases = [("ondemand", "on", whole), ("ondemand", "off", whole), ("none", "on", whole), ("none", "off", short)]
        figures = {case: [] for case in cases}
        for _ in range(self.rounds):
            for case in cases:
                policy, keeps, size = case
                with self.mount("emulate:s3:pattern:/", "--policy", policy, "--set", f"kernel_cache={keeps}") as (at, _):
                    start = time.monotonic()
                    subprocess.run(["md5sum", f"{at}/{size // MIB}MiB"], check=True, stdout=subprocess.DEVNULL)
                    figures[case].append(size / (time.monotonic() - start) / 1e6)
        for case in cases:
            policy, keeps, size = case
            what = f"md5sum, emulate:s3 mounted, {policy}, kernel cache {keeps}, {size // MIB} MiB"
            self.table.add(what, "MB/s", figures[case])
        for on, off in ((0, 2), (1, 3), (0, 3)):
            pairs = [a / b for a, b in zip(figures[cases[on]], figures[cases[off]])]
            what = f"  ondemand, kernel cache {cases[on][1]} / none, kernel cache {cases[off][1]}"
            self.table.add(what, "times", pairs, 10)

    def hdd(self):
        source = os.path.join(self.directory, "files")
        os.mkdir(source)
        for number in range(HDD_READERS):
            with open(f"{source}/{number}", "wb") as file:
                file.truncate(HDD_FILE)
        url = f"emulate:hdd:{source}"
        figures = {(how, policy): [] for how in ("read", "mount") for policy in ("ondemand", "none")}
        for _ in range(self.rounds):
            for policy in ("ondemand", "none"):
                row = self.read(url, "--threads", str(HDD_READERS), "--policy", policy)
                figures["read", policy].append(row["throughput"] / 1e6)
                if can_mount():
                    with self.mount(url, "--policy", policy) as (at, _):
                        figures["mount", policy].append(throughput_of_readers(at) / 1e6)
        for how in ("read", "mount"):
            on, off = figures[how, "ondemand"], figures[how, "none"]
            if on:
                what = f"{HDD_READERS} readers of files on emulate:hdd, 128 KiB: {how}"
                self.table.add(f"{what}, ondemand", "MB/s", on)
                self.table.add(f"{what}, none", "MB/s", off)
                self.table.add("  ondemand / none", "times", [a / b for a, b in zip(on, off)], 3)
        shutil.rmtree(source)


def throughput_of_dd(path, block):
    """Bytes a second of a sequential read, as dd has it: little stands between the clock and the system calls."""
    command = ["dd", f"if={path}", "of=/dev/null", f"bs={block}"]
    said = subprocess.run(command, check=True, stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}).stderr.decode()
    found = re.search(r"(\d+) bytes .*copied, ([0-9.e-]+) s", said)
    return int(found[1]) / float(found[2])


def throughput_of_readers(at):
    start = time.monotonic()
    readers = [subprocess.Popen(["dd", f"if={at}/{number}", "of=/dev/null", "bs=128k"], stderr=subprocess.DEVNULL)
               for number in range(HDD_READERS)]
    try:
        if any([reader.wait() for reader in readers]):
            raise SystemExit("bench: a reader of the mount failed")
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
    return HDD_READERS * HDD_FILE / (time.monotonic() - start)


def drop(path):
    """Has the kernel forget the pages of a file that it read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = next((line.split(":")[1].strip() for line in info if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return {"processors": os.cpu_count(), "model": model, "memory_gib": round(memory, 1),
            "kernel": platform.release(), "load_before": load}


def begin(parser, check=lambda options: None):
    """What every bench begins with: the options, checked, and the machine, which it prints."""
    options = parser.parse_args()
    check(options)
    if not os.access(options.bowwave, os.X_OK):
        parser.error(f"{options.bowwave} is not there; build it with 'cargo build --release'")
    options.bowwave = os.path.abspath(options.bowwave)
    end_mounts_when_stopped()
    on = machine()
    print(f"{on['processors']} x {on['model']}, {on['memory_gib']} GiB, Linux {on['kernel']}, load {on['load_before']:.1f}")
    if on["load_before"] > 0.5:
        print("bench: note: the machine is busy; its figures will be low and scattered", file=sys.stderr)
    return options, on


def end(options, on, rows):
    """Writes all samples down, if that was asked for."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": on, "load_after": os.getloadavg()[0], "rows": rows}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", help="the program to measure")
    parser.add_argument("--only", action="append", choices=("s3", "mount", "md5sum", "hdd"), help="parts to measure")
    parser.add_argument("--rounds", type=int, help="rounds (5; with --quick 2)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")
    short = parser.add_mutually_exclusive_group()
    short.add_argument("--quick", action="store_true", help="smaller files and two rounds: shows that it runs")
    short.add_argument("--whole", action="store_true", help="md5sum the whole file with neither readahead nor the kernel's cache, too")

    def check(options):
        if options.rounds is not None and options.rounds < 1:
            parser.error("--rounds must be at least 1")

    options, on = begin(parser, check)
    with tempfile.TemporaryDirectory(prefix="bowwave-bench-") as directory:
        bench = Bench(options, directory)
        parts = {"s3": bench.s3, "mount": bench.warm_mount, "md5sum": bench.md5sum, "hdd": bench.hdd}
        for name, part in parts.items():
            if options.only and name not in options.only:
                continue
            if name in ("mount", "md5sum") and not can_mount():
                print(f"bench: note: {name} left out: /dev/fuse cannot be opened", file=sys.stderr)
                continue
            part()
    end(options, on, bench.table.rows)


if __name__ == "__main__":
    main()
