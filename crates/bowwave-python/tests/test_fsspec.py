"""The cache and the file system of fsspec."""

import asyncio
import hashlib
import os
import pickle
import random
import threading
import time

import bowwave.fsspec
import bowwave.parquet
import fsspec
import numpy as np
import pyarrow.fs
import pytest
import zarr
from conftest import run, status_of
from fsspec.implementations.local import LocalFileSystem
from test_hostile import Hostile

BODY = bytes(range(251)) * 40_000


class Counting(LocalFileSystem):
    """Local files, whose reads by range are counted and take `pause` seconds."""

    protocol = "counting"
    cachable = False

    def __init__(self, pause=0.0, **options):
        super().__init__(**options)
        self.pause, self.ranges = pause, []
        self.lock, self.in_flight, self.in_flight_max = threading.Lock(), 0, 0

    @property
    def fetched(self):
        return sum(end - start for start, end in self.ranges)

    def _open(self, path, mode="rb", block_size=None, cache_type="readahead", cache_options=None, **options):
        if mode != "rb":
            return super()._open(path, mode=mode, **options)
        return _CountedFile(self, path, mode, block_size or 5 << 20, cache_type=cache_type, cache_options=cache_options,
                            size=self.info(path)["size"])

    def cat_file(self, path, start=None, end=None, **options):
        with self.lock:
            self.ranges.append((start, end))
            self.in_flight += 1
            self.in_flight_max = max(self.in_flight_max, self.in_flight)
        time.sleep(self.pause)
        with open(self._strip_protocol(path), "rb") as file:
            file.seek(start or 0)
            data = file.read(-1 if end is None else end - (start or 0))
        with self.lock:
            self.in_flight -= 1
        return data


class Refused(PermissionError):
    pass


class _CountedFile(fsspec.spec.AbstractBufferedFile):
    def _fetch_range(self, start, end):
        if self.fs.ranges is None:
            raise Refused("no more")
        return self.fs.cat_file(self.path, start, end)


@pytest.fixture
def counting(tmp_path):
    (tmp_path / "a").write_bytes(BODY)
    return Counting(), str(tmp_path / "a")


def test_the_cache_is_registered_and_reads_right_bytes(counting):
    fs, path = counting
    assert fsspec.caching.caches["bowwave"] is bowwave.fsspec.BowwaveCache
    with fs.open(path, cache_type="bowwave") as file:
        assert file.read(100) == BODY[:100]
        file.seek(5_000_000)
        assert file.read(70_000) == BODY[5_000_000:5_070_000]
        file.seek(0)
        assert file.read() == BODY
        assert file.cache.hit_count > 0 and file.cache.total_requested_bytes >= len(BODY)
        assert file.cache.stats()["requests"] == len(fs.ranges)
        again = pickle.loads(pickle.dumps(file.cache))
        assert again._fetch(10, 20) == BODY[10:20]


def test_sequential_reads_of_the_cache_fetch_each_byte_once(counting):
    fs, path = counting
    with fs.open(path, cache_type="bowwave", cache_options={"cache": "64MiB"}) as file:
        got = b"".join(iter(lambda: file.read(64 << 10), b""))
    assert got == BODY
    assert fs.fetched <= 1.01 * len(BODY) and len(fs.ranges) < len(BODY) // (64 << 10)


def test_counters_of_the_cache_are_read_for_a_log_that_is_on_and_for_no_other(counting, monkeypatch, caplog):
    fs, path = counting
    counted = []
    before = bowwave.fsspec.BowwaveCache._counted
    monkeypatch.setattr(bowwave.fsspec.BowwaveCache, "_counted", lambda cache: counted.append(cache) or before(cache))
    with fs.open(path, cache_type="bowwave") as file:
        file.read(100)
        assert not counted
        with caplog.at_level("DEBUG", logger="fsspec"):
            file.read(100)
    assert "hits" in caplog.text and "total requested bytes" in caplog.text


def test_the_cache_has_several_requests_in_flight(counting):
    fs, path = counting
    fs.pause = 0.01
    with fs.open(path, cache_type="bowwave", cache_options={"cache": "65MiB"}) as file:
        assert b"".join(iter(lambda: file.read(64 << 10), b"")) == BODY
    assert 4 <= fs.in_flight_max <= 32


