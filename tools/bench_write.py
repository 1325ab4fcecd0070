#!/usr/bin/env python3
"""Compares sequential writes through a mount with the best that the kernel or the device can do.

    tools/bench_write.py [--bowwave target/release/bowwave] [--directory DIR] [--quick] [--rounds N] [--only PART]...
                         [--json FILE]

Prints a table as tools/bench.py does: median, minimum and maximum of several rounds, and the bar. Contenders alternate
within a round. The parts:

    file    a new file in writes of 1 MiB, and its fsync: through a mount of a directory, and in the directory itself.
            Times end at the last write, and at the end of the fsync, where the disk limits both. One mount has been in
            use, so that its memory belongs to the process already; one is new, so that the kernel clears each page
            first. Processor time is measured too; other programs hardly change it. The directory is --directory (the
            temporary directory), or in memory (/dev/shm), where no disk hides the cost of the mount
    s3      a new object in writes of 1 MiB to the end of its close, through a mount of emulate:s3 (60 ms a write,
            90 MB/s a connection, 1.25 GB/s in total, or less), as a share of the store's limit: the total rate, or
            the connections' rates with few connections, with parts of 8 MiB
"""

import argparse
import os
import shutil
import statistics
import tempfile
import time

from bench import CONNECTION, MIB, TOTAL, Table, begin, end
from mounts import can_mount, mounted

# Written data: incompressible, a different MiB each time.
PIECES = [os.urandom(MIB) for _ in range(16)]
# Bars: a share of the kernel's own rate, and bytes per second.
SHARE, RATE = 0.8, 500e6
# Cache of directory mounts. This many files of half its size use all of its memory.
CACHE_MIB, USES = 1024, 4


class Written:
    """What came of writing a file: bytes a second, and processor seconds a GiB."""

    def __init__(self, path, mib, process=None):
        before = processor_seconds(process)
        start = time.monotonic()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            for number in range(mib):
                piece = PIECES[number % len(PIECES)]
                done = os.write(descriptor, piece)
                while done < len(piece):
                    done += os.write(descriptor, piece[done:])
            self.writes = mib * MIB / (time.monotonic() - start)
            os.fsync(descriptor)
            self.synced = mib * MIB / (time.monotonic() - start)
        finally:
            os.close(descriptor)
        self.cost = (processor_seconds(process) - before) * 1024 / mib
        if os.stat(path).st_size != mib * MIB:
            raise SystemExit(f"bench: {path} has not the size that was written")
        os.remove(path)


def processor_seconds(process):
    """What this process has used so far, and another, with what the kernel did for them."""
    used = sum(os.times()[:2])
    if process is not None:
        with open(f"/proc/{process}/stat", encoding="utf-8") as stat:
            fields = stat.read().rpartition(")")[2].split()
        used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return used


def write_object(path, mib):
    """Bytes a second of a new object, to the end of its close."""
    start = time.monotonic()
    with open(path, "xb", buffering=0) as file:
        for number in range(mib):
            piece = memoryview(PIECES[number % len(PIECES)])
            while piece:
                piece = piece[file.write(piece):]
    rate = mib * MIB / (time.monotonic() - start)
    if os.stat(path).st_size != mib * MIB:
        raise SystemExit(f"bench: {path} has not the size that was written")
    os.remove(path)
    return rate


