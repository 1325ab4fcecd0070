"""`open_async`, `map`, and what notebooks show."""

import asyncio
import contextlib
import gc
import html
import importlib.util
import os
import pickle
import re
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import bowwave
import numpy as np
import pytest
from bowwave._html import ANNOUNCED, COLOURS, HEIGHT, WIDTH
from conftest import status_of


def test_coroutines_read_at_once(shaped):
    async def main():
        async with await bowwave.open_async("s3://data/large", **dict(shaped.options, cache="64MiB", policy="none")) as file:
            offsets = [at * 3_000_001 for at in range(20)]
            begun = time.monotonic()
            parts = await asyncio.gather(*(file.pread(at, 3000) for at in offsets))
            took = time.monotonic() - begun
            assert parts == [shaped.bytes(at, 3000) for at in offsets]
            assert await file.read(10) == shaped.bytes(0, 10) and file.tell() == 10
            assert file.seek(-5, 2) == file.size - 5 and len(await file.read()) == 5
            assert await file.read_ranges([(5, 9), (100, 200)]) == [shaped.bytes(5, 4), shaped.bytes(100, 100)]
            return took

    assert asyncio.run(main()) < 20 * 0.03, "twenty waits one after another"


def test_a_loop_runs_while_a_read_waits_and_reads_can_be_cancelled():
    async def main(base):
        file = await bowwave.open_async("emulate:s3,latency=300ms/64MiB")
        waiting = asyncio.create_task(file.pread(base, 10))
        for ticks in range(1000):
            await asyncio.sleep(0.01)
            if waiting.done():
                break
        assert ticks > 5
        dropped = asyncio.create_task(file.pread(base + (16 << 20), 10))
        await asyncio.sleep(0.05)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        assert len(await file.pread(base + (16 << 20), 10)) == 10
        await file.close()
        with pytest.raises(ValueError, match="closed"):
            await file.pread(0, 1)

    asyncio.run(main(0))
    asyncio.run(main(32 << 20))


def test_async_errors_are_raised():
    async def main():
        with pytest.raises(FileNotFoundError):
            await bowwave.open_async("/no/such/file")
        file = await bowwave.open_async("fault:errors=1:pattern:/1MiB", retries=0)
        with pytest.raises(OSError):
            await file.read(10)

    asyncio.run(main())


def test_an_async_file_announces_and_reads_into_buffers(shaped):
    async def main():
        options = dict(shaped.options, cache="67MiB", policy="none")
        async with await bowwave.open_async("s3://data/large", **options) as file:
            buffer = bytearray(100)
            file.seek(12_345)
            assert await file.readinto(memoryview(buffer)[10:]) == 90 and file.tell() == 12_435
            assert buffer == bytes(10) + shaped.bytes(12_345, 90)
            file.seek(-3, 2)
            assert await file.readinto(buffer) == 3
            before = file.stats()
            file.prefetch([(20 << 20, 1 << 20)])
            file.advise("willneed", 30 << 20, 1 << 20)
            file.plan([(40 << 20, 41 << 20)])
            for at in (20, 30, 40):
                assert await file.pread(at << 20, 1 << 20) == shaped.bytes(at << 20, 1 << 20)
            assert file.stats()["misses"] == before["misses"], "all of it was announced"
            file.end_plan()
            with pytest.raises(ValueError, match="is not an advice value"):
                file.advise("often")

    asyncio.run(main())


def test_an_async_file_pickles():
    async def main():
        async with await bowwave.open_async("pattern:/1MiB") as file:
            file.seek(1000)
            again = pickle.loads(pickle.dumps(file))
            assert again.tell() == 1000 and again.name == file.name and again.size == 1 << 20
            assert await again.read(10) == await file.pread(1000, 10)

    asyncio.run(main())


