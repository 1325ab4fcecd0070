#!/usr/bin/env python3
"""Simulates power losses of the disk below a mount, and checks which data survives.

    tools/power_loss.py [--bowwave target/debug/bowwave] [--whole] [--images N] [--seed N] [--drop CALL]...

Clients write through a mount of a directory on a recording disk (tools/block_images.py) with ext4 or XFS, and note when their
data became durable (tools/power_clients.py). Another mount has its disk cache on the same disk. Then the tool builds
images of the disk at many positions of the recording. An image has all writes up to the last flush. Of the writes since
then it has none, all, some, parts, or some in another order. The file system replays its journal, and the clients check that

- all data is there that fsync, fdatasync, msync, O_DSYNC, O_SYNC or a commit had made durable,
- a file replaced by rename after an fsync is the old or the new one, whole; a synced directory has its names,
- SQLite's integrity_check passes,
- a mount with the disk cache of the image reads the right bytes, also after blocks of the cache were exchanged.

A third of the positions come right after an acknowledgement, a third have many writes pending. The seed sets the operations
and the images; the order in which clients run is not repeatable. --drop turns system calls of the mount into no-ops, and
the tool must report losses then. The exit status is 1 if data was lost. The tool needs root, /dev/fuse and loop devices;
without them it says so and checks nothing.
"""

import argparse
import contextlib
import ctypes
import glob
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time

from block_images import ATOMIC, MKFS, MODES, Disk, Images, mounted_image
from mounts import can_mount, end_mounts_when_stopped, mounted
from power_clients import LIBC, all_clients, synced_fd

# Continuous integration must have all that this needs.
IN_CI = os.environ.get("CI") == "true"

MIB = 1 << 20
DISK_BYTES = 64 * MIB

# Kinds of mount: name and options. Early write-back makes write-back and syncs overlap.
MOUNTS = {
    "default": (),
    "early write-back": ("--dirty-expire", "20ms"),
    "small cache": ("--cache", "2MiB", "--dirty-expire", "20ms"),
    "no kernel cache": ("--set", "kernel_cache=off", "--dirty-expire", "20ms"),
}
SHORT = (("ext4", "early write-back"),)
WHOLE = tuple((kind, mount) for kind in ("ext4", "xfs") for mount in MOUNTS)
# One image in CACHE_EVERY has its disk cache checked, and CACHE_MIXED caches with exchanged blocks are: each check mounts.
CACHE_EVERY, CACHE_MIXED = 12, 2

# Files that are read through the disk cache, and bytes of each.
CACHED_FILES, CACHED_BYTES = 8, 200_000
# Flag of sync_file_range(2): starts write-back and waits for nothing.
SYNC_FILE_RANGE_WRITE = 2
# Bytes of a block of a file system.
BLOCK = 4096
# Runs the program with a seccomp filter under which fsync or fdatasync return 0 and do nothing.
WITHOUT = """#!{python}
import ctypes, os, platform, struct, sys
numbers = {{"x86_64": {{"fsync": 74, "fdatasync": 75}}, "aarch64": {{"fsync": 82, "fdatasync": 83}}}}[platform.machine()]
calls = {calls!r}
load, equal, give = 0x20, 0x15, 0x06
allow, answer_0 = 0x7FFF0000, 0x00050000
code = [(load, 0, 0, 0)]
code += [(equal, len(calls) - at, 0, numbers[call]) for at, call in enumerate(calls)]
code += [(give, 0, 0, allow), (give, 0, 0, answer_0)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit("no filter for system calls can be set: " + os.strerror(ctypes.get_errno()))
os.execv({bowwave!r}, [{bowwave!r}, *sys.argv[1:]])
"""


