"""Files of a listed directory that a program will probably open next, opened and fetched ahead of it.

The core decides which files, and how much of each (`_bowwave.Siblings`); threads open them. The
version of a file is looked up when it is opened ahead, so it is used for a limited time only. The
number of files ahead is at most the number that the program opens in half that time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic
from typing import Any

from . import _bowwave, _stores
from ._files import START, WHOLE, Source
from ._formats import fetch_of, first_of
from ._threads import Threads

#: Maximum opens in flight. Fewer: programs that read fast wait. More: more threads wait for the
#: store.
OPENS = 32
#: Maximum directories whose opens are remembered, and maximum files of one: the core has a copy of
#: their names.
DIRECTORIES, NAMES = 64, 200_000
#: A directory of fewer files, such as a partition of a table, counts as part of the directory above
#: it.
FEW = 64
#: Maximum levels from a file up to the directory whose listing is used.
LEVELS = 4
#: Maximum open files whose directory is remembered, and maximum directories for which the time in
#: `RELIST_S` is remembered.
NOTED = 4096
#: Minimum seconds between two checks for a listing of a directory.
RELIST_S = 1.0
#: Assumed seconds between two opens before any was measured. A pause longer than `PAUSE_S` counts as
#: `PAUSE_S`: one pause must not make a program count as slow.
INTERVAL_S, PAUSE_S = 0.02, 1.0
#: Maximum estimate of the opens that a program makes until a version counts as old.
SOON = 1_000_000
#: Seconds after which the next open closes a file that no program has opened.
UNUSED_S = 30.0


class _Ahead:
    """A file that is opened ahead."""

    def __init__(self, size: int) -> None:
        self.size = size
        #: When its version was looked up; `None` until a thread has begun.
        self.begun: float | None = None
        self.future: Future[Source]


class Siblings:
    """Sources by path, opened ahead of a program.

    `source_of` returns the source of a path. `files_of` returns the names and sizes of the files
    in a directory, or of all files below it, without a request. It returns `None` if they are not
    known, or more than `NAMES`. `is_known` returns whether the program can open a path without a
    lookup. A source is used for `fresh` seconds."""

    def __init__(self, source_of: Callable[[str], Source], files_of: Callable[[str, bool], list[tuple[str, int]] | None],
                 is_known: Callable[[str], bool], fresh: float) -> None:
        self._source_of, self._files_of, self._is_known, self._fresh = source_of, files_of, is_known, fresh
        self._beginning = _stores.ForkLock()
        self._begin()

    def _begin(self) -> None:
        # Reentrant: the garbage collector may close a file in any of the calls below.
        self._lock = threading.RLock()
        self._opens = _bowwave.Siblings()
        self._ahead: OrderedDict[str, _Ahead] = OrderedDict()
        self._bytes = 0
        #: Files that the program is opening.
        self._opening: set[str] = set()
        #: By directory, the first file that was opened in it or below it, until a second one is.
        self._first: OrderedDict[str, tuple[str, int]] = OrderedDict()
        #: By path, the directory that lists an open file.
        self._directory_of: OrderedDict[str, str] = OrderedDict()
        #: Directories that the core knows, in the order of their last opens.
        self._listed: OrderedDict[str, None] = OrderedDict()
        #: By directory, the time of the last check for a listing.
        self._looked: OrderedDict[str, float] = OrderedDict()
        self._last, self._last_path, self._interval = monotonic(), "", INTERVAL_S
        #: Threads that open files ahead. They end with the file system.
        self._threads: Threads | None = None
        # Set last: other threads use the fields above only when it is current.
        self._generation = _stores.generation()

    def _locked(self) -> threading.RLock:
        """The lock. In a forked child, the first call creates a new lock and empty tables."""
        if self._generation != _stores.generation():
            with self._beginning:
                if self._generation != _stores.generation():
                    self._begin()
        return self._lock

    @contextmanager
    def opening(self, path: str) -> Iterator[None]:
        """While the context lasts, the program opens a file, which is then not opened ahead."""
        with self._locked():
            opening = self._opening
        opening.add(path)
        try:
            yield
        finally:
            opening.discard(path)

    def take(self, path: str) -> tuple[float, Source] | None:
        """A file that was opened ahead, and when its version was looked up. Waits if it is being opened."""
        with self._locked():
            ahead = self._remove(path)
            if ahead is None:
                return None
            are_busy = sum(not other.future.done() for other in self._ahead.values()) >= OPENS
        if are_busy and ahead.future.cancel():
            # No thread has begun, and none is free: the caller is faster.
            return None
        try:
            source = ahead.future.result()
        except Exception:
            # The caller's own lookup raises it.
            return None
        if ahead.begun is None or monotonic() - ahead.begun > self._fresh:
            return None
        return ahead.begun, source

    def opened(self, path: str, source: Source) -> None:
        """Records that a program has opened a file, and opens others ahead."""
        store = source.store()
        if self._fresh <= 0 or not store.reads_siblings:
            return
        now, size = monotonic(), source.handle().size
        with self._locked():
            if path != self._last_path:
                self._interval += (min(now - self._last, PAUSE_S) - self._interval) / 8
                self._last, self._last_path = now, path
            self._remove(path)
            self._expire(now)
            soon = min(SOON, int(self._fresh / max(self._interval, 1e-6)))
            room = soon, len(self._ahead), max(0, store.cache_bytes // 2 - self._bytes)
            plan = self._plan(path, size, room)
            if plan is None and self._list(path, size, now):
                plan = self._plan(path, size, room)
            for planned in plan or ():
                self._open_ahead(*planned)

    def _plan(self, path: str, size: int, room: tuple[int, int, int]) -> list[tuple[str, str, int, int, int]] | None:
        """Files to open ahead: directory, name, size, and bytes to read at its beginning and end.

        `None` if no listing has the path."""
        for directory in _above(path):
            if directory in self._listed:
                plan = self._opens.opened(directory, path[len(directory) + 1:], size, room, _ends_of(path))
                if plan is not None:
                    self._listed.move_to_end(directory)
                    self._directory_of[path] = directory
                    _bound(self._directory_of, NOTED)
                    return [(directory, *planned) for planned in plan]
        return None

    def _list(self, path: str, size: int, now: float) -> bool:
        """Tells the core a directory's files at the second open in it. Returns whether it did."""
        above = _above(path)
        first = next((found for directory in above[:2] if (found := self._first.get(directory))), None)
        known = any(directory in self._listed for directory in above)
        if not known and (first is None or first[0] == path):
            for directory in above[:2]:
                self._first[directory] = path, size
            _bound(self._first, DIRECTORIES)
            return False
        best: tuple[str, list[tuple[str, int]]] | None = None
        for directory in above:
            if now - self._looked.get(directory, -RELIST_S) < RELIST_S:
                break
            self._looked[directory] = now
            self._looked.move_to_end(directory)
            _bound(self._looked, NOTED)
            files = self._files_of(directory, directory != above[0])
            if files is None:
                break
            best = directory, files
            if len(files) >= FEW:
                break
        if best is None:
            return False
        directory, files = best
        name = path[len(directory) + 1:]
        if all(name != other for other, _ in files):
            # The listing lacks this file. Telling the core would only end the directory's runs.
            return False
        self._listed[directory] = None
        for old in _bound(self._listed, DIRECTORIES):
            self._opens.forget(old)
        self._opens.listed(directory, files)
        if first is not None and first[0].startswith(directory + "/"):
            self._plan(*first, (0, 0, 0))
        for directory in above[:2]:
            self._first.pop(directory, None)
        return True

    def _open_ahead(self, directory: str, name: str, size: int, head: int, tail: int) -> None:
        path = f"{directory}/{name}"
        if path in self._ahead or path in self._opening or head + tail == 0:
            return
        if self._is_known(path):
            self._opens.resident(directory, name)
            return
        if self._threads is None:
            self._threads = Threads(OPENS, "bowwave-siblings")
        ahead = _Ahead(head + tail)
        ahead.future = self._threads.submit(self._open, ahead, path, size, head, tail)
        self._ahead[path] = ahead
        self._bytes += ahead.size

    def _open(self, ahead: _Ahead, path: str, size: int, head: int, tail: int) -> Source:
        ahead.begun = monotonic()
        source = self._source_of(path)
        handle = source.handle(WHOLE if head >= size else (0, head) if head else (-tail, None))
        for offset, length in ((0, min(head, handle.size)), (max(0, handle.size - tail), tail)):
            # A length of 0 would mean to the end of the file.
            if length and handle.size:
                handle.advise("willneed", offset, length)
        if head < handle.size and (fetch := fetch_of(path)) is not None:
            # Not under the lock: the garbage collector takes it in a thread that holds the lock of the stores.
            room = source.store().cache_bytes // 2
            with self._locked():
                # Other threads get a part of the rest.
                most = max(0, room - self._bytes) // 2
                self._bytes += most
            fetched = 0
            try:
                fetched = fetch(source, most)
            finally:
                with self._locked():
                    is_ahead = self._ahead.get(path) is ahead
                    ahead.size += fetched if is_ahead else 0
                    self._bytes += (fetched if is_ahead else 0) - most
        return source

    def _expire(self, now: float) -> None:
        """Closes files that no program has opened in time."""
        while self._ahead:
            path, ahead = next(iter(self._ahead.items()))
            if ahead.begun is None or now - ahead.begun <= UNUSED_S:
                break
            self._drop(path)

    def _remove(self, path: str) -> _Ahead | None:
        ahead = self._ahead.pop(path, None)
        if ahead is not None:
            self._bytes -= ahead.size
        return ahead

    def _drop(self, path: str) -> None:
        """Closes a file that no program has opened."""
        ahead = self._remove(path)
        if ahead is not None and not ahead.future.cancel() and ahead.future.done() and ahead.future.exception() is None:
            dropped = getattr(ahead.future.result().contents, "dropped", None)
            if dropped is not None:
                dropped()
        for directory in _above(path):
            if directory in self._listed:
                self._opens.dropped(directory, path[len(directory) + 1:])

    def closed(self, path: str, reads: Iterable[tuple[int, int]]) -> None:
        """A program closes a file of which it has read these offsets and lengths."""
        with self._locked():
            directory = self._directory_of.pop(path, None)
        if directory is not None:
            self._opens.closed(directory, path[len(directory) + 1:], list(reads))

    def forget(self, path: str | None = None) -> None:
        """The program has changed a file or all below a directory; `None` is everything."""
        with self._locked():
            for other in list(self._ahead):
                if path is None or other == path or other.startswith(path + "/"):
                    self._drop(other)
            if path is None:
                for directory in self._listed:
                    self._opens.forget(directory)
                for table in (self._listed, self._looked, self._first):
                    table.clear()


def _above(path: str) -> list[str]:
    """The directories above a file, the nearest first."""
    above: list[str] = []
    while len(above) < LEVELS and (path := path.rpartition("/")[0]):
        above.append(path)
    return above


def _ends_of(path: str) -> tuple[int, int]:
    """How many bytes a reader of the file's format reads first, at its beginning and at its end; 0 if that is not known."""
    start, end = first_of(path) or START
    if (start, end) == START or end is None and start >= 0:
        return 0, 0
    return (0, -start) if end is None else (end, 0)


def _bound(table: OrderedDict[str, Any], most: int) -> list[str]:
    """Removes the oldest keys of a table until it has at most this many; returns them."""
    return [table.popitem(last=False)[0] for _ in range(len(table) - most)]
