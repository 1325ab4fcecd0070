#!/usr/bin/env python3
"""Runs well-known programs in memory larger than RAM, and compares their results with those in plain memory.

    tools/programs_swap.py [--bowwave target/debug/bowwave] [--whole] [--kernel] [--directory /var/tmp] [--json FILE]
                           [PROGRAM...]

The programs:

    sort        sorts lines, with a buffer for all of them in memory
    numpy-dot   a product of two matrices, each larger than the memory
    numpy-sort  sorts an array of 4 times the memory
    sqlite      a database in memory: filled, indexed, queried
    redis       redis-server: filled, queried at random, partly deleted and filled again

Each runs unchanged, and under `bowwave run --swap` with --memory; the results must be equal. Sizes are small for the
test suite; with --whole they are 1 GiB over 256 MiB.

With --kernel each also runs under the kernel's swap, to a file in the same directory. A cgroup limits memory to the
most that the program had in memory under bowwave, files not counted: --memory, and what bowwave does not swap. That
needs root, and a machine without swap. The tool removes its swap and files in any case (see tools/compare_swap.py for
where not to run it).

Exits with 1 if a result differs. tools/setup.sh programs installs numpy; a program that is missing is skipped with a
message.
"""

import argparse
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from swapping import Group, Undo, check, not_rotating, preallocated, remember, run, vmstat

MIB = 1 << 20

DIGEST = """
import hashlib, sys
import numpy
size = int(sys.argv[1])
"""

NUMPY_DOT = DIGEST + """
side = int((size / 16) ** 0.5) // 64 * 64
random = numpy.random.default_rng(7)
a, b = (random.random((side, side)) for _ in range(2))
print(hashlib.sha256(memoryview(a @ b).cast("B")).hexdigest())
"""

NUMPY_SORT = DIGEST + """
array = numpy.random.default_rng(7).integers(0, 1 << 62, size // 8)
array.sort()
print(hashlib.sha256(memoryview(array).cast("B")).hexdigest())
"""

SQLITE = """
import hashlib, random, sqlite3, sys
size, numbers = int(sys.argv[1]), random.Random(7)
base, count = sqlite3.connect(":memory:"), size // 1100
base.execute("create table t (id integer primary key, k integer, body blob)")
base.executemany("insert into t values (?, ?, ?)",
                 ((i, i * 7919 % 100003, numbers.randbytes(1000)) for i in range(count)))
base.execute("create index by_k on t (k)")
digest = hashlib.sha256()
for _ in range(count // 10):
    row = base.execute("select * from t where id = ?", (numbers.randrange(count),)).fetchone()
    digest.update(repr(row).encode())
base.execute("delete from t where k % 3 = 0")
for row in base.execute("select k, count(*), sum(length(body)) from t group by k order by k"):
    digest.update(repr(row).encode())
for (body,) in base.execute("select body from t"):
    digest.update(body)
print(digest.hexdigest())
"""


