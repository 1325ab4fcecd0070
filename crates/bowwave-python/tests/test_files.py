"""`bowwave.open`."""

import asyncio
import io
import pickle
import threading
import time

import bowwave
import pytest

BODY = bytes(range(256)) * 5000


@pytest.fixture(params=["file", "path", "http", "s3"])
def opened(request, served):
    server = served(a__bin=BODY)
    url, options = {
        "file": (f"file://{server.path}/a.bin", {}),
        "path": (str(server.path / "a.bin"), {}),
        "http": (server.http + "a.bin", {}),
        "s3": (server.bucket + "a.bin", server.options),
    }[request.param]
    with bowwave.open(url, **options) as file:
        yield file


def test_a_file_is_a_binary_file(opened):
    assert isinstance(opened, io.BufferedIOBase)
    assert opened.readable() and opened.seekable() and not opened.writable()
    assert opened.read(10) == BODY[:10]
    assert opened.tell() == 10
    assert opened.seek(-20, io.SEEK_END) == len(BODY) - 20
    assert opened.read() == BODY[-20:]
    assert opened.read() == b""
    opened.seek(3)
    buffer = bytearray(7)
    assert opened.readinto(buffer) == 7 and buffer == BODY[3:10]
    assert opened.pread(256, 4) == b"\0\1\2\3"
    assert opened.tell() == 10, "pread leaves the position"
    assert opened.seek(0) == 0 and opened.read() == BODY
    assert opened.size == len(BODY)
    with pytest.raises(io.UnsupportedOperation):
        opened.fileno()
    with pytest.raises(io.UnsupportedOperation):
        opened.write(b"x")


def test_lines_and_text(served):
    server = served(t__txt="eins\nzwei\n\nvier".encode())
    with bowwave.open(server.http + "t.txt") as file:
        assert list(file) == [b"eins\n", b"zwei\n", b"\n", b"vier"]
        file.seek(0)
        assert io.TextIOWrapper(file).read() == "eins\nzwei\n\nvier"


def test_ranges_and_announcements(opened):
    ranges = [(1000, 1100), (5, 6), (70_000, 90_000), (0, 0)]
    assert opened.read_ranges(ranges) == [BODY[start:end] for start, end in ranges]
    opened.plan([(0, 4096), (500_000, 600_000)])
    assert opened.pread(500_000, 10) == BODY[500_000:500_010]
    opened.end_plan()
    opened.prefetch([(100_000, 1000), (5, 0)])
    for advice in bowwave.ADVICE:
        opened.advise(advice, 0, 4096)
    assert opened.pread(0, 4096) == BODY[:4096]
    with pytest.raises(ValueError, match="is not an advice value; give one of normal"):
        opened.advise("often")


def test_a_closed_file_says_so(opened):
    opened.close()
    for call in (opened.read, opened.tell, lambda: opened.pread(0, 1), lambda: opened.plan([(0, 1)])):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_a_pickled_file_keeps_its_place_and_version(opened):
    opened.seek(100)
    data = pickle.dumps(opened)
    assert len(data) < 600
    with pickle.loads(data) as again:
        assert again.tell() == 100 and again.read(5) == BODY[100:105]


def test_a_replaced_object_is_noticed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    data = pickle.dumps(bowwave.open(path))
    path.unlink()
    path.write_bytes(b"new!")
    with pytest.raises(OSError, match="replaced"):
        pickle.loads(data)


