#!/usr/bin/env python3
"""Measures well-known programs on mounts of object stores, on a slow S3 server.

    tools/bench_programs.py [--bowwave PATH] [--server PATH] [--python PATH] [--rounds N] [--only PROGRAM,...]
                            [--who NAME,...] [--mount-options TEXT] [--mount-s3 PATH] [--disk] [--limit S] [--json FILE]
    tools/bench_programs.py --simulate [--only PROGRAM,...] [--rounds N]

The server is `cargo build --release -p bowwave-testkit --example shaped`: 30 ms to first byte, 90 MB/s a connection.
Each program runs three times: `cold` on a new mount, `warm` once more, and `second` on another new mount. With --disk,
both mounts have the same disk cache. Contenders alternate within a round. Figures are medians. Seconds of Python
programs are those after their imports, of others those of the process. The server counts requests and bytes. The last
column has bytes fetched for each byte that the program needs. What a program prints must be the same on each mount and
on the files themselves.

With --simulate, each program runs on a new mount with `--trace`, and `bowwave replay --pace think` replays its reads on
the device s3-steady. Its latency is that of the server as a client of a few lines waits for it; its bandwidth in all is
what one reader per processor gets through a mount of a server that does not wait. A table compares seconds from the first read to the end of the last
one, and requests for bytes, with the predicted ones.

Contenders that are not installed are left out: stream (bowwave), rclone, s3fs, mount-s3; and `own`, the program's own
S3 reader, where it has one. Programs that are missing are left out, too.

    pyarrow      read_table: 3 of 20 columns of 12 row groups        sqlite   rows by key, and an index from end to end
    pandas       read_csv of 32 MB                                   git      status in a repository of 5,000 files
    polars       scan_parquet: the columns of pyarrow                rg       a rare word in these files
    duckdb       a sum over these columns                            tar      these files
    safetensors  500 MB, all tensors                                 rsync    -n: these files, against a copy
    zarr         64 chunk files of 2 MiB, in a loop                  python   imports numpy from the mount
    h5py         lists 40 variables, reads 1.1 of them               torch    a DataLoader: 1,000 images, shuffled, 8 workers
    runs         h5py, half of one of 5 variables of 20 files of 8 MB
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_files
from bench_compare import ENGINE, KEYS, Mount, Server, bytes_of
from mounts import can_mount, end_mounts_when_stopped
from programs import CLOCK, SQLITE

# Creates the files in the given directory; prints the bytes that programs need of them.
MAKE = """
import json, os, random, shutil, sqlite3, subprocess, sys, sysconfig
import h5py, numpy, pyarrow, pyarrow.parquet, safetensors.numpy, zarr
at = sys.argv[1]
chance, small = numpy.random.default_rng(7), random.Random(7)
needed = {}

columns = {f"c{n}": chance.integers(0, 1 << 60, 12 * 250_000) for n in range(20)}
pyarrow.parquet.write_table(pyarrow.table(columns), f"{at}/table.parquet", row_group_size=250_000, compression="none",
                            use_dictionary=False)
footer = pyarrow.parquet.read_metadata(f"{at}/table.parquet")
groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
needed["parquet"] = footer.serialized_size + sum(
    group.column(n).total_compressed_size for group in groups for n in (0, 7, 14))

with open(f"{at}/csv", "w") as file:
    file.write("a,b,c,d\\n")
    for row in range(900_000):
        file.write(f"{row},{row * 7919 % 100003},{row * 31 % 977},{row % 89 / 8}\\n")
needed["csv"] = os.path.getsize(f"{at}/csv")

tensors = {f"layer{n}": chance.integers(0, 255, 25_000_000, dtype=numpy.uint8).view(numpy.float32) for n in range(20)}
safetensors.numpy.save_file(tensors, f"{at}/tensors")
needed["tensors"] = os.path.getsize(f"{at}/tensors")

array = zarr.create_array(f"{at}/zarr", shape=(64 << 18,), chunks=(1 << 18,), dtype="f8", compressors=None)
array[:] = chance.random(64 << 18)
needed["zarr"] = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(f"{at}/zarr") for name in names)

with h5py.File(f"{at}/h5", "w") as file:
    for n in range(40):
        made = file.create_dataset(f"group{n % 4}/variable{n}", data=chance.random((100, 5000)), chunks=(10, 5000))
        made.attrs["unit"] = "m"
needed["h5"] = 110 * 5000 * 8

