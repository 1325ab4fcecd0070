#!/usr/bin/env python3
"""Measures a mount and its readers in control groups with little and with much memory.

    tools/bench_memory.py [--bowwave PATH] [--server PATH] [--rounds N] [--limits 256,4096] [--readers 64] [--mib 16]

The mount and the reading process are in one group with a limit in MiB, as in a container. The server
(`cargo build --release -p bowwave-testkit --example shaped`) is outside. All bytes at both ends of each read are
compared. Without a writable control group of memory, version 1 or 2, it says why and ends.

Exits with 1 if the group ran out of memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

from bench_compare import Mount, Server
from compare_workloads import MIB, Directory, Reader, pieces
from mounts import can_mount, end_mounts_when_stopped


class Group:
    """A control group with a memory limit."""

    def __init__(self, limit):
        groups = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
        if "memory" in groups:
            parent, self.limit, self.events = f"/sys/fs/cgroup/memory{groups['memory']}", "memory.limit_in_bytes", "memory.oom_control"
        else:
            parent, self.limit, self.events = f"/sys/fs/cgroup{groups.get('', '/')}", "memory.max", "memory.events"
        self.path = f"{parent}/bowwave-{os.getpid()}"
        os.mkdir(self.path)
        try:
            self.write(self.limit, str(limit))
        except OSError:
            os.rmdir(self.path)
            raise

    def write(self, name, text):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(text)

    def killed(self):
        """Processes that were killed for want of memory."""
        with open(f"{self.path}/{self.events}") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))

    def enter(self):
        self.write("cgroup.procs", str(os.getpid()))

    def leave(self):
        """Moves this process back, and removes the group."""
        with open(f"{os.path.dirname(self.path)}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        os.rmdir(self.path)


def read_all(at, readers, size, pattern_file):
    """All readers at once, in this process: prints seconds."""
    import threading
    import time
    with open(pattern_file, "rb") as file:
        pattern = file.read()
    all_of = [Reader(Directory(at), f"m{n}", pieces(0, size), pattern, 300) for n in range(readers)]
    threads = [threading.Thread(target=reader.run) for reader in all_of]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wrong = next((reader.wrong for reader in all_of if reader.wrong), None)
    print(json.dumps({"seconds": time.monotonic() - begun, "wrong": wrong}))


def measure(limit, options, server, directory, pattern_file):
    """One round in a group of its own."""
    group = Group(limit * MIB)
    try:
        group.enter()
        mount = Mount("stream", options, server.url, directory, options.cache)
        before = server.counters()
        try:
            command = [sys.executable, __file__, "--read", mount.at, "--readers", str(options.readers), "--mib", str(options.mib),
                       "--pattern", pattern_file]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            took, after = mount.took(), server.counters()
        finally:
            mount.end()
        if done.returncode:
            raise SystemExit(f"readers with {limit} MiB: ended with {done.returncode}: {done.stderr[-500:]}")
        found = json.loads(done.stdout)
        if found["wrong"]:
            raise SystemExit(found["wrong"])
        requests, sent = (after[name] - before[name] for name in ("requests", "bytes"))
        return {**found, "killed": group.killed(), "rss": took[0] / MIB, "cpu": took[1], "requests": requests,
                "times": sent / options.readers / options.mib / MIB}
    finally:
        group.leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/release/bowwave")
    parser.add_argument("--server", default="target/release/examples/shaped")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limits", default="256,4096")
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--cache", default="", help="bowwave's --cache; without it, what the mount chooses")
    parser.add_argument("--mount-options", default="")
    parser.add_argument("--read", help=argparse.SUPPRESS)
    parser.add_argument("--pattern", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        return read_all(options.read, options.readers, options.mib * MIB, options.pattern)
    try:
        group = Group(256 * MIB)
        group.leave()
    except OSError as error:
        return print(f"skipped: no control group with a memory limit can be made here: {error}")
    if not can_mount():
        return print("skipped: mounts cannot be made here: /dev/fuse is missing")
    end_mounts_when_stopped()
    server = Server(options.server, objects={f"m{n}": options.mib * MIB for n in range(options.readers)})
    samples, killed = {}, 0
    try:
        with tempfile.TemporaryDirectory() as directory:
            pattern_file = os.path.join(directory, "pattern")
            with open(pattern_file, "wb") as file:
                file.write(server.pattern)
            for _ in range(options.rounds):
                for limit in map(int, options.limits.split(",")):
                    one = measure(limit, options, server, directory, pattern_file)
                    samples.setdefault(limit, []).append(one)
                    killed += one["killed"]
    finally:
        server.end()
    print("| limit, MiB | seconds | killed | memory of the mount, MiB | processor s | requests | bytes, x |\n" + "|---" * 7 + "|")
    for limit, all_of in samples.items():
        row = {name: statistics.median(one[name] for one in all_of) for name in ("seconds", "killed", "rss", "cpu", "requests", "times")}
        print(f"| {limit} | {row['seconds']:.2f} | {row['killed']:.0f} | {row['rss']:.0f} | {row['cpu']:.2f} | {row['requests']:.0f} "
              f"| {row['times']:.2f} |")
    return 1 if killed else 0


if __name__ == "__main__":
    sys.exit(main())
