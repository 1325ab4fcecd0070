"""Zarr: a store for zarr-python 3 whose next chunks are in flight.

>>> import zarr, bowwave.zarr
>>> array = zarr.open_array(bowwave.zarr.Store("s3://bucket/data.zarr"), mode="r")
>>> sum(int(array[at:at + 10].sum()) for at in range(0, 100, 10))
4950

A loop over chunks waits for one chunk after another. Keys of chunks have the numbers of the chunks, so the store
predicts the next keys of the loop and fetches them. It reads formats 2 and 3, with and without shards.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy
from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.abc.store import Store as _Store
from zarr.core.buffer import Buffer, BufferPrototype

from . import _bowwave, _stores
from ._ahead import Ahead, Opener
from ._async import in_thread, read
from ._files import WHOLE, First, Source, joined
from ._loop import Loop, Place

#: Chunks in flight ahead of a loop: at first, and at most; and at most if they are parts of shards, which share
#: requests. Smaller: a fast loop waits for the store; larger: more unused bytes when it ends.
AHEAD_FIRST, AHEAD_MAX, AHEAD_PARTS = 4, 64, 1024
#: Between the first and the most, chunks in flight for each that the loop has read; and if they are parts of shards.
SHARE, SHARE_PARTS = 2, 1
#: Bytes in flight ahead of a loop. Smaller: loops over chunks of a few MiB wait for the store; larger: more
#: unused bytes when the loop ends.
AHEAD_BYTES = 64 << 20
#: Bytes of shards' indexes that are remembered for an array. Less: a loop over small parts of many shards forgets them.
INDEX_BYTES = 16 << 20
#: Times that the directories of a new key are created again: a removal may take them away while they are empty.
CREATES = 10

_CHUNK = re.compile(r"((?:c[./])?)(\d+(?:[./]\d+)*)")
#: Offset and length in a shard's index of a chunk that is not stored.
_ABSENT = (1 << 64) - 1


class _Shards:
    """The chunks in the shards of an array, and the indexes that tell where they are."""

    def __init__(self, grid: Place, parts: Place, index_bytes: int, at_end: bool) -> None:
        #: Chunks of a shard in each direction.
        self.parts, self._count = parts, math.prod(parts)
        self.index_bytes = index_bytes
        self.request = SuffixByteRequest(index_bytes) if at_end else RangeByteRequest(0, index_bytes)
        self.loop = Loop(grid, AHEAD_FIRST, AHEAD_PARTS, AHEAD_BYTES, SHARE_PARTS, self._absent)
        #: Offsets and lengths of the chunks, by shard; none of a shard that is not stored.
        self._indexes: OrderedDict[Place, numpy.ndarray[Any, Any] | None] = OrderedDict()
        #: Requests in flight, and the shards of the current read.
        self.reading = 0
        self.read: set[Place] = set()

    def learn(self, shard: Place, data: bytes | None) -> None:
        """The index of a shard."""
        if data is not None and len(data) != self.index_bytes:
            return
        self._indexes[shard] = None if data is None else numpy.frombuffer(data, "<u8", 2 * self._count).reshape(-1, 2)
        self._indexes.move_to_end(shard)
        while len(self._indexes) > max(AHEAD_MAX, INDEX_BYTES // self.index_bytes):
            self._indexes.popitem(last=False)

    def knows(self, shard: Place) -> bool:
        """Whether its index is known."""
        return shard in self._indexes

    def split(self, place: Place) -> tuple[Place, int]:
        """The shard of a chunk, and its number in the shard's index."""
        number = 0
        for at, side in zip(place, self.parts, strict=True):
            number = number * side + at % side
        return tuple(at // side for at, side in zip(place, self.parts, strict=True)), number

    def bytes_of(self, shard: Place, number: int) -> tuple[int, int] | None:
        """Start and end of a chunk, if it is stored and the index is known."""
        index = self._indexes.get(shard)
        if index is None:
            return None
        start, length = (int(value) for value in index[number])
        return None if start == _ABSENT else (start, start + length)

    def chunk_at(self, shard: Place, start: int) -> Place | None:
        """The chunk that begins there."""
        index = self._indexes.get(shard)
        if index is None or len(found := numpy.flatnonzero(index[:, 0] == numpy.uint64(start))) == 0:
            return None
        inner = numpy.unravel_index(int(found[0]), self.parts)
        return tuple(at * side + int(within) for at, side, within in zip(shard, self.parts, inner, strict=True))

    def _absent(self, place: Place) -> bool:
        shard, number = self.split(place)
        return shard in self._indexes and self.bytes_of(shard, number) is None


class _Array:
    """The loops over an array."""

    def __init__(self, prefix: str, grid: Place, shards: _Shards | None) -> None:
        self.prefix, self.grid, self.shards = prefix, grid, shards
        self.loop = Loop(grid, AHEAD_FIRST, AHEAD_MAX, AHEAD_BYTES, SHARE)
        self.lock = _stores.ForkLock()
        #: What the keys of its chunks begin with, and the separator of their numbers.
        self.lead, self.separator = "", "/"

    def place(self, rest: str) -> Place | None:
        """The chunk or shard of a key, behind the prefix."""
        match = _CHUNK.fullmatch(rest)
        if match is None:
            return None
        place = tuple(int(part) for part in re.split("[./]", match[2]))
        if len(place) != len(self.grid):
            return None
        self.lead = match[1]
        self.separator = "." if "." in rest else "/"
        return place

    def key(self, place: Place) -> str:
        return self.prefix + self.lead + self.separator.join(map(str, place))


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
        #: Metadata of arrays, by prefix of their keys; and those that were read.
        self._known: dict[str, dict[str, Any]] = {}
        self._arrays: dict[str, _Array | None] = {}

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
        array, place = self._chunk(key)
        if array is None or place is None:
            data = await self._bytes(key, byte_range)
            if byte_range is None:
                self._ahead.forget(key)
                self._learn(key, data or b"")
        elif byte_range is None:
            with array.lock:
                ahead = array.loop.request(place)
            self._ahead.announce(array.key(after) for after in ahead)
            data = await self._bytes(key, None)
            with array.lock:
                array.loop.end(len(data or b""))
            self._ahead.keep(key)
        elif array.shards is not None:
            data = await self._part(array, array.shards, place, key, byte_range)
        else:
            data = await self._bytes(key, byte_range)
        return None if data is None else prototype.buffer.from_bytes(data)

    async def _bytes(self, key: str, byte_range: ByteRequest | None, exact: bool = False) -> bytes | None:
        """Bytes of an object; none if it is missing. Nothing else of it is read ahead if the range is `exact`."""
        try:
            handle = (await self._ahead.source_async(key, _first(byte_range))).handle()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            self._ahead.keep(key)
            return None
        except Exception:
            self._ahead.forget(key)
            raise
        if exact:
            handle.advise("random", 0, handle.size)
        start, end = _range(byte_range, handle.size)
        return await read(handle, start, end - start)

    async def _part(self, array: _Array, shards: _Shards, shard: Place, key: str, request: ByteRequest) -> bytes | None:
        """Bytes of a shard: its index, or a chunk."""
        index = request == shards.request
        ahead: list[Place] = []
        with array.lock:
            if index:
                # Each read requests the indexes of its shards first, and then its chunks, one or more at a time.
                if shards.reading == 0 or shard in shards.read:
                    shards.read.clear()
                    ahead = shards.loop.begin()
                shards.read.add(shard)
            elif isinstance(request, RangeByteRequest) and (place := shards.chunk_at(shard, request.start)) is not None:
                ahead = shards.loop.request(place)
            shards.reading += 1
        try:
            self._fetch(array, shards, ahead)
            data = await self._bytes(key, request, exact=index)
        finally:
            with array.lock:
                shards.reading -= 1
        with array.lock:
            if index:
                shards.learn(shard, data)
            else:
                shards.loop.end(len(data or b""))
        return data

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
        """The arrays of which metadata tells: of an array, or consolidated of a group."""
        prefix, _, name = key.rpartition("/")
        prefix += "/" if prefix else ""
        if name not in ("zarr.json", ".zarray", ".zmetadata"):
            return
        try:
            meta = json.loads(data)
            if name == ".zmetadata":
                nodes = {path.removesuffix(".zarray"): node for path, node in meta["metadata"].items()
                         if path.endswith(".zarray")}
            else:
                below = (meta.get("consolidated_metadata") or {}).get("metadata") or {}
                nodes = {"": meta, **{f"{path}/": node for path, node in below.items()}}
        except (ValueError, KeyError, TypeError, AttributeError):
            # Metadata of another kind.
            return
        for path, node in nodes.items():
            at = prefix + path
            if isinstance(node, dict) and "shape" in node and self._known.get(at) != node:
                self._known[at] = node
                self._arrays.pop(at, None)

    def _chunk(self, key: str) -> tuple[_Array | None, Place | None]:
        """The array of a key, and its chunk or shard."""
        cuts = (at + 1 for at in range(len(key) - 1, -1, -1) if key[at] == "/")
        prefix = next((key[:cut] for cut in (*cuts, 0) if key[:cut] in self._known), None)
        if prefix is None:
            return None, None
        try:
            array = self._arrays[prefix]
        except KeyError:
            node = self._known[prefix]
            array = _array_of(prefix, node)
            # Another thread may have read newer metadata.
            if self._known[prefix] is node:
                self._arrays[prefix] = array
        return array, None if array is None else array.place(key[len(prefix):])

    def _fetch(self, array: _Array, shards: _Shards, places: Iterable[Place]) -> None:
        """Fetches chunks of shards, without waiting."""
        numbers: dict[Place, list[int]] = {}
        for place in places:
            shard, number = shards.split(place)
            numbers.setdefault(shard, []).append(number)
        for shard, found in numbers.items():
            self._ahead.then(array.key(shard), _first(shards.request), partial(_fetch, array, shards, shard, found))

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
        self._remove_empty(directory)

    def _remove_empty(self, directory: str) -> None:
        """Removes a directory without keys, and those above it that have none then, from a store that has directories."""
        if _stores.place_of(self.url).store.partition(":")[0] in _stores.BUCKETS:
            return
        while directory:
            store, path = self._at(directory)
            try:
                store.rmdir(path)
            except FileNotFoundError:
                pass
            except OSError:
                # It has a key.
                return
            directory = directory.rpartition("/")[0]

    def _at(self, key: str) -> tuple[_bowwave.Store, str]:
        place = _stores.place_of(self.url + key)
        return _stores.store_of(place.store, self._access), place.path

    def _put(self, key: str, data: bytes) -> None:
        store, path = self._at(key)
        handle = self._created(store, path)
        if data:
            handle.write(0, data)
        handle.sync()
        self._ahead.forget(key)

    def _created(self, store: _bowwave.Store, path: str) -> _bowwave.Handle:
        """A new object, and the directories above it."""
        parts = path.split("/")[:-1]
        for _ in range(CREATES):
            try:
                return store.create(path)
            except FileNotFoundError:
                for count in range(1, len(parts) + 1):
                    with suppress(FileExistsError, FileNotFoundError):
                        store.mkdir("/".join(parts[:count]))
        return store.create(path)

    def _remove(self, key: str) -> None:
        store, path = self._at(key)
        try:
            store.remove(path)
        except (FileNotFoundError, IsADirectoryError):
            pass
        self._remove_empty(key.rpartition("/")[0])
        self._ahead.forget(key)


def _fetch(array: _Array, shards: _Shards, shard: Place, numbers: list[int], source: Source) -> None:
    """Fetches chunks of a shard, in a thread."""
    handle = source.handle()
    if not shards.knows(shard):
        # The chunks that are read are known.
        handle.advise("random", 0, handle.size)
        start, end = _range(shards.request, handle.size)
        data = handle.pread(start, end - start)
        with array.lock:
            shards.learn(shard, data)
    with array.lock:
        ranges = joined(filter(None, (shards.bytes_of(shard, number) for number in numbers)))
    for start, end in ranges:
        if end <= handle.size:
            handle.advise("willneed", start, end - start)


def _array_of(prefix: str, meta: dict[str, Any]) -> _Array | None:
    """An array, if its metadata is of a kind with regular chunks."""
    try:
        shape = meta["shape"]
        chunks = meta["chunks"] if "chunks" in meta else meta["chunk_grid"]["configuration"]["chunk_shape"]
        shards = None
        codecs = meta.get("codecs") or []
        if len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed":
            shards = _shards_of(shape, chunks, codecs[0]["configuration"])
        return _Array(prefix, _grid(shape, chunks), shards)
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError):
        return None


def _shards_of(shape: list[int], shards: list[int], configuration: dict[str, Any]) -> _Shards | None:
    parts = _grid(shards, configuration["chunk_shape"])
    size = 16 * math.prod(parts)
    for codec in configuration["index_codecs"]:
        if codec["name"] == "crc32c":
            size += 4
        elif codec["name"] != "bytes" or (codec.get("configuration") or {}).get("endian", "little") != "little":
            # Only zarr knows what is in it.
            return None
    return _Shards(_grid(shape, configuration["chunk_shape"]), parts, size,
                   configuration.get("index_location", "end") == "end")


def _grid(shape: list[int], chunks: list[int]) -> Place:
    """Chunks in each direction."""
    return tuple(-(-int(side) // int(chunk)) for side, chunk in zip(shape, chunks, strict=True))


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