class Redis:
    """A client that says many things before it listens."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(600):
            try:
                self.socket.connect(path)
                break
            except OSError:  # It is not there yet.
                time.sleep(0.1)
        self.file = self.socket.makefile("rb")

    def ask(self, commands):
        """Answers, in order."""
        text = b"".join(b"*%d\r\n%s" % (len(words), b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))
                        for words in commands)
        self.socket.sendall(text)
        return [self.answer() for _ in commands]

    def answer(self):
        line = self.file.readline()
        if line[:1] == b"$":
            size = int(line[1:])
            return None if size < 0 else self.file.read(size + 2)[:-2]
        if line[:1] not in (b"+", b":"):
            raise RuntimeError(f"redis says {line!r}")
        return line


def ask_redis(path, size):
    """Fills a server and asks it; what it answers, as a digest."""
    redis, numbers, count = Redis(path), random.Random(7), size // 1000
    digest = hashlib.sha256()

    def value(key):
        return random.Random(key).randbytes(500 + key % 1000)

    for start in range(0, count, 200):
        redis.ask([(b"SET", b"key:%d" % key, value(key)) for key in range(start, min(start + 200, count))])
    for _ in range(count // 200):
        for answer in redis.ask([(b"GET", b"key:%d" % numbers.randrange(count)) for _ in range(100)]):
            digest.update(answer)
    for start in range(0, count, 400):
        redis.ask([(b"DEL", b"key:%d" % key) for key in range(start, min(start + 200, count))])
    for start in range(0, count, 400):
        redis.ask([(b"SET", b"other:%d" % key, value(key + 1)) for key in range(start, min(start + 200, count))])
    digest.update(b"".join(redis.ask([(b"DEBUG", b"DIGEST"), (b"DBSIZE",)])))
    redis.socket.sendall(b"SHUTDOWN NOSAVE\r\n")
    return digest.hexdigest()


class Trial:
    def __init__(self, options, directory, python, undo):
        self.options, self.directory, self.python, self.undo = options, directory, python, undo
        self.size = options.size or (1 << 30 if options.whole else 32 * MIB)
        self.memory = self.size // 4
        self.rows, self.differ = [], []

    def programs(self):
        """A program's command, the least allocation that it is served from on, and what asks it, by name."""
        numpy = os.path.exists(self.python)
        lines = os.path.join(self.directory, "lines")
        redis = os.path.join(self.directory, "redis")
        program = self.redis_server()
        server = [program, "--save", "", "--appendonly", "no", "--port", "0", "--unixsocket", redis,
                  "--dir", self.directory, "--enable-debug-command", "yes", "--logfile", "/dev/null"]
        return {
            "sort": (["sort", f"--buffer-size={self.size * 4}b", "--parallel=1", lines], "64KiB", None),
            "numpy-dot": ([self.python, "-c", NUMPY_DOT, str(self.size)] if numpy else None, "64KiB", None),
            "numpy-sort": ([self.python, "-c", NUMPY_SORT, str(self.size)] if numpy else None, "64KiB", None),
            "sqlite": ([sys.executable, "-c", SQLITE, str(self.size)], "1KiB", None),
            "redis": (server if program else None, "256",
                      lambda: ask_redis(redis, self.size)),
        }

    def redis_server(self):
        """The server, or its program under the name that makes it one."""
        found, other = shutil.which("redis-server"), shutil.which("redis-check-rdb")
        if found or not other:
            return found
        path = os.path.join(self.directory, "redis-server")
        os.symlink(other, path)
        return path

    def make(self):
        """Lines to be sorted."""
        numbers = random.Random(7)
        with open(os.path.join(self.directory, "lines"), "w", encoding="ascii") as file:
            for _ in range(self.size // 4000):
                file.write(f"{numbers.getrandbits(15996):03999x}\n")

    def go(self, command, ask, group=None):
        """What a program brings, its counters if there are any, and its seconds."""
        began, over, peak = time.monotonic(), threading.Event(), [0]

        def watch():
            while not over.wait(0.02):
                peak[0] = max(peak[0], group.used() - self.waits(child))

        watcher = threading.Thread(target=watch) if group else None
        with tempfile.TemporaryFile() as said:
            env = os.environ | {"OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C"}
            enter = group.enter if group else None
            # Output goes through a pipe: page cache of a file would count as the program's memory.
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, preexec_fn=enter, env=env)
            self.undo.add(child.kill)
            try:
                if watcher:
                    watcher.start()
                digest = ask() if ask else None
                printed = hashlib.file_digest(child.stdout, "sha256").hexdigest()
                code = child.wait()
            finally:
                over.set()
                if watcher:
                    watcher.join()
                self.undo.pop()
            seconds = time.monotonic() - began
            said.seek(0)
            text = said.read().decode(errors="replace")
            if code != 0:
                raise RuntimeError(f"{command[:4]} ended with {code}: {text[-500:]}")
        last = text.strip().splitlines()[-1:]
        counters = json.loads(last[0]) if last and last[0].startswith("{") else {}
        return {"digest": digest or printed, "counters": counters, "seconds": seconds, "memory": peak[0]}

    def waits(self, child):
        """Bytes of memory of `bowwave run`, while it waits for the program to print its counters: those are not the program's."""
        process = Path(f"/proc/{child.pid}")
        try:
            if (process / "exe").resolve() != Path(self.options.bowwave).resolve():
                return 0
            lines = (process / "status").read_text(encoding="ascii", errors="replace").splitlines()
            return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon:"))
        except (OSError, StopIteration):  # It has ended.
            return 0

    def bowwave(self, command, least, ask):
        served = [self.options.bowwave, "run", "--swap", str(self.size * 4), "--spill", self.directory, "--memory", str(self.memory),
                  "--swap-from", least, "--stats", "--json", "--", *command]
        if not self.options.kernel:
            return self.go(served, ask)
        begun = len(self.undo.steps)
        try:
            return self.go(served, ask, Group(self.undo))
        finally:
            self.undo.back_to(begun)

    def kernel(self, command, memory, ask):
        """By the kernel's swap, with `memory` bytes of memory."""
        begun = len(self.undo.steps)
        try:
            self.swap_on()
            before = vmstat()
            got = self.go(command, ask, Group(self.undo, memory))
            after = vmstat()
        finally:
            self.undo.back_to(begun)
        names = {"pswpin": "swap_in", "pswpout": "swap_out", "swap_ra": "swap_ra", "swap_ra_hit": "swap_ra_hit"}
        return got | {"counters": {to: after[name] - before[name] for name, to in names.items()}}

    def trial(self, name, command, least, ask):
        plain = self.go(command, ask)
        row = {"program": name, "plain": plain["seconds"]}
        row["bowwave"] = got = self.bowwave(command, least, ask)
        if got["counters"].get("swap_out", 0) * 4096 < self.size // 8:
            self.differ.append(f"{name}: only {got['counters'].get('swap_out')} pages were swapped out")
        if self.options.kernel:
            row["kernel"] = self.kernel(command, got["memory"], ask)
        for way in ("bowwave", "kernel"):
            if way in row and row[way]["digest"] != plain["digest"]:
                self.differ.append(f"{name} by {way}: {row[way]['digest']} is not {plain['digest']}")
        self.rows.append(row)
        self.show(row, plain["digest"])

    def swap_on(self):
        path = os.path.join(self.directory, "swap")
        preallocated(path, self.size * 4)
        self.undo.add(os.remove, path)
        run("mkswap", path)
        run("swapon", path)
        self.undo.add(run, "swapoff", path)

    def show(self, row, wanted):
        for way in ("bowwave", "kernel"):
            if way not in row:
                continue
            got, counters = row[way], row[way]["counters"]
            same = "same" if got["digest"] == wanted else "DIFFERENT"
            if not self.options.whole:
                print(f"{row['program']} by {way}: {same}", flush=True)
                continue
            ahead, known = counters.get("swap_ra", 0), counters.get("swap_mapped_ahead", 0)
            hits = counters.get("swap_ra_hit", 0) + known - counters.get("swap_wasted", 0) * bool(known)
            share = f"{100 * hits / ahead:.1f} %" if ahead else "-"
            memory = f"{got['memory'] >> 20}" if got["memory"] else "-"
            print(f"| {row['program']} | {way} | {row['plain']:.1f} s | {got['seconds']:.1f} s | {memory} "
                  f"| {counters.get('swap_in', 0) >> 8} | {counters.get('swap_out', 0) >> 8} | {ahead >> 8} | {share} | {same} |",
                  flush=True)


