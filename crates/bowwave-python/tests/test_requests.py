"""Requests of opens, counted by the server."""

import asyncio
import time

import bowwave
import bowwave.fsspec
import bowwave.parquet
import bowwave.zarr
import fsspec
import fsspec.parquet
import numpy as np
import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest
import zarr
from conftest import Shaped

CHUNKS = 64


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("objects")
    array = zarr.create_array(str(directory / "a"), shape=(CHUNKS, 1 << 16), chunks=(1, 1 << 16), dtype="f8", compressors=None)
    # Chunks of zeros are not stored.
    array[:] = np.arange(1, CHUNKS + 1)[:, None]
    (directory / "table.parquet").write_bytes(bytes(range(256)) * 4096)
    values = np.random.default_rng(1).random((8, 1 << 19))
    table = pyarrow.table({f"c{at}": column for at, column in enumerate(values)})
    pyarrow.parquet.write_table(table, directory / "columns.parquet", row_group_size=1 << 16, compression="none",
                                use_dictionary=False)
    server = Shaped(1, 0, array=f"@{directory}/a", small=100_000, middle=2 << 20, large=64 << 20,
                    **{"table.parquet": f"@{directory}/table.parquet", "long.h5": 64 << 20,
                       "columns.parquet": f"@{directory}/columns.parquet"})
    server.table = table
    yield server
    server.end()


@pytest.fixture
def sent(server):
    """The requests since the last call, by kind."""
    before = server.counters()

    def since():
        nonlocal before
        now = server.counters()
        counts = {kind: now[kind] - before[kind] for kind in ("heads", "lists", "gets")}
        before = now
        return counts

    return since


def system(server, **settings):
    return bowwave.fsspec.BowwaveFileSystem("s3", server.target, **settings)


def test_chunks_without_a_listing_are_one_request_each(server, sent):
    store = bowwave.zarr.Store("s3://data/array", **server.options, cache="200MiB")

    async def read():
        return [await store.get(f"c/{row}/0") for row in range(CHUNKS)]

    for row, data in enumerate(asyncio.run(read())):
        assert np.all(np.frombuffer(data.to_bytes(), "f8") == row + 1)
    assert sent() == {"heads": 0, "lists": 0, "gets": CHUNKS}


def test_a_loop_over_an_array_is_one_request_for_each_chunk(server, sent):
    array = zarr.open_array(bowwave.zarr.Store("s3://data/array", **server.options, cache="201MiB"), mode="r")
    for row in range(CHUNKS):
        assert np.all(array[row] == row + 1)
    counts = sent()
    # One more is the array's metadata.
    assert counts["gets"] <= CHUNKS + 4 and counts["heads"] <= 4 and counts["lists"] <= 4, counts


def test_whole_objects_are_one_request(server, sent):
    fs = system(server, cache="202MiB")
    for name, size in [("small", 100_000), ("middle", 2 << 20)]:
        assert fs.cat_file(f"data/{name}") == server.bytes(0, size)
        assert sent() == {"heads": 0, "lists": 0, "gets": 1}, name
        assert fs.cat_file(f"data/{name}", 10, 20) == server.bytes(10, 10)
        assert sent() == {"heads": 0, "lists": 0, "gets": 0}, name


def test_a_range_comes_with_the_open(server, sent):
    fs = system(server, cache="203MiB")
    assert fs.cat_file("data/large", 5 << 20, (5 << 20) + 70_000) == server.bytes(5 << 20, 70_000)
    counts = sent()
    assert counts["heads"] == 1 and counts["lists"] == 0 and counts["gets"] <= 2, counts
    assert fs.cat_file("data/large", -1000) == server.bytes((64 << 20) - 1000, 1000)


def test_the_beginning_of_a_file_comes_with_the_open(server, sent):
    with bowwave.open("s3://data/small", **server.options, cache="204MiB") as file:
        assert file.read() == server.bytes(0, 100_000)
        assert sent() == {"heads": 1, "lists": 0, "gets": 1}
    # It is in the cache.
    with bowwave.open("s3://data/small", **server.options, cache="204MiB") as file:
        assert file.read() == server.bytes(0, 100_000)
        assert sent() == {"heads": 1, "lists": 0, "gets": 0}


def test_the_footer_of_a_parquet_file_comes_with_the_open(server, sent):
    with bowwave.open("s3://data/table.parquet", **server.options, cache="205MiB") as file:
        file.seek(-1000, 2)
        assert file.read() == (bytes(range(256)) * 4096)[-1000:]
        assert sent() == {"heads": 1, "lists": 0, "gets": 1}


