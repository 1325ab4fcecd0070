#!/usr/bin/env python3
"""Measures, in real time, how long an fsync and a read wait beside a bulk writer on a slow disk, through a mount.

    tools/bench_fsync.py [--bowwave target/release/bowwave] [--seconds N] [--depth N]... [--only PART]... [--json FILE]

A directory on emulate:hdd is mounted for reading and writing. A writer there runs
`while :; do dd bs=8M count=64; sync; rm; done`. The parts:

    fsync   the job of `bowwave reproduce fsync-tester` at the same time: each second, 1 MiB is written at the start of
            a file and synced. With --set scheduler=deadline-rw (Linux 2.6.29), deadline-literal (the patch as posted)
            and deadline, and 1, 4, 32 and 128 requests in flight (--depth). Below 32 and 128, the emulated disk uses an
            order of its own
    tiotest the job of `bowwave reproduce tiotest`, smaller, without the bulk writer: threads (--threads) that each write a
            file (--file), write it at random, read it and read it at random, 4 KiB at a time, with the same schedulers
    read    two fast readers, and one that reads 64 KiB of a file sequentially each 20 ms, so that it comes to wait for
            its readahead. With promotion and without (--set scheduler=deadline:promotion=0)

Contenders alternate, round by round (--rounds); each row has the figures of all its rounds. The writer's rate counts
its bytes up to the end of each of its syncs.
"""

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import threading
import time

from bench import MIB, begin, end
from mounts import can_mount, mounted

BLOCK = 8 * MIB
# The phases of tiotest and the size of its operations.
PHASES = ("write", "random write", "read", "random read")
BYTES = 4096
SCHEDULERS = ("deadline-rw", "deadline-literal", "deadline")
# Read size and pause of the reader, which bypasses the kernel's cache and readahead.
READ, PAUSE = 64 << 10, 0.02
FAST_READERS = 2
READ_FILE = 512 * MIB


def writer(directory, blocks, written):
    """The dd cycle. What it has written counts in `written`."""
    piece = os.urandom(BLOCK)
    libc = ctypes.CDLL(None)
    while True:
        path = f"{directory}/bigfile"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for _ in range(blocks):
            done = 0
            while done < len(piece):
                count = os.write(file, piece[done:])
                written.value += count
                done += count
        os.close(file)
        directory_file = os.open(directory, os.O_RDONLY)
        libc.syncfs(directory_file)
        os.close(directory_file)
        os.remove(path)


def syncs(directory, seconds):
    """How long each fsync took."""
    taken = []
    file = os.open(f"{directory}/file", os.O_WRONLY | os.O_CREAT, 0o600)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        at = time.monotonic()
        os.pwrite(file, b"a" * MIB, 0)
        os.fsync(file)
        taken.append(time.monotonic() - at)
        time.sleep(1)
    os.close(file)
    return taken


def reads(path, seconds):
    """How long each read of one that takes its time took."""
    taken = []
    file = os.open(path, os.O_RDONLY)
    offset = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        at = time.monotonic()
        offset = offset + READ if os.pread(file, READ, offset) else 0
        taken.append(time.monotonic() - at)
        time.sleep(PAUSE)
    os.close(file)
    return taken


def fast_reader(path):
    """Reads a file in order, for ever."""
    file = os.open(path, os.O_RDONLY)
    offset = 0
    while True:
        offset = offset + MIB if os.pread(file, MIB, offset) else 0


@contextlib.contextmanager
def beside(*jobs):
    """Runs processes meanwhile, each (function, arguments)."""
    children = [multiprocessing.Process(target=job, args=arguments, daemon=True) for job, arguments in jobs]
    for child in children:
        child.start()
    try:
        yield
    finally:
        for child in children:
            child.kill()
            child.join()


