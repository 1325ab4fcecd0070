"""Arrow IPC files (Feather V2): the record batches of a read plan.

>>> import bowwave.arrow, pyarrow.ipc
>>> file = bowwave.open("s3://bucket/data.arrow")
>>> blocks = bowwave.arrow.plan(file, batches=[3, 4])
>>> reader = pyarrow.ipc.open_file(file)
>>> reader.get_batch(3).num_rows
10
"""

from __future__ import annotations

import struct as _struct
from collections.abc import Iterable
from typing import NamedTuple

from .parquet import Readable

MAGIC = b"ARROW1"
#: Bytes at the end that are read first.
TAIL = 64 << 10
_DICTIONARIES, _BATCHES = 2, 3


class Block(NamedTuple):
    """A dictionary or record batch: bytes from `start` to `end`."""

    start: int
    end: int


def blocks_of(footer: bytes) -> tuple[list[Block], list[Block]]:
    """Dictionaries and record batches of a footer. Raises `ValueError` if it is none."""
    try:
        (root,) = _struct.unpack_from("<I", footer)
        (back,) = _struct.unpack_from("<i", footer, root)
        table = root - back
        if table < 0:
            raise ValueError("a table before the beginning")
        (bytes_of_table,) = _struct.unpack_from("<H", footer, table)

        def vector(field: int) -> list[Block]:
            if 4 + 2 * field >= bytes_of_table:
                return []
            (offset,) = _struct.unpack_from("<H", footer, table + 4 + 2 * field)
            if offset == 0:
                return []
            (to,) = _struct.unpack_from("<I", footer, root + offset)
            at = root + offset + to
            (count,) = _struct.unpack_from("<I", footer, at)
            if count > len(footer) // 24:
                raise ValueError("a list beyond the end")
            blocks = []
            for number in range(count):
                start, metadata, _, body = _struct.unpack_from("<qiiq", footer, at + 4 + 24 * number)
                if start < 0 or metadata < 0 or body < 0:
                    raise ValueError("a negative place")
                blocks.append(Block(start, start + metadata + body))
            return blocks

        return vector(_DICTIONARIES), vector(_BATCHES)
    except (_struct.error, ValueError) as error:
        raise ValueError(f"the footer of an Arrow file is damaged: {error}") from None


def read_blocks(file: Readable) -> tuple[list[Block], list[Block]]:
    """Dictionaries and record batches of a file. Raises `ValueError` if it is no Arrow file."""
    tail = file.pread(max(0, file.size - TAIL), TAIL)
    if file.size < 18 or tail[-6:] != MAGIC:
        raise ValueError(f"it ends with {tail[-6:]!r} and not with {MAGIC!r}: no Arrow file, or a stream")
    (length,) = _struct.unpack("<i", tail[-10:-6])
    if not 0 <= length <= file.size - 18:
        raise ValueError(f"its footer has {length} bytes, and the file {file.size}")
    if length + 10 > len(tail):
        tail = file.pread(file.size - 10 - length, length + 10)
    return blocks_of(tail[-10 - length:-10])


def plan(file: Readable, batches: Iterable[int] | None = None) -> list[Block]:
    """Announces the dictionaries and these record batches, by default all; returns the blocks."""
    dictionaries, known = read_blocks(file)
    chosen = known if batches is None else []
    for number in batches or []:
        if not 0 <= number < len(known):
            raise ValueError(f"no record batch {number}: the file has {len(known)}")
        chosen.append(known[number])
    file.plan([*dictionaries, *chosen])
    return [*dictionaries, *chosen]
