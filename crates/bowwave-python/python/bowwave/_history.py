"""The last reads of a file: for pictures, and for `bowwave.replay`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from . import _stores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from . import _bowwave
    from ._stores import Access

#: Reads, and announced ranges, that a file remembers.
READS = 1000
#: Files whose reads the picture of a file system can show. With all their reads they take about 10 MB.
FILES = 32
#: Seconds after which a read may have waited for the store. Smaller: more reads pay about 1 µs to check the counters;
#: larger: a miss of a fast store counts as a hit.
SLOW_S = 20e-6
#: Samples of the counters. If more reads than this are concurrent, some hits count as misses.
SAMPLES = 256

HIT, LATE, MISS = "hit", "late", "miss"


class History:
    """The last reads and announcements of a file."""

    def __init__(self, url: str, access: Access | None, listed: bool = True) -> None:
        #: How the store is opened; `None` if another file system reads it.
        self.url, self.access = url, access
        self.size = 0
        #: Begin and end in seconds of `time.monotonic`, offset and length in bytes, and outcome.
        self.reads: deque[tuple[float, float, int, int, str]] = deque(maxlen=READS)
        #: Time, start and end of ranges that were announced by plans and prefetches.
        self.announced: deque[tuple[float, int, int]] = deque(maxlen=READS)
        #: Time, late pages and misses.
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES)
        self._handle: _bowwave.Handle | None = None
        #: Reads in progress through `using`, and the process that made them.
        self._uses, self._generation = 0, _stores.generation()
        #: Whether it is of objects that are read without a file.
        self.is_shared = False
        if listed:
            recent.append(self)

    def bind(self, handle: _bowwave.Handle) -> None:
        """Reads go through this handle from now on."""
        self._handle, self.size = handle, handle.size
        # A new one at once: other threads may be reading.
        self._samples = deque([_sampled(handle)], maxlen=SAMPLES)

    def unbind(self) -> None:
        """Releases the handle: the history may be in use for longer than the file."""
        self._handle = None

    @contextmanager
    def using(self, handle: _bowwave.Handle) -> Iterator[None]:
        """Reads go through this handle in the context."""
        if self._generation != (now := _stores.generation()):
            # A child: the reads of its parent never end here.
            self._uses, self._generation = 0, now
        if self._uses == 0:
            self.bind(handle)
        self._uses += 1
        try:
            yield
        finally:
            if self._generation == now:
                self._uses -= 1
                if self._uses == 0:
                    self.unbind()

    def note(self, begin: float, offset: int, length: int, waited: bool = True) -> None:
        """Remembers a read that ends now, and may have `waited` for the store."""
        self.note_all(begin, ((offset, length),), waited)

    def note_all(self, begin: float, ranges: Iterable[tuple[int, int]], waited: bool = True) -> None:
        """Remembers reads of offsets and lengths that began and end together."""
        end = monotonic()
        outcome = self.outcome(begin) if waited and end - begin >= SLOW_S else HIT
        self.reads.extend((begin, end, offset, length, outcome) for offset, length in ranges)

    def outcome(self, begin: float) -> str:
        """The outcome of a slow read that ends now, by the counters of the file since it began. Reads at the same time
        have the worst of their outcomes."""
        handle, samples = self._handle, tuple(self._samples)
        if handle is None:
            # The file was closed during the read.
            return HIT
        now = _sampled(handle)
        before = next((sample for sample in reversed(samples) if sample[0] <= begin), samples[0])
        self._samples.append(now)
        _, late, misses = now
        return MISS if misses > before[2] else LATE if late > before[1] else HIT

    def announce(self, ranges: list[tuple[int, int]]) -> None:
        """Remembers ranges that are announced now."""
        now = monotonic()
        self.announced.extend((now, start, end) for start, end in ranges[-READS:] if start < end)


def _sampled(handle: _bowwave.Handle) -> tuple[float, int, int]:
    stats = handle.stats()
    return monotonic(), stats["late"], stats["misses"]


#: Histories of the files that were opened last.
recent: deque[History] = deque(maxlen=FILES)


def shared(url: str, access: Access | None) -> History:
    """The history of reads of an object without a file, such as those of `cat_file`."""
    for history in tuple(recent):
        if history.is_shared and history.url == url and history.access == access:
            return history
    history = History(url, access)
    history.is_shared = True
    return history
