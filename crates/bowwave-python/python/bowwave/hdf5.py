"""HDF5 and NetCDF4: metadata and chunks ahead of their reader.

The metadata of such a file lie scattered in small pieces, each of which names the place of the next, and readers wait for
one after another. The pieces that pass through a file are parsed, and the ones that they name are fetched together: the
members of a group, the nodes of trees. When a program reads chunks of an array in a loop, the next chunks of the loop are
fetched. Contiguous arrays are read ahead as any file. A file whose name ends in `.h5`, `.hdf5`, `.nc` or `.nc4` does so by
itself; otherwise `bowwave.hdf5.open(url)`, for `h5py.File` and `xarray.open_dataset`.
"""

from __future__ import annotations

import heapq
import os
import struct
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ._files import File, source_of

if TYPE_CHECKING:
    from .parquet import Readable

#: Bytes around a small read of unknown kind. Smaller: more requests; larger: more unused bytes between metadata.
BLOCK = 64 << 10
#: A longer read of unknown kind is no metadata.
SMALL = 16 << 10
PAGE = 4 << 10
#: Bytes between two pieces that are fetched with them. Larger: more unused bytes; smaller: more requests.
GAP = 32 << 10
#: Bytes of metadata that are fetched before any is used. Twice what was used comes on top.
FREE = 256 << 10
#: Bytes of chunks that are fetched ahead of a new loop. Half of what the loop has read comes on top, up to `AHEAD_MAX`.
AHEAD = 512 << 10
AHEAD_MAX = 16 << 20
#: Most pieces and chunks that are remembered of a file, and the longest piece: they bound the memory.
PIECES_MAX = 1 << 18
LENGTH_MAX = 256 << 10
#: Failures of a parser on damaged bytes. They mean that nothing is known.
DAMAGE = (struct.error, ValueError, IndexError, OverflowError)

Order: TypeAlias = "tuple[int, ...]"
Parser: TypeAlias = "Callable[[bytes], Iterable['Piece | Chunk']]"


class Array:
    """A chunked dataset: its shape, the one of its chunks with the size of an element, and the chunks that are known."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.chunk: tuple[int, ...] = ()
        self.chunks: dict[tuple[int, ...], Chunk] = {}
        self.loop: Loop | None = None

    def grid(self) -> tuple[int, ...]:
        return tuple(-(-side // step) for side, step in zip(self.shape, self.chunk, strict=False) if step)


class Piece(NamedTuple):
    """Metadata at `start`, which `parse` finds more places in; those of the index of an array have the array."""

    start: int
    length: int
    parse: Parser
    array: Array | None = None


class Chunk(NamedTuple):
    """A chunk of an array at a place of its grid; a contiguous array without a place."""

    start: int
    length: int
    array: Array
    place: tuple[int, ...]


class Loop:
    """The chunks that a program reads one after another, in the order of C: from `low` on by `step` in each dimension."""

    def __init__(self, place: tuple[int, ...], grid: tuple[int, ...], like: Loop | None) -> None:
        self.grid, self.low, self.at, self.edge = grid, place, place, place
        self.step, self.high = [1] * len(grid), [side - 1 for side in grid]
        self.count = self.read = self.ahead = self.behind = 0
        self.goes_on = False
        if like is not None and like.grid == grid and like.low == place:
            # The same of another array: programs do with one what they do with the next.
            self.step, self.high, self.count, self.read = [*like.step], [*like.high], like.count, like.read // 2

    def follows(self, place: tuple[int, ...]) -> bool:
        """Goes to the next chunk, if it may be of this loop; what is learned of the loop's bounds may move `edge` back."""
        was = self.at
        if len(place) != len(was) or place <= was:
            return False
        axis = next(axis for axis, pair in enumerate(zip(was, place, strict=True)) if pair[0] != pair[1])
        if place[axis + 1:] != self.low[axis + 1:]:
            return False
        expected = self.next(was)
        self.high[axis + 1:] = was[axis + 1:]
        if expected != place:
            self.step[axis] = place[axis] - was[axis]
        self.at = place
        self.count += 1
        if expected != place or self.edge < place:
            self.edge, self.ahead = place, 0
        return True

    def next(self, place: tuple[int, ...]) -> tuple[int, ...] | None:
        after = list(place)
        for axis in reversed(range(len(after))):
            after[axis] += self.step[axis]
            if after[axis] <= self.high[axis]:
                return tuple(after)
            after[axis] = self.low[axis]
        return None