class Cached:
    """Reads a directory through a mount whose disk cache is on the disk; files are replaced meanwhile."""

    def __init__(self, bowwave, directory, seed):
        self.bowwave, self.directory = bowwave, directory
        self.source = os.path.join(directory, "source")
        self.rng = random.Random(f"{seed} cached")
        self.versions = {}
        self.hits = self.damaged = 0
        os.mkdir(self.source)
        for number in range(CACHED_FILES):
            self.replace(number)

    def content(self, number):
        return random.Random(f"{number} {self.versions[number]}").randbytes(CACHED_BYTES)

    def replace(self, number):
        """Replaces a file by a new version with the same name and size."""
        self.versions[number] = self.versions.get(number, 0) + 1
        new = os.path.join(self.directory, "new")
        with open(new, "wb") as file:
            file.write(self.content(number))
        # An old time: the disk cache skips files that changed in the last seconds.
        modified = time.time() - 100 + self.versions[number]
        os.utime(new, (modified, modified))
        os.rename(new, os.path.join(self.source, str(number)))

    def mounted(self, cache):
        return mounted(self.bowwave, self.source, self.directory, "--disk-cache", cache, "--disk-size", "64MiB")

    def step(self, at):
        """Reads a file, and replaces one now and then."""
        if self.rng.random() < 0.1:
            self.replace(self.rng.randrange(CACHED_FILES))
        with open(os.path.join(at, str(self.rng.randrange(CACHED_FILES))), "rb") as file:
            file.read()
        time.sleep(0.01)

    def keep(self, cache):
        """Keeps a copy of the disk cache for `mixed_faults`."""
        shutil.copytree(cache, os.path.join(self.directory, "kept"))

    def faults(self, cache):
        """The files that a mount with this disk cache reads wrong."""
        try:
            with self.mounted(cache) as (at, counters):
                for number in range(CACHED_FILES):
                    with open(os.path.join(at, str(number)), "rb") as file:
                        if file.read() != self.content(number):
                            yield f"disk cache: file {number} has wrong bytes"
        except (OSError, SystemExit) as error:
            yield f"disk cache: {error}"
            return
        self.hits += counters["disk"]["hits"]
        self.damaged += counters["disk"]["damaged"]

    def mixed_faults(self, rng):
        """As `faults`, after a power loss on a file system without ordered data. Segments are never synced, so each block may
        hold its previous content: zeros, or a block of a removed segment."""
        kept, mixed = os.path.join(self.directory, "kept"), os.path.join(self.directory, "mixed")
        shutil.copytree(kept, mixed)
        paths = glob.glob(os.path.join(kept, "??", "*"))
        for path in paths:
            with open(rng.choice(paths), "rb") as file:
                old = file.read()
            old = rng.choice((old, old, bytes(len(old))))
            share = rng.choice((0, 0.1, 0.5, 1, 1))
            with open(os.path.join(mixed, os.path.relpath(path, kept)), "r+b") as file:
                # The first block names the object; a segment without it is not read at all.
                for start in range(BLOCK, os.path.getsize(path), BLOCK):
                    if rng.random() < share:
                        file.seek(start)
                        file.write(old[start:start + BLOCK])
        found = list(self.faults(mixed))
        shutil.rmtree(mixed)
        return found


def settle(directory):
    """Makes all files durable. sync(2) would not: the kernel does not pass it on to a FUSE mount."""
    for place, _, names in os.walk(directory):
        for name in names:
            synced_fd(os.path.join(place, name))
        synced_fd(place)


def write_back(directory):
    """Starts write-back of all files, as the kernel does by itself after 30 s. This flushes nothing."""
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError), open(os.path.join(place, name), "rb") as file:
                LIBC.sync_file_range(file.fileno(), ctypes.c_long(0), ctypes.c_long(0), SYNC_FILE_RANGE_WRITE)
    time.sleep(0.02)