def test_a_file_system_has_the_settings_of_the_format(server, sent):
    with system(server, cache="207MiB").open("data/long.h5") as file:
        assert file.read(1 << 20) == server.bytes(0, 1 << 20)
    sent()
    # With other settings, another cache.
    with bowwave.open("s3://data/long.h5", **server.options, region="us-east-1", cache="207MiB") as file:
        assert file.read(1 << 20) == server.bytes(0, 1 << 20)
    assert sent()["gets"] == 0
    assert system(server, cache="207MiB").stats()["hits"] > 0


@pytest.mark.usefixtures("without_s3fs")
def test_listings_are_cached(server, sent):
    fs = system(server, cache="208MiB", skip_instance_cache=True)
    assert "data/large" in fs.find("data") and sent()["lists"] > 1
    fs.find("data")
    fs.ls("data/array/c")
    assert sent() == {"heads": 0, "lists": 0, "gets": 0}
    fs.ls("data/array/c", refresh=True)
    assert sent()["lists"] == 1
    fs.invalidate_cache("data/array/c")
    fs.ls("data/array/c")
    fs.ls("data")
    assert sent()["lists"] == 2
    for options, lists in [({"use_listings_cache": False}, 3), ({"listings_expiry_time": 0.2}, 2)]:
        fs = system(server, cache="208MiB", skip_instance_cache=True, **options)
        fs.ls("data")
        fs.ls("data")
        time.sleep(0.3)
        fs.ls("data")
        assert sent()["lists"] == lists, options


COLUMNS = ["c1", "c5"]


def test_readers_of_parquet_fetch_their_columns(server):
    chosen, place = server.table.select(COLUMNS), "data/columns.parquet"

    def with_pandas(fs):
        return pandas.read_parquet(place, columns=COLUMNS, filesystem=fs)

    def with_fsspec(fs):
        with fsspec.parquet.open_parquet_file(place, fs=fs, columns=COLUMNS, engine="pyarrow") as file:
            return pandas.read_parquet(file, columns=COLUMNS)

    def with_polars(fs):
        with fs.open(place) as file:
            return polars.read_parquet(file, columns=COLUMNS, use_pyarrow=True)

    def lazily_with_polars(fs):
        return polars.scan_pyarrow_dataset(pyarrow.dataset.dataset(place, filesystem=fs)).select(COLUMNS).collect()

    for number, read in enumerate((with_pandas, with_fsspec, with_polars, lazily_with_polars)):
        fs = system(server, cache=f"{300 + number}MiB")
        before = server.counters()
        table = read(fs)
        now = server.counters()
        for name in COLUMNS:
            assert np.array_equal(table[name].to_numpy(), chosen[name].to_numpy()), read
        counts = {kind: now[kind] - before[kind] for kind in ("heads", "gets", "bytes")}
        # fsspec reads a million bytes at the end for the footer.
        most = 1.05 * chosen.nbytes + (1_000_000 if read is with_fsspec else 0)
        assert counts["bytes"] <= most and counts["gets"] <= 64, (read, counts)


def test_missing_objects_are_not_found(server, sent):
    store = bowwave.zarr.Store("s3://data/array", **server.options, cache="206MiB")
    assert asyncio.run(store.get("c/99/0")) is None
    counts = sent()
    assert counts["heads"] == 0 and counts["gets"] == 1 and counts["lists"] <= 1, counts
    with pytest.raises(FileNotFoundError):
        bowwave.open("s3://data/none", **server.options, cache="206MiB")


def test_files_opened_by_url_in_order_are_read_ahead():
    images = {f"images/{at:03}.jpg": 40_000 for at in range(80)}
    server = Shaped(1, 0, **images)
    try:
        options = dict(server.options, cache="208MiB")
        for at, name in enumerate(images):
            with bowwave.open(f"s3://data/{name}", **options) as file:
                assert file.read() == server.bytes(0, 40_000)
            if at == 2:
                counts = server.counters()
                assert (counts["heads"], counts["lists"], counts["gets"]) == (3, 0, 3), "few files are opened as before"
        counts = server.counters()
        # On a busy machine, listings may expire.
        assert 1 <= counts["lists"] <= 10 and counts["heads"] <= 40 and counts["gets"] <= 120, counts
    finally:
        server.end()
