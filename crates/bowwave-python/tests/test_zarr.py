"""The store of zarr, with zarr's own tests."""

import asyncio
import random
import time

import bowwave.zarr
import numpy as np
import pytest
import zarr
from conftest import Shaped
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.testing.store import StoreTests


pytestmark = pytest.mark.filterwarnings("ignore")


class TestStore(StoreTests[bowwave.zarr.Store, cpu.Buffer]):
    store_cls = bowwave.zarr.Store
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, tmp_path):
        return {"url": str(tmp_path), "read_only": False}

    async def set(self, store, key: str, value: Buffer) -> None:
        store._put(key, value.to_bytes())

    async def get(self, store, key: str) -> Buffer:
        handle = store._ahead.source(key).handle()
        return self.buffer_cls.from_bytes(handle.pread(0, handle.size))

    def test_store_repr(self, store):
        assert repr(store) == f"bowwave.zarr.Store({store.url!r})"

    def test_store_supports_writes(self, store):
        assert store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_both_formats(version, tmp_path):
    expected = np.arange(600).reshape(20, 30)
    array = zarr.create_array(str(tmp_path / "a"), shape=(20, 30), chunks=(5, 7), dtype="i8", zarr_format=version)
    array[:] = expected
    read = zarr.open_array(bowwave.zarr.Store(str(tmp_path / "a")), mode="r")
    assert np.array_equal(read[:], expected)
    assert np.array_equal(read[3:9, 20:], expected[3:9, 20:])


def test_shards(tmp_path):
    expected = np.arange(1000)
    array = zarr.create_array(str(tmp_path / "a"), shape=(1000,), chunks=(50,), shards=(200,), dtype="i8")
    array[:] = expected
    read = zarr.open_array(bowwave.zarr.Store(str(tmp_path / "a")), mode="r")
    assert np.array_equal(read[:], expected) and np.array_equal(read[355:777], expected[355:777])


def test_a_loop_over_chunks_does_not_wait_for_each(tmp_path):
    array = zarr.create_array(str(tmp_path / "a"), shape=(48, 1000), chunks=(1, 1000), dtype="f8", compressors=None)
    array[:] = np.arange(48_000).reshape(48, 1000)
    read = zarr.open_array(bowwave.zarr.Store(f"emulate:s3,latency=50ms:file://{tmp_path}/a"), mode="r")
    begun = time.monotonic()
    for row in range(48):
        assert read[row, 3] == 1000 * row + 3
    assert time.monotonic() - begun < 48 * 0.1 / 2


def test_a_read_of_few_chunks_fetches_no_others(tmp_path):
    array = zarr.create_array(str(tmp_path / "a"), shape=(48, 1000), chunks=(1, 1000), dtype="f8", compressors=None)
    array[:] = np.arange(48_000).reshape(48, 1000)
    store = bowwave.zarr.Store(str(tmp_path / "a"))
    read = zarr.open_array(store, mode="r")
    assert read[3:6, 2].tolist() == [3002, 4002, 5002] and read[20, 1] == 20_001
    assert store._ahead._opened.keys() <= {"zarr.json", "c/3/0", "c/4/0", "c/5/0", "c/20/0"}, "two reads"
    for row in range(20, 23):
        assert read[row, 1] == 1000 * row + 1
    # Of the loop: the chunks behind the last one.
    ahead = {int(key.split("/")[1]) for key in store._ahead._opened if key.startswith("c/")} - {3, 4, 5, 20, 21, 22}
    assert ahead and min(ahead) == 23 and max(ahead) <= 23 + 2 * bowwave.zarr.AHEAD_FIRST


# Loops, on a server with a time to first byte of 50 ms. Each chunk has its number in all its values.

FIRST_BYTE_MS = 50
FIRST_BYTE = FIRST_BYTE_MS / 1000
#: Chunks in each direction of an array, and values of a chunk in each direction: 32 KiB.
GRID, SIDES = (8, 32), (8, 512)
CHUNK = 8 * SIDES[0] * SIDES[1]
SHARDED, SMALLER = ({"shards": (rows * SIDES[0], columns * SIDES[1])} for rows, columns in ((4, 8), (2, 4)))


