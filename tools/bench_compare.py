#!/usr/bin/env python3
"""Measures bowwave's mount beside other mounts of object stores, on twelve workloads and a slow S3 server.

    tools/bench_compare.py [--bowwave target/release/bowwave] [--rounds N] [--limit SECONDS] [--only LETTERS]
                           [--who NAME,...] [--json FILE] [--markdown FILE]

The server is `cargo build --release -p bowwave-testkit --example shaped`: 30 ms to the first byte, 90 MB/s a connection; it
makes its objects up, so no disk is measured. Each measurement has a mount of its own, so all caches are cold; contenders
take turns within a round, so that noise of the machine meets all alike. Medians are of the rounds. What was read is
compared with what the server serves, at both ends of each read, and a wrong byte ends the program. A reader that is not
done after the limit stops, and the row says so. The contenders, as far as they are installed:

    stream     bowwave mount --policy stream
    ondemand   bowwave mount --policy ondemand
    rclone     rclone mount, as it comes, but without checksums: objects that are made up have none
    s3fs       s3fs with 16 parts of 10 MB at once

The workloads:

    a  1 GiB in order, 128 KiB reads                  g  100 clusters of 256 to 1024 KiB in no order, mapped
    b  8 readers of 256 MiB each                      h  128 MiB backward, 64 KiB reads
    c  500 random 4 KiB in 1 GiB                      i  3 of 20 columns of ten row groups, 480 MB
    d  300 random 128 KiB in 1 GiB                    j  500 MB of tensors, mapped, each page touched
    e  two streams by turns on one descriptor         k  64 players of 256 KB/s, link of 60 MB/s, 256 MiB of memory
    f  128 KiB of each MiB of 512                     l  100 random 4 KiB in 64 GiB

Requests and bytes are the server's count; memory and processor time are the mount's process's. For each byte wanted means
what the reader asked for, in pages of 4 KiB.
"""

import argparse
import json
import mmap
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from mounts import can_mount, end_mounts_when_stopped, undisturbed

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZES = {"a": GIB, "c": GIB, "d": GIB, "e": 512 * MIB, "f": 512 * MIB, "g": GIB, "h": 128 * MIB, "i": 480_000_000,
         "j": 500_000_000, "l": 64 * GIB, **{f"b{n}": 256 * MIB for n in range(8)}, **{f"k{n}": 16 * MIB for n in range(64)}}
# Bars in seconds and times the bytes, as the project set them itself.
BARS = {"a": (1.5, 1.01), "b": (2.5, 1.01), "c": (15.8, 1.05), "d": (9.8, 1.05), "e": (0.8, 1.5), "f": (0.8, 1.5),
        "g": (4.2, 2.0), "h": (1.6, 1.5), "i": (0.6, 2.0), "j": (1.2, 1.05), "k": (None, 1.5), "l": (3.2, 1.05)}
PLAYER_PERIOD, PLAYER_BYTES, PLAYER_READS = 0.25, 64_000, 60
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}


