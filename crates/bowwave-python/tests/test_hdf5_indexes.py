"""The indexes of HDF5's chunked arrays, loops over their chunks, user blocks, and damaged files."""

import itertools
import os
import random
import zlib

import bowwave
import bowwave.hdf5
import numpy as np
import pytest
from bowwave._hdf5 import superblock
from bowwave._hdf5_index import Chunk, Piece
from conftest import Shaped
from test_hdf5 import Recorded

try:
    import h5py
except ImportError:
    if os.environ.get("CI") == "true":
        raise
    pytest.skip("h5py is not installed", allow_module_level=True)

LATEST = {"libver": "latest"}
GZIP = {"compression": "gzip", "compression_opts": 1}
#: Sizes of caches: files with equal settings share one.
CACHES = itertools.count(700)


class Whole:
    """A file in memory, which refuses ranges beyond its end and long reads."""

    def __init__(self, data):
        self.data, self.size, self.fetched = data, len(data), 0

    def pread(self, offset, length):
        assert 0 <= offset < max(1, self.size) and 0 < length <= bowwave.hdf5.LENGTH_MAX, (offset, length)
        return bytes(self.data[offset:offset + length])

    def advise(self, advice, offset=0, length=0):
        if advice == "willneed":
            assert 0 <= offset < offset + length <= self.size, (offset, length)
            self.fetched += length


def chunks_of(path):
    """All chunks that the parsers find in a file, by array: place, offset and length."""
    data, found, known = path.read_bytes(), {}, set()
    base = next(at for at in (0, *(512 << n for n in range(20))) if data[at:at + 8] == b"\x89HDF\r\n\x1a\n")
    left = [Piece(0, 128, superblock)]
    while left:
        piece = left.pop()
        known.add(piece.start)
        for one in piece.parse(data[base + piece.start:base + piece.start + piece.length]):
            if isinstance(one, Chunk):
                if 0 < one.start < len(data) and one.place:
                    found.setdefault(id(one.array), []).append((one.place, base + one.start, one.length))
            elif 0 < one.start < len(data) and one.start not in known:
                left.append(one)
    return sorted(sorted(chunks) for chunks in found.values())


#: Shapes, largest shapes and chunks of arrays, by the index that HDF5 gives them.
INDEXES = {
    "one chunk": ((8, 8), (8, 8), (8, 8)),
    "none": ((7, 9), (7, 9), (2, 2)),
    "fixed": ((7, 9), (7, 9), (2, 2)),
    "fixed, smaller than it may be": ((7, 9), (20, 30), (2, 2)),
    "fixed, paged": ((5000,), (5000,), (2,)),
    "extensible": ((50, 9), (None, 9), (2, 2)),
    "extensible, second dimension": ((9, 50, 5), (12, None, 8), (2, 2, 2)),
    "extensible, secondary blocks": ((3000,), (None,), (1,)),
    "extensible, paged": ((80_000,), (None,), (2,)),
    "tree, a leaf": ((6, 6), (None, None), (2, 2)),
    "tree, a level": ((40, 30), (None, None), (1, 1)),
    "tree, two levels": ((250, 120), (None, None), (1, 1)),
}