def array_at(path, **settings):
    numbers = np.arange(1, 1 + GRID[0] * GRID[1], dtype="f8").reshape(GRID)
    if settings.pop("sparse", False):
        # No chunk of these is stored: all of a shard, and every third chunk of the others.
        numbers.flat[::3] = numbers[:4, 8:16] = 0
    options = {"chunks": SIDES, "dtype": "f8", "compressors": None, **settings}
    shape = tuple(count * side for count, side in zip(GRID, SIDES))
    if isinstance(path, zarr.Group):
        array = path.create_array("values", shape=shape, **options)
    else:
        array = zarr.create_array(str(path), shape=shape, **options)
    array[:] = np.kron(numbers, np.ones(SIDES))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("arrays")
    array_at(directory / "v3")
    array_at(directory / "v2", zarr_format=2)
    array_at(directory / "points", chunk_key_encoding={"name": "default", "separator": "."})
    array_at(directory / "shards", **SHARDED)
    array_at(directory / "smaller", **SMALLER)
    array_at(directory / "indexfirst", shards={"shape": SMALLER["shards"], "index_location": "start"})
    array_at(directory / "sparse", **SHARDED, sparse=True)
    for version in (2, 3):
        root = zarr.create_group(str(directory / f"group{version}"), zarr_format=version)
        array_at(root.create_group("nested"))
        zarr.consolidate_metadata(str(directory / f"group{version}"))
    server = Shaped(FIRST_BYTE_MS, 90, **{path.name: f"@{path}" for path in directory.iterdir()})
    yield server
    server.end()


def opened(server, name, caches=iter(range(300, 1000))):
    """An array or group with a cache of its own."""
    store = bowwave.zarr.Store(f"s3://data/{name}", **server.options, cache=f"{next(caches)}MiB")
    return zarr.open(store, mode="r")


def looped(server, array, reads):
    """Seconds and bytes of reads, each of which is the chunks between two corners."""
    sent, begun = server.counters()["bytes"], time.monotonic()
    for first, last in reads:
        values = array[tuple(slice(a * side, (b + 1) * side) for a, b, side in zip(first, last, SIDES))]
        assert values.shape == tuple((b - a + 1) * side for a, b, side in zip(first, last, SIDES))
        for corner, place in ((values[0, 0], first), (values[-1, -1], last)):
            assert corner in (1 + place[0] * GRID[1] + place[1], 0), (first, last)
    seconds = time.monotonic() - begun
    # Of chunks that are in flight when the loop ends.
    time.sleep(2 * FIRST_BYTE)
    return seconds, server.counters()["bytes"] - sent


def single(places):
    return [(place, place) for place in places]


ORDERS = {
    "columns": single((i, j) for j in range(8) for i in range(8)),
    "backwards": single((i, j) for i in (7, 6) for j in reversed(range(32))),
    "every second": single((i, j) for i in range(4) for j in range(0, 32, 2)),
    "diagonals": single((i, i + j) for j in range(8) for i in range(8)),
    "eight at a time": [((0, j), (7, j)) for j in range(32)],
    "a part of each row": single((i, j) for i in range(8) for j in range(3, 13)),
}


@pytest.mark.parametrize(("name", "order"), [
    *(("v3", order) for order in ORDERS), ("smaller", "eight at a time")])
def test_a_loop_in_any_order_does_not_wait_for_each_chunk(server, name, order):
    reads = ORDERS[order]
    array = opened(server, name)
    used = CHUNK * sum((1 + b[0] - a[0]) * (1 + b[1] - a[1]) for a, b in reads)
    seconds, sent = looped(server, array, reads)
    assert seconds < 0.75 * len(reads) * FIRST_BYTE, f"{len(reads)} reads"
    # The loop ends before the array does: no more is unused than was used.
    assert sent <= 2.2 * used


ALL = single((i, j) for i in range(GRID[0]) for j in range(GRID[1]))


#: Round trips that a loop over all chunks may take. Shards are read ahead by themselves; the next ones must be, too.
ROUND_TRIPS = {"v2": 128, "points": 128, "smaller": 64, "indexfirst": 64, "sparse": 80}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_loop_over_an_array_of_any_kind_does_not_wait_for_each_chunk(server, name):
    array = opened(server, name)
    before = server.counters()["requests"]
    seconds, sent = looped(server, array, ALL)
    assert seconds < ROUND_TRIPS[name] * FIRST_BYTE
    assert sent <= 1.5 * len(ALL) * CHUNK
    # A shard has two more.
    assert server.counters()["requests"] - before <= len(ALL) + 2 * 32 + 4