def test_an_async_file_works_in_a_child_of_fork(served):
    data = os.urandom(1 << 20)
    server = served(a=data)
    file = asyncio.run(bowwave.open_async(server.bucket + "a", **server.options))
    assert asyncio.run(file.pread(0, 10)) == data[:10]
    loop = asyncio.new_event_loop()
    loop.run_until_complete(file.pread(500_000, 10))

    def child():
        source, opens = file._source, []
        store = source.store()
        source.store = lambda: opens.append(1) or store

        async def main():
            parts = await asyncio.gather(*(file.pread(at * 10_000, 100) for at in range(20)))
            assert opens == [1], "all of them wait for one lookup"
            assert parts == [data[at * 10_000:at * 10_000 + 100] for at in range(20)]
            file.prefetch([(0, 10)])
            assert await file.read_ranges([(5, 10)]) == [data[5:10]] and file.stats()["reads"] > 0

        asyncio.run(main())
        with pytest.raises(RuntimeError, match="in a new one"):
            loop.run_until_complete(file.pread(700_000, 10))

    assert status_of(child) == 0
    assert loop.run_until_complete(file.pread(900_000, 10)) == data[900_000:900_010]
    loop.close()


def test_an_async_reader_of_parquet_is_planned(tmp_path):
    """Two columns of the first row group are read at once: those of all later ones come before they are asked for."""
    import pyarrow
    import pyarrow.parquet

    from bowwave import parquet

    numbers = np.random.default_rng(1).random(100_000)
    # Their names make the footer longer than what comes with the open.
    names = [letter * 2000 for letter in "abcd"]
    table = pyarrow.table({name: numbers for name in names})
    path = tmp_path / "t.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=10_000, compression="none", use_dictionary=False)
    body = path.read_bytes()

    async def main():
        with bowwave.open(path) as file:
            chunks = [chunk for chunk in parquet.read_chunks(file) if chunk.column in names[:2]]
        url = f"emulate:s3,latency=50ms:file://{path}"
        async with await bowwave.open_async(url, cache="68MiB", policy="none") as file:
            group = [chunk for chunk in chunks if chunk.row_group == 0]
            await asyncio.gather(*(file.pread(chunk.start, chunk.end - chunk.start) for chunk in group))
            later = [chunk for chunk in chunks if chunk.row_group > 0]
            before = file.stats()
            for chunk in later:
                assert await file.pread(chunk.start, chunk.end - chunk.start) == body[chunk.start:chunk.end]
            after = file.stats()
            assert after["misses"] == before["misses"], "planned from the first row group on"
            assert after["pages_planned"] == before["pages_planned"], "both columns"
            pages = sum(chunk.end // 4096 - chunk.start // 4096 for chunk in chunks)
            # Nothing of the other two columns but what lies in the same pages.
            assert pages < after["pages_filled"] < pages + 2 * len(chunks) + 20

    asyncio.run(main())


def test_a_map_is_a_writable_buffer(shaped):
    memory = bowwave.map("s3://data/large", **shaped.options)
    array = np.frombuffer(memory, dtype=np.uint8)
    assert array.flags.writeable and len(array) == 64 << 20
    assert array[12_345_678:12_345_778].tobytes() == shaped.bytes(12_345_678, 100)
    array[0] = array[0] ^ 255
    assert "large" in repr(memory)


def test_long_calls_show_their_progress(capsys, tmp_path, monkeypatch, command):
    import json

    import bowwave.safetensors

    if importlib.util.find_spec("tqdm") is None and os.environ.get("CI") != "true":
        pytest.skip("tqdm is not installed")
    header = json.dumps({name: {"dtype": "U8", "shape": [3 << 20], "data_offsets": [at * 3 << 20, (at + 1) * 3 << 20]}
                         for at, name in enumerate("abc")}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(9 << 20))

    def shown(call):
        call()
        return capsys.readouterr().err

    assert "20.0M/20.0M" in shown(lambda: bowwave.map("pattern:/20MiB", progress=True))
    assert "9.00M/9.00M" in shown(lambda: bowwave.safetensors.load_file(path, progress=True))
    assert "6.00M/6.00M" in shown(lambda: bowwave.safetensors.load_file(path, names=["a", "c"], progress=True))
    with ThreadPoolExecutor(1) as executor:
        rows = [{"offset": 0, "length": 4096}]
        assert "2/2" in shown(lambda: bowwave.sweep(rows, ["stream", "none"], executor=executor, progress=True))
        rows = [{"offset": at * 4096, "length": 4096} for at in range(4000)]
        options = {"parts": 2, "executor": executor, "progress": True}
        assert "2/2" in shown(lambda: bowwave.miss_ratios(rows, [8 << 20], 0.5, **options))
    with pytest.raises(ValueError, match="lazy"):
        bowwave.map("pattern:/1MiB", lazy=True, progress=True)
    assert shown(lambda: bowwave.map("pattern:/20MiB")) == ""
    # As where it is not installed.
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert shown(lambda: bowwave.map("pattern:/20MiB", progress=True)) == ""


def test_a_replay_shows_the_progress_of_the_command(capsys, tmp_path, monkeypatch, command):
    rows = [{"offset": at * 8192, "length": 4096} for at in range(2000)]
    expected = bowwave.replay(rows, ["stream", "none"])
    assert capsys.readouterr().err == ""
    assert bowwave.replay(rows, ["stream", "none"], progress=True) == expected, "a short one shows none"
    with pytest.raises(ValueError, match="not a policy; there are all, none") as plain:
        bowwave.replay(rows, "bogus")
    with pytest.raises(ValueError, match="not a policy; there are all, none") as shown:
        bowwave.replay(rows, "bogus", progress=True)
    assert str(shown.value) == str(plain.value) and capsys.readouterr().err == ""
    # As the command on a terminal, whose work takes longer.
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\n[ -t 2 ] && printf '\\r\\033[2Ksimulating 1,000/4,000 rows 9/s 3s' >&2\nsleep 0.1\n"
                    "[ -t 2 ] && printf '\\r\\033[2Ksimulating 4,000/4,000 rows 9/s 0s\\r\\033[2K' >&2\n"
                    f"exec {os.environ['BOWWAVE']} \"$@\"\n")
    slow.chmod(0o755)
    monkeypatch.setenv("BOWWAVE", str(slow))
    assert bowwave.replay(rows, ["stream", "none"], progress=True) == expected
    assert "4000/4000" in capsys.readouterr().err
    bowwave.report(rows, tmp_path / "report.html", ["stream", "none"], progress=True)
    assert "4000/4000" in capsys.readouterr().err and os.path.getsize(tmp_path / "report.html") > 10_000
    with pytest.raises(ValueError, match="not a policy") as failed:
        bowwave.replay(rows, "bogus", progress=True)
    assert str(failed.value) == str(plain.value), "without the bar"