def test_the_cache_sends_as_many_requests_as_the_file_system_has_connections(counting):
    fs, path = counting
    fs.pause = 0.01
    # As s3fs, which hands this to botocore.
    fs.config_kwargs = {"max_pool_connections": 3}
    with fs.open(path, cache_type="bowwave", cache_options={"cache": "66MiB"}) as file:
        file.cache.plan([(at, at + 4096) for at in range(0, len(BODY) - 4096, 1 << 20)])
        assert b"".join(iter(lambda: file.read(64 << 10), b"")) == BODY
    assert 2 <= fs.in_flight_max <= 3


def test_random_reads_of_the_cache_fetch_little_else(tmp_path):
    blocks = 4096
    with open(tmp_path / "a", "wb") as file:
        for block in range(blocks):
            file.seek(block << 16)
            file.write(block.to_bytes(8, "little"))
        file.truncate(blocks << 16)
    fs, chance = Counting(), random.Random(7)
    with fs.open(str(tmp_path / "a"), cache_type="bowwave", cache_options={"cache": "67MiB"}) as file:
        for block in [chance.randrange(blocks) for _ in range(200)]:
            file.seek(block << 16)
            assert file.read(1 << 16) == block.to_bytes(8, "little").ljust(1 << 16, b"\0")
    assert fs.fetched <= 1.05 * 200 * (1 << 16), fs.fetched / 200 / (1 << 16)


@pytest.fixture(scope="module")
def formats(tmp_path_factory):
    """A directory with `table.parquet` and `array.h5`."""
    import h5py
    import pyarrow
    import pyarrow.parquet

    directory = tmp_path_factory.mktemp("formats")
    values = np.random.default_rng(1).random((8, 1 << 19))
    table = pyarrow.table({f"c{at}": column for at, column in enumerate(values)})
    pyarrow.parquet.write_table(table, directory / "table.parquet", row_group_size=1 << 16, compression="none",
                                use_dictionary=False)
    with h5py.File(directory / "array.h5", "w", fs_strategy="page", fs_page_size=1 << 20) as file:
        for at in range(40):
            data = values[at % 8, :704 * 704].reshape(704, 704)
            file.create_dataset(f"g{at % 4}/v{at}", data=data, chunks=(64, 64)).attrs["units"] = f"u{at}"
    return directory


def test_the_cache_reads_the_columns_of_parquet_ahead(formats):
    import pyarrow.parquet

    path = str(formats / "table.parquet")
    fs = Counting(pause=0.01)
    with fs.open(path, cache_type="bowwave", cache_options={"cache": "128MiB"}) as file:
        table = pyarrow.parquet.read_table(file, columns=["c1", "c5"])
        assert file.cache.stats()["pages_planned"] > 0
    assert table.equals(pyarrow.parquet.read_table(path, columns=["c1", "c5"]))
    assert fs.fetched <= 1.05 * table.nbytes and fs.in_flight_max >= 6, (fs.fetched, table.nbytes, fs.in_flight_max)


def test_the_cache_follows_a_plan_in_place_of_the_one_of_the_format(formats, monkeypatch):
    import pyarrow.parquet

    path = str(formats / "table.parquet")
    fs = Counting(pause=0.01)
    before = bowwave.parquet.Watcher.before
    watched = []
    monkeypatch.setattr(bowwave.parquet.Watcher, "before", lambda *read: watched.append(read[2:]) or before(*read))
    with fs.open(path, cache_type="bowwave", cache_options={"cache": "129MiB"}) as file:
        chunks = bowwave.parquet.plan(file.cache, ["c2", "c3"])
        assert len(chunks) == 2 * 8 and {chunk.column for chunk in chunks} == {"c2", "c3"}
        watched.clear()
        table = pyarrow.parquet.read_table(file, columns=["c2", "c3"])
        assert file.cache.pread(0, 4) == b"PAR1" and file.cache.pread(file.size - 4, 100) == b"PAR1"
        file.cache.end_plan()
        file.cache.advise("random")
        with pytest.raises(ValueError, match="is not an advice value"):
            file.cache.advise("often")
    assert not watched
    assert fs.fetched <= 1.05 * table.nbytes and fs.in_flight_max >= 6, (fs.fetched, table.nbytes, fs.in_flight_max)