class Server:
    """The shaped server, with every object there is."""

    def __init__(self, program, total_mb_s=0):
        command = [program, "30", "90", str(total_mb_s), *(f"{key}={size}" for key, size in SIZES.items())]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      start_new_session=True)
        self.url = self.child.stdout.readline().strip()
        if not self.url:
            raise SystemExit(f"{program} did not start; build it: cargo build --release -p bowwave-testkit --example shaped")
        self.pattern = urllib.request.urlopen(self.url + "/_pattern").read()

    def counters(self):
        return json.load(urllib.request.urlopen(self.url + "/_counters"))

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def command_of(who, options, url, at, cache):
    """The command and the variables of a contender's mount of the server."""
    if who in ("stream", "ondemand"):
        return ([options.bowwave, "mount", "s3://data/", at, "--policy", who, "--read-only", "--cache", cache],
                {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"})
    if who == "rclone":
        remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": url, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any"}
        return (["rclone", "mount", "bench:data", at, "--read-only", "--no-checksum", "--config", os.devnull],
                {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in remote.items()})
    settings = f"url={url},use_path_request_style,public_bucket=1,ro,parallel_count=16,multipart_size=10"
    return (["s3fs", "data", at, "-f", "-o", settings], {})


class Mount:
    """A contender's mount, and what its process took."""

    def __init__(self, who, options, url, folder, cache):
        self.at = tempfile.mkdtemp(dir=folder)
        command, variables = command_of(who, options, url, self.at, cache)
        # Bundles of certificates and proxies have no part in this, and rclone refuses the former.
        ours = {name: value for name, value in os.environ.items()
                if name != "AWS_CA_BUNDLE" and not name.lower().endswith("_proxy")}
        self.log = tempfile.TemporaryFile(dir=folder)
        self.child = subprocess.Popen(command, env={**ours, **variables}, stdout=self.log, stderr=self.log,
                                      start_new_session=True)
        until = time.monotonic() + 60
        while not os.path.ismount(self.at):
            if self.child.poll() is not None or time.monotonic() > until:
                self.end()
                self.log.seek(0)
                raise SystemExit(f"{' '.join(command)}: no mount: {self.log.read().decode(errors='replace').strip()}")
            time.sleep(0.02)

    def took(self):
        """Most memory in bytes, and seconds of processor time."""
        with open(f"/proc/{self.child.pid}/status") as status:
            most = next((int(line.split()[1]) * KIB for line in status if line.startswith("VmHWM")), 0)
        with open(f"/proc/{self.child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return most, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        with undisturbed():
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            if os.path.ismount(self.at):
                subprocess.run(["umount", "-l", self.at], check=False)
            os.rmdir(self.at)


class Reader:
    """Reads one object in a thread of its own, or in this one."""

    def __init__(self, folder, key, pattern, limit):
        self.path, self.pattern, self.limit = os.path.join(folder, key), pattern, limit
        self.until, self.wanted, self.done, self.late, self.wrong = 0, 0, True, 0, None

    def check(self, offset, data):
        for at in (0, max(len(data) - 16, 0)):
            place = (offset + at) % len(self.pattern)
            want = self.pattern[place:place + 16]
            if data[at:at + len(want)] != want[:len(data) - at]:
                self.wrong = f"{self.path}: other bytes at {offset + at}"
                return False
        return True

    def out_of_time(self):
        self.done = self.done and time.monotonic() < self.until
        return not self.done

    def read(self, reads, period=None):
        """Reads pieces, each an offset and a length; with a period, one each, and what takes longer is late."""
        begun = time.monotonic()
        self.until = begun + self.limit
        file = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_NORMAL)
        pages = set()
        for number, (offset, length) in enumerate(reads):
            if period:
                time.sleep(max(0.0, begun + number * period - time.monotonic()))
            at = time.monotonic()
            data = os.pread(file, length, offset)
            self.late += bool(period) and time.monotonic() - at > period
            self.wrong = self.wrong or (f"{self.path}: {len(data)} bytes at {offset}" if len(data) != length else None)
            pages.update(range(offset // 4096, (offset + length - 1) // 4096 + 1))
            if not self.check(offset, data) or self.out_of_time():
                break
        try:
            os.close(file)
        except OSError as error:
            self.wrong = self.wrong or f"{self.path}: {error}"
        self.wanted = len(pages) * 4096

    def touch(self, offsets):
        """Touches a mapped page at each of these."""
        self.until = time.monotonic() + self.limit
        count = 0
        with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
            for offset in offsets:
                count += 1
                if memory[offset] != self.pattern[offset % len(self.pattern)]:
                    self.wrong = f"{self.path}: another byte at {offset}"
                    break
                if count % 64 == 0 and self.out_of_time():
                    break
        self.wanted = count * 4096


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
        start = cluster * 10 * MIB + chance.randrange(8 * MIB // 4096) * 4096
        yield from range(start, start + pages * 4096, 4096)


def columns():
    size, group, column = SIZES["i"], 48_000_000, 2_400_000
    return [(size - 8, 8), (size - 40_000, 39_992)] + [
        (at * group + one * column, column) for at in range(10) for one in (0, 7, 14)]


def workload(letter, folder, pattern, limit):
    """The readers of a workload and what each does."""
    def one(key, reads, **more):
        reader = Reader(folder, key, pattern, limit)
        return [(reader, lambda: reader.read(reads, **more))]

    def mapped(key, offsets):
        reader = Reader(folder, key, pattern, limit)
        return [(reader, lambda: reader.touch(offsets))]

    if letter == "b":
        return sum((one(f"b{n}", pieces(0, 256 * MIB)) for n in range(8)), [])
    if letter == "k":
        reads = [(n * PLAYER_BYTES, PLAYER_BYTES) for n in range(PLAYER_READS)]
        return sum((one(f"k{n}", reads, period=PLAYER_PERIOD) for n in range(64)), [])
    if letter == "g":
        return mapped("g", clusters())
    if letter == "j":
        return mapped("j", range(0, SIZES["j"], 4096))
    turns = [(base + n * 64 * KIB, 64 * KIB) for n in range(1024) for base in (0, 300 * MIB)]
    return one(letter, {
        "a": pieces(0, GIB), "c": scattered(500, GIB, 4 * KIB), "d": scattered(300, GIB, 128 * KIB), "e": turns,
        "f": [(n * MIB, 128 * KIB) for n in range(512)], "h": pieces(0, 128 * MIB, 64 * KIB)[::-1], "i": columns(),
        "l": scattered(100, 64 * GIB, 4 * KIB)}[letter])


def measure(letter, who, options, server, folder):
    """One workload on a new mount."""
    mount = Mount(who, options, server.url, folder, "256MiB" if letter == "k" else options.cache)
    try:
        readers = workload(letter, mount.at, server.pattern, options.limit)
        before, (_, cpu) = server.counters(), mount.took()
        begun = time.monotonic()
        threads = [threading.Thread(target=run) for _, run in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begun
        after, (rss, cpu_after) = server.counters(), mount.took()
    finally:
        mount.end()
    wrong = next((reader.wrong for reader, _ in readers if reader.wrong), None)
    if wrong:
        raise SystemExit(f"{who}: {wrong}")
    wanted = sum(reader.wanted for reader, _ in readers)
    late = sum(reader.late for reader, _ in readers)
    return {"seconds": seconds, "done": all(reader.done for reader, _ in readers),
            "late": 100 * late / (64 * PLAYER_READS), "amplification": (after["bytes"] - before["bytes"]) / max(wanted, 1),
            "requests": after["requests"] - before["requests"], "rss": rss / MIB, "cpu": cpu_after - cpu}


def summary(letter, samples):
    """Medians of the rounds."""
    middle = {name: statistics.median(sample[name] for sample in samples)
              for name in ("seconds", "late", "amplification", "requests", "rss", "cpu")}
    return {**middle, "lowest": min(sample["seconds"] for sample in samples),
            "highest": max(sample["seconds"] for sample in samples), "done": all(sample["done"] for sample in samples),
            "rounds": len(samples), "workload": letter}


def cell(letter, row):
    value = f"{row['late']:.1f} % late" if letter == "k" else f"{'' if row['done'] else '> '}{row['seconds']:.2f}"
    return f"{value} ({row['amplification']:.2f})"


def table(rows, whos):
    """The table as Markdown: medians of seconds, and in brackets bytes fetched for each wanted."""
    lines = ["| workload | bar | " + " | ".join(whos) + " |", "|---" * (len(whos) + 2) + "|"]
    for letter in dict.fromkeys(letter for letter, _ in rows):
        seconds, times = BARS[letter]
        bar = f"≤ {seconds}, {times}×" if seconds else f"0 % late, {times}×"
        cells = [cell(letter, rows[letter, who]) if (letter, who) in rows else "–" for who in whos]
        lines.append(f"| {letter} | {bar} | " + " | ".join(cells) + " |")
    lines += ["", "| workload: requests, most memory in MiB, processor seconds | " + " | ".join(whos) + " |",
              "|---" * (len(whos) + 1) + "|"]
    for letter in dict.fromkeys(letter for letter, _ in rows):
        got = [rows.get((letter, who)) for who in whos]
        cells = [f"{row['requests']:.0f}, {row['rss']:.0f}, {row['cpu']:.2f}" if row else "–" for row in got]
        lines.append(f"| {letter} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default=os.path.join(target, "release", "bowwave"))
    parser.add_argument("--server", default=os.path.join(target, "release", "examples", "shaped"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a reader may take (default 60)")
    parser.add_argument("--only", default="abcdefghijkl", help="letters of the workloads")
    parser.add_argument("--who", default="stream,ondemand,rclone,s3fs")
    parser.add_argument("--cache", default="2GiB", help="bowwave's memory, but for k, where it is 256MiB (default 2GiB)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    options = parser.parse_args()
    if not can_mount():
        raise SystemExit("no /dev/fuse that may be used: nothing can be mounted")
    unknown = set(options.only) - set(BARS)
    if unknown:
        raise SystemExit(f"no such workload: {', '.join(sorted(unknown))}; there are a to l")
    tools = {"rclone": "rclone", "s3fs": "s3fs"}
    whos = [who for who in options.who.split(",") if shutil.which(tools.get(who, options.bowwave))]
    for who in options.who.split(","):
        if who not in whos:
            print(f"{who} is not installed and is left out", file=sys.stderr)
    end_mounts_when_stopped()
    server, slow = Server(options.server), Server(options.server, 60)
    samples = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for turn in range(options.rounds):
                for letter in options.only:
                    for who in whos[turn % len(whos):] + whos[:turn % len(whos)]:
                        one = measure(letter, who, options, slow if letter == "k" else server, folder)
                        samples.setdefault((letter, who), []).append(one)
                        print(f"round {turn + 1} {letter} {who:<9} {cell(letter, one)}, {one['requests']} requests, "
                              f"{one['rss']:.0f} MiB, {one['cpu']:.2f} s of processor", file=sys.stderr, flush=True)
        finally:
            server.end()
            slow.end()
    rows = {key: summary(key[0], of) for key, of in samples.items()}
    text = table(rows, whos)
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"who": who, **row} for (_, who), row in rows.items()], file, indent=1)


if __name__ == "__main__":
    main()
