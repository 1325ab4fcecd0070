"""Every public call, for `mypy --strict`; it is checked, not run."""

from __future__ import annotations

import asyncio
import io
from concurrent.futures import ThreadPoolExecutor

import bowwave
import bowwave.arrow
import bowwave.fsspec
import bowwave.gguf
import bowwave.hdf5
import bowwave.parquet
import bowwave.safetensors
import bowwave.tar
import bowwave.torch
import bowwave.zarr
from zarr.core.buffer import Buffer, default_buffer_prototype


def files() -> int:
    with bowwave.open("s3://bucket/key", cache="1GiB", anonymous=True) as file:
        opened: bowwave.File = file
        data: bytes = file.read(10) + file.pread(0, 5) + file.read1(3) + file.read() + file.readline() + file.readline(9)
        lines: list[bytes] = [*file.readlines(), *file]
        file.plan([(0, 10)])
        file.end_plan()
        file.prefetch([(0, 10)])
        for advice in bowwave.ADVICE:
            file.advise(advice, 0, 10)
        ranges: list[bytes] = file.read_ranges([(0, 10)])
        buffer = bytearray(10)
        count: int = file.readinto(buffer) + file.readinto1(memoryview(buffer)) + file.preadinto(0, buffer)
        count += file.seek(0, io.SEEK_END) + file.tell() + file.size
        counters: dict[str, int] = file.stats()
        begin, end, offset, length = file.reads()[0]
        able: bool = file.readable() and file.seekable() and file.mode == "rb"
        tag: str | None = file.etag
        text: str = io.TextIOWrapper(file).read() + opened.name + str(tag)
        opened.close()
        return len(data) + len(lines) + len(ranges) + count + len(counters) + round(end - begin) + offset + length + able + len(text)


async def asynchronous() -> bytes:
    file: bowwave.AsyncFile = await bowwave.open_async("s3://bucket/key")
    async with file:
        file.plan([(0, 10)])
        file.end_plan()
        file.prefetch([(0, 10)])
        file.advise("random")
        position: int = file.seek(3) + file.tell() + file.size + await file.readinto(bytearray(10)) + len(file.reads())
        counters: dict[str, int] = file.stats()
        parts: list[bytes] = await file.read_ranges([(0, 1), (position, position + len(counters))])
        data: bytes = await file.read(10) + await file.pread(0, 1)
    await file.close()
    closed: bool = file.closed
    return data + b"".join(parts) if closed else data


def formats() -> int:
    with bowwave.open("a.parquet") as file:
        chunks: list[bowwave.parquet.Chunk] = bowwave.parquet.plan(file, ["a"], [0])
        chunks += bowwave.parquet.read_chunks(file)
        count = sum(chunk.end - chunk.start + chunk.row_group + len(chunk.column) for chunk in chunks)
    with bowwave.open("a.arrow") as file:
        dictionaries, batches = bowwave.arrow.read_blocks(file)
        blocks: list[bowwave.arrow.Block] = [*dictionaries, *batches, *bowwave.arrow.plan(file, [0])]
        count += sum(block.end - block.start for block in blocks)
    with bowwave.safetensors.safe_open("a.safetensors", framework="torch") as weights:
        weights.plan(weights.keys() + weights.offset_keys())
        weights.get_tensor(weights.metadata()["first"])
        span: bowwave.safetensors.Tensor = weights.tensors["a"]
        count += span.end - span.start + len(span.dtype) + sum(span.shape)
    bowwave.safetensors.load_file("a.safetensors", names=["a"], progress=True)
    with bowwave.gguf.Model("a.gguf") as model:
        model.plan(["a"])
        tensor: bowwave.gguf.Tensor = model.tensors[str(model.metadata["first"])]
        data: bytes = model.read("a")
        count += tensor.end - tensor.start + tensor.kind + sum(tensor.shape)
    for shard in bowwave.tar.shards(["a.tar"], ahead=3):
        data += shard.read()
    bowwave.hdf5.open("a.h5").close()
    images = bowwave.torch.Files(["a", "b"])
    sampler = bowwave.torch.PlannedSampler(range(2), 1, workers=2, drop_last=True, depth=3)
    for batch in sampler:
        data += images[batch[0]]
    return len(data) + len(images) + len(sampler) + count