def test_the_cache_reads_a_part_of_an_hdf5_file(formats):
    import h5py

    fs = Counting(pause=0.002)
    found = []
    with fs.open(str(formats / "array.h5"), cache_type="bowwave") as opened, h5py.File(opened, "r") as file:
        file.visititems(lambda name, item: found.append((name, dict(item.attrs))))
        useful = file["g1/v5"][:].nbytes + file["g2/v10"][:128].nbytes
    assert len(found) == 44
    assert fs.fetched <= 2.2 * useful, fs.fetched / useful


def test_an_exception_of_the_fetcher_is_raised(counting):
    fs, path = counting
    with fs.open(path, cache_type="bowwave") as file:
        fs.ranges = None
        for _ in range(2):
            with pytest.raises(Refused, match="^no more$"):
                file.read(10)


def test_a_dropped_file_is_freed(counting):
    import gc
    import weakref

    fs, path = counting
    file = fs.open(path, cache_type="bowwave")
    file.read(10)
    alive = weakref.ref(file)
    del file
    gc.collect()
    assert alive() is None


ENDS = """
import sys, time, bowwave, fsspec

class File(fsspec.spec.AbstractBufferedFile):
    def _fetch_range(self, start, end):
        time.sleep(0.05)
        return bytes(end - start)

fs = fsspec.filesystem("memory")
file = File(fs, "/a", cache_type="bowwave", size=64 << 20)
for _ in range(32):
    assert len(file.read(64 << 10)) == 64 << 10
print(file.cache.stats()["requests"])
"""


def test_a_process_ends_while_the_cache_reads_ahead():
    ended = run(ENDS)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 1


@pytest.fixture(params=["memory", "file", "http", "s3"])
def filled(request, served):
    """A file system, and the path of a file with BODY."""
    if request.param == "memory":
        target = fsspec.filesystem("memory")
        target.pipe("/dir/a", BODY)
        # An instance of its own: a shared one knows the file of an earlier test for a moment.
        yield fsspec.filesystem("bowwave", fs=target, skip_instance_cache=True), "/dir/a"
        target.rm("/dir", recursive=True)
        return
    server = served(a=BODY)
    if request.param == "file":
        yield fsspec.filesystem("bowwave", target_protocol="file"), str(server.path / "a")
    elif request.param == "http":
        yield fsspec.filesystem("bowwave", target_protocol="http"), server.http + "a"
    else:
        options = {"key": server.options["key"], "secret": server.options["secret"],
                   "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"}}
        fs = fsspec.filesystem("bowwave", target_protocol="s3", target_options=options, skip_instance_cache=True)
        yield fs, server.bucket.removeprefix("s3://") + "a"


