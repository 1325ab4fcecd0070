"""Parsers of HDF5 metadata (the "HDF5 File Format Specification"): the places of the file that metadata name.

A parser takes the bytes of one piece of metadata. It yields the pieces and chunks that these bytes name, and stops at
damaged or missing bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from math import prod
from typing import Any, NamedTuple, TypeAlias

#: Exceptions of a parser on damaged bytes: the bytes name nothing more.
DAMAGE = (struct.error, ValueError, IndexError, ArithmeticError)

Parser: TypeAlias = "Callable[[bytes], Iterable['Piece | Chunk']]"


class Array:
    """A chunked dataset: its shape, the shape of a chunk followed by the size of an element, and the known chunks."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.chunk: tuple[int, ...] = ()
        self.chunks: dict[tuple[int, ...], Chunk] = {}
        self.loop: Any = None

    def grid(self) -> tuple[int, ...]:
        return tuple(-(-side // step) for side, step in zip(self.shape, self.chunk, strict=False) if step)


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


def _address(data: bytes, at: int) -> int:
    """An address or a length of 8 bytes."""
    value: int = struct.unpack_from("<Q", data, at)[0]
    return value


def _nothing(data: bytes) -> Iterable[Piece]:
    return ()


def superblock(data: bytes) -> Iterator[Piece]:
    """The root group, if addresses are of 8 bytes and begin at 0."""
    old = 4 * (data[8] == 1)
    sizes, base, root = (13, 24 + old, 64 + old) if data[8] < 2 else (9, 12, 36)
    is_known = data[:8] == b"\x89HDF\r\n\x1a\n" and data[8] <= 3
    if is_known and data[sizes:sizes + 2] == b"\x08\x08" and data[base:base + 8] == bytes(8):
        yield Piece(_address(data, root), 512, _header)


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
            yield Piece(_address(data, 32 + 16 * at), 544 if data[5] else 328, _members)
    elif data[:4] == b"SNOD":
        for at in range(int.from_bytes(data[6:8], "little")):
            header, cached, tree, heap = struct.unpack_from("<QI4xQQ", data, 16 + 40 * at)
            yield Piece(header, 512, _header)
            if cached == 1:
                yield from _group(tree, heap)


def _header(data: bytes) -> Iterator[Piece | Chunk]:
    """An object header, of either version."""
    array = Array()
    if data[:4] == b"OHDR":
        flags, at = data[5], 6 + 16 * (data[5] >> 5 & 1) + 4 * (data[5] >> 4 & 1)
        width = 1 << (flags & 3)
        start, length = at + width, int.from_bytes(data[at:at + width], "little")
        yield from _messages(array, 6 if flags & 4 else 4, data[start:start + length])
    elif data[:2] == b"\1\0":
        yield from _messages(array, 8, data[16:16 + int.from_bytes(data[8:12], "little")])


def _messages(array: Array, prefix: int, data: bytes) -> Iterator[Piece | Chunk]:
    """Messages of a header, which have a `prefix` each."""
    at = 4 if data[:4] == b"OCHK" else 0
    while at + prefix < len(data):
        kind, length = struct.unpack_from("<HH" if prefix == 8 else "<BH", data, at)
        body = data[at + prefix:at + prefix + length]
        at += prefix + length
        if kind == 0x10:
            yield Piece(_address(body, 0), _address(body, 8), partial(_messages, array, prefix))
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
        if is_hard:
            yield Piece(_address(body, at), 512, _header)
            at += 8
        else:
            at += 2 + int.from_bytes(body[at:at + 2], "little")


def _tree2(data: bytes) -> Iterator[Piece]:
    if data[:4] == b"BTHD":
        yield Piece(_address(data, 16), int.from_bytes(data[6:10], "little"), _nothing)


def _fractal(links: bool, data: bytes) -> Iterator[Piece]:
    """A heap of links or attributes."""
    if data[:4] != b"FRHP":
        return
    yield Piece(_address(data, 38), 82, _nothing)
    width, first, most, bits, _, root, rows = struct.unpack_from("<HQQHHQH", data, 110)
    head = 13 + (bits + 7) // 8
    leaf = partial(_block, head + 2 * (data[9] & 2)) if links else _nothing
    if rows == 0:
        yield Piece(root, first, leaf)
    else:
        yield Piece(root, head + 4 + 8 * width * rows, partial(_blocks, head, width, first, most, leaf))


def _blocks(head: int, width: int, first: int, most: int, leaf: Parser, data: bytes) -> Iterator[Piece]:
    """The direct blocks of a root block: rows of `width`, each of twice the size but the second."""
    at = 0
    while data[:4] == b"FHIB" and (size := first << max(0, at // width - 1)) <= most:
        yield Piece(_address(data, head + 8 * at), size, leaf)
        at += 1


def _block(head: int, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FHDB":
        yield from _links(data[head:])


def _layout(array: Array, body: bytes) -> Iterator[Piece | Chunk]:
    """The data of an array, or the index of its chunks: a tree, or the fixed array of newer files."""
    sides = body[2] if body[0] == 3 else body[3]
    if 3 <= body[0] <= 5 and body[1] == 1:
        yield Chunk(_address(body, 2), _address(body, 10), array, ())
    elif body[:2] == b"\3\2":
        start, *chunk = struct.unpack_from(f"<Q{sides}I", body, 3)
        array.chunk = tuple(chunk)
        # A node has up to 64 children, and a key more.
        yield Piece(start, 24 + 65 * (8 + 8 * sides) + 64 * 8, partial(_chunks, array), array)
    elif body[0] in (4, 5) and body[1] == 2:
        width, at = body[4], 5 + body[4] * sides
        array.chunk = tuple(int.from_bytes(body[5 + width * n:5 + width * (n + 1)], "little") for n in range(sides))
        if body[at] == 3:
            yield Piece(_address(body, at + 2), 28, partial(_fixed, array), array)


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
        length = head + count * entry + 4 * max(1, pages)
        yield Piece(start, length, partial(_entries, array, entry, head, page), array)


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
