#!/usr/bin/env python3
"""Measures mounts of object stores with many small files and real programs, on a slow S3 server.

    tools/bench_files.py [--bowwave PATH] [--server PATH] [--rounds N] [--files N] [--only ROW,...] [--who NAME,...]
                         [--mount-options TEXT] [--mount-s3 PATH] [--json FILE]

The server is `cargo build --release -p bowwave-testkit --example shaped`: 30 ms to first byte, 90 MB/s a connection. Its
objects are generated, 60 to 160 KB each. Each row has a mount of its own for each round, so all caches are cold at its
first pass. Contenders alternate within a round. Figures are medians. Requests are counted by the server, by kind. Each
file's length and its bytes at both ends are compared with those of the server.

Contenders that are not installed are left out: stream (bowwave), rclone, s3fs and mount-s3, as bench_compare.py has
them.

    shuffled   8 readers take turns at all files, in an order that a seed gives
    again      the same files in another order, on the same mount
    announced  as shuffled, in an order that `bowwave plan` has announced
    ordered    one reader, in the order of the names
    cat        `cat` of each file, one process each
    find       `find -type f`, and `ls -l` once more on the same mount
    ls         `ls -lR`
    heads      one reader, the first 16 KiB of each of 300 other files of 3 MB, in the order of the names
    tails      the same, of the last 16 KiB
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench_compare import Mount, Server
from mounts import can_mount, end_mounts_when_stopped

READERS = 8
ENDS = 64
ROWS = ("shuffled", "again", "announced", "ordered", "cat", "find", "ls", "heads", "tails")
# Rows of large files, of which a part is read.
PART = 16 << 10
LARGE = {f"large{number:03d}": 3_000_000 for number in range(300)}


def objects(count):
    """Names and sizes, the same in each run."""
    sizes = random.Random(7)
    return {f"file{number:05d}": sizes.randrange(60_000, 160_000) for number in range(count)}


def read(path, size, pattern):
    """Reads a file as a program does, and compares it."""
    with open(path, "rb") as file:
        data = file.read()
    end = bytes(pattern[place % len(pattern)] for place in range(size - ENDS, size))
    wanted = pattern[:ENDS] == data[:ENDS] and end == data[-ENDS:]
    if len(data) != size or not wanted:
        raise SystemExit(f"{path}: {len(data)} bytes of {size}, or wrong ones")


def read_part(path, offset, pattern):
    """Reads a part of a file with one call, and compares it."""
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        data = file.read(PART)
    if data != bytes(pattern[place % len(pattern)] for place in range(offset, offset + PART)):
        raise SystemExit(f"{path}: wrong bytes at {offset}")


def shuffled(sizes, seed):
    names = list(sizes)
    random.Random(seed).shuffle(names)
    return names


def in_any_order(at, sizes, pattern, seed):
    names = shuffled(sizes, seed)
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for _ in pool.map(lambda name: read(os.path.join(at, name), sizes[name], pattern), names):
            pass


def act(row, at, sizes, pattern):
    """One pass of a row."""
    if row in ("shuffled", "again", "announced"):
        in_any_order(at, sizes, pattern, row)
    elif row == "ordered":
        for name in sizes:
            read(os.path.join(at, name), sizes[name], pattern)
    elif row in ("heads", "tails"):
        for name, size in sizes.items():
            read_part(os.path.join(at, name), 0 if row == "heads" else size - PART, pattern)
    elif row == "cat":
        for name in list(sizes)[:300]:
            subprocess.run(["cat", os.path.join(at, name)], stdout=subprocess.DEVNULL, check=True)
    elif row == "ls":
        subprocess.run(["ls", "-lR", at], stdout=subprocess.DEVNULL, check=True)
    else:
        subprocess.run(["find", at, "-type", "f"], stdout=subprocess.DEVNULL, check=True)
        subprocess.run(["ls", "-l", at], stdout=subprocess.DEVNULL, check=True)


def measure(rows, who, options, server, sizes, directory):
    """The rows that share a mount."""
    mount = Mount(who, options, server.url, directory, options.cache)
    found = {}
    try:
        for row in rows:
            before, begun = server.counters(), time.monotonic()
            if row == "announced" and who == "stream":
                # Within the time: the program may open files at once.
                subprocess.run([options.bowwave, "plan", mount.at, "-"], input="\n".join(shuffled(sizes, row)), text=True, check=True)
            act(row, mount.at, sizes, server.pattern)
            took, after = time.monotonic() - begun, server.counters()
            found[row] = {"seconds": took, **{name: after[name] - before[name] for name in ("heads", "lists", "gets", "bytes")},
                          "rss": mount.took()[0] / (1 << 20), "cpu": mount.took()[1]}
    finally:
        mount.end()
    return found


def installed(options):
    """Contenders that are here."""
    names = {"stream": options.bowwave, "rclone": "rclone", "s3fs": "s3fs", "mount-s3": options.mount_s3}
    return [who for who, program in names.items() if shutil.which(program)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bowwave", default="target/release/bowwave")
    parser.add_argument("--server", default="target/release/examples/shaped")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--who", default="")
    parser.add_argument("--cache", default="192MiB")
    parser.add_argument("--mount-options", default="")
    parser.add_argument("--mount-s3", default="mount-s3")
    parser.add_argument("--json")
    options = parser.parse_args()
    if not can_mount():
        raise SystemExit("mounts cannot be made here: /dev/fuse is missing")
    end_mounts_when_stopped()
    if os.path.dirname(options.mount_s3):
        os.environ["PATH"] = os.path.dirname(options.mount_s3) + os.pathsep + os.environ["PATH"]
    here = installed(options)
    whos = [who for who in (options.who.split(",") if options.who else here) if who in here]
    wanted = options.only.split(",")
    mounts = (("shuffled", "again"), *((row,) for row in ROWS[2:]))
    groups = [[row for row in group if row in wanted] for group in mounts]
    small, samples = objects(options.files), {}
    servers = [(Server(options.server, objects=sizes), sizes) for sizes in (small, LARGE)]
    try:
        with tempfile.TemporaryDirectory() as directory:
            for _ in range(options.rounds):
                for rows in filter(None, groups):
                    server, sizes = servers[rows[0] in ("heads", "tails")]
                    for who in whos:
                        for row, found in measure(rows, who, options, server, sizes, directory).items():
                            samples.setdefault((row, who), []).append(found)
    finally:
        for server, _ in servers:
            server.end()
    table = {key: {name: statistics.median(sample[name] for sample in all_of) for name in all_of[0]}
             for key, all_of in samples.items()}
    print("| row | mount | seconds | HEAD | LIST | GET | bytes | memory MiB | processor s |\n" + "|---" * 9 + "|")
    for (row, who), found in table.items():
        counts = " | ".join(f"{found[name]:.0f}" for name in ("heads", "lists", "gets", "bytes"))
        print(f"| {row} | {who} | {found['seconds']:.2f} | {counts} | {found['rss']:.0f} | {found['cpu']:.1f} |")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"row": row, "who": who, **found} for (row, who), found in table.items()], file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