def test_views_keep_a_map_alive():
    import pyarrow

    memory = bowwave.map("pattern:/9MiB")
    expected = bytes(memory[5_000_000:5_000_100])
    array, buffer = np.frombuffer(memory, np.uint8), pyarrow.py_buffer(memory)
    with pytest.raises(BufferError):
        memory.close()
    known = weakref.ref(memory)
    del memory
    gc.collect()
    assert known() is not None and array[5_000_000:5_000_100].tobytes() == expected
    assert buffer.size == 9 << 20 and buffer.slice(5_000_000, 100).to_pybytes() == expected
    values = pyarrow.Array.from_buffers(pyarrow.uint8(), 9 << 20, [None, buffer])
    del array, buffer
    gc.collect()
    assert values[5_000_000].as_py() == expected[0]
    del values
    gc.collect()
    assert known() is None


def test_a_map_can_be_read_only(shaped):
    memory = bowwave.map("s3://data/large", writable=False, **shaped.options)
    array = np.frombuffer(memory, np.uint8)
    assert not array.flags.writeable and memoryview(memory).readonly
    with pytest.raises(TypeError):
        memory[0] = 1
    assert array[44_000_000:44_000_100].tobytes() == shaped.bytes(44_000_000, 100)
    assert array[-100:].tobytes() == shaped.bytes((64 << 20) - 100, 100)
    with pytest.raises(OSError):
        bowwave.map("fault:errors=1:pattern:/20MiB", retries=0, writable=False)