class Bench:
    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.rounds = options.rounds or (2 if options.quick else 7)
        self.table = Table()

    def file(self):
        self.file_in("the disk", self.directory)
        if os.path.isdir("/dev/shm"):
            memory = tempfile.mkdtemp(prefix="bowwave-bench-", dir="/dev/shm")
            try:
                self.file_in("memory", memory)
            finally:
                shutil.rmtree(memory)

    def file_in(self, what, directory):
        """Writes to a store in `directory`, which is `what`."""
        mib = 256 if self.options.quick else 1024
        store = os.path.join(directory, "store")
        os.mkdir(store)
        with self.mount(store) as (at, counters):
            # Each file belongs to one shard, in rotation: fill every shard's memory before the
            # rounds.
            for number in range(USES):
                Written(f"{at}/before-{number}", CACHE_MIB // 2)
            ours, own = self.by_turns(lambda: Written(f"{at}/new", mib, counters["process"]), f"{store}/new", mib)
            self.rows(f"{mib} MiB on {what}", ours, own, bars=what == "the disk")
        ours, own = self.by_turns(lambda: self.in_new_mount(store, mib), f"{store}/new", mib)
        self.rows(f"{mib} MiB on {what}, a new mount", ours, own, bars=what == "the disk")
        shutil.rmtree(store)

    def mount(self, store):
        return mounted(self.options.bowwave, store, self.directory, "--cache", f"{CACHE_MIB}MiB")

    def in_new_mount(self, store, mib):
        with self.mount(store) as (at, counters):
            return Written(f"{at}/new", mib, counters["process"])

    def by_turns(self, mount, own, mib):
        """Both, once a round. The first may find the disk idle, so the order alternates."""
        ours, theirs = [], []
        for number in range(self.rounds):
            for mine in ((True, False), (False, True))[number % 2]:
                if mine:
                    ours.append(mount())
                else:
                    theirs.append(Written(own, mib))
        return ours, theirs

    def rows(self, name, ours, own, bars):
        for end, rate in (("fsync", lambda run: run.synced), ("last write", lambda run: run.writes)):
            mine, theirs = [rate(run) for run in ours], [rate(run) for run in own]
            self.table.add(f"{name}, to its {end}: mount", "MB/s", [rate / 1e6 for rate in mine])
            self.table.add(f"{name}, to its {end}: the kernel's own", "MB/s", [rate / 1e6 for rate in theirs])
            ratios = [a / b for a, b in zip(mine, theirs)]
            self.table.add("  mount / the kernel's own", "times", ratios, SHARE if bars and end == "fsync" else None)
            if bars and end == "fsync" and statistics.median(theirs) * SHARE >= RATE:
                self.table.add("  mount, where the device can", "MB/s", [rate / 1e6 for rate in mine], RATE / 1e6)
        self.table.add(f"{name}, processor time: mount", "s/GiB", [run.cost for run in ours])
        self.table.add(f"{name}, processor time: the kernel's own", "s/GiB", [run.cost for run in own])

    def s3(self):
        part = 8 * MIB
        connection = part / (0.060 + part / CONNECTION)
        for url, limit, mib in (
            ("emulate:s3,slots=4", 4 * connection, 1024),
            ("emulate:s3,write_total=100MB/s", 100e6, 1024),
            ("emulate:s3,write_total=300MB/s", 300e6, 2048),
            ("emulate:s3", TOTAL, 4096),
        ):
            mib = mib // 8 if self.options.quick else mib
            shares = []
            for _ in range(self.rounds):
                store = tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else self.directory)
                try:
                    with mounted(self.options.bowwave, f"{url}:{store}", self.directory) as (at, _):
                        shares.append(write_object(f"{at}/new", mib) / limit)
                finally:
                    shutil.rmtree(store)
            # A short object is mostly its first and last round trip, so the bar does not apply.
            bar = None if self.options.quick else 0.85
            self.table.add(f"{url}, {mib} MiB written to close, of {limit / 1e6:.0f} MB/s", "share", shares, bar)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave", help="the program to measure")
    parser.add_argument("--directory", help="where the store lies (the temporary directory)")
    parser.add_argument("--only", action="append", choices=("file", "s3"), help="parts to measure")
    parser.add_argument("--rounds", type=int, help="rounds (7; with --quick 2)")
    parser.add_argument("--quick", action="store_true", help="shorter files and two rounds: shows that it runs")
    parser.add_argument("--json", metavar="FILE", help="write all samples there")

    def check(options):
        if options.rounds is not None and options.rounds < 1:
            parser.error("--rounds must be at least 1")
        if not can_mount():
            parser.error("/dev/fuse cannot be opened, so nothing can be mounted")

    options, on = begin(parser, check)
    with tempfile.TemporaryDirectory(prefix="bowwave-bench-", dir=options.directory) as directory:
        bench = Bench(options, directory)
        for part in ("file", "s3"):
            if not options.only or part in options.only:
                getattr(bench, part)()
    end(options, on, bench.table.rows)


if __name__ == "__main__":
    main()