# Parsers: each yields the places that its bytes name.


def _nothing(data: bytes) -> Iterable[Piece]:
    return ()


def _superblock(data: bytes) -> Iterator[Piece]:
    """The root group, if addresses are of 8 bytes and begin at 0."""
    old = 4 * (data[8] == 1)
    sizes, base, root = (13, 24 + old, 64 + old) if data[8] < 2 else (9, 12, 36)
    is_known = data[:8] == b"\x89HDF\r\n\x1a\n" and data[8] <= 3
    if is_known and data[sizes:sizes + 2] == b"\x08\x08" and data[base:base + 8] == bytes(8):
        yield Piece(*struct.unpack_from("<Q", data, root), 512, _header)


def _group(tree: int, heap: int) -> Iterator[Piece]:
    yield Piece(tree, 544, _members)
    yield Piece(heap, 512, _heap)


def _heap(data: bytes) -> Iterator[Piece]:
    if data[:4] == b"HEAP":
        length, _, start = struct.unpack_from("<3Q", data, 8)
        yield Piece(start, length, _nothing)


def _members(data: bytes) -> Iterator[Piece]:
    """A node of a group's tree, or its leaf of symbols."""
    if data[:5] == b"TREE\0":
        for at in range(int.from_bytes(data[6:8], "little")):
            yield Piece(*struct.unpack_from("<Q", data, 32 + 16 * at), 544 if data[5] else 328, _members)
    elif data[:4] == b"SNOD":
        for at in range(int.from_bytes(data[6:8], "little")):
            header, cached, tree, heap = struct.unpack_from("<QI4xQQ", data, 16 + 40 * at)
            yield Piece(header, 512, _header)
            if cached == 1:
                yield from _group(tree, heap)


def _header(data: bytes) -> Iterator[Piece]:
    """An object header, of either version."""
    array = Array()
    if data[:4] == b"OHDR":
        flags, at = data[5], 6 + 16 * (data[5] >> 5 & 1) + 4 * (data[5] >> 4 & 1)
        width = 1 << (flags & 3)
        start, length = at + width, int.from_bytes(data[at:at + width], "little")
        yield from _messages(array, 6 if flags & 4 else 4, data[start:start + length])
    elif data[:2] == b"\1\0":
        yield from _messages(array, 8, data[16:16 + int.from_bytes(data[8:12], "little")])


def _messages(array: Array, prefix: int, data: bytes) -> Iterator[Piece]:
    at = 4 if data[:4] == b"OCHK" else 0
    while at + prefix < len(data):
        kind, length = struct.unpack_from("<HH" if prefix == 8 else "<BH", data, at)
        body = data[at + prefix:at + prefix + length]
        at += prefix + length
        if kind == 0x10:
            yield Piece(*struct.unpack_from("<2Q", body), partial(_messages, array, prefix))
        elif kind == 0x11:
            yield from _group(*struct.unpack_from("<2Q", body))
        elif kind == 0x06:
            yield from _links(body)
        elif kind in (0x02, 0x15):
            # Links or attributes in a heap. The order of creation, if it is stored, precedes the addresses.
            start = 2 + (body[1] & 1) * (8 if kind == 2 else 2)
            heap, names = struct.unpack_from("<2Q", body, start)
            yield Piece(heap, 146, partial(_fractal, kind == 2))
            yield Piece(names, 38, _tree2)
        elif kind == 0x01:
            array.shape = struct.unpack_from(f"<{body[1]}Q", body, 8 if body[0] == 1 else 4)
        elif kind == 0x08:
            yield from _layout(array, body)