os.makedirs(f"{at}/runs")
for n in range(20):
    with h5py.File(f"{at}/runs/{n:02d}.nc", "w") as file:
        for name in "abcde":
            values = chance.random((10, 200, 200), dtype="f4")
            file.create_dataset(name, data=values, chunks=(1, 100, 200)).attrs["unit"] = "m"
needed["runs"] = 20 * 10 * 100 * 200 * 4

base = sqlite3.connect(f"{at}/base")
base.execute("create table t (id integer primary key, k integer, body blob)")
base.executemany("insert into t values (?, ?, ?)", ((n, n * 7919 % 100003, small.randbytes(400)) for n in range(150_000)))
base.execute("create index by_k on t (k)")
base.commit()

words = ["wave", "bow", "ship", "keel", "mast", "sail", "hull", "deck"]
for n in range(5000):
    os.makedirs(f"{at}/repo/directory{n % 50:02d}", exist_ok=True)
    with open(f"{at}/repo/directory{n % 50:02d}/file{n:04d}", "w") as file:
        lines = [" ".join(small.choices(words, k=10)) for _ in range(small.randrange(20, 160))]
        file.write("\\n".join(lines + ["needle"] * (n % 1000 == 7)))
os.makedirs(f"{at}/images")
for n in range(1000):
    with open(f"{at}/images/{n:04d}.ppm", "wb") as file:
        file.write(b"P6\\n180 180\\n255\\n" + small.randbytes(180 * 180 * 3))
needed["images"] = 1000 * (15 + 180 * 180 * 3)
needed["repo"] = sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(f"{at}/repo") for name in names)
git = ["git", "-C", f"{at}/repo", "-c", "user.name=a", "-c", "user.email=a@b"]
for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
    subprocess.run(git + command, check=True)
for name in ("numpy", "numpy.libs"):
    shutil.copytree(os.path.join(sysconfig.get_path("platlib"), name), f"{at}/packages/{name}")
json.dump(needed, sys.stdout)
"""

S3 = """
import os
url = os.environ.get("BENCH_URL")
"""

PYARROW = CLOCK + S3 + """
import sys
import pyarrow.parquet, pyarrow.compute
from pyarrow.fs import S3FileSystem
begin()
store = S3FileSystem(endpoint_override=url, region="us-east-1") if url else None
table = pyarrow.parquet.read_table("data/table.parquet" if url else sys.argv[1] + "/table.parquet", columns=["c0", "c7", "c14"],
                                   filesystem=store)
end([pyarrow.compute.max(column).as_py() for column in table.columns])
"""

PANDAS = CLOCK + """
import sys
import pandas
begin()
end(pandas.read_csv(sys.argv[1] + "/csv").sum().to_list())
"""

POLARS = CLOCK + S3 + """
import sys
import polars
begin()
options = {"aws_endpoint_url": url, "aws_allow_http": "true"} if url else None
found = polars.scan_parquet("s3://data/table.parquet" if url else sys.argv[1] + "/table.parquet", storage_options=options)
end(found.select("c0", "c7", "c14").max().collect().rows())
"""

# Its own reader is an extension, here from the package index: duckdb-extension-httpfs.
DUCKDB = CLOCK + S3 + """
import sys
import duckdb
base = duckdb.connect()
if url:
    import importlib.util, pathlib
    at = pathlib.Path(importlib.util.find_spec("duckdb_extension_httpfs").origin).parent
    base.execute(f"load '{next(at.rglob('httpfs.duckdb_extension'))}'")
    for name, value in (("endpoint", url.partition("://")[2]), ("url_style", "path"), ("use_ssl", "false"), ("region", "us-east-1"),
                        ("access_key_id", os.environ["AWS_ACCESS_KEY_ID"]), ("secret_access_key", os.environ["AWS_SECRET_ACCESS_KEY"])):
        base.execute(f"set s3_{name}='{value}'")
begin()
table = "s3://data/table.parquet" if url else sys.argv[1] + "/table.parquet"
end(base.sql(f"select sum(c0), sum(c7), sum(c14) from read_parquet('{table}')").fetchall())
"""

SAFETENSORS = CLOCK + """
import sys
import numpy, safetensors
begin()
total = 0
with safetensors.safe_open(sys.argv[1] + "/tensors", framework="np") as file:
    for name in sorted(file.keys()):
        total ^= int(numpy.bitwise_xor.reduce(file.get_tensor(name).view(numpy.uint64)))
end(total)
"""

ZARR = CLOCK + S3 + """
import sys
import zarr
if url:
    import s3fs