def test_reads_by_path_range_and_ranges(filled):
    fs, path = filled
    assert fs.cat_file(path) == BODY
    assert fs.cat_file(path, start=10, end=-5) == BODY[10:-5]
    assert fs.cat_file(path, start=-7) == BODY[-7:]
    assert fs.cat_file(path, 10, 10) == b""
    ranges = fs.cat_ranges([path] * 3, [0, 1000, 500_000], [10, 1200, 600_000])
    assert ranges == [BODY[:10], BODY[1000:1200], BODY[500_000:600_000]]
    missing = fs.cat_ranges([path, path + "-missing"], 0, 5)
    assert missing[0] == BODY[:5] and isinstance(missing[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([path + "-missing"], 0, 5, on_error="raise")
    with pytest.raises(FileNotFoundError):
        fs.open(path + "-missing")
    assert fs.info(path)["size"] == len(BODY)


def test_files_of_the_file_system(filled, tmp_path):
    fs, path = filled
    with fs.open(path) as file:
        assert file.read(5) == BODY[:5] and file.info()["size"] == len(BODY)
        with pickle.loads(pickle.dumps(file)) as again:
            assert again.tell() == 5 and again.read(5) == BODY[5:10]
    fs.get(path, str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == BODY
    with fs.open(path, "r", encoding="latin-1") as text:
        assert text.read(3) == BODY[:3].decode("latin-1")

    async def parallel():
        file = await fs.open_async(path)
        return await asyncio.gather(*(file.pread(at, 100) for at in range(0, 10_000, 1000)))

    assert asyncio.run(parallel()) == [BODY[at:at + 100] for at in range(0, 10_000, 1000)]


def test_pickles_are_small_and_instances_are_shared(filled):
    fs, path = filled
    data = pickle.dumps(fs)
    assert len(data) < 1000
    assert pickle.loads(data).cat_file(path, 3, 9) == BODY[3:9]
    again = fsspec.AbstractFileSystem.from_json(fs.to_json())
    assert type(again) is type(fs) and again.cat_file(path, 3, 9) == BODY[3:9]


def test_a_child_of_fork_uses_the_file_system_of_its_parent(filled, tmp_path):
    fs, path = filled
    directory = path.rpartition("/")[0] + "/"
    assert fs.cat_file(path, 3, 9) == BODY[3:9] and fs.exists(path)

    def child():
        assert fs.cat_file(path, 5, 500) == BODY[5:500]
        assert fs.cat_ranges([path], [1000], [2000]) == [BODY[1000:2000]]
        assert fs.info(path)["size"] == len(BODY) and fs.exists(path) and not fs.exists(path + "-missing")
        fs.get(path, str(tmp_path / "copy"))
        assert (tmp_path / "copy").read_bytes() == BODY
        pyarrow_fs = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))
        assert pyarrow_fs.open_input_file(path).read_at(10, 100) == BODY[100:110]
        if "http" not in fs.target_protocol:
            assert [name.rpartition("/")[2] for name in fs.ls(directory, detail=False)] == ["a"]
            fs.pipe_file(directory + "b", b"new")
            assert fs.cat_file(directory + "b") == b"new"
        # A child of the child.
        assert status_of(lambda: fs.cat_file(path, 7, 9)) == 0

    assert status_of(child) == 0
    assert fs.cat_file(path, 8, 10) == BODY[8:10], "the parent's stays"


def test_zarr_reads_through_an_asynchronous_instance(served):
    server = served(a=BODY)
    array = zarr.create_array(str(server.path / "array"), shape=(8, 1000), chunks=(1, 1000), dtype="f8")
    array[:] = np.arange(8)[:, None]
    store = zarr.storage.FsspecStore.from_url(f"bowwave::{server.http}array")
    assert store.fs.asynchronous and isinstance(store.fs, bowwave.fsspec.BowwaveFileSystem)
    assert (zarr.open_array(store, mode="r")[:] == array[:]).all()
    options = {"key": server.options["key"], "secret": server.options["secret"],
               "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"}}
    written = zarr.storage.FsspecStore.from_url(f"bowwave::{server.bucket}new", storage_options={"s3": options})
    zarr.create_array(written, shape=(8,), chunks=(2,), dtype="i4")[:] = np.arange(8)
    assert (zarr.open_array(written, mode="r")[:] == np.arange(8)).all()


def test_json_and_tokens():
    fs = fsspec.filesystem("bowwave", target_protocol="memory", cache="32MiB")
    again = fsspec.AbstractFileSystem.from_json(fs.to_json())
    assert again is fs and again._fs_token == fs._fs_token
    assert fs._fs_token != fsspec.filesystem("bowwave", target_protocol="memory")._fs_token


def test_chained_urls(served):
    server = served(a=BODY)
    with fsspec.open(f"bowwave::file://{server.path}/a") as file:
        assert type(file).__module__ == "bowwave.fsspec" and file.read() == BODY
    fs, path = fsspec.url_to_fs(f"bowwave::file://{server.path}/a", bowwave={"cache": "16MiB"})
    assert isinstance(fs, bowwave.fsspec.BowwaveFileSystem) and fs.cat(path) == BODY
    assert fs.unstrip_protocol(path) == f"bowwave::file://{server.path}/a"