def tiotest(at, options):
    """How long each operation took, and bytes a second, by phase."""
    threads, size, at_random = options.threads, options.file * MIB, options.random
    found = {}
    for phase in PHASES:
        writes, in_order = "write" in phase, "random" not in phase
        taken = [[] for _ in range(threads)]

        def work(number, writes=writes, in_order=in_order, taken=taken):
            chance = random.Random(number)
            file = os.open(f"{at}/{number}", os.O_RDWR | os.O_CREAT, 0o600)
            for step in range(size // BYTES if in_order else at_random):
                place = (step if in_order else chance.randrange(size // BYTES)) * BYTES
                begun = time.monotonic()
                _ = os.pwrite(file, b"b" * BYTES, place) if writes else os.pread(file, BYTES, place)
                taken[number].append(time.monotonic() - begun)
            os.close(file)

        begun = time.monotonic()
        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        all_taken = [one for of_thread in taken for one in of_thread]
        found[phase] = all_taken, len(all_taken) * BYTES / (time.monotonic() - begun)
    return found


class Bench:
    def __init__(self, options, directory):
        self.options, self.directory = options, directory
        self.rows = []

    def mount(self, store, scheduler, depth, *more):
        url = f"emulate:hdd,slots={max(depth, 1)}:{store}"
        options = ["--set", f"scheduler={scheduler}", "--set", f"device_depth={depth}", "--cache", self.options.cache, *more]
        return mounted(self.options.bowwave, url, self.directory, *options)

    def job(self, scheduler, depth, what, *more):
        """Figures of one run: how long each took, the writer's bytes a second, the counters of the mount."""
        store = tempfile.mkdtemp(dir=self.directory)
        try:
            with self.mount(store, scheduler, depth, *more) as (at, counters):
                written = multiprocessing.Value("Q", 0)
                with beside((writer, (at, self.options.count, written))):
                    # Until the writer is over its limit.
                    time.sleep(self.options.settle)
                    before, begun = written.value, time.monotonic()
                    taken = what(at)
                    rate = (written.value - before) / (time.monotonic() - begun)
            return taken, rate, counters
        finally:
            shutil.rmtree(store)

    def fsync(self):
        self.head("fsync beside a bulk writer", "s", 1)
        for depth in self.options.depth or (1, 4, 32, 128):
            runs = self.turns(SCHEDULERS, lambda scheduler, depth=depth: self.job(
                scheduler, depth, lambda at: syncs(at, self.options.seconds)))
            self.table("fsync", [(f"{name}, depth {depth}", runs[name]) for name in SCHEDULERS], 1)

    def tiotest(self):
        options = self.options
        self.head(f"{options.threads} threads, each a file of {options.file} MiB, 4 KiB at a time", "ms", 1000)

        def run(scheduler, depth):
            store = tempfile.mkdtemp(dir=self.directory)
            try:
                with self.mount(store, scheduler, depth, "--set", "kernel_cache=off") as (at, counters):
                    return tiotest(at, options), counters
            finally:
                shutil.rmtree(store)

        for depth in options.depth or (1, 32):
            found = {scheduler: {phase: ([], [], []) for phase in PHASES} for scheduler in SCHEDULERS}
            for number in range(options.rounds):
                for scheduler in SCHEDULERS[::-1 if number % 2 else 1]:
                    phases, counters = run(scheduler, depth)
                    for phase, (taken, rate) in phases.items():
                        for kept, new in zip(found[scheduler][phase], (taken, [rate], [counters])):
                            kept.extend(new)
            for phase in PHASES:
                runs = [(f"{phase}: {name}, depth {depth}", found[name][phase]) for name in SCHEDULERS]
                self.table("tiotest", runs, 1000)

    def read(self):
        self.head("a read in order, 64 KiB each 20 ms, beside a bulk writer and two readers", "ms", 1000)
        files = [f"read{number}" for number in range(FAST_READERS + 1)]

        def what(at):
            # Sparse files are read like others and are created instantly.
            for name in files:
                with open(f"{at}/{name}", "wb") as file:
                    file.truncate(READ_FILE)
            with beside(*((fast_reader, (f"{at}/{name}",)) for name in files[1:])):
                return reads(f"{at}/{files[0]}", self.options.seconds)

        for depth in self.options.depth or (1, 4, 32, 128):
            kinds = {"without promotion": "deadline:promotion=0", "with promotion": "deadline"}
            runs = self.turns(kinds, lambda kind, depth=depth: self.job(
                kinds[kind], depth, what, "--set", "kernel_cache=off"))
            self.table("read", [(f"{name}, depth {depth}", runs[name]) for name in kinds], 1000)

    def turns(self, kinds, run):
        """The figures of all rounds by kind. The order changes from round to round."""
        all_runs = {kind: ([], [], []) for kind in kinds}
        for number in range(self.options.rounds):
            for kind in list(kinds)[::-1 if number % 2 else 1]:
                taken, rate, counters = run(kind)
                all_runs[kind][0].extend(taken)
                all_runs[kind][1].append(rate)
                all_runs[kind][2].append(counters)
        return all_runs

    def head(self, what, unit, _factor):
        print(f"{what:<74} (times in {unit})")
        print(f"  {'':<40} {'count':>6} {'mean':>8} {'min':>8} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8} {'MB/s':>7}"
              f"   {'p50':>6} {'p99':>6} {'max':>6} {'MB/s':>6}  times better")

    def table(self, part, runs, factor):
        first = None
        for name, (taken, rates, counters) in runs:
            taken = sorted(value * factor for value in taken)
            at = lambda share, taken=taken: taken[min(len(taken) - 1, int(len(taken) * share))]
            figures = {"mean": statistics.fmean(taken), "min": taken[0], "p50": statistics.median(taken), "p90": at(0.9), "p99": at(0.99), "max": taken[-1]}
            rate = statistics.median(rates) / 1e6
            first = first or (figures, rate)
            ratios = {key: first[0][key] / figures[key] for key in ("p50", "p99", "max")}
            print(f"  {name:<40} {len(taken):>6} " + " ".join(f"{value:8.3f}" for value in figures.values())
                  + f" {rate:7.1f}   " + " ".join(f"{value:6.2f}" for value in ratios.values())
                  + f" {rate / first[1] if first[1] else 0:6.2f}", flush=True)
            self.rows.append({"part": part, "what": name, **figures, "taken": taken, "rates": rates, "better": ratios,
                              "promoted": [requests_of(each, "promoted") for each in counters]})


def requests_of(counters, what):
    """A figure of the scheduler's, wherever the counters have it."""
    if isinstance(counters, dict):
        if what in counters:
            return counters[what]
        return next((found for value in counters.values() if (found := requests_of(value, what)) is not None), None)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", help="the program to measure")
    parser.add_argument("--directory", help="where the store lies (the temporary directory)")
    parser.add_argument("--only", action="append", choices=("fsync", "read", "tiotest"), help="parts to measure")
    parser.add_argument("--depth", action="append", type=int, help="requests at the device (1, 4, 32, 128)")
    parser.add_argument("--seconds", type=float, default=60, help="of each run (60)")
    parser.add_argument("--settle", type=float, default=5, help="of each run before that (5)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each (1)")
    parser.add_argument("--count", type=int, default=64, help="blocks of 8 MiB that the writer writes before it syncs (64)")
    parser.add_argument("--cache", default="256MiB", help="the mount's cache (256MiB)")
    parser.add_argument("--threads", type=int, default=32, help="of tiotest (32)")
    parser.add_argument("--file", type=int, default=8, metavar="MIB", help="of each thread of tiotest (8)")
    parser.add_argument("--random", type=int, default=100, help="operations at random of each thread of tiotest (100)")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")

    def check(options):
        if options.rounds < 1 or options.count < 1 or any(depth < 1 for depth in options.depth or ()):
            parser.error("--rounds, --count and --depth must be at least 1")
        if not can_mount():
            parser.error("/dev/fuse cannot be opened, so nothing can be mounted")

    options, on = begin(parser, check)
    with tempfile.TemporaryDirectory(prefix="bowwave-bench-", dir=options.directory) as directory:
        bench = Bench(options, directory)
        for part in ("fsync", "read", "tiotest"):
            if not options.only or part in options.only:
                getattr(bench, part)()
    end(options, on, bench.rows)


if __name__ == "__main__":
    main()
