"""The store of zarr, with zarr's own tests."""

import time

import bowwave.zarr
import numpy as np
import pytest
import zarr
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
    assert store._ahead._opened.keys() <= {"zarr.json"}, "one read, and another one elsewhere"
    for row in range(20, 23):
        assert read[row, 1] == 1000 * row + 1
    # Of the loop: the chunks behind the last one.
    ahead = sorted(int(key.split("/")[1]) for key in store._ahead._opened if key.startswith("c/"))
    assert ahead and min(ahead) == 23 and max(ahead) <= 23 + 2 * bowwave.zarr.AHEAD_FIRST


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