@pytest.mark.parametrize("options", [{}, GZIP, {"userblock_size": 1024}], ids=["plain", "gzip", "user block"])
@pytest.mark.parametrize("index", INDEXES)
def test_every_chunk_of_an_index_is_found(index, options, tmp_path):
    shape, most, chunk = INDEXES[index]
    if options and np.prod(shape) > 20_000:
        pytest.skip("it takes long to write")
    user = {name: value for name, value in options.items() if name == "userblock_size"}
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if index == "none":
        early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    with h5py.File(tmp_path / "a.h5", "w", **LATEST, **user) as file:
        array = file.create_dataset("a", shape, "u2", maxshape=most, chunks=chunk, dcpl=early,
                                    **(options if not user else {}))
        array[...] = np.arange(np.prod(shape), dtype="u2").reshape(shape)
    # Not `chunk_iter` of HDF5, which has wrong places if not the first dimension is unlimited.
    data, values = (tmp_path / "a.h5").read_bytes(), np.arange(np.prod(shape), dtype="u2").reshape(shape)
    found, = chunks_of(tmp_path / "a.h5")
    counts = [-(-side // step) for side, step in zip(shape, chunk, strict=True)]
    assert len({place for place, _, _ in found}) == np.prod(counts)
    for place, start, length in found:
        stored = data[start:start + length]
        whole = np.frombuffer(zlib.decompress(stored) if options is GZIP else stored, "u2").reshape(chunk)
        part = values[tuple(slice(at * step, (at + 1) * step) for at, step in zip(place, chunk, strict=True))]
        assert np.array_equal(whole[tuple(map(slice, part.shape))], part), place


def test_chunks_that_are_not_stored_are_not_found(tmp_path):
    places = [0, 3, 7, 100, 199]
    with h5py.File(tmp_path / "a.h5", "w", **LATEST) as file:
        for name, most in (("fixed", 200), ("extensible", None)):
            array = file.create_dataset(name, (200,), "u2", maxshape=(most,), chunks=(1,))
            for at in places:
                array[at] = 1
    assert [[place for (place,), _, _ in chunks] for chunks in chunks_of(tmp_path / "a.h5")] == [places, places]


COUNT = 200
FILES = {"tree1": ({}, None, {}), "fixed": (LATEST, None, GZIP), "extensible": (LATEST, (None, 64, 64), {}),
         "tree2": (LATEST, (None, None, 64), GZIP), "user": ({**LATEST, "userblock_size": 512}, (None, 64, 64), GZIP),
         "user1M": ({"userblock_size": 1 << 20}, None, {})}
LOOPS = {"forwards": range(COUNT), "backwards": range(COUNT - 1, -1, -1), "by a step": range(0, COUNT, 3),
         "backwards by a step": range(COUNT - 1, -1, -2)}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Files of chunks of 14 to 16 KiB, and a server for them."""
    directory = tmp_path_factory.mktemp("indexes")
    data = np.random.default_rng(5).random((COUNT, 64, 64), "f4")
    for name, (options, most, filters) in FILES.items():
        with h5py.File(directory / f"{name}.h5", "w", **options) as file:
            file.create_dataset("a", data=data, maxshape=most, chunks=(1, 64, 64), **filters)
            file.create_dataset("behind", data=np.zeros(100_000))
    server = Shaped(20, 0, **{f"{name}.h5": f"@{directory}/{name}.h5" for name in FILES})
    yield server, directory, data
    server.end()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", FILES)
def test_a_loop_over_chunks_fetches_these_ahead_and_little_else(name, loop, written):
    server, directory, data = written
    before = server.counters()
    with bowwave.open(f"s3://data/{name}.h5", cache=f"{next(CACHES)}MiB", **server.options) as source:
        with h5py.File(source) as file:
            for at in LOOPS[loop]:
                assert np.array_equal(file["a"][at], data[at])
        stats = source.stats()
    after = server.counters()
    requests, size = after["requests"] - before["requests"], after["bytes"] - before["bytes"]
    with h5py.File(directory / f"{name}.h5") as file:
        needed = sum(file["a"].id.get_chunk_info_by_coord((at, 0, 0)).size for at in LOOPS[loop])
    # Adjacent chunks are one request; others have one each. Some requests are for metadata.
    most = COUNT // 6 if abs(LOOPS[loop].step) == 1 else len(LOOPS[loop]) + 16
    assert requests <= most and size <= 1.5 * needed, (requests, size, needed)
    # A page that a read waits for: metadata of each level, and the first chunks.
    assert stats["misses"] < 40, stats


@pytest.mark.parametrize("loop", ["rows backwards", "columns", "blocks"])
def test_nested_loops_over_a_grid_are_read_ahead(loop, tmp_path):
    side = 16
    data = np.random.default_rng(5).random((side * 32, side * 32))
    with h5py.File(tmp_path / "a.h5", "w", **LATEST) as file:
        file.create_dataset("a", data=data, maxshape=(None, None), chunks=(32, 32))
    places = {"rows backwards": [(y, x) for y in reversed(range(side)) for x in range(side)],
              "columns": [(y, x) for x in range(side) for y in range(side)],
              "blocks": [(y + 4, x + 4) for y in range(8) for x in range(8)]}[loop]
    with bowwave.open(f"emulate:s3:file://{tmp_path}/a.h5", cache=f"{next(CACHES)}MiB") as source:
        with h5py.File(source) as file:
            for y, x in places:
                assert file["a"][y * 32, x * 32] == data[y * 32, x * 32]
        stats = source.stats()
    # Three pages a chunk, whose number is 64 or 256.
    assert stats["misses"] + stats["late"] < len(places) and stats["pages_readahead"] > len(places), stats
    assert stats["bytes_fetched"] < 1.5 * len(places) * 8192 + 600_000, stats


def replayed(data, reads):
    """What the package fetches for these reads of a file in memory, which raises nothing."""
    file, watcher = Whole(data), bowwave.hdf5.Watcher()
    watcher.opened(file)
    for offset, length in reads:
        if offset < file.size:
            watcher.before(file, offset, min(length, file.size - offset))
    return file.fetched


@pytest.mark.parametrize("name", FILES)
def test_damaged_indexes_never_raise_nor_read_elsewhere(name, written):
    _, directory, _ = written
    with Recorded(directory / f"{name}.h5") as source:
        with h5py.File(source) as file:
            for at in (*range(0, 40, 2), 150, 140, 130, 120):
                file["a"][at]
            file["behind"][:10]
        reads = source.reads
    data, chance = (directory / f"{name}.h5").read_bytes(), random.Random(name)
    undamaged = replayed(data, reads)
    metadata = sorted({pair for pair in reads if pair[1] <= 4096 + 512})
    assert undamaged > 400_000
    for number in range(400):
        damaged = bytearray(data)
        for _ in range(1 + number % 4):
            offset, length = chance.choice(metadata)
            at = offset + chance.randrange(min(length, 64 if number % 2 else length))
            damaged[at] = chance.choice([0, 1, 255, damaged[at] ^ 1 << chance.randrange(8)])
        # Wrong lengths of chunks may fetch more, up to the budget.
        assert replayed(damaged, reads) <= len(data) + undamaged, number
    for _ in range(100):
        within = chance.choice(metadata)[0] + chance.randrange(64)
        cut = chance.choice([chance.randrange(len(data)), within])
        replayed(data[:cut], reads)
    # Within each header.
    for offset, length in metadata:
        for cut in range(offset + 4, offset + min(length, 73), 4):
            replayed(data[:cut], reads)
