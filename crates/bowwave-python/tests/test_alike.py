"""Files that are read alike: at the same offsets as one before."""

import gc

import bowwave.fsspec
import h5py
import numpy as np
import pytest
from bowwave._alike import Alike
from conftest import Shaped

FILES = 12
#: Bytes that may be fetched before any was read alike.
FIRST = 512 << 10


class File:
    """An open file."""


READS = [(0, 512), (200_000, 512), (300_000, 4000), (100_000, 70)]
PAGES = [(start // 4096 * 4096, 4096) for start, _ in READS]


def test_what_followed_in_another_file_is_fetched_of_files_that_are_open():
    alike, files = Alike(), [File() for _ in range(4)]
    numbers = [alike.opened(file, 1 << 30) for file in files]
    assert [alike.read(numbers[0], files[0], *read) for read in READS] == [[]] * 4
    del files[2]
    gc.collect()
    alike.closed(numbers[2])
    fetched = alike.read(numbers[1], files[1], *READS[0])
    assert [read for file, read in fetched if file is files[1]] == [(204_800 - 8192, 4096), (299_008, 8192), (98_304, 4096)]
    assert [read[0] for file, read in fetched if file is files[2]][:2] == [0, 204_800 - 8192], "and of the next one but one"
    assert all(file in files[1:] for file, _ in fetched)


def test_a_file_that_is_opened_next_has_what_the_last_one_shared_with_others():
    alike, files = Alike(), [File() for _ in range(3)]
    assert alike.ahead(1 << 30, 1 << 30)[1] == []
    for file in files[:2]:
        number = alike.opened(file, 1 << 30)
        for read in READS:
            alike.read(number, file, *read)
    opened, ranges = alike.ahead(1 << 30, 1 << 30)
    assert [start for start, _ in ranges] == [0, 196_608, 299_008, 98_304]
    number = alike.opened(files[2], 1 << 30, opened)
    assert number == opened.number and not any(alike.read(number, files[2], *read) for read in READS), "all was fetched"
    alike.ahead(1 << 30, 1 << 30)[0].dropped()


def test_a_file_that_is_not_read_like_others_any_more_is_parsed(server):
    fs = bowwave.fsspec.BowwaveFileSystem("s3", server.target, skip_instance_cache=True, cache="312MiB", attribute_timeout=60)
    misses = []
    for at, path in enumerate(sorted(fs.ls("data/runs", detail=False))):
        with fs.open(path) as source, h5py.File(source, "r") as file:
            assert (file["b"][0] == at).all()
            if at in (0, FILES - 1):
                assert (file["c"][:] == at).all() and file["a"].attrs["units"] == "a"
                misses.append(source.stats()["misses"])
                with pytest.raises(ValueError):
                    source.pread(-1, 10)
    assert misses[1] <= misses[0], misses


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("runs")
    for at in range(FILES):
        with h5py.File(directory / f"run{at:02}.nc", "w") as file:
            for name in "abc":
                data = np.full((4, 256, 256), at, "f8")
                file.create_dataset(name, data=data, chunks=(1, 256, 256)).attrs["units"] = name
    server = Shaped(20, 0, runs=f"@{directory}")
    yield server
    server.end()


def test_files_of_a_model_run_wait_for_the_first_of_them_alone(server):
    fs = bowwave.fsspec.BowwaveFileSystem("s3", server.target, skip_instance_cache=True, cache="311MiB", attribute_timeout=60)
    before = server.counters()
    sources = [fs.open(path) for path in sorted(fs.ls("data/runs", detail=False))]
    misses = []
    for at, source in enumerate(sources):
        with h5py.File(source, "r") as file:
            assert file["b"].attrs["units"] == "b" and (file["b"][2] == at).all()
        misses.append(source.stats()["misses"])
    assert sum(misses[:2]) > 0 and not any(misses[3:]), misses
    size = server.counters()["bytes"] - before["bytes"]
    assert size < FILES * (8 * 256 * 256 + 100_000) * 1.3 + 2 * FIRST, size
