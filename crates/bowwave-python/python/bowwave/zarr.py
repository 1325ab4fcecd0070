"""Zarr: a store for zarr-python 3 whose next chunks are in flight.

    array = zarr.open_array(bowwave.zarr.Store("s3://bucket/data.zarr"), mode="r")

A loop over chunks asks for one after another. Their keys are numbers, so the store knows the next ones. Formats 2 and 3,
with and without shards.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as _Store
from zarr.core.buffer import Buffer, BufferPrototype

from . import _bowwave, _stores
from ._ahead import Ahead, Opener
from ._async import in_thread, read
from ._files import WHOLE, First

#: Chunks in flight ahead of a loop: at first, and at most. Between these, twice as many as the loop has read.
AHEAD_FIRST, AHEAD_MAX = 4, 64
#: Bytes in flight ahead of a loop. Smaller: chunks of a few MiB wait for the store; larger: more unused bytes when it ends.
AHEAD_BYTES = 64 << 20

_PLACE = re.compile(r"\d+(?:[./]\d+)*")


class _Loop:
    """A loop over the chunks of an array."""

    def __init__(self) -> None:
        #: The last chunk that was requested, and the last one that was read.
        self.place: tuple[int, ...] | None = None
        self.read: tuple[int, ...] | None = None
        #: Bytes of a chunk.
        self.bytes = 1
        #: The chunks in flight behind it, and how many it has read in order.
        self.ahead: list[tuple[int, ...]] = []
        self.count = 0


class Store(_Store):
    """A store of a directory or bucket, by its URL. Options are the settings of `bowwave.open`."""

    supports_writes = True
    supports_deletes = True
    supports_listing = True

    def __init__(self, url: str, *, read_only: bool = True, **options: Any) -> None:
        super().__init__(read_only=read_only)
        self.url, self.options = url.rstrip("/") + "/", options
        self._access = _stores.access_of(options)
        self._ahead = Ahead(Opener(options, self.url), first=WHOLE)
        #: Loops over chunks, by prefix of the key.
        self._loops: dict[str, _Loop] = {}
        #: Chunks in each direction, by prefix of the array.
        self._grids: dict[str, tuple[int, ...]] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Store) and (
            (self.url, self.read_only, self.options) == (other.url, other.read_only, other.options))

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"bowwave.zarr.Store({self.url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "read_only": self.read_only, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["url"], read_only=state["read_only"], **state["options"])  # type: ignore[misc]

    def with_read_only(self, read_only: bool = True) -> Store:
        return Store(self.url, read_only=read_only, **self.options)

    # Reads.

    async def get(self, key: str, prototype: BufferPrototype | None = None,
                  byte_range: ByteRequest | None = None) -> Buffer | None:
        if prototype is None:
            from zarr.core.buffer import default_buffer_prototype

            prototype = default_buffer_prototype()
        loop = self._predict(key) if byte_range is None else None
        try:
            handle = (await in_thread(self._ahead.source, key, _first(byte_range))).handle()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        start, end = _range(byte_range, handle.size)
        data = await read(handle, start, end - start)
        if byte_range is None:
            self._learn(key, data)
            self._ahead.forget(key)
        if loop is not None:
            loop.read, loop.bytes = loop.place, max(1, len(data))
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(self, prototype: BufferPrototype,
                                 key_ranges: Iterable[tuple[str, ByteRequest | None]]) -> list[Buffer | None]:
        return await asyncio.gather(*(self.get(key, prototype, byte_range) for key, byte_range in key_ranges))

    async def exists(self, key: str) -> bool:
        try:
            await in_thread(self._ahead.source, key)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return False
        return True

    async def getsize(self, key: str) -> int:
        return (await in_thread(self._ahead.source, key)).handle().size

    # The next chunks.

    def _learn(self, key: str, data: bytes) -> None:
        """The grid of an array, from its metadata."""
        prefix, _, name = key.rpartition("/")
        prefix += "/" if prefix else ""
        if name not in ("zarr.json", ".zarray"):
            return
        try:
            meta = json.loads(data)
            shape = meta["shape"]
            chunks = meta["chunks"] if name == ".zarray" else meta["chunk_grid"]["configuration"]["chunk_shape"]
            grid = tuple(-(-int(side) // int(chunk)) for side, chunk in zip(shape, chunks, strict=True))
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            # A group, or metadata of another kind.
            return
        self._grids[prefix] = self._grids[prefix + "c/"] = grid

    def _predict(self, key: str) -> _Loop | None:
        """Fetches the next chunks of a loop, which reads whole chunks one after another."""
        cuts = (at + 1 for at in range(len(key) - 1, -1, -1) if key[at] == "/")
        prefix = next((key[:cut] for cut in (*cuts, 0) if key[:cut] in self._grids), None)
        if prefix is None or _PLACE.fullmatch(text := key[len(prefix):]) is None:
            return None
        grid = self._grids[prefix]
        separator = "." if "." in text else "/"
        place = tuple(int(part) for part in re.split("[./]", text))
        if len(grid) != len(place):
            return None
        loop = self._loops.setdefault(prefix, _Loop())
        # Chunks that are requested together are one read, which says nothing of the next.
        follows = loop.read is not None and loop.read == loop.place and _next(loop.place, grid) == place
        if not follows and loop.place is not None and place in loop.ahead:
            # The same read as the chunk before, of a loop that reads several at a time.
            follows = True
        loop.place = place
        if not follows:
            loop.ahead, loop.count = [], 1
            return loop
        loop.ahead = loop.ahead[loop.ahead.index(place) + 1:] if place in loop.ahead else []
        loop.count += 1
        distance = max(1, min(max(AHEAD_FIRST, 2 * loop.count), AHEAD_MAX, AHEAD_BYTES // loop.bytes))
        new, at = [], loop.ahead[-1] if loop.ahead else place
        while len(loop.ahead) < distance and (after := _next(at, grid)) is not None:
            loop.ahead.append(at := after)
            new.append(prefix + separator.join(map(str, at)))
        self._ahead.announce(new)
        return loop

    # Listings.

    def _names(self, prefix: str) -> list[tuple[str, str]]:
        """Names and kinds in a directory."""
        place = _stores.place_of(self.url + prefix)
        try:
            entries = _stores.store_of(place.store, self._access).list(place.path.rstrip("/"))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [(entry[0], entry[1]) for entry in entries]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name, _ in await in_thread(self._names, prefix.rstrip("/")):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        directory = prefix.rpartition("/")[0]
        async for key in self._below(directory):
            if key.startswith(prefix):
                yield key

    async def list(self) -> AsyncIterator[str]:
        async for key in self._below(""):
            yield key

    async def _below(self, directory: str) -> AsyncIterator[str]:
        for name, kind in await in_thread(self._names, directory):
            key = f"{directory}/{name}" if directory else name
            if kind == "directory":
                async for below in self._below(key):
                    yield below
            else:
                yield key

    # Writes.

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"the value is {type(value).__name__}, but must be a Buffer of zarr")
        await in_thread(self._put, key, value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        if not await self.exists(key):
            await self.set(key, value)

    async def delete(self, key: str) -> None:
        self._check_writable()
        await in_thread(self._remove, key)

    async def delete_dir(self, prefix: str) -> None:
        self._check_writable()
        await in_thread(self._remove_below, prefix.rstrip("/"))

    def _remove_below(self, directory: str) -> None:
        """Removes the keys below a directory, and with them the directories of a store that has some."""
        for name, kind in self._names(directory):
            key = f"{directory}/{name}" if directory else name
            if kind == "directory":
                self._remove_below(key)
            else:
                self._remove(key)
        store, path = self._at(directory)
        if directory and _stores.place_of(self.url).store.partition(":")[0] not in _stores.BUCKETS:
            try:
                store.rmdir(path)
            except OSError:
                # It has a new key, or is not there.
                pass

    def _at(self, key: str) -> tuple[_bowwave.Store, str]:
        place = _stores.place_of(self.url + key)
        return _stores.store_of(place.store, self._access), place.path

    def _put(self, key: str, data: bytes) -> None:
        store, path = self._at(key)
        try:
            handle = store.create(path)
        except FileNotFoundError:
            parts = path.split("/")[:-1]
            for count in range(1, len(parts) + 1):
                try:
                    store.mkdir("/".join(parts[:count]))
                except FileExistsError:
                    pass
            handle = store.create(path)
        if data:
            handle.write(0, data)
        handle.sync()
        self._ahead.forget(key)

    def _remove(self, key: str) -> None:
        store, path = self._at(key)
        try:
            store.remove(path)
        except (FileNotFoundError, IsADirectoryError):
            pass
        self._ahead.forget(key)


def _range(request: ByteRequest | None, size: int) -> tuple[int, int]:
    if isinstance(request, RangeByteRequest):
        return min(request.start, size), min(request.end, size)
    if isinstance(request, OffsetByteRequest):
        return min(request.offset, size), size
    if isinstance(request, SuffixByteRequest):
        return max(0, size - request.suffix), size
    if request is not None:
        raise TypeError(f"Unexpected byte_range, got {request!r}: give a ByteRequest of zarr")
    return 0, size


def _first(request: ByteRequest | None) -> First:
    """The bytes that a request reads, of an object of any size."""
    if isinstance(request, RangeByteRequest):
        return request.start, request.end
    if isinstance(request, OffsetByteRequest):
        return request.offset, None
    if isinstance(request, SuffixByteRequest):
        return -request.suffix, None
    return WHOLE


def _next(place: tuple[int, ...], grid: tuple[int, ...]) -> tuple[int, ...] | None:
    """The chunk after `place` in the order of C; none after the last one."""
    after = list(place)
    for at in reversed(range(len(grid))):
        after[at] += 1
        if after[at] < grid[at]:
            return tuple(after)
        after[at] = 0
    return None
