"""`open_async`, `map`, and what notebooks show."""

import asyncio
import os
import time

import bowwave
import numpy as np
import pytest


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


def test_a_map_is_a_writable_buffer(shaped):
    memory = bowwave.map("s3://data/large", **shaped.options)
    array = np.frombuffer(memory, dtype=np.uint8)
    assert array.flags.writeable and len(array) == 64 << 20
    assert array[12_345_678:12_345_778].tobytes() == shaped.bytes(12_345_678, 100)
    array[0] = array[0] ^ 255
    assert "large" in repr(memory)


def test_a_failed_map_raises():
    with pytest.raises(OSError):
        bowwave.map("fault:errors=1:pattern:/20MiB", retries=0)
    with pytest.raises(FileNotFoundError):
        bowwave.map("/no/such/file")


def test_an_empty_file_cannot_be_mapped(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(ValueError, match="empty"):
        bowwave.map(tmp_path / "a")


def test_a_lazy_map_fetches_what_is_touched(shaped):
    try:
        memory = bowwave.map("s3://data/large", lazy=True, **dict(shaped.options, cache="32MiB"))
    except OSError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    before = shaped.counters()["bytes"]
    array = np.frombuffer(memory, dtype=np.uint8)
    assert array[50_000_000:50_000_100].tobytes() == shaped.bytes(50_000_000, 100)
    memory.populate(1 << 20, 1 << 20)
    assert array[1 << 20:(1 << 20) + 100].tobytes() == shaped.bytes(1 << 20, 100)
    assert shaped.counters()["bytes"] - before < 8 << 20
    assert memory.failures() == [] and memory.stats()["faults"] > 0


def test_files_and_file_systems_show_themselves(shaped):
    with bowwave.open("s3://data/large", **shaped.options) as file:
        file.read(1 << 20)
        text = file._repr_html_()
        assert "s3://data/large" in text and "<svg" in text and "misses" in text
        assert len(file.reads()) == 1 and file.reads()[0][2:] == (0, 1 << 20)
    assert "closed" in file._repr_html_() and "closed" in repr(file)
    import fsspec

    system = fsspec.filesystem("bowwave", target_protocol="memory")
    assert "through bowwave" in system._repr_html_()
