"""The cache and the file system of fsspec."""

import asyncio
import pickle

import bowwave.fsspec
import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

BODY = bytes(range(251)) * 40_000


class Counting(LocalFileSystem):
    """Local files, whose reads by range are counted."""

    protocol = "counting"
    cachable = False

    def __init__(self, **options):
        super().__init__(**options)
        self.ranges = []

    def _open(self, path, mode="rb", block_size=None, cache_type="readahead", cache_options=None, **options):
        if mode != "rb":
            return super()._open(path, mode=mode, **options)
        return _CountedFile(self, path, mode, block_size or 5 << 20, cache_type=cache_type, cache_options=cache_options,
                            size=self.info(path)["size"])

    def cat_file(self, path, start=None, end=None, **options):
        self.ranges.append((start, end))
        with open(self._strip_protocol(path), "rb") as file:
            data = file.read()
        return data[start:end]


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
    fetched = sum(end - start for start, end in fs.ranges)
    assert fetched <= 1.01 * len(BODY) and len(fs.ranges) < len(BODY) // (64 << 10)


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


@pytest.fixture(params=["memory", "file", "http", "s3"])
def filled(request, served):
    """A file system, and the path of a file with BODY."""
    if request.param == "memory":
        target = fsspec.filesystem("memory")
        target.pipe("/dir/a", BODY)
        yield fsspec.filesystem("bowwave", fs=target), "/dir/a"
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
    assert fsspec.filesystem("memory").__class__.from_json(fsspec.filesystem("memory").to_json()) is not None


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