class Recording:
    """Clients at work on a recording disk: their notes, and the log of the disk."""

    def __init__(self, options, directory, kind, mount, seed):
        self.kind, self.seed = kind, seed
        with contextlib.ExitStack() as stack:
            disk = Disk(options.block_log, directory, kind, DISK_BYTES)
            stack.callback(disk.detach)
            store, cache = os.path.join(disk.at, "store"), os.path.join(disk.at, "cache")
            os.mkdir(store)
            self.cached = Cached(options.real_bowwave, directory, seed)
            with mounted(options.bowwave, store, directory, *MOUNTS[mount]) as (at, _), \
                    self.cached.mounted(cache) as (cached_at, _):
                self.clients = all_clients(at, seed, disk.position)
                settle(at)
                self.start = disk.position()
                self.work(options.seconds, cached_at, disk.at)
                self.end = disk.position()
                for client in self.clients:
                    client.close()
            self.cached.keep(cache)
            disk.close()
            self.images = Images(disk.log, DISK_BYTES, ATOMIC[kind])
            os.remove(disk.log)

    def work(self, seconds, cached_at, below):
        over = threading.Event()
        failed = []
        # With fewer syncs, more writes lie between two flushes.
        pause = 0 if self.seed % 2 else 0.05

        def play(step):
            try:
                while not over.wait(pause) and step() is not False:
                    pass
            except BaseException as error:  # pylint: disable=broad-except
                failed.append(error)

        steps = [client.step for client in self.clients] + [lambda: self.cached.step(cached_at), lambda: write_back(below)]
        threads = [threading.Thread(target=play, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        over.wait(seconds)
        over.set()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]

    def positions(self, count, rng):
        """Positions in the log: right after an acknowledgement, with many writes pending, and any, by turns."""
        marks = [mark for client in self.clients for mark in client.marks() if mark > self.start]
        ends = [end for end in self.images.ends if self.start < end <= self.end]
        kinds = (lambda: rng.choice(marks),
                 lambda: max(rng.choices(ends, k=12), key=self.images.waiting),
                 lambda: rng.choice(ends))
        return [kinds[number % len(kinds)]() for number in range(count)]

    def check(self, directory, count, limit):
        """Checks up to `count` positions in `limit` seconds; returns the number checked, their faults and their pending
        writes."""
        end = time.monotonic() + limit
        rng = random.Random(f"{self.seed} positions")
        image, at = os.path.join(directory, "image"), os.path.join(directory, "left")
        os.makedirs(at, exist_ok=True)
        faults, pending = [], 0
        for number, position in enumerate(self.positions(count, rng)):
            if time.monotonic() > end:
                count = number
                break
            mode = rng.choice(MODES)
            pending += self.images.build(image, position, mode, rng)
            found = []
            try:
                with mounted_image(image, self.kind, at):
                    root = os.path.join(at, "store")
                    for client in self.clients:
                        found += self.faults_of(client, root, position)
                    if number % CACHE_EVERY == 0:
                        found += self.cached.faults(os.path.join(at, "cache"))
            except OSError as error:
                found.append(str(error))
            faults += [f"position {position}, {mode}: {fault}" for fault in found]
        os.remove(image)
        for number in range(CACHE_MIXED):
            faults += [f"disk cache mixed up, {number}: {fault}" for fault in self.cached.mixed_faults(rng)]
        return count, faults, pending

    @staticmethod
    def faults_of(client, root, position):
        try:
            return list(client.faults(root, position))
        except OSError as error:
            return [f"{client.name}: {error}"]


def run(options, kind, mount, seed):
    """Records once and checks many positions; returns the number of faults."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bowwave-power-", dir=options.memory) as directory:
        recording = Recording(options, directory, kind, mount, seed)
        recorded = time.monotonic() - start
        images, faults, pending = recording.check(directory, options.images, options.limit)
        acknowledged = sum(len(client.marks()) for client in recording.clients)
        writes, flushes = recording.images.kinds(recording.start, recording.end)
        cached = recording.cached
    for fault in faults[:20]:
        print(f"  {fault}")
    print(f"power loss, {kind}, {mount}, seed {seed}: {writes} writes, {flushes} flushes, {acknowledged} syncs "
          f"acknowledged in {recorded:.1f} s; {images} images with {pending / images:.1f} writes pending, "
          f"disk cache: {cached.hits} hits, {cached.damaged} damaged; "
          f"{len(faults)} faults, {time.monotonic() - start:.1f} s", flush=True)
    return len(faults)


def why_not(options):
    """The reason why nothing can be tested here, or None."""
    if os.geteuid() != 0:
        return "only root can set up loop devices"
    if not can_mount():
        return "/dev/fuse cannot be opened"
    if not os.path.exists("/dev/loop-control"):
        return "there are no loop devices"
    if not os.access(options.block_log, os.X_OK):
        return f"{options.block_log} is missing (try: cargo build -p bowwave-fuse --example block_log)"
    return None


def wrapped(options, directory):
    """A program that runs bowwave without the calls of --drop."""
    path = os.path.join(directory, "bowwave")
    with open(path, "w", encoding="utf-8") as file:
        file.write(WITHOUT.format(python=sys.executable, calls=options.drop, bowwave=options.real_bowwave))
    os.chmod(path, stat.S_IRWXU)
    return path


def watch(seconds):
    """Ends this process and its children after a time limit: a loop device whose file is not served would wait for ever."""
    def give_up():
        print(f"power_loss: error: not done after {seconds} s", file=sys.stderr, flush=True)
        for child in subprocess.run(["ps", "-o", "pid=", "--ppid", str(os.getpid())], stdout=subprocess.PIPE, text=True,
                                    check=False).stdout.split():
            subprocess.run(["kill", "-9", child], check=False, stderr=subprocess.DEVNULL)
        os._exit(3)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to test")
    parser.add_argument("--block-log", help="the recording disk; examples/block_log beside the program")
    parser.add_argument("--whole", action="store_true", help="each file system and kind of mount, more images")
    parser.add_argument("--images", type=int, help="images of each run: 36 in at most 20 s, 500 with --whole")
    parser.add_argument("--seconds", type=float, help="for which the programs write; 3, 15 with --whole")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    parser.add_argument("--drop", action="append", choices=("fsync", "fdatasync"), default=[],
                        help="have these calls of the mount do nothing")
    parser.add_argument("--on", metavar="FS,MOUNT", help="only this file system and kind of mount")
    options = parser.parse_args(arguments)
    # A mount takes seconds on a busy machine, and `make test` must not take minutes.
    options.limit = 3600 if options.whole or options.images else 20
    options.images = options.images or (500 if options.whole else 36)
    options.seconds = options.seconds or (15 if options.whole else 3)
    options.memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    options.block_log = options.block_log or os.path.join(os.path.dirname(options.bowwave), "examples", "block_log")
    options.bowwave = options.real_bowwave = os.path.abspath(options.bowwave)
    options.runs = (tuple(options.on.split(",")),) if options.on else WHOLE if options.whole else SHORT
    return options


def main():
    options = parse()
    missing = why_not(options)
    if missing:
        print(f"power_loss: skipped: {missing}", file=sys.stderr)
        return int(IN_CI)
    runs = []
    for kind, mount in options.runs:
        if shutil.which(MKFS[kind][0]):
            runs.append((kind, mount))
        else:
            print(f"power_loss: {kind} skipped: {MKFS[kind][0]} is missing (try: tools/setup.sh power)", file=sys.stderr)
            if IN_CI:
                return 1
    end_mounts_when_stopped()
    watch(240 + len(runs) * (options.seconds + 10 * options.images))
    with tempfile.TemporaryDirectory(prefix="bowwave-power-") as directory:
        if options.drop:
            options.bowwave = wrapped(options, directory)
        faults = sum(run(options, kind, mount, options.seed + number)
                     for number, (kind, mount) in enumerate(runs))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
