"""Files that are read alike: at the same offsets as one before, such as the files of a model run.

A read of a file that another file had, too, predicts the reads that followed it there. If the other file is the one that
was opened before or after this one, it also predicts the same reads of the next files in that order. Pages that are
fetched and not used are bounded by those that were read alike.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, NamedTuple
from weakref import ref

from . import _stores

#: The unit in which bytes are counted.
PAGE = 4 << 10
#: Files that are remembered, reads and pages of each, and pages of all. Fewer: files that are read in turns are forgotten.
FILES, READS, PAGES, PAGES_OF_ALL = 1024, 4096, 1 << 16, 1 << 18
#: Files after this one whose reads are predicted. Fewer: their first reads wait.
NEXT = 4
#: Files with the same read, of which the one with the most reads after it is used.
AMONG = 4
#: Reads that are fetched after the first one of a row; twice as many after each further one. More: more waste.
FURTHER = 4
#: Pages that may be fetched before any was read alike, and most that are fetched and not used. Larger: more waste.
FIRST, MOST = (512 << 10) // PAGE, (16 << 20) // PAGE
#: Files of other sizes may have the same beginning by their format alone.
BEGINNING = 64 << 10

#: Offset and length of a read.
Range = tuple[int, int]


def pages_of(read: Range) -> range:
    """The pages of a read."""
    return range(read[0] // PAGE, -(-(read[0] + read[1]) // PAGE))


class Trail:
    """The reads of a file of `size` bytes, each once, in the order of the first ones."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads: list[Range] = []
        self.at: dict[Range, int] = {}
        #: Reads that another file had, too.
        self.alike = 0
        #: Pages that were read, and those that were fetched and not read yet.
        self.read: set[int] = set()
        self.unread: set[int] = set()
        #: Pages of all its reads.
        self.pages = 0
        #: `like` is the file whose reads predict, `last` the index of its last read that this file also had, `upto` the
        #: index before which its reads were fetched, and `run` the number of reads in the same order.
        self.like: Trail | None = None
        self.last = self.upto = -1
        self.run = 0
        #: Its place in the order of the program's opens, the process that has opened it, and the open file.
        self.number, self.generation = -1, -1
        self.file: ref[Any] | None = None


class Fetch(NamedTuple):
    """Ranges to fetch of a file."""

    trail: Trail
    ranges: list[Range]


class Trails:
    """The reads of the last files. Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = _stores.ForkLock()
        self._opens = self._pages = 0
        #: By number, in the order of their last reads.
        self._recent: OrderedDict[int, Trail] = OrderedDict()
        #: By read, the last files that had it.
        self._having: dict[Range, deque[Trail]] = {}
        #: Pages of open files that were fetched and not used yet, and how many more may be.
        self._out, self._left = 0, FIRST

    def opened(self, trail: Trail, file: Any) -> None:
        """A program opens a file."""
        with self._lock:
            trail.number, trail.file, trail.generation = self._opens, ref(file), _stores.generation()
            self._opens += 1
            self._out += len(trail.unread)
            self._remember(trail)

    def ahead(self, trail: Trail, most: int) -> list[Range]:
        """What to fetch of a file that a program will probably open: at most this many bytes."""
        with self._lock:
            like = next((other for other in reversed(self._recent.values())
                         if other.size == trail.size and other.alike * 2 > len(other.reads)), None)
            out, left = self._out, self._left
            self._left = min(left, most // PAGE)
            found = [] if like is None else self._extend(trail, like, 0, len(like.reads))
            # They use up the budget now. They count as pages of an open file only once the file is opened.
            self._out, self._left = out, left - len(trail.unread)
            return found

    def read(self, trail: Trail, offset: int, length: int) -> list[Fetch]:
        """A program reads a file; returns what to fetch."""
        here = offset, length
        if here in trail.at or len(trail.reads) >= READS or trail.pages >= PAGES or length > MOST * PAGE:
            return []
        with self._lock:
            trail.at[here] = len(trail.reads)
            trail.reads.append(here)
            pages = pages_of(here)
            trail.pages += len(pages)
            self._pages += len(pages)
            self._remember(trail)
            used = trail.unread.intersection(pages)
            trail.unread -= used
            self._out -= len(used)
            # Used pages return their cost. Pages that are read alike add as many.
            earned = len(used)
            having = self._having.setdefault(here, deque(maxlen=AMONG))
            # The last one first: of equal ones, it is used.
            others = [other for other in reversed(having) if other.size == trail.size or offset >= BEGINNING]
            having.append(trail)
            # A file that is read at the same time has few reads after this one.
            other = max(others, key=lambda other: len(other.reads) - other.at[here], default=None)
            if other is not None:
                earned += len(pages) - len(trail.read.intersection(pages))
            trail.read.update(pages)
            self._left = min(self._left + earned, MOST)
            if other is None:
                return []
            trail.alike += 1
            at = other.at[here]
            if trail.like is not other:
                # The file that predicts changes: half of the count stays.
                trail.run = max(1, trail.run // 2)
            elif any(read not in trail.at for read in other.reads[trail.last + 1:at]):
                trail.run //= 2
            else:
                trail.run += 1
            most = at + 1 + (FURTHER << min(trail.run - 1, 8) if trail.run else 0)
            found = [Fetch(trail, self._extend(trail, other, at + 1, most))]
            trail.last = max(trail.last, at)
            # Schedulers of tasks also go backwards.
            step = trail.number - other.number
            if abs(step) == 1:
                for distance in range(1, NEXT + 1):
                    after = self._recent.get(trail.number + step * distance)
                    # In a child of fork, files of the parent are opened again when they are read.
                    if (after is not None and after.size == trail.size and after.file is not None
                            and after.generation == _stores.generation()):
                        found.append(Fetch(after, self._extend(after, other, at, most)))
            return [fetch for fetch in found if fetch.ranges]

    def closed(self, trail: Trail) -> None:
        """A program closes a file."""
        with self._lock:
            self._end(trail)
            trail.file = None

    def _remember(self, trail: Trail) -> None:
        self._recent[trail.number] = trail
        self._recent.move_to_end(trail.number)
        while len(self._recent) > 1 and (len(self._recent) > FILES or self._pages > PAGES_OF_ALL):
            _, gone = self._recent.popitem(last=False)
            self._end(gone)
            self._pages -= gone.pages
            for read in gone.reads:
                # None if later files had the read, and were forgotten before.
                having = self._having.get(read)
                if having is not None and gone in having:
                    having.remove(gone)
                    if not having:
                        del self._having[read]
            # If it is open, its reads begin anew.
            gone.reads, gone.at, gone.read, gone.pages = [], {}, set(), 0

    def _extend(self, trail: Trail, like: Trail, start: int, end: int) -> list[Range]:
        """The reads of another file, from one to another, that a file has not had, as far as the budget allows."""
        if trail.like is not like:
            trail.like, trail.last, trail.upto = like, start - 1, start
        trail.upto = max(trail.upto, start)
        found = []
        while trail.upto < min(end, len(like.reads)):
            read = like.reads[trail.upto]
            new = {page for page in pages_of(read) if page not in trail.read and page not in trail.unread}
            if new and read[0] + read[1] <= trail.size:
                if len(new) > min(self._left, MOST - self._out):
                    break
                self._left, self._out = self._left - len(new), self._out + len(new)
                trail.unread |= new
                found.append(read)
            trail.upto += 1
        return found

    def _end(self, trail: Trail) -> None:
        self._out -= len(trail.unread)
        trail.unread, trail.like = set(), None