def _links(body: bytes) -> Iterator[Piece]:
    """Link messages, one after another."""
    at = 0
    while at + 2 < len(body) and body[at] == 1:
        flags = body[at + 1]
        is_hard = not flags & 8 or body[at + 2] == 0
        at += 2 + (flags >> 3 & 1) + (flags & 4) * 2 + (flags >> 4 & 1)
        width = 1 << (flags & 3)
        at += width + int.from_bytes(body[at:at + width], "little")
        if not is_hard:
            return
        yield Piece(*struct.unpack_from("<Q", body, at), 512, _header)
        at += 8


def _tree2(data: bytes) -> Iterator[Piece]:
    if data[:4] == b"BTHD":
        yield Piece(*struct.unpack_from("<Q", data, 16), *struct.unpack_from("<I", data, 6), _nothing)


def _fractal(links: bool, data: bytes) -> Iterator[Piece]:
    """A heap of links or attributes."""
    if data[:4] != b"FRHP":
        return
    yield Piece(*struct.unpack_from("<Q", data, 38), 82, _nothing)
    width, first, most, bits, _, root, rows = struct.unpack_from("<HQQHHQH", data, 110)
    head = 13 + (bits + 7) // 8
    leaf = partial(_block, head + 2 * (data[9] & 2)) if links else _nothing
    if rows == 0:
        yield Piece(root, first, leaf)
    else:
        sizes = [size for row in range(min(rows, 64)) if (size := first << max(0, row - 1)) <= most]
        yield Piece(root, head + 4 + 8 * width * rows, partial(_blocks, head, [s for s in sizes for _ in range(width)], leaf))