def file_systems() -> int:
    fs = bowwave.fsspec.BowwaveFileSystem("s3", {"anon": True}, attribute_timeout=2.5, cache="1GiB")
    counters: dict[str, int] = fs.stats()
    fs.touch("bucket/key")
    fs.invalidate_cache("bucket/key")
    fs.rmdir("bucket/directory")
    names: list[str] = [fs.fsid, fs.unstrip_protocol("bucket/key"), str(fs.fs.protocol), str(fs.sign("bucket/key", expiration=10))]
    version = [fs.created("bucket/key"), fs.modified("bucket/key"), fs.ukey("bucket/key"), fs.checksum("bucket/key")]
    file: bowwave.AsyncFile = asyncio.run(fs.open_async("bucket/key"))
    cache = bowwave.fsspec.BowwaveCache(4096, lambda start, end: bytes(end - start), 1 << 20, policy="none")
    cache.plan([(0, 4096)])
    counters |= cache.stats()
    count: int = cache.hit_count + cache.miss_count + cache.total_requested_bytes
    cache.close()
    return len(counters) + len(names) + len(version) + count + file.size


async def zarr_store() -> int:
    store: bowwave.zarr.Store = bowwave.zarr.Store("s3://bucket/a.zarr", read_only=False, cache="1GiB").with_read_only(False)
    prototype = default_buffer_prototype()
    value: Buffer | None = await store.get("zarr.json", prototype)
    values: list[Buffer | None] = await store.get_partial_values(prototype, [("c/0", None)])
    if value is not None and await store.exists("c/0"):
        await store.set("c/1", value)
        await store.set_if_not_exists("c/2", value)
    await store.delete("c/1")
    await store.delete_dir("c")
    keys: list[str] = [key async for key in store.list()]
    keys += [key async for key in store.list_prefix("c/")] + [name async for name in store.list_dir("c")]
    able: bool = store.supports_writes and store.supports_deletes and store.supports_listing
    return len(values) + len(keys) + await store.getsize("c/0") + able


def maps() -> int:
    memory: bowwave.Map = bowwave.map("a", progress=True)
    memory[0] = 1
    region: bowwave.Region = bowwave.map("a", lazy=True, writable=False, cache="1GiB")
    region.populate(0, len(region))
    region.prefetch(0, 4096)
    failures: list[tuple[int, str]] = region.failures()
    faults: list[tuple[float, float, int, int]] = region.reads()
    part: bytes = region[:10] if region.writable else bytes(region)
    tag, time = region.identity
    # Of the hook for children of fork.
    assert part and tag and time and region[0] == 1
    return len(memoryview(memory)) + len(memoryview(region)) + len(failures) + len(faults) + len(region.stats())


def laboratory() -> float:
    rows: bowwave.Results = bowwave.replay([{"offset": 0, "length": 4096}], ["stream"], progress=True)
    with ThreadPoolExecutor() as executor:
        rows = bowwave.sweep("a.bwt", executor=executor, keep="results", progress=True, ra_pages=["128KiB", "1MiB"])
    commands: list[str] = bowwave.sweep_commands("a.bwt")
    trace: str = bowwave.write_trace(bowwave.sample(bowwave.read_trace("a.bwt", files=["a"]), 0.1), "traces", sharded=True)
    ratios: bowwave.Results = bowwave.miss_ratios(trace, [1 << 30], share=0.5, progress=True)
    page: bowwave.Report = bowwave.report("a.bwt", "report.html", progress=True)
    rows = bowwave.report("a.bwt", "report.html").results
    tables = [rows.to_arrow(), ratios.to_pandas()]
    return float(rows.best()["seconds"]) + len(page) + len(commands) + len(tables)


print(files(), asyncio.run(asynchronous()), formats(), file_systems(), asyncio.run(zarr_store()), maps(), laboratory())
print(bowwave.settings()["cache"], bowwave.stats()["requests"], bowwave.__version__)
