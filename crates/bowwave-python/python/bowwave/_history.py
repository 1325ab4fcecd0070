"""The last reads of a file: for pictures, and for `bowwave.replay`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

from . import _bowwave, _stores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._stores import Access

#: Reads, and announced ranges, that a file remembers.
READS = 1000
#: Files whose reads the picture of a file system can show. Their reads take about 1 MB, their
#: announcements up to 5 MB.
FILES = 32


class History:
    """The last reads and announcements of a file."""

    def __init__(self, url: str, access: Access | None, listed: bool = True) -> None:
        #: How the store is opened; `None` if another file system reads it.
        self.url, self.access = url, access
        self.size = 0
        #: The reads. `all` has of each begin and end in seconds of `time.monotonic`, offset and length in bytes, and
        #: outcome: `hit`, `late` or `miss`.
        self.reads = _bowwave.Reads(READS)
        #: Time, start and end of ranges that were announced by plans and prefetches.
        self.announced: deque[tuple[float, int, int]] = deque(maxlen=READS)
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
        self.reads.bind(handle)

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

    def note(self, begin: float, ranges: Sequence[tuple[int, int]], waited: bool = True) -> None:
        """Remembers reads of offsets and lengths that began together, end now, and may have `waited` for the store."""
        self.reads.note(self._handle, begin, ranges, waited)

    def announce(self, ranges: list[tuple[int, int]]) -> None:
        """Remembers ranges that are announced now."""
        now = monotonic()
        self.announced.extend((now, start, end) for start, end in ranges[-READS:] if start < end)


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
