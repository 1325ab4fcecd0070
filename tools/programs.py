#!/usr/bin/env python3
"""Runs well-known programs on stores, in each way that bowwave offers, and compares what they read with the file.

    tools/programs.py [--bowwave target/debug/bowwave] [--whole] [--store emulate:lustre] [--json FILE] [PROGRAM...]

The programs:

    safetensors  opens a file of tensors, which it maps, and copies each of them
    numpy        numpy.memmap: a block of 256 KiB of each 2 MiB, in random order
    sqlite       a database with mmap_size: scattered rows by key, and an index from end to end
    pyarrow      pyarrow.memory_map: an Arrow file, two of its columns
    rg-mmap      ripgrep --mmap, for a rare word
    rg-read      ripgrep --no-mmap, the same
    fio-mmap     fio's mmap engine: 4 jobs read blocks that fio wrote with checksums, in random order; threads
    fio-fork     the same in order, by processes
    fio-read     the same by pread

The ways: a mount (of the store, with the kernel's cache), `bowwave run`, and a region through the C library and ctypes,
for safetensors, numpy and pyarrow, which accept memory in place of a file name. The test suite uses small files and
`--policy range`. With --whole the files have full size (500 MB of tensors), and `--policy none` is measured too, where
the kernel does not read ahead either: times (of the reads; of ripgrep the whole run), requests and bytes.

Exits with 1 if a byte differs. tools/setup.sh programs installs the programs; one that is missing is skipped with a
message, as is a mount that fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from mounts import can_mount, end_mounts_when_stopped, mounted

MIB = 1 << 20

# Creates the files in the given directory from a seed: the same for every program.
MAKE = """
import sqlite3, sys
import numpy, pyarrow, safetensors.numpy
directory, size = sys.argv[1], int(sys.argv[2])
random = numpy.random.default_rng(7)
tensors = {f"layer{i}": random.integers(0, 255, size // 80 * 4, dtype=numpy.uint8).view(numpy.float32) for i in range(20)}
safetensors.numpy.save_file(tensors, f"{directory}/tensors")
random.integers(0, 255, size // 2, dtype=numpy.uint8).tofile(f"{directory}/array")
rows = size // 4 // 64
table = pyarrow.table({name: random.integers(0, 1 << 60, rows) for name in "abcdefgh"})
with pyarrow.OSFile(f"{directory}/arrow", "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
    writer.write_table(table, max_chunksize=65536)
base = sqlite3.connect(f"{directory}/base")
base.execute("create table t (id integer primary key, k integer, body blob)")
base.executemany("insert into t values (?, ?, ?)",
                 ((i, i * 7919 % 100003, random.bytes(400)) for i in range(size // 4 // 420)))
base.execute("create index by_k on t (k)")
base.commit()
words = numpy.array(["wave", "bow", "ship", "keel", "mast", "sail", "hull", "deck"])
with open(f"{directory}/text", "w") as text:
    for start in range(0, size // 4, 60):
        text.write(" ".join(words[random.integers(0, 8, 10)]) + (" needle\\n" if start % 60000 == 0 else "\\n"))
"""

# Prints the seconds, and then what was read.
CLOCK = """
import time
began = 0
def begin():
    global began
    began = time.monotonic()
def end(digest):
    print(time.monotonic() - began)
    print(digest)
"""

SAFETENSORS = CLOCK + """
import hashlib, sys
import safetensors, numpy
begin()
digest = hashlib.sha256()
with safetensors.safe_open(sys.argv[1] + "/tensors", framework="np") as file:
    for name in sorted(file.keys()):
        digest.update(memoryview(file.get_tensor(name)).cast("B"))
end(digest.hexdigest())
"""

BLOCKS = CLOCK + """
import hashlib, random
def blocks(array):
    digest, starts = hashlib.sha256(), list(range(0, len(array) - (256 << 10) + 1, 2 << 20))
    random.Random(7).shuffle(starts)
    for start in starts:
        digest.update(memoryview(array[start:start + (256 << 10)]))
    end(digest.hexdigest())
"""

NUMPY = BLOCKS + """
import sys
import numpy
begin()
blocks(numpy.memmap(sys.argv[1] + "/array", dtype=numpy.uint8, mode="r"))
"""

SQLITE = CLOCK + """
import hashlib, sqlite3, sys
begin()
base = sqlite3.connect(f"file:{sys.argv[1]}/base?mode=ro", uri=True)
assert base.execute("pragma mmap_size=2000000000").fetchone()[0] > 0
digest, count = hashlib.sha256(), base.execute("select max(id) from t").fetchone()[0]
for start in range(0, count, max(count // 20, 1)):
    for row in base.execute("select * from t where id between ? and ?", (start, start + 200)):
        digest.update(repr(row).encode())
digest.update(repr(base.execute("select count(*), sum(k) from t indexed by by_k where k > 0").fetchall()).encode())
end(digest.hexdigest())
"""

COLUMNS = CLOCK + """
import hashlib
def columns(source):
    import pyarrow
    digest, reader = hashlib.sha256(), pyarrow.ipc.open_file(source)
    for index in range(reader.num_record_batches):
        batch = reader.get_batch(index)
        for name in "bg":
            digest.update(batch.column(name).to_numpy().tobytes())
    end(digest.hexdigest())
"""

PYARROW = COLUMNS + """
import sys
import numpy, pyarrow
begin()
with pyarrow.memory_map(sys.argv[1] + "/arrow") as source:
    columns(source)
"""

# The C library by ctypes: what it maps is an array. The tensors are found as their file's head says.
REGION = BLOCKS + COLUMNS.removeprefix(CLOCK) + """
import ctypes, json, sys
import numpy
if sys.argv[-1] == "arrow":
    import pyarrow
library, url, options, what = sys.argv[1:]
begin()
bow = ctypes.CDLL(library)
text, pointer = ctypes.c_char_p, ctypes.c_void_p
for name, result, arguments in [
    ("open", pointer, [text, text]), ("map", pointer, [pointer, text, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint]),
    ("region_address", pointer, [pointer]), ("region_size", ctypes.c_size_t, [pointer]), ("last_error", text, []),
    ("store_counters", ctypes.c_int, [pointer, pointer, ctypes.c_size_t]), ("unmap", None, [pointer]), ("close", None, [pointer]),
]:
    function = getattr(bow, "bowwave_" + name)
    function.restype, function.argtypes = result, arguments
store = bow.bowwave_open(url.encode(), options.encode())
region = store and bow.bowwave_map(store, what.encode(), 0, 0, 0)
if not region:
    raise SystemExit(bow.bowwave_last_error().decode())
size = bow.bowwave_region_size(region)
array = numpy.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(bow.bowwave_region_address(region)))
if what == "array":
    blocks(array)
elif what == "arrow":
    columns(pyarrow.BufferReader(pyarrow.py_buffer(array)))
else:
    head = int.from_bytes(array[:8].tobytes(), "little")
    entries = json.loads(array[8:8 + head].tobytes())
    digest = hashlib.sha256()
    for name in sorted(name for name in entries if name != "__metadata__"):
        start, stop = entries[name]["data_offsets"]
        digest.update(memoryview(array[8 + head + start:8 + head + stop]))
    end(digest.hexdigest())
counters = (ctypes.c_uint64 * 16)()
bow.bowwave_store_counters(store, counters, ctypes.sizeof(counters))
print(json.dumps({"requests": counters[12], "bytes_fetched": counters[15]}), file=sys.stderr)
bow.bowwave_unmap(region)
bow.bowwave_close(store)
"""

# fio writes blocks of 16 KiB, each with a checksum and its place; later runs read and verify them.
FIO = ["fio", "--name=blocks", "--bs=16K", "--verify=crc32c", "--fallocate=none", "--output-format=json"]
FIO_READS = {
    "fio-mmap": ["--ioengine=mmap", "--rw=randread", "--thread"],
    "fio-fork": ["--ioengine=mmap", "--rw=read"],
    "fio-read": ["--ioengine=psync", "--rw=randread", "--thread"],
}

# Prints how much fio has read and verified, and fails if it found an error.
FIO_SUM = CLOCK + """
import json, subprocess, sys
begin()
done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
jobs = json.loads(done.stdout[done.stdout.index("{"):])["jobs"] if "{" in done.stdout else []
if done.returncode or not jobs or any(job["error"] for job in jobs):
    raise SystemExit(f"fio ended with {done.returncode}: {done.stdout[:300]} {done.stderr[-1000:]}")
end([(job["read"]["io_bytes"], job["read"]["total_ios"]) for job in jobs])
"""

# Inputs of the programs that can read from memory.
MAPPED = {"safetensors": "tensors", "numpy": "array", "pyarrow": "arrow"}


def programs(python):
    """Programs by name, each as a command for a directory; none for what is missing."""
    script = {"safetensors": SAFETENSORS, "numpy": NUMPY, "sqlite": SQLITE, "pyarrow": PYARROW}
    commands = {name: (lambda directory, text=text: [python, "-c", text, directory]) for name, text in script.items()}
    ripgrep = shutil.which("rg")
    for name, flag in (("rg-mmap", "--mmap"), ("rg-read", "--no-mmap")):
        commands[name] = ripgrep and (lambda directory, flag=flag: [ripgrep, "-n", flag, "needle", f"{directory}/text"])
    for name, options in FIO_READS.items():
        commands[name] = shutil.which("fio") and (lambda directory, options=options: [
            python, "-c", FIO_SUM, *FIO, *options, "--numjobs=4", f"--filename={directory}/blocks", "--aux-path=/tmp"])
    return commands


class Trial:
    """Programs, ways and what came of them."""

    def __init__(self, options, directory, python):
        self.options, self.directory, self.python = options, directory, python
        self.files = os.path.join(directory, "files")
        self.url = f"{options.store}:{self.files}"
        self.rows, self.differ = [], []

    def child(self, command):
        """Runs a command: what it printed, its counters if it has any, seconds."""
        start = time.monotonic()
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        seconds = time.monotonic() - start
        if done.returncode:
            raise SystemExit(f"programs: {' '.join(command)[:200]}: ended with {done.returncode}: {done.stderr[-2000:]}")
        printed = done.stdout
        if command[0] == self.python or self.python in command:
            took, printed = printed.split("\n", 1)
            seconds = float(took)
        last = (done.stderr.strip().splitlines() or ["{}"])[-1]
        return printed, json.loads(last) if last.startswith("{") else {}, seconds

    def mount(self, command, policy, _name):
        # Without the kernel's readahead, too, where there must be none.
        kernel = ["--set", "kernel_cache=on"] + (["--set", "kernel_readahead=0"] if policy == "none" else [])
        with mounted(self.options.bowwave, self.url, self.directory, "--policy", policy, *kernel,
                     "--cache", self.cache()) as (at, counters):
            printed, _, seconds = self.child(command(at))
        return printed, counters, seconds

    def run(self, command, policy, _name):
        shown = "/bowwave-programs"
        served = [self.options.bowwave, "run", "--map", f"{self.url}={shown}", "--policy", policy, "--stats-on-exit",
                  "--json", "--cache", self.cache(), "--", *command(shown)]
        return self.child(served)

    def region(self, _command, policy, name):
        options = f"policy={policy} cache={self.cache()}"
        return self.child([self.python, "-c", REGION, self.shared_object(), self.url, options, MAPPED[name]])

    def shared_object(self):
        """The C library: where cargo keeps it, for tests, too, or beside the program."""
        directory = os.path.dirname(os.path.abspath(self.options.bowwave))
        known = [os.path.join(directory, place, "libbowwave.so") for place in ("deps", "")]
        return next((path for path in known if os.path.exists(path)), None)

    def cache(self):
        """Room for all of the largest file, as a user would give it who has the memory."""
        return "1GiB" if self.options.whole else "64MiB"

    def ways(self, name):
        if can_mount():
            yield "mount", self.mount
        yield "run", self.run
        if name in MAPPED:
            if self.shared_object():
                yield "region", self.region
            else:
                say("libbowwave.so is missing: no region (try: cargo build -p bowwave-capi)")

    def trial(self, name, command):
        wanted, _, plain = self.child(command(self.files))
        for way, go in self.ways(name):
            for policy in self.options.policies.split(","):
                printed, counters, seconds = go(command, policy, name)
                printed = printed.replace("/bowwave-programs", self.files)
                if printed != wanted:
                    self.differ.append(f"{name}, {way}, {policy}: {printed[:200]!r} is not {wanted[:200]!r}")
                self.rows.append({"program": name, "way": way, "policy": policy, "seconds": seconds, "plain": plain,
                                  "requests": counters.get("requests"), "bytes_fetched": counters.get("bytes_fetched"),
                                  "same": printed == wanted})
        self.show(name)

    def show(self, name):
        rows = [row for row in self.rows if row["program"] == name]
        first = {row["way"]: row for row in reversed(rows)}
        for row in rows:
            if not self.options.whole:
                print(f"{name} by {row['way']}: {'same' if row['same'] else 'DIFFERENT'}", flush=True)
                continue
            beside = first[row["way"]]
            print(f"| {name} | {row['way']} | {row['policy']} | {row['seconds']:.2f} s "
                  f"| {beside['seconds'] / row['seconds']:.1f} | {row['requests']} | {row['bytes_fetched'] / 1e6:.1f} MB "
                  f"| {row['bytes_fetched'] / max(beside['bytes_fetched'], 1):.2f} "
                  f"| {'same' if row['same'] else 'DIFFERENT'} |", flush=True)


def say(text):
    print(f"programs: {text}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bowwave", default="target/debug/bowwave")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--size", type=int, help="bytes of tensors; other files are a half and a quarter")
    parser.add_argument("--store", default=None, help="what is put before the directory")
    parser.add_argument("--policies", help="compared with the first; none,range with --whole")
    parser.add_argument("--json")
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    options = parser.parse_args()
    options.store = options.store or ("emulate:lustre" if options.whole else "emulate:nvme")
    options.policies = options.policies or ("none,range" if options.whole else "range")
    end_mounts_when_stopped()
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    python = os.path.abspath(os.path.join(target, "tools", "programs", "bin", "python3"))
    if not os.path.exists(python):
        return say(f"left out: {python} is missing (try: tools/setup.sh programs)")
    known = programs(python)
    unknown = set(options.programs) - set(known)
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))} (one of {', '.join(known)})")
    directory = tempfile.mkdtemp(prefix="bowwave-programs-")
    try:
        trial = Trial(options, directory, python)
        os.mkdir(trial.files)
        size = options.size or (500_000_000 if options.whole else 8 * MIB)
        subprocess.run([python, "-c", MAKE, trial.files, str(size)], check=True)
        if shutil.which("fio"):
            subprocess.run([*FIO, "--rw=write", "--do_verify=0", f"--size={size // 4 >> 14 << 14}", f"--filename={trial.files}/blocks",
                            f"--aux-path={directory}"], check=True, stdout=subprocess.DEVNULL)
        if options.whole:
            print("| program | way | policy | time | faster than `none` | requests | fetched | of what `none` fetched | read |")
            print("|---|---|---|---|---|---|---|---|---|", flush=True)
        for name in options.programs or known:
            if known[name]:
                trial.trial(name, known[name])
            else:
                say(f"{name} left out: {name.split('-')[0]} is missing (try: tools/setup.sh programs)")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(trial.rows, file, indent=1)
        for one in trial.differ:
            say(f"error: {one}")
        return 1 if trial.differ else 0
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
