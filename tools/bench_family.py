#!/usr/bin/env python3
"""Runs patterns of `bowwave regret` really, in this process and through a mount, and compares them with the simulator.

    tools/bench_family.py LOG [--worst N] [--random N] [--seeds N,...] [--policies stream,none,best] [--rounds N]
                          [--limit SECONDS] [--bowwave FILE] [--json FILE]

LOG is the log of `bowwave regret --log LOG`. Of its points on s3 with unlimited memory, it takes those in which `stream`
was slowest beside the best other policy, and others at random. The policies are stream, none, and the best other one
at its best window. Each runs, with empty caches,

    simulated  by `bowwave replay` on device s3-steady, which has the latency and bandwidth that this machine measures
    process    through the C library
    mount      through a mount, after a listing. The kernel's requests are recorded
    kernel's   by `bowwave replay` of those requests

on the slow S3 server of tools/bench_compare.py, whose docstring has the programs to build. Readers are threads, with
the pattern's think time; below 0.2 ms they spin, one at a time. In a process, files are opened before the clock starts,
so patterns of many small files are partly read by then. The ends of each read are compared with the bytes of the server.
Figures are medians of the rounds; bytes are for each byte read, also if it is read again. Prints a table in Markdown, and
the share of patterns in which a process takes at most 15 % more or less than the simulator, a mount at most 15 % more than
a process, a mount at most 15 % more or less than its requests in the simulator, and no two ways have opposite orders of
two policies. Patterns with a run over the limit are left out of these shares.
"""

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from typing import NamedTuple

from bench_compare import ENGINE, KEYS, MACHINE, Directory, Mount, Server
from compare_engine import Library
from compare_workloads import MIB, pages_of
from mounts import can_mount, end_mounts_when_stopped

PAGE = 4096
CACHE = "2GiB"
# Seconds of differences that are noise: policies that are closer have no order.
NOISE = 0.05
PLAN = """[sweep]
policies = ["{policy}"]
ra_pages = [{window}]
devices = ["{device}"]
""" + MACHINE + """[[readers]]
trace = "trace.csv"
think_ns = {think_ns}
"""
WAYS = ("simulated", "process", "mount", "kernel's")


class Read(NamedTuple):
    """A read of a pattern."""

    pid: str
    file: str
    offset: int
    length: int


class Pattern:
    """A pattern of the family: reads in their order, sizes of its files, and think time in seconds."""

    def __init__(self, seed, bowwave):
        family = [bowwave, "generate", "family", "--seed", str(seed)]
        text = subprocess.run(family, check=True, capture_output=True, text=True).stdout
        rows = list(csv.DictReader(text.splitlines()))
        self.seed = seed
        self.reads = [Read(row["pid"], row["file"], int(row["offset"]), int(row["length"])) for row in rows]
        # Rows are as far apart as a reader thinks.
        self.think = int(rows[1]["time_ns"]) / 1e9
        self.description = subprocess.run([*family, "--describe"], check=True, capture_output=True, text=True).stdout.strip()
        self.sizes = {}
        for read in self.reads:
            self.sizes[read.file] = max(self.sizes.get(read.file, 0), read.offset + read.length)
        self.wanted = PAGE * sum(len(pages_of([(read.offset, read.length)])) for read in self.reads)

    def by_reader(self):
        readers = {}
        for read in self.reads:
            readers.setdefault(read.pid, []).append(read)
        return list(readers.values())

    def write(self, path):
        """The pattern as a trace."""
        with open(path, "w") as file:
            file.write("time_ns,pid,op,file,offset,length\n")
            file.writelines(f"0,{read.pid},read,{read.file},{read.offset},{read.length}\n" for read in self.reads)


class Reader(threading.Thread):
    """Reads what one process of a pattern reads, and checks both ends of each read."""

    def __init__(self, store, reads, think, pattern, until, files):
        super().__init__()
        self.store, self.reads, self.think, self.pattern, self.until = store, reads, think, pattern, until
        self.files, self.fault, self.is_late = files, None, False

    def run(self):
        try:
            for read in self.reads:
                self.read(read)
                if time.monotonic() > self.until:
                    self.is_late = True
                    break
        except (OSError, ValueError) as error:
            self.fault = str(error)

    def read(self, read):
        if read.file not in self.files:
            self.files[read.file] = self.store.open(read.file)
        data = self.store.read(self.files[read.file], read.length, read.offset)
        for at in (0, max(read.length - 16, 0)):
            place = (read.offset + at) % len(self.pattern)
            want = self.pattern[place:place + 16][:read.length - at]
            if len(data) != read.length or data[at:at + len(want)] != want:
                raise ValueError(f"{read.file}: other bytes at {read.offset + at}")
        if self.think >= 200e-6:
            time.sleep(self.think)
        elif self.think:
            # A sleep takes longer than this.
            begun = time.perf_counter()
            while time.perf_counter() - begun < self.think:
                pass