def test_writes_are_seen(tmp_path):
    fs = fsspec.filesystem("bowwave", target_protocol="file")
    path = str(tmp_path / "a")
    for data in (b"one", b"two!", b"six"):
        fs.pipe_file(path, data)
        assert fs.cat_file(path) == data
    with fs.open(path, "wb") as file:
        file.write(b"eight")
    assert fs.cat_file(path) == b"eight"
    fs.rm(path)
    with pytest.raises(FileNotFoundError):
        fs.cat_file(path)


@pytest.fixture
def listing(served):
    """A server with 40 files, the program's file system, and their names: the store lists them and reads ahead."""
    server = served(**{f"{at:02}": b"old" for at in range(40)})
    options = {"key": server.options["key"], "secret": server.options["secret"],
               "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"}}
    fs = fsspec.filesystem("bowwave", target_protocol="s3", target_options=options, skip_instance_cache=True)
    names = [server.bucket.removeprefix("s3://") + f"{at:02}" for at in range(40)]
    for at, name in enumerate(names[:20]):
        with fs.open(name) as file:
            assert file.read() == b"old"
        # The listing comes in the first pause, and the next files in the second.
        time.sleep(0.2 if at in (5, 19) else 0)
    return server, fs, names


def test_writes_are_seen_in_a_directory_that_the_store_lists(listing):
    server, fs, names = listing
    for at, name in enumerate(names[20:26], 20):
        if at % 2:
            fs.pipe_file(name, b"new!")
        else:
            # As a target that has requests of its own, such as s3fs.
            with fs._changing(name):
                (server.path / f"{at:02}").write_bytes(b"new!")
        with fs.open(name) as file:
            assert file.read() == b"new!"
    fs.rm(names[26])
    fs.rm(names[27][:-2] + "2[79]")
    for name in (names[26], names[27], names[29]):
        with pytest.raises(FileNotFoundError):
            fs.open(name)


def test_no_file_is_opened_by_a_listing_after_the_cache_was_invalidated(listing):
    server, fs, names = listing
    (server.path / "20").write_bytes(b"new!")
    fs.invalidate_cache()
    assert fs.cat_file(names[20]) == b"new!"


def system(protocol, **options):
    return bowwave.fsspec.BowwaveFileSystem(protocol, options, skip_instance_cache=True)


