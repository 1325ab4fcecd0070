"""Parquet: the column chunks of a read plan.

Readers of Python ask for one column chunk after another. The file's footer says where all of them are, so that they can be
in flight at once:

>>> import bowwave.parquet, pyarrow.parquet
>>> file = bowwave.open("s3://bucket/data.parquet")
>>> chunks = bowwave.parquet.plan(file, columns=["price", "size"])
>>> pyarrow.parquet.read_table(file, columns=["price", "size"]).num_rows
2

A file whose name ends in `.parquet` or `.parq` does so by itself: the columns of the first row group that is read are
planned for all later ones, together with those that were used beside them in other files with the same columns.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ._columns import Columns, Use, columns_of, size_of
from ._files import joined, taken
from ._thrift import Reader

#: Bytes at the end that are read first. Most footers are smaller.
TAIL = 64 << 10
#: Bytes that are in flight together. Chunks behind a plan of more wait for it, so a new column begins a new plan.
IN_FLIGHT = 64 << 20
#: Longest footer; of a larger one nothing is planned.
FOOTER_MAX = 256 << 20
MAGIC = b"PAR1"

# Field numbers of parquet.thrift: FileMetaData.row_groups, RowGroup.columns, ColumnChunk.meta_data, and of ColumnMetaData
# path_in_schema, total_compressed_size, data_page_offset, index_page_offset, dictionary_page_offset.
_WANTED = {4: {1: {3: {3: None, 7: None, 9: None, 10: None, 11: None}}}}


class Readable(Protocol):
    """What a plan needs of a file: `bowwave.File`, or a cache of fsspec."""

    size: int

    def pread(self, offset: int, length: int) -> bytes: ...
    def plan(self, ranges: Iterable[tuple[int, int]]) -> None: ...


class Chunk(NamedTuple):
    """A column chunk: bytes from `start` to `end`."""

    start: int
    end: int
    row_group: int
    column: str


def chunks_of(footer: bytes) -> list[Chunk]:
    """The column chunks of a footer, in the order of row groups.

    Raises `ValueError` if it is no footer."""
    chunks = []
    try:
        groups = Reader(footer).struct(_WANTED).get(4, [])
        for number, group in enumerate(groups):
            for column in group.get(1, []):
                meta = column.get(3)
                if meta is None:
                    continue
                start = min(at for at in (meta.get(9), meta.get(10), meta.get(11)) if at)
                name = b".".join(meta[3]).decode()
                if not 0 <= start <= start + meta[7] < 1 << 63:
                    raise ValueError(f"a chunk of {meta[7]} bytes at {start}")
                chunks.append(Chunk(start, start + meta[7], number, name))
    except (struct.error, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the footer of a parquet file is damaged: {error!r}") from None
    return chunks


def read_chunks(file: Readable) -> list[Chunk]:
    """The column chunks of a file. Raises `ValueError` if it is no parquet file, or an encrypted one."""
    if file.size < 12:
        raise ValueError(f"{file.size} bytes are too few for a parquet file")
    tail = file.pread(max(0, file.size - TAIL), TAIL)
    if tail[-4:] != MAGIC:
        raise ValueError(f"it ends with {tail[-4:]!r} and not with {MAGIC!r}: no parquet file, or an encrypted one")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > min(file.size - 12, FOOTER_MAX):
        raise ValueError(f"its footer has {length} bytes, and the file only {file.size}")
    if length + 8 > len(tail):
        tail = file.pread(file.size - 8 - length, length + 8)
    return chunks_of(tail[-8 - length:-8])


def plan(file: Readable, columns: Sequence[str] | None = None, row_groups: Iterable[int] | None = None) -> list[Chunk]:
    """Announces the column chunks of these columns and row groups, by default of all; returns them.

    A nested column has all its leaves. Raises `ValueError` for a column that the file does not have.
    """
    chunks = read_chunks(file)
    groups = None if row_groups is None else set(row_groups)
    if columns is not None:
        names = {chunk.column for chunk in chunks}
        for column in columns:
            if not any(_is_in(name, column) for name in names):
                known = ", ".join(sorted(names)[:20])
                raise ValueError(f"no column {column!r}; the file has {known or 'none'}")
    chosen = [chunk for chunk in chunks if (groups is None or chunk.row_group in groups)
              and (columns is None or any(_is_in(chunk.column, column) for column in columns))]
    file.plan([(chunk.start, chunk.end) for chunk in chosen])
    return chosen


def _is_in(name: str, column: str) -> bool:
    return name == column or name.startswith(column + ".")


class Contents:
    """The chunks of a file that was opened before its reader, and those that were fetched."""

    def __init__(self, chunks: list[Chunk], most: int) -> None:
        self.chunks = chunks
        wanted = columns_of(chunks).next() if chunks else set()
        fetched = [chunk for chunk in chunks if chunk.column in wanted]
        self.fetched = fetched if size_of(fetched) <= min(most, IN_FLIGHT) else []

    def dropped(self) -> None:
        """No program has opened the file."""
        if self.fetched:
            columns_of(self.chunks).closed(None, set(self.fetched))


def fetch(source: Any, most: int) -> int:
    """Fetches the chunks that a reader of a source will probably use, at most `most` bytes; returns how many."""
    handle = source.handle()
    try:
        end = handle.pread(max(0, handle.size - 8), 8)
        if int.from_bytes(end[:4], "little") > TAIL - 8:
            # Parsing it here would take the program's time before it needs the file.
            return 0
        source.contents = contents = Contents(sorted(read_chunks(handle)), most)
    except (OSError, ValueError):
        # The reader's own reads raise it.
        return 0
    for start, end in joined((chunk.start, chunk.end) for chunk in contents.fetched):
        handle.advise("willneed", start, end - start)
    return size_of(contents.fetched)


class Watcher:
    """Plans the columns that a reader uses in its first row group for all later ones."""

    #: Not beside a plan of the program's own.
    plans = True
    #: The footer.
    FIRST = (-TAIL, None)

    def __init__(self) -> None:
        self.chunks: list[Chunk] | None = None
        self.starts: list[int] = []
        #: What was read, and the first row group of it.
        self.use: Use | None = None
        self.group = 0
        #: The uses of other files with the same columns.
        self.others: Columns | None = None
        #: Chunks that were fetched before the file was opened.
        self.fetched: set[Chunk] = set()
        #: Chunks that were planned, and of these the ones that were not read yet.
        self.planned: set[Chunk] = set()
        self.unread: set[Chunk] = set()

    def opened(self, file: Readable) -> None:
        contents = taken(file)
        if isinstance(contents, Contents):
            self._begin(contents.chunks)
            self.fetched = set(contents.fetched)
        # The reader asks for it next.
        file.plan([(max(0, file.size - TAIL), file.size)])

    def closed(self) -> None:
        if self.others is not None:
            self.others.closed(self.use, self.fetched)

    def before(self, file: Readable, offset: int, length: int) -> None:
        if self.chunks is None:
            if offset + length < file.size and offset + TAIL < file.size:
                self._load(file)
            if not self.chunks:
                return
        end = offset + length
        if end >= file.size:
            # The footer, and perhaps the end of the last chunk.
            return
        first = max(0, bisect_right(self.starts, offset) - 1)
        used = []
        for at in range(first, len(self.chunks)):
            chunk = self.chunks[at]
            if chunk.start >= end:
                break
            if chunk.end > offset:
                used.append(chunk)
        self.unread.difference_update(used)
        if not used or self.others is None:
            return
        # Readers begin row groups in any order, and several at a time.
        group = min(chunk.row_group for chunk in used)
        if self.use is None:
            self.use, self.group = Use(self.chunks), group
        self.group = min(self.group, group)
        self.use.add(used)
        if self.planned.issuperset(used):
            return
        columns = self.use.columns | self.others.beside(self.use.columns)
        later = {chunk for chunk in self.chunks if chunk.column in columns and chunk.row_group >= self.group}
        new = (later - self.planned).union(used)
        if sum(chunk.end - chunk.start for chunk in self.unread) > IN_FLIGHT:
            # What is planned already would be read first.
            new |= self.unread
            file.end_plan()  # type: ignore[attr-defined]
        self.planned |= new
        self.unread |= new
        self.unread.difference_update(used)
        file.plan([(chunk.start, chunk.end) for chunk in sorted(new, key=lambda chunk: (chunk.row_group, chunk.start))])

    def _load(self, file: Readable) -> None:
        try:
            self._begin(sorted(read_chunks(file)))
        except (OSError, ValueError):
            self._begin([])

    def _begin(self, chunks: list[Chunk]) -> None:
        self.chunks, self.starts = chunks, [chunk.start for chunk in chunks]
        self.others = columns_of(chunks) if chunks else None