begin()
if url:
    array = zarr.open_array("s3://data/zarr", mode="r", storage_options={"endpoint_url": url})
else:
    array = zarr.open_array(sys.argv[1] + "/zarr", mode="r")
size = array.chunks[0]
end(sum(float(array[start:start + size].sum()) for start in range(0, array.shape[0], size)))
"""

H5PY = CLOCK + """
import sys
import h5py
begin()
with h5py.File(sys.argv[1] + "/h5", "r") as file:
    listed = []
    file.visititems(lambda name, item: listed.append((name, getattr(item, "shape", None), list(item.attrs.items()))))
    total = float(file["group2/variable22"][:].sum()) + float(file["group3/variable7"][:10].sum())
end((len(listed), total))
"""

RUNS = CLOCK + """
import os, sys
import h5py
begin()
total = 0.0
for name in sorted(os.listdir(sys.argv[1] + "/runs")):
    with h5py.File(sys.argv[1] + "/runs/" + name, "r") as file:
        total += float(file["c"][:, :100].sum())
end(total)
"""

IMPORT = CLOCK + """
import sys
sys.path.insert(0, sys.argv[1] + "/packages")
sys.dont_write_bytecode = True
begin()
import numpy
assert numpy.__file__.startswith(sys.argv[1])
end(int(numpy.arange(10).sum()))
"""

# A directory of images, shuffled, by eight workers.
TORCH = CLOCK + """
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __init__(self, at):
        self.paths = sorted(entry.path for entry in os.scandir(at))
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[15:].view(180, 180, 3)
torch.set_num_threads(1)
torch.manual_seed(1)
begin()
images = DataLoader(Images(sys.argv[1] + "/images"), batch_size=32, shuffle=True, num_workers=8)
end(sum(int(batch.sum()) for batch in images))
"""

# Variables of the programs. The index of a repository is not rewritten.
VARIABLES = {"GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
             "GIT_CONFIG_KEY_1": "core.fileMode", "GIT_CONFIG_VALUE_1": "false", "GIT_OPTIONAL_LOCKS": "0", "AWS_EC2_METADATA_DISABLED": "true", **KEYS}
# What mounts do not agree about is left out.
TAR = "--mtime=@0 --owner=0 --group=0 --mode=a=rX --sort=name --exclude=.git"
# Options for a disk cache in a directory.
DISK = {"stream": "--disk-cache {}", "mount-s3": "--cache {}", "s3fs": "-o use_cache={}",
        "rclone": "--vfs-cache-mode full --cache-dir {}"}


class Program:
    """A program: its command for a directory, and which files it needs."""

    def __init__(self, command, needs=None, script=False, own=False):
        self.command, self.needs, self.script, self.own = command, needs, script, own

    def run(self, at, limit, url=None):
        """Seconds and what it printed; no text if it took too long."""
        variables = {**os.environ, **VARIABLES, **({"BENCH_URL": url} if url else {})}
        begun = time.monotonic()
        try:
            done = subprocess.run(self.command(at), env=variables, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return limit, None
        took = time.monotonic() - begun
        if done.returncode:
            raise SystemExit(f"{self.command(at)[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        if not self.script:
            return took, done.stdout.replace(at, "")
        seconds, printed = done.stdout.split("\n", 1)
        return float(seconds), printed


def programs(python, files):
    """All programs that are here, by name."""
    def has(module, python=python):
        return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0

    def script(text, module, needs, own=False, python=python):
        command = lambda at: [python, "-W", "ignore", "-c", text, at]
        return Program(command, needs, script=True, own=own) if has(module, python) else None

    def tool(name, command, needs=None):
        return Program(command, needs) if shutil.which(name) else None

    all_of = {
        "pyarrow": script(PYARROW, "pyarrow.parquet", "parquet", own=True), "pandas": script(PANDAS, "pandas", "csv"),
        "polars": script(POLARS, "polars", "parquet", own=True), "duckdb": script(DUCKDB, "duckdb", "parquet", own=has("duckdb_extension_httpfs")),
        "safetensors": script(SAFETENSORS, "safetensors", "tensors"), "zarr": script(ZARR, "zarr", "zarr", own=True),
        "h5py": script(H5PY, "h5py", "h5"), "runs": script(RUNS, "h5py", "runs"), "sqlite": script(SQLITE, "sqlite3", None),
        "git": tool("git", lambda at: ["git", "-C", f"{at}/repo", "status", "--short"], "repo"),
        "rg": tool("rg", lambda at: ["rg", "--sort", "path", "-c", "needle", f"{at}/repo"], "repo"),
        # To /dev/null itself, tar reads nothing.
        "tar": tool("tar", lambda at: ["sh", "-c", f"tar -C {at} {TAR} -cf - repo | cksum"], "repo"),
        "rsync": tool("rsync", lambda at: ["rsync", "-rn", "--size-only", "--out-format=%n", f"{at}/repo/", f"{files}/repo/"]),
        "python": script(IMPORT, "numpy", None),
        # Debian's: the package index has gigabytes.
        "torch": script(TORCH, "torch", "images", python="/usr/bin/python3"),
    }
    for name in (name for name, program in all_of.items() if program is None):
        print(f"{name} is not installed and is left out", file=sys.stderr)
    return {name: program for name, program in all_of.items() if program}


def measured(server, run):
    """One run, with the requests that it caused."""
    before = server.counters()
    seconds, printed = run()
    after = server.counters()
    counts = {name: after[name] - before[name] for name in ("heads", "lists", "gets", "bytes")}
    return {"seconds": seconds, "late": printed is None, **counts}, printed


def measure(program, who, options, server, directory):
    """A program on two mounts: what it printed, and a sample for each state."""
    if who == "own":
        sample, printed = measured(server, lambda: program.run("", options.limit, server.url))
        return {"cold": sample}, [printed]
    found, texts = {}, []
    disk = tempfile.mkdtemp(dir=directory)
    for states in (("cold", "warm"), ("second",)):
        mount = Mount(who, options, server.url, directory, options.cache, DISK[who].format(disk) if options.disk else "")
        try:
            for state in states:
                sample, printed = measured(server, lambda: program.run(mount.at, options.limit))
                found[state] = {**sample, "rss": mount.took()[0] / (1 << 20), "cpu": mount.took()[1]}
                texts.append(printed)
        finally:
            mount.end()
    shutil.rmtree(disk, ignore_errors=True)
    return found, texts


def table(samples, needed):
    """Medians as Markdown."""
    lines = ["| program | mount | state | seconds | HEAD | LIST | GET | MB | memory MiB | processor s | bytes per byte |",
             "|---" * 11 + "|"]
    rows = []
    for (name, who, state, needs), all_of in samples.items():
        row = {key: statistics.median(sample.get(key, 0) for sample in all_of) for key in all_of[0]}
        late = "> " if any(sample["late"] for sample in all_of) else ""
        times = f"{row['bytes'] / needed[needs]:.2f}" if needs and state != "warm" else "–"
        lines.append(f"| {name} | {who} | {state} | {late}{row['seconds']:.2f} | {row['heads']:.0f} | {row['lists']:.0f} "
                     f"| {row['gets']:.0f} | {row['bytes'] / 1e6:.1f} | {row.get('rss', 0):.0f} | {row.get('cpu', 0):.2f} "
                     f"| {times} |")
        rows.append({"program": name, "who": who, "state": state, "needed": needed.get(needs), **row})
    return "\n".join(lines), rows


def read_span(trace):
    """Seconds from the first read of a trace to the end of the last one; requires rows in the order of time."""
    with open(trace) as file:
        times = [int(line.split(",", 1)[0]) for line in file if line[0].isdigit()]
    return (times[-1] - times[0]) / 1e9 if times else 0.0


def read_part(path, start, end):
    """Reads bytes of a file in order."""
    memory = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while start < end and (count := os.preadv(file.fileno(), [memoryview(memory)[:end - start]], start)):
            start += count


def mb_s_without_wait(options, files, directory):
    """Bytes a microsecond that one reader per processor gets through a mount if the store does not wait."""
    server = Server(options.server, shaped=False, objects={"tensors": f"@{files}/tensors"})
    mount = Mount("stream", options, server.url, directory, options.cache)
    try:
        path, readers = os.path.join(mount.at, "tensors"), os.cpu_count()
        part = os.path.getsize(path) // readers
        begun = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(readers) as pool:
            list(pool.map(lambda at: read_part(path, at * part, (at + 1) * part), range(readers)))
        return part * readers / (time.monotonic() - begun) / 1e6
    finally:
        mount.end()
        server.end()


def simulate(names, known, expected, options, server, files, directory):
    """Measured and predicted seconds and requests of each program, as Markdown."""
    # What programs, mount and server cost on shared processors bounds the bandwidth.
    rate = statistics.median(mb_s_without_wait(options, files, directory) for _ in range(3))
    device = f"s3-steady:{ENGINE},first_byte_ms={server.first_byte_ms():.2f},total_mb_s={rate:.0f}"
    print(device, file=sys.stderr)
    lines = ["| program | seconds | predicted | ratio | GET | predicted | ratio |", "|---" * 7 + "|"]
    for name in names:
        measured_of, predicted_of = [], []
        for turn in range(options.rounds):
            trace = os.path.join(directory, f"{name}{turn}.csv")
            mount = Mount("stream", options, server.url, directory, options.cache, f"--trace {trace}")
            try:
                # Names are known, so what comes with an open is requested then, as the trace has it.
                os.listdir(mount.at)
                sample, printed = measured(server, lambda: known[name].run(mount.at, options.limit))
            finally:
                mount.end()
            if printed != expected[name]:
                raise SystemExit(f"{name}: {printed!r} and not {expected[name]!r}"[:2000])
            command = [options.bowwave, "replay", trace, "--policy", "stream", "--ra-pages", "256", "--pace", "think", "--cache",
                       str(bytes_of(options.cache)), "--device", device, "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
            row = json.loads(done.stdout)[0]
            measured_of.append((read_span(trace), sample["gets"]))
            predicted_of.append((row["seconds"], row["requests"]))
        middle = lambda samples, at: statistics.median(sample[at] for sample in samples)
        cells = []
        for at, digits in ((0, 2), (1, 0)):
            seen, predicted = middle(measured_of, at), middle(predicted_of, at)
            cells += [f"{seen:.{digits}f}", f"{predicted:.{digits}f}", f"{predicted / seen:.2f}" if seen else "–"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default=os.path.join(target, "release", "bowwave"))
    parser.add_argument("--server", default=os.path.join(target, "release", "examples", "shaped"))
    parser.add_argument("--python", default=os.path.join(target, "tools", "programs", "bin", "python3"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--who", default="")
    parser.add_argument("--cache", default="192MiB")
    parser.add_argument("--mount-options", default="")
    parser.add_argument("--mount-s3", default="mount-s3")
    parser.add_argument("--disk", action="store_true", help="with a disk cache, which the second mount has, too")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a program may take (default 60)")
    parser.add_argument("--simulate", action="store_true", help="compare with a simulation of the recorded reads")
    parser.add_argument("--files", help="keep the created files in this directory, and use them again")
    parser.add_argument("--json")
    options = parser.parse_args()
    if not can_mount():
        raise SystemExit("mounts cannot be made here: /dev/fuse is missing")
    end_mounts_when_stopped()
    if os.path.dirname(options.mount_s3):
        os.environ["PATH"] = os.path.dirname(options.mount_s3) + os.pathsep + os.environ["PATH"]
    here = [*bench_files.installed(options), "own"]
    whos = [who for who in (options.who.split(",") if options.who else here) if who in here]
    samples = {}
    with tempfile.TemporaryDirectory() as directory:
        files = options.files or os.path.join(directory, "files")
        kept = os.path.join(files, "needed.json")
        if not os.path.exists(kept):
            os.makedirs(files)
            made = subprocess.run([options.python, "-c", MAKE, files], stdout=subprocess.PIPE, check=True)
            with open(kept, "wb") as file:
                file.write(made.stdout)
        with open(kept) as file:
            needed = json.load(file)
        known = programs(options.python, files)
        names = [name for name in known if not options.only or name in options.only.split(",")]
        expected = {name: known[name].run(files, options.limit)[1] for name in names}
        server = Server(options.server, objects={name: f"@{files}/{name}" for name in os.listdir(files)})
        try:
            if options.simulate:
                print(simulate(names, known, expected, options, server, files, directory))
                return
            for turn in range(options.rounds):
                for name in names:
                    for who in whos[turn % len(whos):] + whos[:turn % len(whos)]:
                        program = known[name]
                        if who == "own" and not program.own:
                            continue
                        found, texts = measure(program, who, options, server, directory)
                        if any(text not in (expected[name], None) for text in texts):
                            raise SystemExit(f"{name} on {who}: {texts} and not {expected[name]!r}"[:2000])
                        for state, sample in found.items():
                            samples.setdefault((name, who, state, program.needs), []).append(sample)
                            print(f"round {turn + 1} {name} {who} {state}: {sample['seconds']:.2f} s, {sample['heads']} HEAD, "
                                  f"{sample['lists']} LIST, {sample['gets']} GET, {sample['bytes'] / 1e6:.1f} MB",
                                  file=sys.stderr, flush=True)
        finally:
            server.end()
    text, rows = table(samples, needed)
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    sys.exit(main())