def timed(pattern, store, server, limit, is_opened_before, think=None):
    """Seconds that the readers took, and whether all ended before the limit."""
    until, think = time.monotonic() + limit, pattern.think if think is None else think
    readers = [Reader(store, reads, think, server.pattern, until, {}) for reads in pattern.by_reader()]
    if is_opened_before:
        for reader in readers:
            for file in dict.fromkeys(read.file for read in reader.reads):
                reader.files[file] = store.open(file)
    begun = time.monotonic()
    for reader in readers:
        reader.until = begun + limit
        reader.start()
    for reader in readers:
        reader.join()
    seconds = time.monotonic() - begun
    for reader in readers:
        for file in reader.files.values():
            store.close(file)
    fault = next((reader.fault for reader in readers if reader.fault), None)
    if fault:
        raise SystemExit(f"seed {pattern.seed}: {fault}")
    return seconds, not any(reader.is_late for reader in readers)


class Bench:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        # For command_of of tools/bench_compare.py.
        options.mount_options = ""

    def pattern(self, seed, best):
        """The rows of a pattern: for each policy and way, seconds, bytes per byte wanted, and requests."""
        pattern = Pattern(seed, self.options.bowwave)
        longest = max(read.length for read in pattern.reads)
        server, at_once = (Server(self.options.server, shaped=shaped, objects=pattern.sizes) for shaped in (True, False))
        rows = {}
        try:
            first_byte_ms = self.first_byte_ms(server, pattern)
            for name in self.options.policies.split(","):
                policy, window = best if name == "best" else (name, 256)
                if (policy, window) in rows or name == "best" and policy in {known for known, _ in rows}:
                    continue
                samples = [self.sample(pattern, policy, window, server, at_once, longest, first_byte_ms)
                           for _ in range(self.options.rounds)]
                rows[policy, window] = {way: [statistics.median(sample[way][part] for sample in samples) for part in range(3)]
                                        + [all(sample[way][3] for sample in samples)] for way in WAYS}
                print(f"seed {seed} {policy}: " + ", ".join(f"{way} {cell(rows[policy, window][way])}" for way in WAYS),
                      file=sys.stderr, flush=True)
        finally:
            server.end()
            at_once.end()
        return pattern, rows

    def first_byte_ms(self, server, pattern):
        name = max(pattern.sizes, key=pattern.sizes.get)
        return server.first_byte_ms(name) if pattern.sizes[name] >= 100 * PAGE else 31.5

    def sample(self, pattern, policy, window, server, at_once, longest, first_byte_ms):
        """One round of a policy."""
        process = self.in_process(pattern, policy, window, server, longest)
        mb_s = 0
        if process[1] * pattern.wanted > 64 * MIB:
            fastest = self.in_process(pattern, policy, window, at_once, longest, think=0.0)
            mb_s = fastest[1] * pattern.wanted / fastest[0] / 1e6
        device = f"s3-steady:{ENGINE},first_byte_ms={first_byte_ms:.2f},total_mb_s={mb_s:.0f}"
        recorded = os.path.join(self.directory, "kernel.csv")
        mount = self.mounted(pattern, policy, window, server, recorded)
        return {"simulated": self.simulated(pattern, policy, window, device), "process": process, "mount": mount,
                "kernel's": self.kernels(pattern, recorded, policy, window, device)}

    def counted(self, pattern, server, run):
        """What `run` took: seconds, bytes per byte wanted, requests, and whether it ended."""
        before = server.counters()
        seconds, is_done = run()
        after = server.counters()
        return seconds, (after["bytes"] - before["bytes"]) / pattern.wanted, after["requests"] - before["requests"], is_done

    def in_process(self, pattern, policy, window, server, longest, think=None):
        settings = f"cache={CACHE} policy={policy} ra_pages={window} endpoint={server.url} allow_http=yes"
        store = Library(self.options.library, "s3://data/", settings, longest=longest)
        try:
            return self.counted(pattern, server, lambda: timed(pattern, store, server, self.options.limit, True, think))
        finally:
            store.end()

    def mounted(self, pattern, policy, window, server, recorded):
        mount = Mount(policy, self.options, server.url, self.directory, CACHE, f"--trace {recorded} --ra-pages {window}")
        try:
            os.listdir(mount.at)
            return self.counted(pattern, server, lambda: timed(pattern, Directory(mount.at), server, self.options.limit, False))
        finally:
            mount.end()

    def simulated(self, pattern, policy, window, device):
        plan = os.path.join(self.directory, "plan.toml")
        pattern.write(os.path.join(self.directory, "trace.csv"))
        with open(plan, "w") as file:
            file.write(PLAN.format(policy=policy, window=window, device=device, think_ns=round(pattern.think * 1e9)))
        return self.replayed(pattern, [plan])

    def kernels(self, pattern, recorded, policy, window, device):
        """The kernel's requests, each after the pause that was recorded before it."""
        return self.replayed(pattern, [recorded, "--pace", "think", "--policy", policy, "--ra-pages", str(window), "--device", device,
                                       "--cache", "unlimited"])

    def replayed(self, pattern, arguments):
        command = [self.options.bowwave, "replay", *arguments, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        row = json.loads(done.stdout)[0]
        return row["seconds"], row["bytes_fetched"] / pattern.wanted, row["requests"], True


def cell(row):
    seconds, times, requests, is_done = row
    return f"{'' if is_done else '> '}{seconds:.2f} ({times:.2f}, {requests:.0f})"


def order(rows, way):
    """Pairs of policies of which the first is faster, beyond noise."""
    of = {policy: row[way][0] for policy, row in rows.items()}
    return {(a, b) for a in of for b in of if of[a] + NOISE < of[b] and of[a] * 1.1 < of[b]}


def agreement(rows):
    """Which of the four statements of the docstring hold for a pattern."""
    near = lambda a, b, low: low <= (a[0] + NOISE) / (b[0] + NOISE) <= 1.15 or abs(a[0] - b[0]) < NOISE
    every = lambda a, b, low: all(near(row[a], row[b], low) for row in rows.values())
    opposite = any((b, a) in order(rows, other) for way in WAYS for a, b in order(rows, way) for other in WAYS)
    return (every("process", "simulated", 0.85), every("mount", "process", 0.0), every("mount", "kernel's", 0.85), not opposite)


def chosen(options):
    """Seeds, each with the best other policy and its window."""
    points = {}
    with open(options.log) as log:
        for line in log:
            point = json.loads(line)
            if point.get("device") == "s3" and point["memory"] == "unlimited":
                best = min(point["others"], key=lambda other: (other["seconds"], other["bytes"]))
                points[point["seed"]] = (point["stream"]["seconds"] / max(best["seconds"], 1e-9), (best["policy"], best["ra_pages"]))
    if not points:
        raise SystemExit(f"{options.log} has no points on s3 with unlimited memory: run bowwave regret --device s3 --log {options.log}")
    seeds = [int(seed) for seed in options.seeds.split(",") if seed]
    seeds += sorted(points, key=lambda seed: -points[seed][0])[:options.worst]
    seeds += random.Random(0).sample(sorted(set(points) - set(seeds)), min(options.random, len(set(points) - set(seeds))))
    unknown = [seed for seed in seeds if seed not in points]
    if unknown:
        raise SystemExit(f"{options.log} has no seed {unknown[0]}")
    return {seed: points[seed][1] for seed in seeds}


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", metavar="LOG")
    parser.add_argument("--bowwave", default=os.path.join(target, "release", "bowwave"))
    parser.add_argument("--server", default=os.path.join(target, "release", "examples", "shaped"))
    parser.add_argument("--library", default=os.path.join(target, "release", "libbowwave.so"))
    parser.add_argument("--worst", type=int, default=10)
    parser.add_argument("--random", type=int, default=10)
    parser.add_argument("--seeds", default="", help="seeds of the log")
    parser.add_argument("--policies", default="stream,none,best")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a run may take (default 120)")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not can_mount():
        raise SystemExit("no /dev/fuse that may be used: nothing can be mounted")
    os.environ.update(KEYS)
    end_mounts_when_stopped()
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(options, directory)
        for seed, best in chosen(options).items():
            results[seed] = bench.pattern(seed, best)
    print("| seed | policy | " + " | ".join(WAYS) + " |\n" + "|---" * (len(WAYS) + 2) + "|")
    for seed, (pattern, rows) in results.items():
        for (policy, window), row in rows.items():
            print(f"| {seed} | {policy} {window} | " + " | ".join(cell(row[way]) for way in WAYS) + " |")
    ended = [rows for _, rows in results.values() if all(row[way][3] for row in rows.values() for way in WAYS)]
    held = [agreement(rows) for rows in ended]
    names = ("process as simulated", "mount as process", "mount as its requests simulated", "same order of policies")
    print("\n" + ", ".join(f"{name}: {sum(each[at] for each in held)} of {len(held)}" for at, name in enumerate(names)) + "\n")
    for seed, (pattern, _) in results.items():
        print(f"{seed}: {pattern.description}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({seed: {"pattern": pattern.description, "rows": [
                {"policy": policy, "window": window, **row} for (policy, window), row in rows.items()]}
                       for seed, (pattern, rows) in results.items()}, file, indent=1)


if __name__ == "__main__":
    main()
