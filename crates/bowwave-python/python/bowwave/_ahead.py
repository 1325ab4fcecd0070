"""Threads look up and fetch announced objects, ahead of their reader."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from time import monotonic

from . import _stores
from ._files import File, First, Source
from ._threads import Threads, run

#: Lookups in flight. Fewer: announced objects wait for each other; more: threads that wait for the store.
LOOKUPS = 32
#: Objects whose lookup is remembered.
OBJECTS = 4096
#: Objects that stay open after their last read, and seconds for which they do. Less: readers that come back wait for a
#: lookup; more: open files, and replaced objects that are noticed later.
KEPT, KEPT_SECONDS = 256, 1.0
#: Bytes of an object that are fetched when it is announced. The rest of a larger one is read ahead once it is read.
BYTES = 64 << 20


class Ahead:
    """Sources by key, opened ahead of their use. Any number of threads may use it.

    `most` bytes of an announced object are fetched, `first` of them with its open."""

    def __init__(self, source_of: Callable[[str], Source], most: int = BYTES, first: First | None = None) -> None:
        self._source_of, self._most, self._first = source_of, most, first
        self._begin()

    def _begin(self) -> None:
        self._generation = _stores.generation()
        self._lock = threading.Lock()
        self._opened: OrderedDict[str, Future[Source]] = OrderedDict()
        #: When these are looked up again, by key.
        self._kept: OrderedDict[str, float] = OrderedDict()
        self._threads: Threads | None = None

    def _locked(self) -> threading.Lock:
        """The lock of this process."""
        if self._generation != _stores.generation():
            self._begin()
        return self._lock

    def _found(self, key: str) -> Future[Source] | None:
        """The lookup of an object, unless it is to be looked up again. Call it under the lock."""
        if self._kept.get(key, math.inf) < monotonic():
            del self._opened[key], self._kept[key]
        return self._opened.get(key)

    def _remember(self, key: str, future: Future[Source]) -> None:
        self._opened[key] = future
        while len(self._opened) > OBJECTS:
            self._kept.pop(self._opened.popitem(last=False)[0], None)

    def _future(self, key: str, fetch: bool, first: First | None) -> Future[Source]:
        """The lookup of an object by a thread."""
        with self._locked():
            future = self._found(key)
            if future is None:
                if self._threads is None:
                    self._threads = Threads(LOOKUPS, "bowwave-ahead")
                future = self._threads.submit(self._open, key, fetch, first)
                self._remember(key, future)
            return future

    def _open(self, key: str, fetch: bool, first: First | None) -> Source:
        source = self._source_of(key)
        handle = source.handle(first)
        if fetch and handle.size:
            handle.advise("willneed", 0, min(handle.size, self._most))
        return source

    def announce(self, keys: Iterable[str]) -> None:
        """Looks up and fetches these objects, without waiting. A missing object is an error only when it is opened."""
        for key in keys:
            self._future(key, True, self._first)

    def then(self, key: str, first: First, call: Callable[[Source], None]) -> None:
        """Looks up an object of which `first` is read next, and passes it to `call` in a thread, without waiting."""
        self._future(key, False, first).add_done_callback(lambda future: self._continue(future, call))

    def _continue(self, future: Future[Source], call: Callable[[Source], None]) -> None:
        threads = self._threads
        if threads is not None and not future.cancelled() and future.exception() is None:
            threads.submit(call, future.result())

    def source(self, key: str, first: First | None = None) -> Source:
        """An object, announced or not, of which `first` is read next; the exception of its lookup otherwise."""
        with self._locked():
            future = self._found(key)
            announced = future is not None
            own = future is None or future.cancel()
            if future is None or own:
                # The caller looks it up itself: the threads may be busy with lookups of objects that are read later.
                future = Future()
                future.set_running_or_notify_cancel()
                self._remember(key, future)
        if own:
            run(future, self._open, key, announced, self._first if announced else first)
        try:
            return future.result()
        except BaseException:
            self.forget(key)
            raise

    async def source_async(self, key: str, first: First | None = None) -> Source:
        """As `source`, without blocking the event loop; the next use after an exception may raise it again."""
        future = self._future(key, False, first)
        # A reader that gives up must not cancel the lookup of others.
        return future.result() if future.done() else await asyncio.shield(asyncio.wrap_future(future))

    def open(self, key: str) -> File:
        """A file of an object."""
        return File(self.source(key, self._first))

    def forget(self, key: str) -> None:
        """The next use looks up the object again."""
        with self._locked():
            self._opened.pop(key, None)
            self._kept.pop(key, None)

    def keep(self, key: str) -> None:
        """Uses of the object within `KEPT_SECONDS` share this lookup; later ones look it up again."""
        with self._locked():
            if key not in self._opened:
                return
            self._kept.setdefault(key, monotonic() + KEPT_SECONDS)
            while len(self._kept) > KEPT:
                self._opened.pop(self._kept.popitem(last=False)[0], None)

    def __getstate__(self) -> tuple[Callable[[str], Source], int, First | None]:
        return self._source_of, self._most, self._first

    def __setstate__(self, state: tuple[Callable[[str], Source], int, First | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]


class Opener:
    """Opens URLs with the same options; pickles."""

    def __init__(self, options: dict[str, object], base: str = "") -> None:
        self.options, self.base = options, base

    def __call__(self, key: str) -> Source:
        from ._files import source_of

        return source_of(self.base + key, self.options)