@pytest.mark.parametrize("writable", [True, False])
def test_a_child_of_fork_has_the_map(writable, shaped):
    memory = bowwave.map("s3://data/small", writable=writable, **shaped.options)
    array = np.frombuffer(memory, np.uint8)

    def child():
        assert memory[700_000:700_100] == shaped.bytes(700_000, 100)
        assert array.tobytes() == shaped.bytes(0, 1 << 20)
        again = bowwave.map("s3://data/small", writable=writable, **shaped.options)
        assert again[:] == memory[:]
        if writable:
            array[5] ^= 255

    assert status_of(child) == 0
    assert memory[:10] == shaped.bytes(0, 10), "what a child writes is its own"


def test_a_pickled_map_is_read_again_in_its_version(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"hello" * 1000)
    for writable in (True, False):
        memory = bowwave.map(path, writable=writable)
        data = pickle.dumps(memory)
        assert len(data) < 600
        again = pickle.loads(data)
        assert again[:] == b"hello" * 1000 and memoryview(again).readonly != writable
    path.unlink()
    path.write_bytes(b"other" * 1000)
    with pytest.raises(OSError, match="replaced"):
        pickle.loads(data)


def test_a_failed_map_raises():
    with pytest.raises(OSError):
        bowwave.map("fault:errors=1:pattern:/20MiB", retries=0)
    with pytest.raises(FileNotFoundError):
        bowwave.map("/no/such/file")


def test_an_empty_file_cannot_be_mapped(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        bowwave.map(tmp_path / "a")


def rows_of(text):
    """The rows of a table in HTML: names and values."""
    return dict(re.findall(r"<tr><th[^>]*>([^<]*)</th><td>([^<]*)</td></tr>", text))


def marks_of(text):
    """The rectangles of the last picture, by colour: x, y, width and height."""
    marks = {}
    for *place, colour in re.findall(r"<rect x='(.*?)' y='(.*?)' width='(.*?)' height='(.*?)' fill='(.*?)'/>",
                                     text[text.rindex("<svg"):]):
        marks.setdefault(colour, []).append(tuple(map(float, place)))
    return marks


def agrees(text, stats):
    """Whether the figures of a table are those counters."""
    rows = rows_of(text)
    for name in ("hits", "late", "misses"):
        assert rows[name] == f"{stats[name]} pages"
    assert rows["read ahead"] == f"{stats['pages_readahead']} pages, {stats['pages_used']} of them used"
    assert rows["planned"] == f"{stats['pages_planned']} pages"
    if "requests" in stats:
        assert re.match(r"\d+", rows["requests"])[0] == str(stats["requests"])
        count, unit = rows["fetched"].split()
        scale = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit]
        assert abs(float(count) * scale - stats["bytes_fetched"]) <= scale / 20
    return True


def test_a_picture_tells_hits_late_reads_and_misses_apart():
    with bowwave.open("emulate:s3,latency=100ms/64MiB", cache="64MiB", policy="none") as file:
        file.pread(8 << 20, 4096)                       # a miss
        file.pread(8 << 20, 4096)                       # a hit
        file.prefetch([(32 << 20, 4096)])
        time.sleep(0.01)
        file.pread(32 << 20, 4096)                      # late
        stats, text = file.stats(), file._repr_html_()
        assert (stats["misses"], stats["hits"], stats["late"]) == (1, 1, 1)
    assert agrees(text, stats)
    marks = marks_of(text)
    assert {outcome: len(marks[colour]) for outcome, colour in COLOURS.items()} == {"hit": 1, "late": 1, "miss": 1}
    assert all(f"</span> 1 {name}" in text for name in ("hits", "late", "misses"))
    # Half of the file is at half of the height, and reads are in their order.
    (hit,), (late,), (miss,) = (marks[COLOURS[outcome]] for outcome in ("hit", "late", "miss"))
    assert abs(late[1] + late[3] - HEIGHT / 2) < 1 < hit[1] - late[1] and miss[0] <= hit[0] <= late[0]
    assert "4.0 KiB announced" in text and len(marks[ANNOUNCED]) == 1 and marks[ANNOUNCED][0][0] > hit[0]


