"""Parsers of HDF5 metadata (the "HDF5 File Format Specification"): the places of the file that metadata name.

A parser takes the bytes of one piece of metadata. It yields the pieces and chunks that these bytes name, and stops at
damaged or missing bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial

from ._hdf5_index import Array, Chunk, Parser, Piece, address, layout, nothing, tree2

#: Exceptions of a parser on damaged bytes: the bytes name nothing more.
DAMAGE = (struct.error, ValueError, IndexError, ArithmeticError)
#: The first bytes of a superblock. It is at the begin of the file, or behind a user block of 512 bytes, or of twice as
#: many, and so on.
SIGNATURE = b"\x89HDF\r\n\x1a\n"
USER_BLOCK_MIN = 512


def superblock(data: bytes) -> Iterator[Piece]:
    """The root group, if addresses are of 8 bytes. They begin at the superblock, wherever it is."""
    sizes, root = (13, 64 + 4 * (data[8] == 1)) if data[8] < 2 else (9, 36)
    if data[:8] == SIGNATURE and data[8] <= 3 and data[sizes:sizes + 2] == b"\x08\x08":
        yield Piece(address(data, root), 512, _header)


def _group(tree: int, heap: int) -> Iterator[Piece]:
    yield Piece(tree, 544, _members)
    yield Piece(heap, 512, _heap)


def _heap(data: bytes) -> Iterator[Piece]:
    if data[:4] == b"HEAP":
        length, _, start = struct.unpack_from("<3Q", data, 8)
        yield Piece(start, length, nothing)


def _members(data: bytes) -> Iterator[Piece]:
    """A node of a group's tree, or its leaf of symbols."""
    if data[:5] == b"TREE\0":
        for at in range(int.from_bytes(data[6:8], "little")):
            yield Piece(address(data, 32 + 16 * at), 544 if data[5] else 328, _members)
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
            yield Piece(address(body, 0), address(body, 8), partial(_messages, array, prefix))
        elif kind == 0x11:
            yield from _group(*struct.unpack_from("<2Q", body))
        elif kind == 0x06:
            yield from _links(body)
        elif kind in (0x02, 0x15):
            # Links or attributes in a heap. The order of creation, if it is stored, precedes the addresses.
            start = 2 + (body[1] & 1) * (8 if kind == 2 else 2)
            heap, names = struct.unpack_from("<2Q", body, start)
            yield Piece(heap, 146, partial(_fractal, kind == 2))
            yield Piece(names, 38, partial(tree2, None))
        elif kind == 0x01:
            start = 8 if body[0] == 1 else 4
            array.shape = array.most = struct.unpack_from(f"<{body[1]}Q", body, start)
            if body[2] & 1:
                array.most = struct.unpack_from(f"<{body[1]}Q", body, start + 8 * body[1])
        elif kind == 0x08:
            yield from layout(array, body)


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
            yield Piece(address(body, at), 512, _header)
            at += 8
        else:
            at += 2 + int.from_bytes(body[at:at + 2], "little")


def _fractal(links: bool, data: bytes) -> Iterator[Piece]:
    """A heap of links or attributes."""
    if data[:4] != b"FRHP":
        return
    yield Piece(address(data, 38), 82, nothing)
    width, first, most, bits, _, root, rows = struct.unpack_from("<HQQHHQH", data, 110)
    head = 13 + (bits + 7) // 8
    leaf = partial(_block, head + 2 * (data[9] & 2)) if links else nothing
    if rows == 0:
        yield Piece(root, first, leaf)
    else:
        yield Piece(root, head + 4 + 8 * width * rows, partial(_blocks, head, width, first, most, leaf))


def _blocks(head: int, width: int, first: int, most: int, leaf: Parser, data: bytes) -> Iterator[Piece]:
    """The direct blocks of a root block: rows of `width`, each of twice the size but the second."""
    at = 0
    while data[:4] == b"FHIB" and (size := first << max(0, at // width - 1)) <= most:
        yield Piece(address(data, head + 8 * at), size, leaf)
        at += 1


def _block(head: int, data: bytes) -> Iterator[Piece]:
    if data[:4] == b"FHDB":
        yield from _links(data[head:])
