"""The columns that readers use of files with the same columns, such as those of a data set."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ._stores import ForkLock

if TYPE_CHECKING:
    from .parquet import Chunk

#: Files of which it is remembered how much was used of what was fetched.
FILES = 8
#: Sets of columns that are remembered.
SETS = 64


def size_of(chunks: Iterable[Chunk]) -> int:
    """Bytes of chunks."""
    return sum(chunk.end - chunk.start for chunk in chunks)


class Use:
    """What a reader has used of a file."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self._chunks = chunks
        self.columns: set[str] = set()
        self.chunks: set[Chunk] = set()

    def add(self, used: list[Chunk]) -> None:
        """The reader uses these chunks."""
        self.chunks.update(used)
        self.columns.update(chunk.column for chunk in used)

    def is_whole(self) -> bool:
        """Whether at least half of the bytes of its columns were used.

        If not, the reader probably chose row groups by their statistics."""
        return size_of(self.chunks) * 2 >= size_of(chunk for chunk in self._chunks if chunk.column in self.columns)


class Columns:
    """The uses of files with the same columns. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        #: Of the last files that were closed. Two: a column that only one of them used is not expected of the next one.
        self._uses: deque[Use] = deque(maxlen=2)
        #: Of files whose chunks were fetched before they were opened: bytes used of these, and fetched.
        self._fetched: deque[tuple[int, int]] = deque(maxlen=FILES)

    def closed(self, use: Use | None, fetched: set[Chunk]) -> None:
        """A file was closed, or opened ahead and never used.

        `fetched` are the chunks fetched before its open. `use` is `None` if nothing was read."""
        with self._lock:
            if use is not None:
                self._uses.append(use)
            if fetched:
                self._fetched.append((size_of(fetched & use.chunks) if use is not None else 0, size_of(fetched)))
            elif use is not None and self._fetched:
                # While nothing is fetched, old waste is forgotten.
                self._fetched.popleft()

    def beside(self, columns: set[str]) -> set[str]:
        """Columns that readers have used together with these."""
        with self._lock:
            uses = list(self._uses)
        found = [use.columns for use in uses if columns <= use.columns]
        return set.intersection(*found) if found else set()

    def next(self) -> set[str]:
        """Columns that will probably be used of the next file; none if too little was used of those fetched before."""
        with self._lock:
            uses, fetched = list(self._uses), list(self._fetched)
        is_waste = sum(used * 2 - size for used, size in fetched) < 0
        if not uses or is_waste or not all(use.is_whole() for use in uses):
            return set()
        return set.intersection(*(use.columns for use in uses))


_lock = ForkLock()
_known: OrderedDict[int, Columns] = OrderedDict()


def columns_of(chunks: list[Chunk]) -> Columns:
    """The uses of files with these columns."""
    key = hash(frozenset(chunk.column for chunk in chunks))
    with _lock:
        found = _known.setdefault(key, Columns())
        _known.move_to_end(key)
        while len(_known) > SETS:
            _known.popitem(last=False)
        return found
