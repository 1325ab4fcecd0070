"""Parsers of the indexes of HDF5's chunked arrays: where each chunk of an array is stored.

The "HDF5 File Format Specification" has five: a tree of version 1 or 2, a fixed array, an extensible array, and none
for chunks of equal size that lie one after another. All addresses are relative to the superblock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

Parser: TypeAlias = "Callable[[bytes], Iterable['Piece | Chunk']]"

#: The largest size of a dimension that can grow without limit.
UNLIMITED = (1 << 64) - 1
#: Levels of a tree of version 2 that are parsed: 8 have room for more chunks than a file has bytes.
DEPTH_MAX = 8
#: Chunks of one array, or of one block of its index, that are listed: as many as are remembered of a file.
ELEMENTS_MAX = 1 << 17


class Array:
    """A chunked dataset: its shape, the shape of a chunk followed by the size of an element, and the known chunks."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        #: The shape to which it may grow.
        self.most: tuple[int, ...] = ()
        self.chunk: tuple[int, ...] = ()
        self.chunks: dict[tuple[int, ...], Chunk] = {}
        self.loop: Any = None

    def grid(self) -> tuple[int, ...]:
        return self._counted(self.shape)

    def _counted(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-(-side // step) for side, step in zip(shape, self.chunk, strict=False) if step)

    def numbered(self, numbers: Iterable[int]) -> Iterator[tuple[int, ...]]:
        """The places of chunks by their number: in the order of C over the shape to which the array may grow. An
        unlimited dimension comes first, since numbers must stay when it grows."""
        sides = self._counted(self.most)
        axes = sorted(range(len(sides)), key=lambda axis: self.most[axis] != UNLIMITED)
        inner = [(axis, sides[axis]) for axis in reversed(axes[1:])]
        place = [0] * len(sides)
        for number in numbers if all(sides) else ():
            for axis, side in inner:
                number, place[axis] = divmod(number, side)
            place[axes[0]] = number
            yield tuple(place)


class Piece(NamedTuple):
    """Metadata at `start`, in which `parse` finds more places. Pieces of an array's index have the array."""

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


def address(data: bytes, at: int) -> int:
    """An address or a length of 8 bytes."""
    value: int = struct.unpack_from("<Q", data, at)[0]
    return value


def nothing(data: bytes) -> Iterable[Piece]:
    return ()


def layout(array: Array, body: bytes) -> Iterator[Piece | Chunk]:
    """The message that says where an array is stored."""
    if 3 <= body[0] <= 5 and body[1] == 1:
        yield Chunk(address(body, 2), address(body, 10), array, ())
    elif body[:2] == b"\3\2":
        start, *chunk = struct.unpack_from(f"<Q{body[2]}I", body, 3)
        array.chunk = tuple(chunk)
        # A node has up to 64 children, and a key more.
        yield Piece(start, 24 + 65 * (8 + 8 * body[2]) + 64 * 8, partial(_tree1, array), array)
    elif body[0] in (4, 5) and body[1] == 2:
        sides, width, at = body[3], body[4], 5 + body[4] * body[3]
        array.chunk = tuple(int.from_bytes(body[5 + width * n:5 + width * (n + 1)], "little") for n in range(sides))
        yield from _index(array, body[2] & 2 != 0, body[at], body[at + 1:])


def _index(array: Array, filtered: bool, kind: int, body: bytes) -> Iterator[Piece | Chunk]:
    if kind == 1:
        # One chunk, which a filter has made smaller or larger.
        length = address(body, 0) if filtered else prod(array.chunk)
        yield Chunk(address(body, 12 if filtered else 0), length, array, (0,) * len(array.grid()))
    elif kind == 2:
        start, length, count = address(body, 0), prod(array.chunk), min(prod(array.grid()), ELEMENTS_MAX)
        for number, place in enumerate(array.numbered(range(count))):
            yield Chunk(start + number * length, length, array, place)
    elif kind == 3:
        yield Piece(address(body, 1), 28, partial(_fixed, array), array)
    elif kind == 4:
        yield Piece(address(body, 5), 72, partial(_extensible, array), array)
    elif kind == 5:
        yield Piece(address(body, 6), 38, partial(tree2, array), array)


def _elements(array: Array, entry: int, first: int, data: bytes) -> Iterator[Chunk]:
    """Addresses of chunks, of filtered ones with their sizes, from number `first` on."""
    if not 8 <= entry <= 20:
        return
    whole = prod(array.chunk)
    places = array.numbered(range(first, first + len(data) // entry))
    for at, place in zip(range(0, len(data), entry), places, strict=False):
        size = int.from_bytes(data[at + 8:at + entry - 4], "little") if entry > 8 else whole
        yield Chunk(address(data, at), size, array, place)


def _pages(array: Array, entry: int, start: int, first: int, count: int, page: int) -> Iterator[Piece]:
    """The pages at `start`, with `page` elements each and a checksum."""
    for number in range(0, min(count, ELEMENTS_MAX), page):
        parse = partial(_page, array, entry, first + number)
        yield Piece(start + number // page * (page * entry + 4), min(page, count - number) * entry + 4, parse, array)


def _page(array: Array, entry: int, first: int, data: bytes) -> Iterator[Chunk]:
    return _elements(array, entry, first, data[:-4])


# Trees of version 1.


def _tree1(array: Array, data: bytes) -> Iterator[Piece | Chunk]:
    if data[:5] != b"TREE\1" or not all(array.chunk):
        return
    sides = len(array.chunk)
    step, node = 16 + 8 * sides, len(data)
    for at in range(24, 24 + step * int.from_bytes(data[6:8], "little"), step):
        size, _, *place, start = struct.unpack_from(f"<II{sides}QQ", data, at)
        if data[5]:
            yield Piece(start, node, partial(_tree1, array), array)
        else:
            yield Chunk(start, size, array, tuple(p // c for p, c in zip(place[:-1], array.chunk, strict=False)))


# Fixed arrays.


def _fixed(array: Array, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FAHD":
        entry, bits, count, start = struct.unpack_from("<BBQQ", data, 6)
        if count <= 1 << bits:
            yield Piece(start, 14 + count * entry + 4, partial(_fixed_block, array, entry), array)
        else:
            pages = -(-count >> bits)
            # A bit for each page that was written.
            head = 14 + -(-pages // 8) + 4
            yield Piece(start, head, nothing, array)
            yield from _pages(array, entry, start + head, 0, count, 1 << bits)


def _fixed_block(array: Array, entry: int, data: bytes) -> Iterator[Chunk]:
    if data[:4] == b"FADB":
        yield from _elements(array, entry, 0, data[14:-4])


# Extensible arrays: an index block, with the first elements, of data blocks and of secondary blocks, which have more
# data blocks. Data blocks grow with their number. Those of equal size are a super block; each second one has twice as many.


class _Sizes(NamedTuple):
    entry: int
    bits: int
    inline: int
    least: int
    pointers: int
    page_bits: int

    def super_blocks(self) -> Iterator[tuple[int, int, int]]:
        """For each, the number of its data blocks, of elements in each, and of its first element."""
        first = self.inline
        for number in range(1 + self.bits - (self.least.bit_length() - 1)):
            count, elements = 1 << number // 2, self.least << (number + 1) // 2
            yield count, elements, first
            first += count * elements

    def head(self) -> int:
        """Bytes before the elements of a data block, with the checksum behind them or, if it has pages, before them."""
        return 14 + -(-self.bits // 8)

    def data_block(self, array: Array, start: int, elements: int, first: int) -> Iterator[Piece]:
        head = self.head()
        if elements <= 1 << self.page_bits:
            parse = partial(_data_block, array, self, first)
            yield Piece(start, head + elements * self.entry + 4, parse, array)
        elif start != UNLIMITED:
            yield Piece(start, head + 4, nothing, array)
            yield from _pages(array, self.entry, start + head + 4, first, elements, 1 << self.page_bits)


def _extensible(array: Array, data: bytes) -> Iterator[Piece]:
    if data[:4] != b"EAHD":
        return
    sizes = _Sizes(*struct.unpack_from("<6B", data, 6))
    if not sizes.entry or not sizes.least or sizes.pointers < 2 or sizes.bits > 64:
        return
    # All data blocks of the first super blocks are in the index block, and of each other one its secondary block.
    blocks, direct = 2 * (sizes.pointers - 1), 2 * (sizes.pointers.bit_length() - 1)
    others = max(0, 1 + sizes.bits - (sizes.least.bit_length() - 1) - direct)
    length = 14 + sizes.inline * sizes.entry + 8 * (blocks + others) + 4
    yield Piece(address(data, 60), length, partial(_index_block, array, sizes, direct), array)


def _index_block(array: Array, sizes: _Sizes, direct: int, data: bytes) -> Iterator[Piece | Chunk]:
    if data[:4] != b"EAIB":
        return
    at = 14 + sizes.inline * sizes.entry
    yield from _elements(array, sizes.entry, 0, data[14:at])
    for number, (count, elements, first) in enumerate(sizes.super_blocks()):
        if number < direct:
            for block in range(count):
                yield from sizes.data_block(array, address(data, at), elements, first + block * elements)
                at += 8
        else:
            pages = elements >> sizes.page_bits if elements > 1 << sizes.page_bits else 0
            # A bit for each page that was written.
            head = sizes.head() + count * -(-pages // 8)
            parse = partial(_secondary_block, array, sizes, head, elements, first)
            yield Piece(address(data, at), head + 8 * count + 4, parse, array)
            at += 8


def _secondary_block(array: Array, sizes: _Sizes, head: int, elements: int, first: int, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"EASB":
        for at in range(head, len(data) - 11, 8):
            yield from sizes.data_block(array, address(data, at), elements, first)
            first += elements


def _data_block(array: Array, sizes: _Sizes, first: int, data: bytes) -> Iterator[Chunk]:
    if data[:4] == b"EADB":
        yield from _elements(array, sizes.entry, first, data[sizes.head():-4])


# Trees of version 2.


def tree2(array: Array | None, data: bytes) -> Iterator[Piece]:
    """A tree of chunks, or of names, of which only the root is known to be read."""
    if data[:4] != b"BTHD":
        return
    node, record, depth, root, count = struct.unpack_from("<IHH2xQH", data, 6)
    if array is None:
        yield Piece(root, node, nothing)
    elif record and 10 < node and depth <= DEPTH_MAX:
        yield Piece(root, node, partial(_node2, array, node, record, _widths(node, record, depth), count), array)


def _widths(node: int, record: int, depth: int) -> tuple[tuple[int, int], ...]:
    """For each level above the leaves, the bytes of two numbers in its pointers: records of a child, and all below."""
    most = all_records = (node - 10) // record
    first, second = (most.bit_length() + 7) // 8, 0
    widths: list[tuple[int, int]] = []
    for _ in range(depth):
        widths.append((first, second))
        pointer = 8 + first + second
        most = max(0, (node - 10 - pointer) // (record + pointer))
        all_records = (most + 1) * all_records + most
        second = (all_records.bit_length() + 7) // 8
    return tuple(widths)


def _node2(array: Array, node: int, record: int, widths: tuple[tuple[int, int], ...], count: int,
           data: bytes) -> Iterator[Piece | Chunk]:
    sides = len(array.chunk) - 1
    width = record - 8 - 8 * sides
    if data[:4] != (b"BTIN" if widths else b"BTLF") or width < 0:
        return
    whole = prod(array.chunk)
    for at in range(6, 6 + record * count, record):
        place = struct.unpack_from(f"<{sides}Q", data, at + 8 + width)
        # Of a filtered chunk, its size and the mask of its filters are between.
        size = int.from_bytes(data[at + 8:at + 4 + width], "little") if width else whole
        yield Chunk(address(data, at), size, array, place)
    if widths:
        first, second = widths[-1]
        start, pointer = 6 + record * count, 8 + first + second
        for at in range(start, start + (count + 1) * pointer, pointer):
            below = int.from_bytes(data[at + 8:at + 8 + first], "little")
            yield Piece(address(data, at), node, partial(_node2, array, node, record, widths[:-1], below), array)
