#!/usr/bin/env python3
"""Compares bowwave's Python package with its peers, on the workloads of Python's users and a slow S3 server.

    tools/bench_python.py [--python PYTHON] [--rounds N] [--only ROW,...] [--who NAME,...] [--limit SECONDS] [--json FILE]
                          [--module target/release/lib_bowwave.so] [--server target/release/examples/shaped]

The server is `cargo build --release -p bowwave-testkit --example shaped`: 30 ms to first byte, 90 MB/s a connection. The
extension module is `cargo build --release -p bowwave-python`. PYTHON has fsspec, s3fs, pyarrow, pandas, polars, zarr, h5py,
safetensors, obstore, smart_open, boto3, duckdb and duckdb-extension-httpfs; a peer that is missing shows its error. Each
measurement is a process of its own, which imports its libraries before the clock starts, so all caches are cold. Peers take
turns within a round, so that noise of the machine affects all alike. Figures are medians. Requests, bytes and requests in
flight are the server's; amplification is bytes sent for each byte that the workload uses. The bytes or values of results are
checked, those of tables by their rows, and a wrong one ends the program.

The row `hits` has cached reads by one and by two threads, beside reads of a local file in the kernel's page cache.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

MIB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
PERIOD = 1_048_573
#: Seconds, and bytes sent for each byte used, that the project wants.
BARS = {"sequential": (0.45, 1.5), "compute": (None, 1.5), "random": (6.35, 1.05), "hinted": (None, 1.05), "clusters": (2.0, 1.7), "two": (0.5, 1.5),
        "stride": (0.5, 1.5), "pandas": (0.35, 1.5), "pyarrow": (0.25, 1.5), "zarr": (None, 1.5), "shards": (None, 1.5), "zarr_loop": (0.5, 1.5),
        "hdf5": (0.9, 2.2), "hdf5_default": (None, 2.2), "runs": (None, 2.2), "tar": (4.8, 1.5), "safetensors": (0.9, 1.5),
        "dataset": (None, 1.5), "files": (None, 1.5), "files_heads": (None, 1.5), "files_shuffled": (None, 1.5)}
FSSPEC = ["none", "readahead", "bytes", "blockcache", "adaptive", "cache", "bowwave"]
PEERS = {row: FSSPEC for row in ("clusters", "stride", "hdf5_default", "runs")}
PEERS |= {"sequential": ["background", "mmap", "first", "all", "smart_open", "obstore", *FSSPEC], "compute": ["background", *FSSPEC],
          "random": ["background", "mmap", "smart_open", "obstore", *FSSPEC], "hinted": ["none", "obstore", "bowwave"],
          "two": ["background", *FSSPEC], "hdf5": ["first", *FSSPEC],
          "pandas": ["s3fs", "none", "all", "adaptive", "ranges", "polars", "cache", "bowwave"],
          "pyarrow": ["native", "none", "adaptive", "duckdb", "polars", "cache", "bowwave"],
          "dataset": ["s3fs", "none", "native", "duckdb", "polars", "bowwave"],
          "tar": ["readahead", "adaptive", "cache", "bowwave"], "safetensors": ["none", "adaptive", "bowwave"]}
PEERS |= {row: ["s3fs", "obstore", "bowwave"] for row in ("zarr", "shards", "zarr_loop")}
PEERS |= {row: ["none", "readahead", "cache", "bowwave"] for row in ("files", "files_heads", "files_shuffled")}
SIZES = {"raw": 256 * MIB, "small": 64 * MIB} | {f"files/{at}.bin": 100_000 for at in range(400)}


# The data.

def make_data(directory):
    """Files whose bytes the server reads: made once, and kept."""
    import numpy
    rng = numpy.random.default_rng(1)
    path = os.path.join(directory, "table.parquet")
    if not os.path.exists(path):
        import pyarrow
        import pyarrow.parquet
        rows = 8 * 235_000
        table = pyarrow.table({f"c{at}": rng.random(rows) for at in range(20)})
        pyarrow.parquet.write_table(table, path, row_group_size=rows // 8, compression="none", use_dictionary=False)
    path = os.path.join(directory, "dataset")
    if not os.path.exists(path):
        import pyarrow
        import pyarrow.parquet
        for at in range(64):
            table = pyarrow.table({f"c{column}": rng.random(20_000) for column in range(20)})
            part = os.path.join(path, f"part={at // 8}")
            os.makedirs(part, exist_ok=True)
            pyarrow.parquet.write_table(table, os.path.join(part, f"{at}.parquet"), row_group_size=10_000, compression="none",
                                        use_dictionary=False)
    path = os.path.join(directory, "array.zarr")
    if not os.path.exists(path):
        import zarr
        array = zarr.create_array(path, shape=(64, MIB // 4), chunks=(1, MIB // 4), dtype="f8", compressors=None)
        array[:] = numpy.arange(64)[:, None] + numpy.zeros((64, MIB // 4))
    path = os.path.join(directory, "shards.zarr")
    if not os.path.exists(path):
        import zarr
        array = zarr.create_array(path, shape=(64, MIB // 4), chunks=(1, MIB // 4), shards=(16, MIB // 4), dtype="f8",
                                  compressors=None)
        array[:] = numpy.arange(64)[:, None] + numpy.zeros((64, MIB // 4))
    # Metadata in pages of their own, as files for the cloud have them, and in the layout of h5py's default.
    for name, layout in (("vars.h5", {"fs_strategy": "page", "fs_page_size": MIB}), ("default.h5", {})):
        path = os.path.join(directory, name)
        if os.path.exists(path):
            continue
        import h5py
        with h5py.File(path, "w", **layout) as file:
            for at in range(40):
                values = rng.random((704, 704))
                file.create_dataset(f"g{at % 4}/v{at}", data=values, chunks=(64, 64)).attrs["units"] = f"u{at}"
    path = os.path.join(directory, "runs")
    if not os.path.exists(path):
        import h5py
        os.makedirs(path)
        for at in range(20):
            with h5py.File(os.path.join(path, f"run{at:02}.nc"), "w") as file:
                for name in "abcde":
                    values = rng.random((10, 200, 200), dtype="f4")
                    file.create_dataset(name, data=values, chunks=(1, 100, 200)).attrs["units"] = name
    for at in range(8):
        path = os.path.join(directory, f"shard{at}.tar")
        if not os.path.exists(path):
            import io
            import tarfile
            with tarfile.open(path, "w") as archive:
                for member in range(400):
                    entry = tarfile.TarInfo(f"{at}-{member}.bin")
                    entry.size = 100_000
                    archive.addfile(entry, io.BytesIO(bytes([at]) * entry.size))
    path = os.path.join(directory, "model.safetensors")
    if not os.path.exists(path):
        header, start = {}, 0
        for at in range(16):
            header[f"t{at}"] = {"dtype": "F32", "shape": [2048, 2048], "data_offsets": [start, start + 16 * MIB]}
            start += 16 * MIB
        text = json.dumps(header).encode()
        with open(path, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for at in range(16):
                out.write(numpy.full((2048, 2048), at, "f4").tobytes())


# The workloads, in a process of their own: each returns its useful bytes.

class Ranges:
    """An object as obstore reads it: one range for each read. Its own reader fetches at least 1 MiB."""

    def __init__(self, store, key):
        self.store, self.key, self.position = store, key, 0

    def seek(self, position):
        self.position = position

    def read(self, length):
        import obstore
        data = obstore.get_range(self.store, self.key, start=self.position, length=length)
        self.position += len(data)
        return data


class Context:
    """How a contender opens objects of the server."""

    def __init__(self, who, url):
        self.who, self.url = who, url
        self.ours = {"endpoint": url, "allow_http": True, "anonymous": True}
        self.theirs = {"anon": True, "client_kwargs": {"endpoint_url": url, "region_name": "us-east-1"}}
        self.pattern = urllib.request.urlopen(url + "/_pattern").read()
        self.pattern += self.pattern
        if who == "duckdb":
            # As libraries are imported before the clock starts.
            self.connection = self.duckdb()

    def s3fs(self):
        import s3fs
        if self.who == "cache":
            import bowwave.fsspec  # noqa: F401
        kinds = {"default_cache_type": "bowwave"} if self.who == "cache" else {}
        return s3fs.S3FileSystem(**self.theirs, **kinds)

    def fs(self):
        """The file system of a contender."""
        if self.who == "bowwave":
            import bowwave.fsspec
            return bowwave.fsspec.BowwaveFileSystem(target_protocol="s3", target_options=self.theirs)
        return self.s3fs()

    def obstore(self, prefix=None):
        from obstore.store import S3Store
        return S3Store("data", prefix=prefix, endpoint=self.url, region="us-east-1", skip_signature=True,
                       client_options={"allow_http": True})

    def duckdb(self):
        """A connection whose extension comes from its package; 16 threads, as its documentation advises for remote files."""
        import duckdb
        import duckdb_extension_httpfs
        place = os.path.dirname(duckdb_extension_httpfs.__file__)
        connection = duckdb.connect()
        connection.execute(f"LOAD '{place}/extensions/v{duckdb.__version__}/httpfs.duckdb_extension'")
        connection.execute(f"SET threads=16; SET s3_endpoint='{self.url.removeprefix('http://')}'; SET s3_url_style='path'; "
                           "SET s3_use_ssl=false; SET s3_region='us-east-1'")
        return connection

    def open(self, key):
        if self.who == "bowwave":
            import bowwave
            return bowwave.open(f"s3://data/{key}", **self.ours)
        if self.who == "obstore":
            return Ranges(self.obstore(), key)
        if self.who == "smart_open":
            import boto3
            import botocore
            import smart_open
            unsigned = botocore.config.Config(signature_version=botocore.UNSIGNED)
            client = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", config=unsigned)
            return smart_open.open(f"s3://data/{key}", "rb", transport_params={"client": client})
        kinds = {"s3fs": {}, "cache": {"cache_type": "bowwave"}, "blockcache": {"cache_type": "blockcache"}}
        options = kinds.get(self.who, {"cache_type": self.who})
        return self.s3fs().open(f"data/{key}", "rb", **options)

    def check(self, offset, data):
        at, data = offset % PERIOD, memoryview(data)
        if data[:4096] != self.pattern[at:at + min(4096, len(data))]:
            raise SystemExit(f"{self.who}: wrong bytes at {offset}")
        return len(data)


def sequential(context, pause=0.0, most=SIZES["raw"]):
    if context.who == "obstore":
        import obstore
        offset = 0
        for chunk in obstore.get(context.obstore(), "raw").stream(min_chunk_size=MIB):
            offset += context.check(offset, chunk)
        return offset
    file, offset = context.open("raw"), 0
    while offset < most:
        data = file.read(MIB)
        offset += context.check(offset, data)
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass
    return offset


def compute(context):
    return sequential(context, 0.02, 128 * MIB)


def at_offsets(context, key, reads):
    file, useful = context.open(key), 0
    for offset, length in reads:
        file.seek(offset)
        useful += context.check(offset, file.read(length))
    return useful


def random(context):
    import random
    chance = random.Random(7)
    return at_offsets(context, "raw", [(chance.randrange(SIZES["raw"] // 65536) * 65536, 65536) for _ in range(200)])


def hinted(context):
    """The same reads, announced in one call."""
    import random
    chance = random.Random(7)
    starts = [chance.randrange(SIZES["raw"] // 65536) * 65536 for _ in range(200)]
    ends = [start + 65536 for start in starts]
    if context.who == "obstore":
        import obstore
        found = obstore.get_ranges(context.obstore(), "raw", starts=starts, ends=ends, coalesce=0)
    else:
        found = context.fs().cat_ranges(["data/raw"] * 200, starts, ends, on_error="raise")
    return sum(context.check(start, data) for start, data in zip(starts, found, strict=True))


def clusters(context):
    import random
    chance = random.Random(7)
    reads = []
    for cluster in chance.sample(range(SIZES["raw"] // MIB), 24):
        pages = chance.sample(range(64), 40)
        reads += [(cluster * MIB + page * 16384, 16384) for page in pages]
    return at_offsets(context, "raw", reads)


def two(context):
    reads = []
    for at in range(0, 32 * MIB, 256 << 10):
        reads += [(at, 256 << 10), (SIZES["raw"] // 2 + at, 256 << 10)]
    return at_offsets(context, "raw", reads)


def stride(context):
    return at_offsets(context, "raw", [(at * MIB, 65536) for at in range(128)])


COLUMNS = ["c2", "c9", "c15"]


def rows_of(table_columns):
    return sum(column.nbytes for column in table_columns)


def pandas(context):
    import pandas
    if context.who == "polars":
        return pyarrow(context)
    prefix, options = "", context.theirs
    if context.who == "bowwave":
        prefix, options = "bowwave::", {"s3": context.theirs}
    if context.who in ("none", "all", "adaptive"):
        options = dict(options, default_cache_type=context.who)
    if context.who == "cache":
        import bowwave.fsspec  # noqa: F401
        options = dict(options, default_cache_type="bowwave")
    if context.who == "ranges":
        # fsspec's own way to fetch the ranges of the columns first.
        import fsspec.parquet
        with fsspec.parquet.open_parquet_file("s3://data/table.parquet", columns=COLUMNS, storage_options=options,
                                              engine="pyarrow") as file:
            return int(pandas.read_parquet(file, columns=COLUMNS).memory_usage(index=False).sum())
    frame = pandas.read_parquet(f"{prefix}s3://data/table.parquet", columns=COLUMNS, storage_options=options)
    return int(frame.memory_usage(index=False).sum())


def pyarrow(context):
    import pyarrow.fs
    import pyarrow.parquet
    if context.who == "polars":
        import polars
        options = {"aws_endpoint_url": context.url, "aws_allow_http": "true", "aws_skip_signature": "true",
                   "aws_region": "us-east-1"}
        frame = polars.scan_parquet("s3://data/table.parquet", storage_options=options).select(COLUMNS).collect()
        return sum(frame[name].len() * 8 for name in COLUMNS)
    if context.who == "duckdb":
        query = f"SELECT {', '.join(COLUMNS)} FROM 's3://data/table.parquet'"
        table = context.connection.execute(query).to_arrow_table()
    elif context.who == "native":
        fs = pyarrow.fs.S3FileSystem(endpoint_override=context.url, anonymous=True, region="us-east-1")
        table = pyarrow.parquet.read_table("data/table.parquet", columns=COLUMNS, filesystem=fs)
    elif context.who == "bowwave":
        import bowwave
        import bowwave.parquet
        file = bowwave.open("s3://data/table.parquet", **context.ours)
        bowwave.parquet.plan(file, COLUMNS)
        table = pyarrow.parquet.read_table(file, columns=COLUMNS)
    else:
        table = pyarrow.parquet.read_table(context.open("table.parquet"), columns=COLUMNS)
    return checked(table)


def checked(table):
    """Bytes of a table of arrow, if it has the right rows and its first value is not that of a page of zeros."""
    if table.num_rows != 8 * 235_000 or table["c2"][0].as_py() == table["c2"][1].as_py():
        raise SystemExit(f"{table.num_rows} rows, {table['c2'][:2]}")
    return table.nbytes


def dataset(context):
    """Three of 20 columns of 64 files of 3.2 MB in eight partitions."""
    import pyarrow.dataset
    import pyarrow.fs
    if context.who == "polars":
        import polars
        options = {"aws_endpoint_url": context.url, "aws_allow_http": "true", "aws_skip_signature": "true",
                   "aws_region": "us-east-1"}
        frame = polars.scan_parquet("s3://data/dataset/", storage_options=options, hive_partitioning=True)
        frame = frame.select(COLUMNS).collect()
        return sum(frame[name].len() * 8 for name in COLUMNS)
    if context.who == "duckdb":
        query = f"SELECT {', '.join(COLUMNS)} FROM read_parquet('s3://data/dataset/*/*.parquet', hive_partitioning=true)"
        table = context.connection.execute(query).to_arrow_table()
        if table.num_rows != 64 * 20_000:
            raise SystemExit(f"{table.num_rows} rows")
        return table.nbytes
    if context.who == "native":
        fs = pyarrow.fs.S3FileSystem(endpoint_override=context.url, anonymous=True, region="us-east-1")
    elif context.who == "none":
        import s3fs
        fs = s3fs.S3FileSystem(**context.theirs, default_cache_type="none")
    else:
        fs = context.fs()
    data = pyarrow.dataset.dataset("data/dataset", filesystem=fs, format="parquet", partitioning="hive")
    table = data.to_table(columns=COLUMNS)
    if table.num_rows != 64 * 20_000:
        raise SystemExit(f"{table.num_rows} rows")
    return table.nbytes


def zarr_array(context, name):
    import zarr
    if context.who == "bowwave":
        import bowwave.zarr
        store = bowwave.zarr.Store(f"s3://data/{name}", **context.ours)
    elif context.who == "obstore":
        store = zarr.storage.ObjectStore(context.obstore(name), read_only=True)
    else:
        import s3fs
        store = zarr.storage.FsspecStore(s3fs.S3FileSystem(asynchronous=True, **context.theirs), path=f"data/{name}",
                                         read_only=True)
    return zarr.open_array(store, mode="r")


def zarr(context, name="array.zarr"):
    values = zarr_array(context, name)[:]
    if values[63, 5] != 63:
        raise SystemExit("wrong values")
    return values.nbytes


def shards(context):
    return zarr(context, "shards.zarr")


def zarr_loop(context):
    array, useful = zarr_array(context, "array.zarr"), 0
    for row in range(64):
        values = array[row]
        if values[5] != row:
            raise SystemExit("wrong values")
        useful += values.nbytes
    return useful


def hdf5(context, name="vars.h5"):
    import h5py
    useful, found = 0, []
    with h5py.File(context.open(name), "r") as file:
        file.visititems(lambda name, item: found.append((name, dict(item.attrs))))
        if len(found) != 44:
            raise SystemExit(f"{len(found)} items")
        useful += file["g1/v5"][:].nbytes
        useful += file["g2/v10"][:128].nbytes
    return useful


def hdf5_default(context):
    return hdf5(context, "default.h5")


def runs(context):
    """Half of one of five variables of 20 files of 8 MB."""
    import h5py
    fs, useful = context.fs(), 0
    kinds = {} if context.who == "bowwave" else {"cache_type": "bowwave" if context.who == "cache" else context.who}
    for name in sorted(fs.ls("data/runs", detail=False)):
        with fs.open(name, **kinds) as source, h5py.File(source, "r") as file:
            useful += file["c"][:, :100].nbytes
    return useful


def tar(context):
    import tarfile
    import bowwave.tar
    urls = [f"s3://data/shard{at}.tar" for at in range(8)]
    shards = (bowwave.tar.shards(urls, **context.ours) if context.who == "bowwave"
              else (context.open(url.rpartition("/")[2]) for url in urls))
    useful = 0
    for shard in shards:
        with tarfile.open(fileobj=shard, mode="r|") as archive:
            for member in archive:
                useful += len(archive.extractfile(member).read())
    return useful


def safetensors(context):
    if context.who == "bowwave":
        import bowwave.safetensors
        tensors = bowwave.safetensors.load_file("s3://data/model.safetensors", **context.ours)
    else:
        import safetensors.numpy
        tensors = safetensors.numpy.load(context.open("model.safetensors").read())
    if any(tensors[f"t{at}"][7, 7] != at for at in range(16)):
        raise SystemExit("wrong values")
    return sum(tensor.nbytes for tensor in tensors.values())


def files(context, length=-1, shuffled=False):
    """Opens the files of a directory one after another."""
    fs = context.fs()
    if shuffled and context.who == "bowwave":
        # In random order, a file is opened long after the lookup ahead of it.
        import bowwave.fsspec
        fs = bowwave.fsspec.BowwaveFileSystem("s3", context.theirs, attribute_timeout=60)
    names = sorted(fs.ls("data/files", detail=False))
    if shuffled:
        import random
        random.Random(1).shuffle(names)
    useful = 0
    for name in names:
        with fs.open(name, **({"cache_type": context.who} if context.who in ("none", "readahead") else {})) as file:
            useful += context.check(0, file.read(length))
    return useful


def files_heads(context):
    return files(context, 4096)


def files_shuffled(context):
    return files(context, shuffled=True)


#: Libraries of a workload, imported before the clock starts.
LIBRARIES = {"pandas": ["pandas", "pyarrow.parquet", "pyarrow.dataset", "pyarrow.fs"],
             "dataset": ["pyarrow.dataset", "pyarrow.fs"], "pyarrow": ["pyarrow.parquet", "pyarrow.dataset", "pyarrow.fs"], "zarr": ["zarr"], "shards": ["zarr"], "zarr_loop": ["zarr"],
             "hdf5": ["h5py"], "hdf5_default": ["h5py"], "runs": ["h5py"], "safetensors": ["safetensors.numpy", "numpy"], "tar": ["tarfile"]}


def measure(row, who, url):
    """In a process of its own."""
    import importlib
    own = {"polars": ["polars"], "obstore": ["obstore", "obstore.store"], "smart_open": ["smart_open", "boto3"],
           "duckdb": ["duckdb", "duckdb_extension_httpfs"]}
    for name in [*LIBRARIES.get(row, []), "fsspec", *own.get(who, ["s3fs"])]:
        importlib.import_module(name)
    if who in ("bowwave", "cache") or row == "tar":
        for name in ("bowwave", "bowwave.fsspec", "bowwave.tar", "bowwave.safetensors", "bowwave.parquet"):
            importlib.import_module(name)
        if "zarr" in LIBRARIES.get(row, []):
            import bowwave.zarr  # noqa: F401
    context = Context(who, url)
    begun = time.perf_counter()
    useful = globals()[row](context)
    print(json.dumps({"seconds": time.perf_counter() - begun, "useful": useful}), flush=True)
    os._exit(0)


def hits(url, local):
    """In a process of its own: microseconds of cached reads by one thread, and how much more two threads read.

    Contenders and numbers of threads take turns. The best of several rounds: other programs of the machine can only make
    them longer. A `wide` reader goes through 30 MiB, a `hot` one through 128 KiB or one length."""
    import threading
    import bowwave
    size = 64 * MIB
    file = bowwave.open(url, cache="256MiB")
    with open(local, "wb") as out:
        out.write(file.read())
    descriptor = os.open(local, os.O_RDONLY)
    readers = {"bowwave preadinto": file.preadinto, "os.preadv": lambda at, buffer: os.preadv(descriptor, (buffer,), at),
               "bowwave pread": lambda at, buffer: file.pread(at, len(buffer)),
               "os.pread": lambda at, buffer: os.pread(descriptor, len(buffer), at)}

    def work(read, count, length, span, start, gate, ends):
        buffer = bytearray(length)
        gate.wait()
        begun = time.perf_counter()
        for at in range(0, count * length, length):
            read(start + at % span, buffer)
        ends.append((begun, time.perf_counter()))

    def rate(number, *arguments):
        gate, ends = threading.Barrier(number), []
        running = [threading.Thread(target=work, args=(*arguments, at * size // 2, gate, ends)) for at in range(number)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        begun, ended = min(begin for begin, _ in ends), max(end for _, end in ends)
        return number * arguments[1] / (ended - begun)

    results = []
    for length in (4096, 16384, 65536, 262144, MIB):
        # About 20 ms: longer than the interpreter's 5 ms for one thread.
        count = max(100, 512 * MIB // (length + 16384) // 2)
        for name, span in (("hot", max(length, 131072)), ("wide", 30 * MIB)):
            rates = {(who, number): [] for who in readers for number in (1, 2)}
            for _ in range(7):
                for (who, number), found in rates.items():
                    found.append(rate(number, readers[who], count, length, span))
            for who in readers:
                one, two = (max(rates[who, number]) for number in (1, 2))
                results.append({"row": "hits", "who": who, "length": length, "memory": name, "us": 1e6 / one,
                                "scale": two / one})
    print(json.dumps(results))


# The comparison.

def counters(url):
    return json.load(urllib.request.urlopen(url + "/_counters"))


def staged(module, directory):
    """The package with the extension module, as a wheel has it."""
    place = os.path.join(directory, "bowwave")
    shutil.copytree(os.path.join(HERE, "..", "crates", "bowwave-python", "python", "bowwave"), place)
    shutil.copy(module, os.path.join(place, "_bowwave.so"))
    return directory


def one(options, row, who, url, path):
    before = counters(url)
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    environment |= {"PYTHONPATH": path, "AWS_EC2_METADATA_DISABLED": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [options.python, os.path.abspath(__file__), "--measure", row, who, url]
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        return {"seconds": float(options.limit), "failed": f"more than {options.limit} s"}
    if ended.returncode != 0 or not ended.stdout.strip():
        return {"failed": (ended.stderr.strip().splitlines() or ["no output"])[-1]}
    found, after = json.loads(ended.stdout.splitlines()[-1]), counters(url)
    sent = after["bytes"] - before["bytes"]
    return {**found, "requests": after["requests"] - before["requests"], "bytes": sent,
            "amplification": sent / found["useful"], "in_flight_max": after["in_flight_max"]}


@contextlib.contextmanager
def served(options):
    """The URL of a server that has the data."""
    os.makedirs(options.data, exist_ok=True)
    subprocess.run([options.python, os.path.abspath(__file__), "--make-data", "--data", options.data], check=True)
    files = [f"{name}=@{os.path.join(options.data, name)}" for name in sorted(os.listdir(options.data))]
    server = subprocess.Popen([options.server, "30", "90", "0", *files, *(f"{key}={size}" for key, size in SIZES.items())],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    if not url:
        raise SystemExit(f"{options.server} did not start: cargo build --release -p bowwave-testkit --example shaped")
    yield url
    server.stdin.close()
    server.wait()


def compared(options, row, url, path):
    found = {who: [] for who in PEERS[row] if not options.who or who in options.who}
    for _ in range(options.rounds):
        for who in found:
            found[who].append(one(options, row, who, url, path))
    results = []
    for who, runs in found.items():
        good = [run for run in runs if "failed" not in run]
        if not good:
            results.append({"row": row, "who": who, "failed": runs[0]["failed"]})
            print(f"{row:12} {who:12} {runs[0]['failed']}", flush=True)
            continue
        median = {name: statistics.median(run[name] for run in good) for name in good[0]}
        results.append({"row": row, "who": who, **median})
        print(f"{row:12} {who:12} {median['seconds']:8.2f} s {median['requests']:6.0f} requests "
              f"{median['amplification']:7.2f} x {median['in_flight_max']:4.0f} in flight", flush=True)
    seconds, amplification = BARS[row]
    print(f"{row:12} {'(bar)':12} {seconds or '-':>8} s {amplification:23.2f} x", flush=True)
    return results


def cached(options, path, local):
    command = [options.python, os.path.abspath(__file__), "--measure-hits", "pattern:/64MiB", local]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True, stdout=subprocess.PIPE)
    results = json.loads(ended.stdout)
    for result in results:
        print(f"hits {result['who']:18} {result['length'] >> 10:5} KiB {result['memory']:4} {result['us']:8.2f} us, "
              f"two threads {result['scale']:.2f} x", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--module", default="target/release/lib_bowwave.so")
    parser.add_argument("--server", default="target/release/examples/shaped")
    parser.add_argument("--data", default="target/bench_python")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*BARS, "hits"])
    parser.add_argument("--who", type=lambda text: text.split(","))
    parser.add_argument("--json")
    parser.add_argument("--make-data", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--measure-hits", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure_hits:
        return hits(*options.measure_hits)
    if options.measure:
        return measure(*options.measure)
    if options.make_data:
        return make_data(options.data)
    results = []
    with tempfile.TemporaryDirectory() as directory:
        path = staged(options.module, directory)
        rows = [row for row in options.only if row != "hits"]
        if rows:
            with served(options) as url:
                for row in rows:
                    results += compared(options, row, url, path)
        if "hits" in options.only:
            results += cached(options, path, os.path.join(directory, "local"))
    if options.json:
        with open(options.json, "w") as out:
            json.dump(results, out, indent=1)


if __name__ == "__main__":
    main()