def test_every_way_to_read_is_in_the_picture(tmp_path):
    data = b"one\ntwo\n" + bytes(100_000)
    (tmp_path / "a").write_bytes(data)
    with bowwave.open(tmp_path / "a") as file:
        assert file.readline() == b"one\n" and file.readinto(bytearray(4)) == 4
        assert file.preadinto(100, bytearray(50)) == 50
        assert file.read_ranges([(200, 210), (300, 330)]) == [data[200:210], data[300:330]]
        file.pread(400, 7)
        file.read1(3)
    expected = [(0, 4), (4, 4), (100, 50), (200, 10), (300, 30), (400, 7), (8, 3)]
    assert [read[2:] for read in file.reads()] == expected
    text = file._repr_html_()
    assert f"The last {len(expected)} reads" in text
    assert sum(len(marks_of(text).get(colour, ())) for colour in COLOURS.values()) == len(expected)

    async def main():
        async with await bowwave.open_async(tmp_path / "a") as other:
            await other.read(10)
            await other.readinto(bytearray(5))
            await asyncio.gather(other.pread(50, 5), other.pread(60, 5))
            await other.read_ranges([(70, 75)])
        return other

    other = asyncio.run(main())
    assert sorted(read[2:] for read in other.reads()) == [(0, 10), (10, 5), (50, 5), (60, 5), (70, 5)]
    assert "The last 5 reads" in other._repr_html_() and "closed" in other._repr_html_()


def test_a_line_that_is_read_while_another_thread_moves_the_position_is_in_the_picture():
    # Regression: its length was taken for negative, and raised.
    with bowwave.open("emulate:s3,latency=200ms/64MiB", cache="64MiB", policy="none") as file:
        file.seek(1_000_000)
        mover = threading.Timer(0.05, file.seek, (0,))
        mover.start()
        line = file.readline(100)
        mover.join()
        assert line and [read[2:] for read in file.reads()] == [(1_000_000, len(line))]


def noted(memory, count):
    """The reads of a lazy map, once they are that many: a reader continues before its fault is noted."""
    until = time.monotonic() + 10
    while len(memory.reads()) < count and time.monotonic() < until:
        time.sleep(0.01)
    return memory.reads()


