"""Files that are read alike: at the same offsets as one before, such as the files of a model run.

A read of a file that another file had, too, predicts the reads that followed it there. If the other file is the one that
was opened before or after this one, it also predicts the same reads of the next files in that order. Bytes that are fetched
and not used are bounded by those that were read alike.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Any, NamedTuple
from weakref import ref

from ._stores import ForkLock

#: Files whose reads are remembered, and reads of each. Fewer: files that are read in turns are forgotten.
FILES, READS = 256, 4096
#: Files after this one whose reads are predicted. Fewer: their first reads wait.
NEXT = 4
#: Files with the same read, of which the one with the most reads after it is used.
AMONG = 4
#: Reads that are fetched after the first one of a row; twice as many after each further one. More: more waste.
FURTHER = 2
#: Bytes that may be fetched before any was used, and most that are fetched and not used. Larger: more waste.
FIRST, MOST = 512 << 10, 16 << 20
#: Files of other sizes may have the same beginning by their format alone.
BEGINNING = 64 << 10

#: Offset and length of a read.
Range = tuple[int, int]


class Trail:
    """The reads of a file of `size` bytes, each once, in the order of the first ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads: list[Range] = []
        self.at: dict[Range, int] = {}
        #: Reads that another file had, too.
        self.alike = 0
        #: What was fetched and not read yet.
        self.fetched: set[Range] = set()
        #: The file whose reads are fetched; the place of the last one that this file had, too, and up to which they were
        #: fetched; and how many came in the same order.
        self.like: Trail | None = None
        self.last = self.upto = -1
        self.run = 0
        #: Its place in the order of the program's opens, and the open file.
        self.number = -1
        self.file: ref[Any] | None = None


class Fetch(NamedTuple):
    """Ranges to fetch of a file."""

    trail: Trail
    ranges: list[Range]


class Trails:
    """The reads of the last files. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._opens = 0
        #: By number, in the order of their last reads.
        self._recent: OrderedDict[int, Trail] = OrderedDict()
        #: Bytes that were fetched and not used yet, and how many more may be.
        self._out, self._left = 0, FIRST

    def opened(self, trail: Trail, file: Any) -> None:
        """A program opens a file."""
        with self._lock:
            trail.number, trail.file = self._opens, ref(file)
            self._opens += 1
            self._recent[trail.number] = trail
            if len(self._recent) > FILES:
                self._end(self._recent.popitem(last=False)[1])

    def ahead(self, trail: Trail) -> list[Range]:
        """What to fetch of a file that a program will probably open."""
        with self._lock:
            like = next((other for other in reversed(self._recent.values())
                         if other.size == trail.size and other.alike * 2 > len(other.reads)), None)
            return [] if like is None else self._extend(trail, like, 0, len(like.reads))

    def read(self, trail: Trail, offset: int, length: int) -> list[Fetch]:
        """A program reads a file; returns what to fetch."""
        here = offset, length
        if here in trail.at or len(trail.reads) >= READS:
            return []
        with self._lock:
            trail.at[here] = len(trail.reads)
            trail.reads.append(here)
            if trail.number in self._recent:
                self._recent.move_to_end(trail.number)
            earned = 0
            if here in trail.fetched:
                trail.fetched.discard(here)
                self._out -= length
                earned = length
            others = (other for other in reversed(self._recent.values()) if other is not trail and here in other.at
                      and (other.size == trail.size or offset >= BEGINNING))
            # Files that are read at the same time show less.
            other = max(islice(others, AMONG), key=lambda other: len(other.reads) - other.at[here], default=None)
            earned += length if other is not None else 0
            self._left = min(self._left + earned, MOST)
            if other is None:
                return []
            trail.alike += 1
            at = other.at[here]
            if trail.like is not other:
                # As it goes on from one file of a row to the next.
                trail.run = max(1, trail.run // 2)
            elif any(read not in trail.at for read in islice(other.reads, trail.last + 1, at)):
                trail.run //= 2
            else:
                trail.run += 1
            most = at + 1 + (FURTHER << min(trail.run, 8) if trail.run else 0)
            found = [Fetch(trail, self._extend(trail, other, at + 1, most))]
            trail.last = max(trail.last, at)
            # Schedulers of tasks also go backwards.
            step = trail.number - other.number
            if abs(step) == 1:
                for distance in range(1, NEXT + 1):
                    after = self._recent.get(trail.number + step * distance)
                    if after is not None and after.size == trail.size:
                        found.append(Fetch(after, self._extend(after, other, at, most)))
            return [fetch for fetch in found if fetch.ranges]

    def closed(self, trail: Trail) -> None:
        """A program closes a file."""
        with self._lock:
            self._end(trail)

    def _extend(self, trail: Trail, like: Trail, start: int, end: int) -> list[Range]:
        """The reads of another file, from one to another, that a file has not had, as far as the budget allows."""
        if trail.like is not like:
            trail.like, trail.last, trail.upto = like, start - 1, start
        trail.upto = max(trail.upto, start)
        found = []
        while trail.upto < min(end, len(like.reads)):
            read = like.reads[trail.upto]
            if read not in trail.at and read not in trail.fetched and read[0] + read[1] <= trail.size:
                if read[1] > min(self._left, MOST - self._out):
                    break
                self._left, self._out = self._left - read[1], self._out + read[1]
                trail.fetched.add(read)
                found.append(read)
            trail.upto += 1
        return found

    def _end(self, trail: Trail) -> None:
        self._out -= sum(length for _, length in trail.fetched)
        trail.fetched.clear()
        trail.like = trail.file = None
