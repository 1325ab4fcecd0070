"""Files that are read at the same offsets as one before."""

import random

import bowwave
import bowwave._alike
import bowwave.fsspec
import h5py
import numpy as np
import pytest
from bowwave._alike import FIRST, PAGE, Trail, Trails, pages_of
from conftest import Shaped

FILES = 12


class File:
    """An open file in the eyes of `Trails`."""


def opened(trails, size=1 << 30):
    trail, file = Trail(size), File()
    trail.open_file = file
    trails.opened(trail, file)
    return trail


def fetched(trails, trail, reads):
    """What is fetched of this file and of others at each of these reads."""
    found = []
    for offset, length in reads:
        fetches = trails.read(trail, offset, length)
        found.append(([ranges for of, ranges in fetches if of is trail], [ranges for of, ranges in fetches if of is not trail]))
    return found


READS = [(0, 512), (200_000, 512), (300_000, 4000), (100_000, 70)]


def test_a_file_that_leaves_out_reads_of_another_is_not_read_like_it():
    trails, places = Trails(), [(place * 10_000, 100) for place in range(200)]
    fetched(trails, opened(trails), places)
    other = opened(trails)
    ranges = [sum(ranges, []) for ranges, _ in fetched(trails, other, places[:100:2])]
    assert 0 < sum(map(len, ranges)) < 10, ranges
    assert fetched(trails, opened(trails), places)[3][0][0] == places[19:36], "32 ahead after the fourth one in order"


def test_reads_that_followed_in_another_file_are_fetched_once():
    trails = Trails()
    first, second, third = (opened(trails) for _ in range(3))
    assert fetched(trails, first, READS) == [([], [])] * 4
    own, others = zip(*fetched(trails, second, READS), strict=True)
    assert own == ([READS[1:]], [], [], [])
    assert others == ([READS], [], [], []), "of the file that was opened after them"
    assert fetched(trails, third, READS) == [([], [])] * 4


def test_files_may_be_read_backwards():
    trails = Trails()
    first, second, third = (opened(trails) for _ in range(3))
    fetched(trails, third, READS)
    assert trails.read(second, *READS[0])[1] == (first, READS)


def test_files_of_another_size_have_the_same_beginning_by_their_format():
    trails = Trails()
    fetched(trails, opened(trails), READS)
    other = opened(trails, 1 << 20)
    assert fetched(trails, other, READS[:2]) == [([], []), ([READS[2:]], [])]
    short = opened(trails, 250_000)
    assert fetched(trails, short, READS[:2]) == [([], []), ([[READS[3]]], [])], "what lies behind its end is not fetched"


def test_a_file_that_is_opened_next_has_what_the_last_one_shared_with_others():
    trails = Trails()
    assert trails.ahead(Trail(1 << 30), 1 << 30) == []
    fetched(trails, opened(trails), READS)
    assert trails.ahead(Trail(1 << 30), 1 << 30) == [], "one file shows nothing"
    fetched(trails, opened(trails), READS)
    assert trails.ahead(Trail(1 << 30), 1 << 30) == READS
    assert trails.ahead(Trail(1 << 30), 2 * PAGE) == READS[:2]
    assert trails.ahead(Trail(1 << 29), 1 << 30) == []


@pytest.mark.parametrize("seed", range(20))
def test_unused_pages_are_bounded_by_those_that_were_read_alike(seed):
    chance, trails = random.Random(seed), Trails()
    places = [(place * 100_000, chance.choice([8, 100, 5000, 90_000])) for place in range(60)]
    pages = {}
    alike = 0

    def note(trail, ranges):
        for read in ranges:
            pages.setdefault(trail, set()).update(page for page in pages_of(read) if page not in trail.read)

    for _ in range(60):
        trail = Trail(10_000_000 * chance.randint(1, 2))
        if chance.random() < 0.5:
            note(trail, trails.ahead(trail, 1 << 30))
        if chance.random() < 0.2:
            continue
        trail.open_file = File()
        trails.opened(trail, trail.open_file)
        for read in chance.sample(places, chance.randint(1, 60)):
            new, before = set(pages_of(read)) - trail.read, trail.alike
            fetches = trails.read(trail, *read)
            alike += len(new) if trail.alike > before or new & pages.get(trail, set()) else 0
            for of, ranges in fetches:
                note(of, ranges)
            unused = sum(len(fetched - of.read) for of, fetched in pages.items())
            assert unused <= FIRST + alike, f"seed {seed}"
        if chance.random() < 0.5:
            trails.closed(trail)
        assert trails._out == sum(len(trail.unread) for trail in trails._recent.values())


@pytest.mark.parametrize("seed", range(10))
def test_trails_of_many_files_are_bounded(seed, monkeypatch):
    monkeypatch.setattr(bowwave._alike, "PAGES_OF_ALL", 100)
    chance, trails = random.Random(seed), Trails()
    files = [opened(trails) for _ in range(30)]
    for _ in range(2000):
        trails.read(chance.choice(files), chance.randrange(20) * PAGE, chance.choice([10, 10, 9000]))
        assert trails._pages == sum(trail.pages for trail in trails._recent.values()) <= 100
        assert trails._out == sum(len(trail.unread) for trail in trails._recent.values())
        reads = {read for trail in trails._recent.values() for read in trail.reads}
        assert trails._having.keys() <= reads, f"seed {seed}"
        assert all(read in trail.at for read, having in trails._having.items() for trail in having)


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


def test_files_of_a_model_run_wait_for_the_first_of_them_alone(server, monkeypatch):
    monkeypatch.setattr(bowwave.hdf5, "TRAILS", Trails())
    options = {"anon": True, "client_kwargs": {"endpoint_url": server.url, "region_name": "us-east-1"}}
    fs = bowwave.fsspec.BowwaveFileSystem("s3", options, skip_instance_cache=True, cache="311MiB", attribute_timeout=60)
    before = server.counters()
    sources = [fs.open(path) for path in sorted(fs.ls("data/runs", detail=False))]
    misses = []
    for at, source in enumerate(sources):
        with h5py.File(source, "r") as file:
            assert file["b"].attrs["units"] == "b" and (file["b"][2] == at).all()
        misses.append(source.stats()["misses"])
    assert sum(misses[:2]) > 0 and not any(misses[3:]), misses
    size = server.counters()["bytes"] - before["bytes"]
    assert size < FILES * (8 * 256 * 256 + 100_000) * 1.3 + 2 * FIRST * PAGE, size