def say(text):
    print(f"programs_swap: {text}", file=sys.stderr)


def may_serve():
    """Whether the kernel's touches can be served here."""
    if os.geteuid() == 0 or os.access("/dev/userfaultfd", os.W_OK):
        return True
    try:
        return Path("/proc/sys/vm/unprivileged_userfaultfd").read_text().strip() == "1"
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--kernel", action="store_true", help="beside the kernel's swap; needs root")
    parser.add_argument("--size", type=int, help="bytes of each program's memory; a quarter of it is the memory there is")
    parser.add_argument("--directory", default="/var/tmp", help="on a disk, with room for 5 times --size")
    parser.add_argument("--json")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    if not may_serve():
        return say("left out: it takes root, vm.unprivileged_userfaultfd=1, or leave to open /dev/userfaultfd")
    undo = Undo()
    directory = tempfile.mkdtemp(prefix="bowwave-programs-", dir=options.directory)
    undo.add(shutil.rmtree, directory, True)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    python = os.path.abspath(os.path.join(target, "tools", "programs", "bin", "python3"))
    trial = Trial(options, directory, python, undo)
    if options.kernel:
        check(options.directory, trial.memory)
        remember(undo, "/proc/sys/vm/page-cluster", 3)
        not_rotating(undo, options.directory)
    known = trial.programs()
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))} (one of {', '.join(known)})")
    if options.whole:
        print("| program | by | in plain memory | time | MiB of memory | MiB in | MiB out | MiB read ahead | of use | result |")
        print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.programs or known:
        command, least, ask = known[name]
        if name == "sort":
            trial.make()
        if command:
            trial.trial(name, command, least, ask)
        else:
            say(f"{name} left out: it is missing (try: tools/setup.sh programs, apt-get install redis-tools)")
    if options.json:
        Path(options.json).write_text(json.dumps(trial.rows, indent=1), encoding="utf-8")
    for one in trial.differ:
        say(f"error: {one}")
    return 1 if trial.differ else 0


if __name__ == "__main__":
    sys.exit(main())
