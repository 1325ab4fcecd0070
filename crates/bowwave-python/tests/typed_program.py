"""Every public call, for `mypy --strict`; it is checked, not run."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import bowwave
import bowwave.arrow
import bowwave.gguf
import bowwave.hdf5
import bowwave.parquet
import bowwave.safetensors
import bowwave.tar
import bowwave.torch


def files() -> int:
    with bowwave.open("s3://bucket/key", cache="1GiB", anonymous=True) as file:
        data: bytes = file.read(10) + file.pread(0, 5)
        file.plan([(0, 10)])
        file.end_plan()
        file.prefetch([(0, 10)])
        file.advise("sequential")
        ranges: list[bytes] = file.read_ranges([(0, 10)])
        buffer = bytearray(10)
        count: int = file.readinto(buffer) + file.preadinto(0, buffer) + file.seek(0) + file.tell() + file.size
        counters: dict[str, int] = file.stats()
        chunks = bowwave.parquet.plan(file, ["a"], [0])
        blocks = bowwave.arrow.plan(file, [0])
        return len(data) + len(ranges) + count + len(counters) + chunks[0].start + blocks[0].end


async def asynchronous() -> bytes:
    file = await bowwave.open_async("s3://bucket/key")
    async with file:
        file.advise("random")
        file.prefetch([(0, 10)])
        file.plan([(0, 10)])
        file.end_plan()
        buffer = bytearray(await file.readinto(bytearray(10)) + file.seek(0) + file.tell() + len(file.reads()))
        return b"".join(await file.read_ranges([(0, 10)])) + await file.read(10) + await file.pread(0, 1) + buffer


def formats() -> int:
    with bowwave.safetensors.safe_open("a.safetensors") as weights:
        weights.plan(weights.keys())
        weights.get_tensor("a")
    bowwave.safetensors.load_file("a.safetensors", progress=True)
    with bowwave.gguf.Model("a.gguf") as model:
        model.plan(["a"])
        data: bytes = model.read("a")
    for shard in bowwave.tar.shards(["a.tar"]):
        shard.read()
    bowwave.hdf5.open("a.h5").close()
    files = bowwave.torch.Files(["a", "b"])
    for batch in bowwave.torch.PlannedSampler(range(2), 1, workers=2):
        data += files[batch[0]]
    return len(data)


def maps() -> int:
    memory = bowwave.map("a", writable=False, progress=True)
    return len(memory)


def laboratory() -> float:
    rows = bowwave.replay([{"offset": 0, "length": 4096}], ["stream"])
    with ThreadPoolExecutor() as executor:
        rows = bowwave.sweep("a.bwt", executor=executor)
    commands: list[str] = bowwave.sweep_commands("a.bwt")
    trace: str = bowwave.write_trace(bowwave.sample(bowwave.read_trace("a.bwt", files=["a"]), 0.1), "traces", sharded=True)
    rows = bowwave.miss_ratios(trace, [1 << 30], share=0.5)
    page: str = bowwave.report("a.bwt", "report.html")
    rows = bowwave.report("a.bwt", "report.html").results
    return float(rows.best()["seconds"]) + len(page) + len(commands)


print(files(), asyncio.run(asynchronous()), formats(), maps(), laboratory(), bowwave.settings(), bowwave.stats())
