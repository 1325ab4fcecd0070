#!/usr/bin/env python3
"""Compares readahead of Linux 2.6.20 (legacy) with readahead on demand (ondemand) in real time, as the documents of 2007 do.

    tools/bench_readahead.py [--bowwave target/release/bowwave] [--directory DIR] [--rounds N] [--only PART]... [--json FILE]

Windows are at most 1 MiB, as published. Policies run in turns, and the order changes from round to round. The parts:

    patterns   reads of emulate:hdd, and of a file in --directory that the kernel has dropped from its cache: sequential, two
               interleaved streams, every second page, and 16 KiB at random; a sparse file page by page, in order and at random
    cached     reads of cached files again, in 4 KiB and 1 MiB and as small files: time of a pass, and its instructions where
               perf can count them
    thrashing  a new stream of 100 KB/s each second (--streams) through a mount of emulate:hdd whose cache is --cache large:
               what the streams get, the average request, and what the store is asked for, in intervals. Ends with the
               highest throughput of an interval and the smallest average request

A ratio is ondemand / legacy in the same round. Prints tables in Markdown.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time

from bench import MIB, begin, end
from mounts import can_mount, mounted

POLICIES = ("legacy", "ondemand")
WINDOW = ["--ra-pages", "1MiB"]
STREAM_BYTES = 100_000
# Of a disk of the time: files lie apart, and each is longer than any stream reads.
STREAM_FILE = 64 * MIB
INTERVAL = 10
PASSES = 11


class Bench:
    def __init__(self, options, directory):
        self.options, self.bowwave, self.directory, self.rows = options, options.bowwave, directory, []

    def read(self, url, policy, *more):
        """The rows of `bowwave read`, one for each pass."""
        command = [self.bowwave, "read", url, "--policy", policy, "--json", *WINDOW, *more]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout)

    def turns(self, run):
        """What `run` returns for each policy, round by round."""
        results = {policy: [] for policy in POLICIES}
        for number in range(self.options.rounds):
            for policy in POLICIES[::-1] if number % 2 else POLICIES:
                results[policy].append(run(policy))
        return results

    def row(self, part, what, unit, results, **more):
        """A line of a table: medians with the lowest and highest, and the ratio of each round."""
        ratios = [new / old for old, new in zip(*(results[policy] for policy in POLICIES))]
        cells = [spread(results[policy]) for policy in POLICIES] + [spread(ratios)]
        extra = [" → ".join(f"{statistics.median(more[name][policy]):.4g}" for policy in POLICIES) for name in more]
        print(f"| {what} | {unit} | {' | '.join(cells + extra)} |", flush=True)
        self.rows.append({"part": part, "what": what, "unit": unit, **results, "ratios": ratios, **more})

    def patterns(self):
        print(f"\n| reads | unit | {' | '.join(POLICIES)} | ratio | requests |\n|---|---|---|---|---|---|")
        size = self.options.size * MIB
        cases = [
            ("sequential, 4 KiB", ["--bs", "4KiB"]),
            ("sequential, 128 KiB", ["--bs", "128KiB"]),
            ("sequential, 1 MiB", ["--bs", "1MiB"]),
            ("two streams in turn, 4 KiB", ["--pattern", "interleaved", "--streams", "2", "--bs", "4KiB", "--size", str(size // 4)]),
            ("every second page", ["--pattern", "stride", "--bs", "4KiB", "--stride", "8KiB", "--size", str(size // 8)]),
            ("16 KiB at random", ["--pattern", "random", "--bs", "16KiB", "--size", str(size // 16)]),
        ]
        stores = {"hdd": f"emulate:hdd/{self.options.size}MiB"}
        path = os.path.join(self.directory, "file")
        with open(path, "wb") as file:
            for _ in range(self.options.size):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
        stores["disk"] = path
        for store, url in stores.items():
            for what, more in cases:
                self.pattern(f"{store}: {what}", url, more)
        os.remove(path)
        with open(path, "wb") as file:
            file.truncate(16 * size)
        self.pattern("sparse file: in order, 4 KiB", path, ["--bs", "4KiB", "--size", str(4 * size)])
        self.pattern("sparse file: at random, 4 KiB", path, ["--pattern", "random", "--bs", "4KiB", "--size", str(size)])
        os.remove(path)

    def pattern(self, what, url, more):
        def run(policy):
            if os.path.exists(url):
                with open(url, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return self.read(url, policy, *more)[0]

        found = self.turns(run)
        rates = {policy: [row["throughput"] / 1e6 for row in found[policy]] for policy in POLICIES}
        requests = {policy: [row["requests"] for row in found[policy]] for policy in POLICIES}
        self.row("patterns", what, "MB/s", rates, requests=requests)

    def cached(self):
        print(f"\n| cached reads, a pass | unit | {' | '.join(POLICIES)} | ratio |\n|---|---|---|---|---|")
        small = os.path.join(self.directory, "small")
        os.mkdir(small)
        for number in range(256):
            with open(f"{small}/{number}", "wb") as file:
                file.write(os.urandom(32 << 10))
        large = f"pattern:/{self.options.size}MiB"
        for what, url, block in (
            (f"{self.options.size} MiB in 4 KiB", large, "4KiB"), (f"{self.options.size} MiB in 1 MiB", large, "1MiB"),
            ("256 files of 32 KiB in 4 KiB", small, "4KiB"),
        ):
            more = ["--bs", block, "--cache", f"{2 * self.options.size}MiB"]

            def passes(policy, url=url, more=more):
                rows = self.read(url, policy, *more, "--repeat", str(PASSES))
                return statistics.median(row["seconds"] for row in rows[1:]) * 1e3

            self.row("cached", what, "ms", self.turns(passes))
            if self.counts_instructions():
                counts = self.turns(lambda policy, url=url, more=more: self.instructions(url, policy, more))
                self.row("cached", what, "million instructions", counts)
        shutil.rmtree(small)

    def counts_instructions(self):
        """Whether the processor's counters are there: virtual machines often have none."""
        return shutil.which("perf") is not None and stat(["true"]) is not None

    def instructions(self, url, policy, more):
        """Millions of a cached pass: the difference between many passes and one, of the program alone."""
        command = [self.bowwave, "read", url, "--policy", policy, "--json", *WINDOW, *more, "--repeat"]
        return (stat([*command, str(PASSES)]) - stat([*command, "1"])) / (PASSES - 1) / 1e6

    def thrashing(self):
        streams = self.options.streams
        store = os.path.join(self.directory, "streams")
        os.mkdir(store)
        for number in range(streams):
            # Sparse files are read like others and are created instantly.
            with open(f"{store}/{number}", "wb") as file:
                file.truncate(STREAM_FILE)
        all_runs = self.turns(lambda policy: self.thrash(policy, store))
        print(f"\n{streams} streams of 100 KB/s, one more each second, {self.options.cache} of memory\n")
        names = ("MB/s", "KiB a request", "requests/s")
        print("| second | " + " | ".join(f"{policy}: {name}" for policy in POLICIES for name in names) + " |")
        print("|" + "---|" * (1 + len(POLICIES) * len(names)))
        for place, _ in enumerate(all_runs[POLICIES[0]][0]):
            cells = [spread([run[place][name] for run in all_runs[policy]]) for policy in POLICIES for name in names]
            print(f"| {(place + 1) * INTERVAL} | {' | '.join(cells)} |")
        print(f"\n| thrashing | unit | {' | '.join(POLICIES)} | ratio |\n|---|---|---|---|---|")
        best = {policy: [max(it["MB/s"] for it in run) for run in all_runs[policy]] for policy in POLICIES}
        self.row("thrashing", "highest throughput of an interval", "MB/s", best)
        least = {policy: [min(it["KiB a request"] for it in run) for run in all_runs[policy]] for policy in POLICIES}
        self.row("thrashing", "smallest average request of an interval", "KiB", least)
        self.rows.append({"part": "thrashing", "what": "intervals", **all_runs})
        shutil.rmtree(store)

    def thrash(self, policy, store):
        """Figures of each interval of a run."""
        bytes_read, over = [0] * self.options.streams, threading.Event()
        options = ["--policy", policy, "--cache", self.options.cache, "--set", "kernel_cache=off", "--read-only", *WINDOW]
        with mounted(self.bowwave, f"emulate:hdd:{store}", self.directory, *options) as (at, _):
            def stream(number):
                file = os.open(f"{at}/{number}", os.O_RDONLY)
                begun, done = time.monotonic(), 0
                while not over.is_set():
                    # In 4 KiB, as players do; a stream that is late hurries.
                    if done - (time.monotonic() - begun) * STREAM_BYTES > 0:
                        time.sleep(0.04)
                        continue
                    done += len(os.pread(file, 4096, done % STREAM_FILE))
                    bytes_read[number] = done
                os.close(file)

            threads, intervals, before = [], [], (0, 0, 0)
            begun = time.monotonic()
            for second in range(1, self.options.streams + 1):
                threads.append(threading.Thread(target=stream, args=(second - 1,), daemon=True))
                threads[-1].start()
                time.sleep(max(0.0, begun + second - time.monotonic()))
                if second % INTERVAL == 0:
                    now = (sum(bytes_read), *self.asked(at))
                    got, requests, fetched = (new - old for new, old in zip(now, before))
                    intervals.append({"MB/s": got / INTERVAL / 1e6, "KiB a request": fetched / max(requests, 1) / 1024,
                                      "requests/s": requests / INTERVAL})
                    before = now
            over.set()
            for thread in threads:
                thread.join()
        return intervals

    def asked(self, at):
        """Requests and bytes of the store so far."""
        done = subprocess.run([self.bowwave, "status", at, "--json"], check=True, stdout=subprocess.PIPE)
        counters = find(json.loads(done.stdout), "counters")
        return counters["requests"], counters["bytes_fetched"]