def test_the_picture_of_a_lazy_map_shows_its_faults(tmp_path):
    data = bytes(range(256)) * 4096
    (tmp_path / "a").write_bytes(data)
    memory = bowwave.map(tmp_path / "a", lazy=True)
    assert memory.reads() == [] and "<svg" not in memory._repr_html_()
    view = memoryview(memory)
    begun = time.monotonic()
    assert view[600_000] == data[600_000] and view[100_000] == data[100_000]
    memory.populate(300_000, 1)
    reads, text = noted(memory, 3), memory._repr_html_()
    assert [read[2] for read in reads] == [at // 4096 * 4096 for at in (600_000, 100_000, 300_000)]
    for begin, end, _, length in reads:
        assert begun <= begin <= end <= time.monotonic() and 4096 <= length <= len(data) and length % 4096 == 0
    rows = rows_of(text)
    assert rows["lazy map"] == f"{tmp_path}/a" and rows["faults"] == "2" and agrees(text, memory.stats())
    assert "The last 3 reads" in text and sum(len(marks_of(text).get(colour, ())) for colour in COLOURS.values()) == 3


def test_a_lazy_map_remembers_1000_faults_and_their_outcomes():
    memory = bowwave.map("emulate:s3,latency=50ms/64MiB", lazy=True, cache="64MiB", policy="none")
    view = memoryview(memory)
    assert view[8 << 20] == view[8 << 20]
    memory.prefetch(32 << 20, 4096)
    time.sleep(0.01)
    assert isinstance(view[32 << 20], int)              # late
    memory.prefetch(48 << 20, 4096)
    time.sleep(0.2)
    assert isinstance(view[48 << 20], int)              # a hit
    noted(memory, 3)
    assert [read[4] for read in memory._faults()] == ["miss", "late", "hit"]
    memory.prefetch(0, 1200 * 4096)
    for at in range(1200):
        memory.populate(at * 4096, 1)
    assert len(memory.reads()) == 1000 and memory.reads()[-1][2] == 1199 * 4096


def test_a_closed_file_shows_its_totals(shaped):
    with bowwave.open("s3://data/large", **dict(shaped.options, cache="65MiB")) as file:
        file.read(1 << 20)
        stats = file.stats()
        assert stats["misses"] > 0 and agrees(file._repr_html_(), stats)
    assert file.stats()["misses"] == stats["misses"] and agrees(file._repr_html_(), file.stats())
    assert rows_of(file._repr_html_())["state"] == "closed" and "closed" in repr(file)
    assert [read[2:] for read in file.reads()] == [(0, 1 << 20)]


def test_what_a_file_remembers_is_bounded():
    with bowwave.open("pattern:/4MiB") as file:
        for at in range(1500):
            file.pread(at * 100, 10)
        file.plan([(at * 100, at * 100 + 10) for at in range(5000)])
        assert len(file.reads()) == 1000 and file.reads()[-1][2:] == (149_900, 10)
        assert len(file._repr_html_()) < 400_000


def test_a_picture_holds_no_file_open(tmp_path):
    for number in range(16):
        (tmp_path / f"{number}").write_bytes(bytes(10_000))

    def open_files():
        names = []
        for descriptor in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return [name for name in names if name.startswith(str(tmp_path))]

    for number in range(0, 16, 2):
        with bowwave.open(tmp_path / f"{number}") as file:
            file.read()
        # Dropped without a close.
        file = bowwave.open(tmp_path / f"{number + 1}")
        file.read()
    assert open_files()
    del file
    gc.collect()
    assert open_files() == []


def test_a_file_system_shows_its_files(tmp_path):
    import fsspec

    for name in "ab":
        (tmp_path / name).write_bytes(bytes(1 << 20))
    system = fsspec.filesystem("bowwave", target_protocol="file", cache="66MiB")
    assert "<svg" not in system._repr_html_()
    for name, count in (("a", 3), ("b", 2)):
        with system.open(str(tmp_path / name)) as file:
            for at in range(count):
                file.pread(at << 18, 1000)
    with bowwave.open(tmp_path / "a") as file:          # of another cache
        file.read(10)
    text = system._repr_html_()
    assert "bowwave::file" in text and agrees(text, system.stats())
    assert "The last 5 reads" in text and "2 files" in text and f"{tmp_path}/a" in text and f"{tmp_path}/b" in text
    assert sum(len(marks_of(text).get(colour, ())) for colour in COLOURS.values()) == 5
    system = fsspec.filesystem("bowwave", target_protocol="memory")
    system.pipe("/x", bytes(1000))
    with system.open("/x") as file:
        file.read()
    assert "through bowwave" in system._repr_html_() and "The last 1 reads" in system._repr_html_()


def test_maps_and_caches_of_fsspec_show_themselves():
    import bowwave.fsspec

    memory = bowwave.map("emulate:s3/20MiB")
    assert rows_of(memory._repr_html_())["size"] == "20.0 MiB" and agrees(memory._repr_html_(), memory.counters)
    assert memory.counters["pages_planned"] == (20 << 20) // 4096
    memory.close()
    assert rows_of(memory._repr_html_())["state"] == "closed"
    cache = bowwave.fsspec.BowwaveCache(4096, lambda start, end: bytes(end - start), 1 << 20, policy="none")
    cache._fetch(0, 10_000)
    assert cache.stats()["misses"] == 3 and agrees(cache._repr_html_(), cache.stats())


def test_a_file_system_shows_reads_and_plans_without_a_file(tmp_path):
    import fsspec

    (tmp_path / "a").write_bytes(bytes(3 << 20))
    (tmp_path / "a.h5").write_bytes(bytes(1 << 20))
    system = fsspec.filesystem("bowwave", target_protocol="file", cache="67MiB")
    system.cat_file(str(tmp_path / "a"))
    system.cat_ranges([str(tmp_path / "a")] * 2, [0, 1 << 20], [4096, (1 << 20) + 4096])
    system.get_file(str(tmp_path / "a"), str(tmp_path / "copy"))
    with system.open(str(tmp_path / "a.h5")) as file:         # in a format, whose settings are others
        file.pread(1 << 19, 100_000)
    text = system._repr_html_()
    assert "2 files" in text and f"{tmp_path}/a, 3.0 MiB" in text and f"{tmp_path}/a.h5" in text
    # One of `cat_file`, two of `cat_ranges`, one of `get_file`; of the other file, what its watcher looked at, too.
    assert "The last 6 reads" in text and "3.0 MiB announced" in text, text
    for _ in range(20):
        system.cat_file(str(tmp_path / "a"), 0, 100)
    assert system._repr_html_().count(f"{tmp_path}/a, ") == 1, "one history for an object"


def test_maps_and_caches_show_what_was_announced():
    import bowwave.fsspec

    memory = bowwave.map("emulate:s3/20MiB")
    text = memory._repr_html_()
    assert "The last 3 reads" in text and "20.0 MiB announced" in text and len(marks_of(text)[ANNOUNCED]) == 1
    memory.close()
    assert "The last 3 reads" in memory._repr_html_()
    cache = bowwave.fsspec.BowwaveCache(4096, lambda start, end: bytes(end - start), 1 << 20, policy="none")
    cache.plan([(0, 8192), (65536, 69632)])
    cache.advise("willneed", 131072, 4096)
    for start in (0, 4096, 65536, 500_000):
        cache._fetch(start, start + 4096)
    text = cache._repr_html_()
    assert "The last 4 reads" in text and "16.0 KiB announced" in text and len(marks_of(text)[ANNOUNCED]) == 3
    cache.close()


def test_a_report_shows_its_runs(tmp_path, command):
    rows = [{"offset": at * 65536, "length": 65536} for at in range(64)]
    path = bowwave.report(rows, tmp_path / "report.html", ["stream", "none"])
    assert isinstance(path, str) and path == str(tmp_path / "report.html") and os.path.getsize(path) > 10_000
    assert path.results == bowwave.replay(rows, ["stream", "none"])
    text = path._repr_html_()
    cells = re.findall(r"<tr>(<td>.*?)</tr>", text.split("<iframe")[0])
    assert len(cells) == 2
    for row, cell in zip(path.results, cells, strict=True):
        values = re.findall(r"<td>(.*?)</td>", cell)
        assert values[4:8] == [str(row[name]) for name in ("hits", "late", "misses", "requests")]
        widths = [float(mark[2]) for colour in COLOURS.values() for mark in marks_of(cell).get(colour, ())]
        slowest = max(row["seconds"] for row in path.results)
        assert abs(sum(widths) - WIDTH / 2 * row["seconds"] / slowest) < 0.2
    # The page is in the frame as it is in the file, and cannot reach the notebook.
    frame = re.search(r"<iframe sandbox='allow-scripts' .*?srcdoc=\"(.*?)\"></iframe>", text, re.S)
    with open(path, encoding="utf-8") as file:
        assert html.unescape(frame[1]) == file.read()
    os.unlink(path)
    assert "not there any more" in path._repr_html_()