@pytest.mark.parametrize("given", [
    {"key": "KEY", "secret": "SECRET", "endpoint_url": "HERE", "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}},
    {"username": "KEY", "password": "SECRET", "client_kwargs": {"endpoint_url": "HERE"}, "default_cache_type": "none"},
    {"client_kwargs": {"aws_access_key_id": "KEY", "aws_secret_access_key": "SECRET", "endpoint_url": "HERE"}},
])
def test_options_of_s3fs_are_settings(served, given):
    server = served(a=BODY)
    values = {"KEY": server.options["key"], "SECRET": server.options["secret"], "HERE": server.endpoint}

    def filled(given):
        return {name: filled(value) if isinstance(value, dict) else values.get(value, value) for name, value in given.items()}

    path = server.bucket.removeprefix("s3://") + "a"
    fs = system("s3", region_name="us-east-1", **filled(given))
    assert fs._scheme == "s3" and fs.cat_file(path) == BODY
    values["SECRET"] = "wrong"
    with pytest.raises(PermissionError):
        system("s3", region_name="us-east-1", **filled(given)).cat_file(path)


#: A key that wants no token of Google.
NO_KEY = {"type": "service_account", "private_key": "", "private_key_id": "", "client_email": "", "gcs_base_url": "",
          "disable_oauth": True}


@pytest.mark.parametrize(("dialect", "given", "signed"), [
    ("gs", {"token": "anon", "project": "any"}, False), ("gs", {"token": NO_KEY}, False),
    ("az", {"account_name": "any", "anon": True}, False),
    ("az", {"account_name": "any", "account_key": "a2V5"}, True),
    ("az", {"account_name": "any", "sas_token": "?sv=2024&sig=abc"}, True),
    ("az", {"connection_string": "DefaultEndpointsProtocol=https;AccountName=any;AccountKey=a2V5"}, True)])
def test_options_of_gcsfs_and_adlfs_are_settings(dialect, given, signed, monkeypatch):
    for name in ("NAME", "KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_ACCOUNT_{name}", raising=False)
    server = Hostile(dialect)
    try:
        fs = system(dialect, endpoint_url=server.first, **given)
        assert ("anonymous=yes" in fs._access.settings) == (not signed and given.get("token") is not NO_KEY)
        assert fs._scheme == dialect and fs.info("data/a")["size"] == 300_000
        assert hashlib.sha256(fs.cat_file("data/a")).hexdigest() in server.ask("versions").split()
        assert "data/a" in [entry["name"] for entry in fs.ls("data", detail=True)]
    finally:
        server.end()


@pytest.mark.parametrize(("protocol", "options", "prefix"), [
    ("gcs", {"token": "anon"}, "gcs://data"), ("gs", {"token": "anon"}, "gs://data"), ("abfs", {}, "abfs://data"),
    ("abfs", {}, "abfs://data@any.dfs.core.windows.net"), ("az", {}, "az://data"), ("s3a", {}, "s3a://data")])
def test_each_protocol_of_a_store_is_stripped(protocol, options, prefix, monkeypatch):
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    scheme = {"gcs": "gs", "gs": "gs", "s3a": "s3"}.get(protocol, "az")
    options = options | ({"account_name": "any"} if scheme == "az" else {}) | ({"region_name": "any"} if scheme == "s3" else {})
    server = Hostile(scheme)
    try:
        fs = system(protocol, endpoint_url=server.first, **{"anon": True} | options)
        assert fs._scheme == scheme and fs._strip_protocol(f"{prefix}/a") == "data/a"
        assert fs.info(f"{prefix}/a")["size"] == 300_000
        assert hashlib.sha256(fs.cat_file(f"{prefix}/a")).hexdigest() in server.ask("versions").split()
        given = {protocol: {"endpoint_url": server.first, "anon": True} | options}
        with fsspec.open(f"bowwave::{prefix}/a", **given) as file:
            assert hashlib.sha256(file.read()).hexdigest() in server.ask("versions").split()
    finally:
        server.end()


def test_a_url_of_azure_may_name_the_account(monkeypatch):
    for name in ("ACCOUNT_NAME", "ACCOUNT_KEY", "SAS_TOKEN", "CONNECTION_STRING"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    fs, path = fsspec.url_to_fs("bowwave::abfs://data@any.dfs.core.windows.net/dir/a", abfs={"anon": True})
    assert path == "data/dir/a" and fs.target_options["account_name"] == "any" and fs._scheme == "az"
    # The key is the environment's, as in adlfs.
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    fs, _ = fsspec.url_to_fs("bowwave::abfs://data@any.dfs.core.windows.net/dir/b")
    assert dict(fs._access.keys) == {"account_name": "any", "account_key": "a2V5"}
    # Credentials for a host that is no account of Azure would go to the account of the same name.
    with pytest.raises(ValueError, match="an unknown host; name the container alone, and give account_name"):
        fsspec.url_to_fs("bowwave::abfs://data@any.dfs.core.chinacloudapi.cn/dir/a", abfs={"sas_token": "sv=1"})


@pytest.mark.parametrize(("protocol", "options"), [
    ("s3", {"session": object()}), ("s3", {"use_ssl": False}), ("s3", {"token": "alone"}),
    ("s3", {"client_kwargs": {"verify": False}}), ("gs", {"token": "key.json"}), ("gs", {"requester_pays": True}),
    ("az", {"credential": object()}), ("az", {"connection_string": "junk"}), ("az", {"account_key": "a2V5", "client_id": "c"}),
    ("az", {"account_name": "other"}), ("az", {"account_name": "other", "anon": False}), ("gs", {"token": {"type": "authorized_user"}}),
    ("https", {"client_kwargs": {"headers": {"Authorization": "Bearer x"}}}), ("ftp", {"host": "h"})])
def test_other_options_are_left_to_the_target(protocol, options, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "any")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY", raising=False)
    assert system(protocol, **options)._scheme is None


def test_a_key_of_azure_in_the_environment_is_used_as_adlfs_does(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "any")
    assert "anonymous=yes" in system("az", account_name="any", anon=True)._access.settings
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    fs = system("abfs", account_name="any", account_key="a2V5", anon=True, account_host="any.blob.core.chinacloudapi.cn")
    assert fs._scheme == "az" and fs._access.settings == "endpoint=https://any.blob.core.chinacloudapi.cn"


def test_a_connection_string_of_azure_is_read_natively_if_all_its_parts_are_known():
    text = "DefaultEndpointsProtocol=https;AccountName=any;AccountKey=a2V5==;EndpointSuffix=core.windows.net"
    fs = system("az", connection_string=text)
    assert fs._scheme == "az" and fs._access.settings == "endpoint=https://any.blob.core.windows.net"
    assert dict(fs._access.keys) == {"account_name": "any", "account_key": "a2V5=="}
    for other in (text.replace("https", "http"), text + ";QueueEndpoint=https://q", "junk"):
        assert system("az", connection_string=other)._scheme is None


def test_the_account_of_azure_is_that_of_the_key(monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "usual")
    account = lambda **given: dict(system("az", **given)._access.keys).get("account_name")
    assert account(account_name="any", account_key="a2V5") == "any"
    assert account(account_key="a2V5") == "usual"
    shared = "BlobEndpoint=https://mine.blob.core.windows.net;SharedAccessSignature=sv=2024&sig=abc"
    assert account(connection_string=shared) == "mine"
    assert account(account_name="usual") is None, "the environment's"
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    assert system("az", account_key="a2V5")._scheme is None, "adlfs says what is missing"
    with pytest.raises(ValueError, match="account_key is given without account_name"):
        bowwave.open("az://container/blob", account_key="a2V5")


@pytest.mark.usefixtures("without_s3fs")
def test_a_chained_url_needs_no_package_of_its_target(served):
    server = served(a=BODY)
    options = {name: server.options[name] for name in ("key", "secret")} | {"endpoint_url": server.endpoint}
    with fsspec.open(f"bowwave::{server.bucket}a", s3=options) as file:
        assert file.read() == BODY
    fs, path = fsspec.url_to_fs(f"bowwave::{server.bucket}", s3=options)
    assert [name.rpartition("/")[2] for name in fs.ls(path, detail=False)] == ["a"]
    with fsspec.open(f"bowwave::{server.bucket}b", "wb", s3=options) as file:
        file.write(b"new")
    assert fs.cat_file(path + "/b") == b"new"
    # Without bowwave, the package is needed as before.
    with pytest.raises(ImportError, match="Install s3fs to access S3"):
        fsspec.open(f"{server.bucket}a", **options).open()
    with pytest.raises(ImportError, match="Install s3fs") as refused:
        fsspec.url_to_fs(f"bowwave::{server.bucket}", s3={"session": object()})[0].ls(path)
    assert "with no other options than anon, aws_access_key_id" in refused.value.__notes__[0]


def test_installed_packages_of_targets_stay(monkeypatch):
    from bowwave import _targets
    from fsspec.registry import known_implementations

    monkeypatch.setattr(_targets, "find_spec", lambda module: object())
    before = {protocol: dict(known_implementations[protocol]) for protocol in _targets.MODULES}
    _targets.register()
    assert {protocol: known_implementations[protocol] for protocol in before} == before
    # One that a program has registered stays, too.
    monkeypatch.setattr(_targets, "find_spec", lambda module: None)
    monkeypatch.setattr(_targets, "MODULES", {"s3": "s3fs", "https": "aiohttp"})
    monkeypatch.setitem(known_implementations, "s3", {"class": "own.S3", "err": ""})
    monkeypatch.setitem(known_implementations, "https", {"class": "own.Https", "err": ""})
    _targets.register()
    assert known_implementations["s3"]["class"] == "own.S3" and known_implementations["https"]["class"] == "own.Https"


def test_https_urls_are_read_natively():
    fs = system("https", cache_type="readahead")
    assert fs._scheme == "https"
    assert fs._place("https://example.org/a/b%20c.h5") == ("https://example.org/", "a/b c.h5")
    assert fs._place("https://example.org/a.h5?token=x") == ("https://example.org/a.h5?token=x", "")
    assert fs._access_of("https://example.org/a.h5?token=x").settings == "ra_pages=32"
    assert fs._access_of("https://example.org/a.csv").settings == ""


def test_the_version_of_an_object_is_its_etag(served):
    server = served(a=BODY)
    fs = system("s3", key=server.options["key"], secret=server.options["secret"], endpoint_url=server.endpoint)
    path = server.bucket.removeprefix("s3://") + "a"
    before = fs.info(path), fs.ukey(path), fs.checksum(path)
    assert before == (fs.info(path), fs.ukey(path), fs.checksum(path))
    assert before[0]["ETag"] == fs.open(path).etag
    fs.pipe_file(path, b"other")
    after = fs.info(path), fs.ukey(path), fs.checksum(path)
    assert after[0]["size"] == 5 and after[0]["ETag"] == fs.ls(path.rpartition("/")[0], detail=True)[0]["ETag"]
    assert all(new != old for new, old in zip(after, before, strict=True))


@pytest.mark.usefixtures("without_s3fs")
def test_listings_show_what_the_file_system_wrote(served):
    server = served(a=BODY)
    fs = system("s3", key=server.options["key"], secret=server.options["secret"], endpoint_url=server.endpoint)
    bucket = server.bucket.removeprefix("s3://").rstrip("/")

    def names():
        return sorted(path.removeprefix(bucket + "/") for path in fs.find(bucket))

    assert names() == ["a"]
    fs.pipe_file(f"{bucket}/b", b"1")
    with fs.open(f"{bucket}/c", "wb") as file:
        file.write(b"2")
    assert names() == ["a", "b", "c"]
    fs.mv(f"{bucket}/c", f"{bucket}/d/e")
    assert names() == ["a", "b", "d/e"]
    fs.rm(f"{bucket}/b")
    assert names() == ["a", "d/e"]
    # Another program writes.
    (server.path / "f").write_bytes(b"3")
    assert names() == ["a", "d/e"]
    fs.invalidate_cache()
    assert names() == ["a", "d/e", "f"]


FRESH = """
import sys, fsspec
assert "bowwave" not in sys.modules
fs = fsspec.filesystem("bowwave", target_protocol="file")
assert type(fs).__module__ == "bowwave.fsspec" and "bowwave" in fsspec.caching.caches
assert fs.cat_file(sys.argv[1]) == b"hello"
"""
CHAINED = """
import sys, fsspec
with fsspec.open("bowwave::file://" + sys.argv[1]) as file:
    assert type(file).__module__ == "bowwave.fsspec" and file.read() == b"hello"
"""
CONFIGURED = """
import site, sys
site.addsitedir(sys.argv[2])
import fsspec
with fsspec.open(sys.argv[1]) as file:
    assert file.cache.name == "bowwave" and file.read() == b"hello"
"""


def in_a_fresh_process(program, *arguments, **environment):
    ended = run(program, *arguments, env={**os.environ, **environment})
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("program", [FRESH, CHAINED])
def test_the_entry_point_needs_no_import(program, tmp_path):
    (tmp_path / "a").write_bytes(b"hello")
    in_a_fresh_process(program, tmp_path / "a")


def test_a_configuration_of_fsspec_has_the_cache_with_a_pth_file(served, tmp_path):
    (tmp_path / "bowwave.pth").write_text("import bowwave\n")
    in_a_fresh_process(CONFIGURED, served(a=b"hello").http + "a", tmp_path, FSSPEC_HTTP='{"cache_type": "bowwave"}')


def test_a_local_file_that_another_program_writes_is_read_anew(tmp_path):
    fs = fsspec.filesystem("bowwave", target_protocol="file")
    path = tmp_path / "a"
    for data in (b"", b"one", b"three"):
        path.write_bytes(data)
        with fs.open(str(path)) as file:
            assert file.read() == data
        assert fs.cat_file(str(path)) == data


def test_bad_arguments():
    with pytest.raises(ValueError, match="chain the URL"):
        bowwave.fsspec.BowwaveFileSystem()
    with pytest.raises(ValueError, match="no such option"):
        fsspec.filesystem("bowwave", target_protocol="memory", cash=1).stats()