def test_threads_read_at_once(shaped):
    with bowwave.open("s3://data/large", **shaped.options) as file:
        wrong = []

        def read(start):
            for offset in range(start, file.size, 8 << 20):
                if file.pread(offset, 5000) != shaped.bytes(offset, min(5000, file.size - offset)):
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(at * (1 << 20) + 17,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_read_does_not_wait_for_the_watcher_that_sees_the_read_of_another_thread():
    calls, entered, leave = [], threading.Event(), threading.Event()

    class Watcher:
        def before(self, file, offset, length):
            calls.append(offset)
            entered.set()
            leave.wait(10)

    with bowwave.open("pattern:/1MiB") as file:
        file._watchers.append(Watcher())
        first = threading.Thread(target=file.pread, args=(100, 10))
        first.start()
        entered.wait(10)
        assert len(file.pread(200, 10)) == 10 and calls == [100]
        leave.set()
        first.join()
        file.pread(300, 10)
        assert calls == [100, 300]


def test_no_two_threads_are_in_the_watcher_of_a_file():
    """Fails only without a GIL, where two threads could take it."""
    inside, twice = [], []

    class Watcher:
        def before(self, file, offset, length):
            inside.append(None)
            if len(inside) > 1:
                twice.append(None)
            inside.pop()

    with bowwave.open("pattern:/1MiB") as file:
        file._watchers.append(Watcher())

        def watch():
            for _ in range(20_000):
                file._watch(0, 10)

        threads = [threading.Thread(target=watch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not twice and len(file._watchers) == 1


def test_threads_read_cached_bytes_at_once():
    """Copies of all these lengths, which keep the GIL or not, alternate between threads."""
    with bowwave.open("pattern:/4MiB", cache="16MiB") as file:
        data = file.read()
        wrong, start = [], threading.Barrier(4)

        def read(first):
            start.wait()
            for number in range(first, first + 400):
                length = (4096, 16 << 10, (16 << 10) + 1, 64 << 10, (64 << 10) + 1, 256 << 10)[number % 6]
                offset = number * 7919 % (file.size - length)
                buffer = bytearray(length)
                if file.preadinto(offset, buffer) != length or buffer != data[offset:offset + length]:
                    wrong.append((offset, length))
                if file.pread(offset, length) != buffer:
                    wrong.append((offset, length))

        threads = [threading.Thread(target=read, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


def test_a_sequential_reader_is_read_ahead(shaped):
    options = dict(shaped.options, cache="96MiB")
    with bowwave.open("s3://data/large", **options) as file:
        before = shaped.counters()
        position = 0
        while data := file.read(1 << 20):
            assert data == shaped.bytes(position, len(data))
            position += len(data)
        assert position == 64 << 20
        after = shaped.counters()
        assert after["bytes"] - before["bytes"] <= 1.02 * position
        assert after["requests"] - before["requests"] < 200
        stats = file.stats()
        assert stats["hits"] + stats["late"] > 50 * stats["misses"]


@pytest.mark.parametrize(("url", "kind", "part"), [
    ("/no/such/file", FileNotFoundError, "/no/such/file"),
    ("gopher://x", ValueError, "unknown scheme"),
    ("", ValueError, "name a file"),
    ("file://host/x", ValueError, "file:///data"),
    ("emulate:floppy/1KiB", ValueError, "known: hdd"),
])
def test_bad_urls_name_cause_and_remedy(url, kind, part):
    with pytest.raises(kind) as raised:
        bowwave.open(url)
    assert part in str(raised.value)


def test_a_read_that_does_not_fit_into_memory_names_its_file():
    async def read():
        async with await bowwave.open_async("pattern:/1000TiB") as file:
            await file.pread(0, file.size)

    with bowwave.open("pattern:/1000TiB") as file, pytest.raises(MemoryError, match="^pattern:/1000TiB: .* fewer"):
        file.pread(0, file.size)
    with pytest.raises(MemoryError, match="^pattern:/1000TiB: .* fewer"):
        asyncio.run(read())


def test_bad_settings_name_what_is_known():
    for options, part in [({"cash": 1}, "no such option; known: cache"), ({"cache": "much"}, "64MiB"),
                          ({"policy": "a b"}, "no blank"), ({"key": "k"}, "belong together")]:
        with pytest.raises(ValueError, match=part):
            bowwave.open("pattern:/1MiB", **options)
    with pytest.raises(ValueError, match="TextIOWrapper"):
        bowwave.open("pattern:/1MiB", mode="w")
    with pytest.raises(ValueError, match="seek"):
        bowwave.open("pattern:/1MiB").seek(-1)


def test_ranges_that_are_none_are_refused():
    import asyncio

    other = asyncio.run(bowwave.open_async("pattern:/1MiB"))
    with bowwave.open("pattern:/1MiB") as file:
        for wrong in [(10, 5), (-1, 5), (-5, -1)]:
            calls = (file.plan, file.read_ranges, other.plan, lambda ranges: asyncio.run(other.read_ranges(ranges)))
            for call in calls:
                with pytest.raises(ValueError, match=r"ends before it starts; a range is \(start, end\)|start is -\d, but"):
                    call([(0, 1), wrong])
        for wrong in [(-1, 5), (5, -1)]:
            for call in (file.prefetch, other.prefetch):
                with pytest.raises(ValueError, match="must be 0 or more"):
                    call([wrong])
            for call in (file.advise, other.advise):
                with pytest.raises(ValueError, match="must be 0 or more"):
                    call("willneed", *wrong)
            with pytest.raises(ValueError, match="must be 0 or more"):
                asyncio.run(other.pread(*wrong))
        assert file.read_ranges([(0, 0), (2 << 20, 3 << 20)]) == [b"", b""], "empty, and behind the end"


def test_clusters_are_fetched_at_once(shaped):
    import random

    chance = random.Random(3)
    with bowwave.open("s3://data/large", **dict(shaped.options, cache="80MiB")) as file:
        before = shaped.counters()
        for cluster in chance.sample(range(64), 16):
            for page in chance.sample(range(64), 40):
                offset = (cluster << 20) + (page << 14)
                assert file.pread(offset, 1 << 14) == shaped.bytes(offset, 1 << 14)
        after = shaped.counters()
    assert after["requests"] - before["requests"] < 16 * 5
    assert after["bytes"] - before["bytes"] <= 1.7 * 16 * 40 * (1 << 14)


def test_random_reads_fetch_nothing_else(shaped):
    import random

    chance = random.Random(4)
    opening = shaped.counters()["bytes"]
    with bowwave.open("s3://data/large", **dict(shaped.options, cache="81MiB")) as file:
        # The first 256 KiB come with the open, and may arrive after it.
        until = time.monotonic() + 20
        while shaped.counters()["bytes"] < opening + (256 << 10):
            assert time.monotonic() < until
            time.sleep(0.01)
        before = shaped.counters()["bytes"]
        useful = 0
        for page in chance.sample(range(1024), 60):
            useful += len(file.pread(page << 16, 1 << 16))
        assert shaped.counters()["bytes"] - before <= 1.05 * useful