def _blocks(head: int, sizes: list[int], leaf: Parser, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FHIB":
        for at, size in enumerate(sizes):
            yield Piece(*struct.unpack_from("<Q", data, head + 8 * at), size, leaf)


def _block(head: int, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FHDB":
        yield from _links(data[head:])


def _layout(array: Array, body: bytes) -> Iterator[Piece | Chunk]:
    """The index of an array's chunks: a tree, or the fixed array of newer files."""
    sides = body[2] if body[0] == 3 else body[3]
    if body[:2] in (b"\3\1", b"\4\1"):
        yield Chunk(*struct.unpack_from("<2Q", body, 2), array, ())
    if body[:2] == b"\3\2":
        start, *chunk = struct.unpack_from(f"<Q{sides}I", body, 3)
        array.chunk = tuple(chunk)
        # A node has up to 64 children, and a key more.
        yield Piece(start, 24 + 65 * (8 + 8 * sides) + 64 * 8, partial(_chunks, array), array)
    elif body[:2] == b"\4\2":
        width, at = body[4], 5 + body[4] * sides
        array.chunk = tuple(int.from_bytes(body[5 + width * n:5 + width * (n + 1)], "little") for n in range(sides))
        if body[at] == 3:
            yield Piece(*struct.unpack_from("<Q", body, at + 2), 28, partial(_fixed, array), array)


def _chunks(array: Array, data: bytes) -> Iterator[Piece | Chunk]:
    if data[:5] != b"TREE\1" or not all(array.chunk):
        return
    sides = len(array.chunk)
    step, node = 16 + 8 * sides, len(data)
    for at in range(24, 24 + step * int.from_bytes(data[6:8], "little"), step):
        size, _, *place, start = struct.unpack_from(f"<II{sides}QQ", data, at)
        if data[5]:
            yield Piece(start, node, partial(_chunks, array), array)
        else:
            yield Chunk(start, size, array, tuple(p // c for p, c in zip(place[:-1], array.chunk, strict=False)))


def _fixed(array: Array, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FAHD":
        entry, bits, count, start = struct.unpack_from("<BBQQ", data, 6)
        pages = -(-count >> bits) if count > 1 << bits else 0
        head = 14 + (-(-pages // 8) + 4 if pages else 0)
        page = (1 << bits) * entry + 4 if pages else 0
        yield Piece(start, head + count * entry + 4 * max(1, pages), partial(_entries, array, entry, head, page), array)


def _entries(array: Array, entry: int, head: int, page: int, data: bytes) -> Iterator[Chunk]:
    """Addresses of chunks in the order of C, of filtered ones with their sizes; in pages if they are many."""
    grid = array.grid()
    if data[:4] != b"FADB" or not grid or not 8 <= entry <= 20:
        return
    whole = prod(array.chunk)
    for at in range(min(prod(grid), len(data) // entry)):
        offset = head + at * entry + (at * entry // (page - 4) * 4 if page else 0)
        start = int.from_bytes(data[offset:offset + 8], "little")
        size = int.from_bytes(data[offset + 8:offset + entry - 4], "little") if entry > 8 else whole
        place, left = [], at
        for side in reversed(grid):
            left, here = divmod(left, side)
            place.append(here)
        yield Chunk(start, size, array, tuple(reversed(place)))


class Watcher:
    """Fetches the metadata that parsed metadata name, and the next chunks of a loop over an array."""

    #: Windows of 128 KiB: variables are often smaller than what is read ahead of a long file. Larger ones read more behind
    #: the end of each variable, and are no faster; smaller ones take more requests.
    SETTINGS = {"ra_pages": 32}
    #: The superblock and what lies beside it.
    FIRST = (0, BLOCK)
    #: Not beside a plan of the program's own.
    plans = True

    def __init__(self) -> None:
        #: Pages of the file that were fetched.
        self.pages: set[int] = set()
        #: Named pieces that were not parsed, by their start, each with its place in the order of a walk through the file.
        self.pieces: dict[int, tuple[Order, Piece]] = {}
        self.seen = 0
        #: Pieces to fetch, and indexes of arrays that the program has not read.
        self.queue: list[tuple[Order, int]] = []
        self.held: list[tuple[Order, int]] = []
        #: Pieces in flight with the round in which they were fetched, and the bytes of fetched pieces that were not used.
        self.rounds: dict[int, int] = {}
        self.round = 0
        self.costs: dict[int, int] = {}
        self.spent = self.used = 0
        self.chunks: dict[int, Chunk] = {}
        #: Ranges of arrays without chunks, in the order of the file.
        self.contiguous: list[tuple[int, int]] = []
        #: The array that was read last. A program that reads the indexes of two arrays and no chunk walks through the file.
        self.array: Array | None = None
        self.walks = False
        self.end = 0
        self.loop: Loop | None = None
        self.advice = "normal"

    def opened(self, file: Readable) -> None:
        self._advise(file, "random")
        self._parse(file, (), Piece(0, 128, _superblock))

    def before(self, file: Readable, offset: int, length: int) -> None:
        chunk = self.chunks.get(offset)
        if chunk is not None:
            self._advise(file, "random")
            self._read_chunk(file, chunk)
            self.end = offset + length
        elif offset in self.pieces or offset in self.costs:
            self._advise(file, "random")
            self._read_piece(file, offset, length)
        elif length > SMALL or self._is_contiguous(offset):
            self._advise(file, "normal")
        else:
            self._advise(file, "random")
            self._fetch(file, offset // BLOCK * BLOCK, BLOCK)

    def _is_contiguous(self, offset: int) -> bool:
        at = bisect_right(self.contiguous, (offset + 1,)) - 1
        return at >= 0 and offset < self.contiguous[at][1]

    def _advise(self, file: Readable, advice: str) -> None:
        """Readahead, only where the next read is not known."""
        if self.advice != advice:
            self.advice = advice
            file.advise(advice)  # type: ignore[attr-defined]

    def _fetch(self, file: Readable, start: int, length: int) -> int:
        """Fetches the pages of a range; returns how many bytes are new."""
        end = min(start + length, file.size)
        new = [page for page in range(start // PAGE, -(-end // PAGE)) if page not in self.pages]
        if new:
            self.pages.update(new)
            start = new[0] * PAGE
            file.advise("willneed", start, min((new[-1] + 1) * PAGE, end) - start)  # type: ignore[attr-defined]
        return len(new) * PAGE

    # Metadata.

    def _read_piece(self, file: Readable, offset: int, length: int) -> None:
        self.used += self.costs.pop(offset, 0)
        if offset in self.pieces:
            array = self.pieces[offset][1].array
            if array is not None and array is not self.array:
                self.walks = self.walks or (self.array is not None and self.array.loop is None)
                self.array = array
                if self.walks and self.held:
                    self.queue += self.held
                    heapq.heapify(self.queue)
                    self.held = []
            if offset not in self.rounds:
                cost = self._fetch(file, offset, length)
                self.spent, self.used = self.spent + cost, self.used + cost
            # What was fetched together arrives together.
            latest = self.rounds.get(offset, 0)
            for start in [offset, *(at for at, number in self.rounds.items() if number <= latest and at != offset)]:
                self.rounds.pop(start, None)
                self._parse(file, *self.pieces.pop(start))
        self.round += 1
        left = FREE + 2 * self.used - self.spent
        new: list[tuple[int, int]] = []
        while self.queue and left > 0:
            start = heapq.heappop(self.queue)[1]
            if start in self.pieces:
                end = start + self.pieces[start][1].length
                cost = PAGE * sum(page not in self.pages for page in range(start // PAGE, -(-end // PAGE)))
                self.costs[start], self.rounds[start] = cost, self.round
                left -= cost
                new.append((start, end))
        self.spent += sum(self._fetch(file, start, end - start) for start, end in _merged(new, GAP))

    def _parse(self, file: Readable, order: Order, piece: Piece) -> None:
        try:
            for found in piece.parse(file.pread(piece.start, piece.length)):
                self.seen += 1
                if self.seen > PIECES_MAX:
                    return
                if found.start + found.length > file.size:
                    continue
                if isinstance(found, Chunk) and not found.place:
                    insort(self.contiguous, (found.start, found.start + found.length))
                elif isinstance(found, Chunk):
                    self.chunks[found.start] = found.array.chunks[found.place] = found
                elif found.length <= LENGTH_MAX and found.start not in self.pieces and found.start not in self.costs:
                    key = (*order, self.seen)
                    self.pieces[found.start] = (key, found)
                    if found.array is None or found.array is self.array or self.walks:
                        heapq.heappush(self.queue, (key, found.start))
                    else:
                        self.held.append((key, found.start))
        except (OSError, *DAMAGE):
            # The reader reports it, if it reads this.
            pass

    # Chunks.

    def _read_chunk(self, file: Readable, chunk: Chunk) -> None:
        array = self.array = chunk.array
        loop = array.loop
        if loop is None or not loop.follows(chunk.place):
            array.loop = loop = Loop(chunk.place, array.grid(), self.loop)
            # From the end of one array to the next: more of them may lie behind.
            loop.goes_on = loop.count > 0 and 0 <= chunk.start - self.end <= BLOCK
            self.walks = self.walks or loop.count > 0
        self.loop = loop
        loop.read += chunk.length
        loop.ahead = max(0, loop.ahead - chunk.length)
        most = min(AHEAD + loop.read, AHEAD_MAX)
        if not loop.count or loop.ahead > most // 2:
            return
        ranges: list[tuple[int, int]] = []
        place = loop.next(loop.edge)
        while loop.ahead < most and place is not None and (found := array.chunks.get(place)) is not None:
            loop.edge, loop.ahead = place, loop.ahead + found.length
            ranges.append((found.start, found.start + found.length))
            place = loop.next(place)
        if place is None and loop.goes_on and (last := array.chunks.get(loop.edge)) is not None:
            start = last.start + last.length + loop.behind
            length = max(0, min(most - loop.ahead, file.size - start))
            ranges.append((start, start + length))
            loop.behind, loop.ahead = loop.behind + length, loop.ahead + length
        for start, end in _merged(ranges, 0):
            file.advise("willneed", start, end - start)  # type: ignore[attr-defined]


def _merged(ranges: list[tuple[int, int]], gap: int) -> Iterator[tuple[int, int]]:
    """Ranges in the order of the file, joined where no more than a gap is between them."""
    joined: list[list[int]] = []
    for start, end in sorted(ranges):
        if joined and start - joined[-1][1] <= gap:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    return ((start, end) for start, end in joined)


def open(url: str | os.PathLike[str], **options: Any) -> File:  # noqa: A001
    """As `bowwave.open`, for a file in this format whatever its name is."""
    return File(source_of(url, {**Watcher.SETTINGS, **options}), watcher=Watcher())
