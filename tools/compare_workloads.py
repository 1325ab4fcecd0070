"""The twelve workloads of tools/bench_compare.py, and the checks of the bytes they read.

    a  1 GiB sequential, 128 KiB reads                g  100 clusters of 256 to 1024 KiB in random order, mapped
    b  8 readers of 256 MiB each                      h  128 MiB backward, 64 KiB reads
    c  500 random 4 KiB in 1 GiB                      i  3 of 20 columns of ten row groups, 480 MB
    d  300 random 128 KiB in 1 GiB                    j  500 MB of tensors, mapped, each page touched
    e  two interleaved streams on one descriptor      k  64 players of 256 KB/s, link of 60 MB/s, 256 MiB of memory
    f  128 KiB of each MiB of 512                     l  100 random 4 KiB in 64 GiB
"""

import contextlib
import mmap
import os
import random
import threading
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 4 * KIB
SIZES = {"a": GIB, "c": GIB, "d": GIB, "e": 512 * MIB, "f": 512 * MIB, "g": GIB, "h": 128 * MIB, "i": 480_000_000,
         "j": 500_000_000, "l": 64 * GIB, **{f"b{n}": 256 * MIB for n in range(8)}, **{f"k{n}": 16 * MIB for n in range(64)}}
LETTERS = "abcdefghijkl"
MAPPED = "gj"
PLAYERS, PLAYER_PERIOD, PLAYER_BYTES, PLAYER_READS = 64, 0.25, 64_000, 60


def pieces(start, length, piece=128 * KIB):
    return [(start + at, min(piece, length - at)) for at in range(0, length, piece)]


def scattered(count, span, piece):
    chance = random.Random(1)
    return [(chance.randrange(span // piece) * piece, piece) for _ in range(count)]


def clusters():
    chance = random.Random(2)
    order = list(range(100))
    chance.shuffle(order)
    for cluster in order:
        pages = chance.randrange(64, 257)
        start = cluster * 10 * MIB + chance.randrange(8 * MIB // PAGE) * PAGE
        yield from range(start, start + pages * PAGE, PAGE)


def columns():
    size, group, column = SIZES["i"], 48_000_000, 2_400_000
    return [(size - 8, 8), (size - 40_000, 39_992)] + [
        (at * group + one * column, column) for at in range(10) for one in (0, 7, 14)]


def accesses(letter):
    """What a workload reads: for each object, in order, offsets and lengths; of mapped ones, pages."""
    if letter == "b":
        return {f"b{n}": pieces(0, 256 * MIB) for n in range(8)}
    if letter == "k":
        return {f"k{n}": [(at * PLAYER_BYTES, PLAYER_BYTES) for at in range(PLAYER_READS)] for n in range(PLAYERS)}
    if letter in MAPPED:
        touched = clusters() if letter == "g" else range(0, SIZES["j"], PAGE)
        return {letter: [(offset, min(PAGE, SIZES[letter] - offset)) for offset in touched]}
    turns = [(base + n * 64 * KIB, 64 * KIB) for n in range(1024) for base in (0, 300 * MIB)]
    return {letter: {
        "a": lambda: pieces(0, GIB), "c": lambda: scattered(500, GIB, 4 * KIB), "d": lambda: scattered(300, GIB, 128 * KIB),
        "e": lambda: turns, "f": lambda: [(n * MIB, 128 * KIB) for n in range(512)],
        "h": lambda: pieces(0, 128 * MIB, 64 * KIB)[::-1], "i": columns,
        "l": lambda: scattered(100, 64 * GIB, 4 * KIB)}[letter]()}


def pages_of(reads):
    """The pages that these touch."""
    return {page for offset, length in reads for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1)}


class Directory:
    """Objects as files of a directory. What reads in another way has the same four."""

    def __init__(self, at):
        self.at = at

    def open(self, key):
        file = os.open(os.path.join(self.at, key), os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)
        return file

    def read(self, file, length, offset):
        return os.pread(file, length, offset)

    def close(self, file):
        os.close(file)

    @contextlib.contextmanager
    def mapped(self, key):
        """The object as memory: bytes by their offsets."""
        with open(os.path.join(self.at, key), "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            yield memory


class Reader:
    """Reads one object of a store, such as `Directory`, and compares what it gets with what the server serves."""

    def __init__(self, store, key, reads, pattern, limit):
        self.store, self.key, self.reads, self.pattern, self.limit = store, key, reads, pattern, limit
        self.until, self.wanted, self.done, self.late, self.wrong = 0, 0, True, 0, None

    def run(self):
        self.until = time.monotonic() + self.limit
        letter = self.key[0]
        try:
            done = self.touch() if letter in MAPPED else self.read(PLAYER_PERIOD if letter == "k" else None)
        except OSError as error:
            self.wrong, done = self.wrong or f"{self.key}: {error}", 0
        self.wanted = len(pages_of(self.reads[:done])) * PAGE

    def read(self, period):
        """Reads the pieces, with a period one each; what then takes longer is late. How many it has read."""
        begun = time.monotonic()
        file = self.store.open(self.key)
        done = 0
        for offset, length in self.reads:
            if period:
                time.sleep(max(0.0, begun + done * period - time.monotonic()))
            at = time.monotonic()
            data = self.store.read(file, length, offset)
            self.late += bool(period) and time.monotonic() - at > period
            done += 1
            if not self.check(offset, length, data) or self.out_of_time():
                break
        self.store.close(file)
        return done

    def touch(self):
        """Touches each page; how many it has touched."""
        done = 0
        with self.store.mapped(self.key) as memory:
            for offset, _ in self.reads:
                done += 1
                if memory[offset] != self.pattern[offset % len(self.pattern)]:
                    self.wrong = f"{self.key}: another byte at {offset}"
                    break
                if done % 64 == 0 and self.out_of_time():
                    break
        return done

    def check(self, offset, length, data):
        if len(data) != length:
            self.wrong = self.wrong or f"{self.key}: {len(data)} bytes at {offset}"
            return False
        for at in (0, max(length - 16, 0)):
            place = (offset + at) % len(self.pattern)
            want = self.pattern[place:place + 16]
            if data[at:at + len(want)] != want[:length - at]:
                self.wrong = f"{self.key}: other bytes at {offset + at}"
                return False
        return True

    def out_of_time(self):
        self.done = self.done and time.monotonic() < self.until
        return not self.done


def run(letter, store, pattern, limit):
    """Runs a workload on a store: what came of it."""
    readers = [Reader(store, key, reads, pattern, limit) for key, reads in accesses(letter).items()]
    begun = time.monotonic()
    threads = [threading.Thread(target=reader.run) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.monotonic() - begun, "done": all(reader.done for reader in readers),
            "late": 100 * sum(reader.late for reader in readers) / (PLAYERS * PLAYER_READS),
            "wanted": sum(reader.wanted for reader in readers),
            "wrong": next((reader.wrong for reader in readers if reader.wrong), None)}