def stat(command):
    """Instructions of a command in user mode; None if they cannot be counted."""
    with tempfile.NamedTemporaryFile(mode="r") as output:
        counted = ["perf", "stat", "-x", ",", "-e", "instructions:u", "-o", output.name, "--", *command]
        subprocess.run(counted, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        counts = [line.split(",")[0] for line in output if "instructions" in line]
    return int(counts[0]) if counts and counts[0].isdigit() else None


def find(value, name):
    """The first value of that name in a JSON value."""
    if isinstance(value, dict) and name in value:
        return value[name]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for part in parts if (found := find(part, name)) is not None), None)


def spread(values):
    middle = f"{statistics.median(values):.4g}"
    return f"{middle} ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else middle


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", help="the program to measure")
    parser.add_argument("--directory", help="on a disk, for the files (the temporary directory)")
    parser.add_argument("--only", action="append", choices=("patterns", "cached", "thrashing"), help="parts to measure")
    parser.add_argument("--rounds", type=int, default=3, help="turns of both policies (3)")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="of a file (64)")
    parser.add_argument("--streams", type=int, default=200, help="of the part thrashing (200)")
    parser.add_argument("--cache", default="48MiB", help="memory of the part thrashing (48MiB)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")

    def check(options):
        if options.rounds < 1 or options.size < 16 or options.streams < INTERVAL:
            parser.error(f"--rounds must be at least 1, --size 16 and --streams {INTERVAL}")
        if not can_mount() and "thrashing" in (options.only or ["thrashing"]):
            parser.error("/dev/fuse cannot be opened, so nothing can be mounted; use --only patterns --only cached")

    options, on = begin(parser, check)
    with tempfile.TemporaryDirectory(prefix="bowwave-bench-", dir=options.directory) as directory:
        bench = Bench(options, directory)
        for part in ("patterns", "cached", "thrashing"):
            if not options.only or part in options.only:
                getattr(bench, part)()
    end(options, on, bench.rows)


if __name__ == "__main__":
    main()