@pytest.mark.parametrize("version", [2, 3])
def test_a_loop_in_a_consolidated_group_does_not_wait_for_each_chunk(server, version):
    group = opened(server, f"group{version}")
    before = server.counters()["gets"]
    array = group["nested/values"]
    assert server.counters()["gets"] == before, "the metadata is that of the group"
    seconds, sent = looped(server, array, ALL)
    assert seconds < 128 * FIRST_BYTE
    assert sent <= 1.1 * len(ALL) * CHUNK


def test_reads_at_random_places_of_shards_fetch_nothing_else(server):
    places = random.Random(1).sample([(i, j) for i in range(GRID[0]) for j in range(GRID[1])], 50)
    _, sent = looped(server, opened(server, "shards"), single(places))
    assert sent <= 1.1 * len(places) * CHUNK + CHUNK


def test_a_loop_over_every_second_chunk_of_shards_fetches_no_others(server):
    places = single((i, j) for i in range(GRID[0]) for j in range(0, GRID[1], 2))
    seconds, sent = looped(server, opened(server, "smaller"), places)
    assert seconds < 0.75 * len(places) * FIRST_BYTE
    assert sent <= 1.25 * len(places) * CHUNK


def test_one_read_of_a_part_of_a_shard_does_not_wait_for_each_chunk(server):
    array = opened(server, "shards")
    read = ((0, 0), (3, 6))
    seconds, sent = looped(server, array, [read])
    assert seconds < 0.75 * 28 * FIRST_BYTE
    assert sent <= 1.1 * 28 * CHUNK


def test_a_chunk_that_is_read_again_is_not_looked_up_again(server):
    array = opened(server, "v3")
    before = server.counters()["requests"]
    for row in range(SIDES[0]):
        assert array[row, 3] == 1
    assert server.counters()["requests"] == before + 1


async def test_a_range_behind_the_end_is_empty(tmp_path):
    store = bowwave.zarr.Store(str(tmp_path), read_only=False)
    await store.set("a", cpu.Buffer.from_bytes(b"12"))
    await store.set("empty", cpu.Buffer.from_bytes(b""))
    for key, start, end, expected in (("empty", 1, 1, b""), ("a", 3, 9, b""), ("a", 2, 2, b""), ("a", 1, 9, b"2")):
        data = await store.get(key, default_buffer_prototype(), RangeByteRequest(start, end))
        assert data.to_bytes() == expected


async def test_a_deleted_directory_is_not_listed(tmp_path):
    store = bowwave.zarr.Store(str(tmp_path), read_only=False)
    await store.set("a/b/c", cpu.Buffer.from_bytes(b"1"))
    await store.set("d", cpu.Buffer.from_bytes(b"2"))
    await store.delete_dir("a")
    assert [name async for name in store.list_dir("")] == ["d"]
    await store.delete_dir("")
    assert list(tmp_path.iterdir()) == [], "but the directory itself"


async def test_a_directory_whose_last_key_was_deleted_is_not_listed(tmp_path):
    """Regression: zarr deletes a chunk that has the fill value only, and its directories were still there."""
    store = bowwave.zarr.Store(str(tmp_path), read_only=False)
    data = cpu.Buffer.from_bytes(b"1")
    for key in ("a/zarr.json", "a/c/0/0", "a/c/1/0"):
        await store.set(key, data)
    await store.delete("a/c/0/0")
    assert [name async for name in store.list_dir("a/c")] == ["1"]
    await store.delete("a/c/1/0")
    assert [name async for name in store.list_dir("a")] == ["zarr.json"]
    await store.delete("a/zarr.json")
    assert [name async for name in store.list_dir("")] == [] and tmp_path.is_dir()


async def test_keys_are_set_while_others_beside_them_are_deleted(tmp_path):
    store = bowwave.zarr.Store(str(tmp_path), read_only=False)
    data = cpu.Buffer.from_bytes(b"1")

    async def turns(name):
        for _ in range(50):
            await store.set(f"a/b/c/{name}", data)
            await store.delete(f"a/b/c/{name}")
        await store.set(f"a/b/c/{name}", data)

    await asyncio.gather(*map(turns, "0123"))
    assert sorted([name async for name in store.list_dir("a/b/c")]) == [*"0123"]
