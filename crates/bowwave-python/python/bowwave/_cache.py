"""`cache_type="bowwave"` for every fsspec file system.

bowwave's engine decides which bytes to fetch. The file system's own fetcher fetches them, several requests at a time.
"""

from __future__ import annotations

import atexit
import errno
import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from fsspec.caching import BaseCache, register_cache

from . import _bowwave, _stores, _targets
from ._files import Watched
from ._formats import settings_of, watcher_of
from ._history import History
from ._html import of_cache

#: Connections of a client of botocore that is not configured otherwise.
BOTOCORE_CONNECTIONS = 10
#: Seconds that the end of the interpreter waits for requests in flight.
END_S = 60.0

_numbers = itertools.count()


class BowwaveCache(Watched, BaseCache):
    """Readahead, several requests in flight and a bounded waste, for one file.

    `cache_options` are settings of the engine (`bowwave.settings()`), such as `policy="none"`. Caches with equal
    settings share their memory. A file in a known format is read ahead as by `bowwave.open`, and the functions of the
    formats accept the cache in place of a file: `bowwave.parquet.plan(file.cache, columns=["price"])` of a `file` that
    fsspec has opened.
    """

    name: ClassVar[str] = "bowwave"

    def __init__(self, blocksize: int, fetcher: Callable[[int, int], bytes], size: int, **options: Any) -> None:
        self._options = options
        file = getattr(fetcher, "__self__", None)
        self._place = str(getattr(file, "path", None) or "fetcher")
        implied = settings_of(self._place) | connections_of(getattr(file, "fs", None))
        self._settings = _stores.access_of(implied | options).settings
        self._base = (0, 0, 0)
        self._handle: tuple[int, _bowwave.Store, _bowwave.Handle] | None = None
        self._watchers = []
        #: What the watcher does at the end, even if a plan of the program has ended it.
        self._at_close: Callable[[], None] | None = None
        self._history = History(self._place, None, listed=False)
        super().__init__(blocksize, fetcher, size)
        if size:
            self._live()

    def _live(self) -> _bowwave.Handle:
        now = _stores.generation()
        if self._handle is None or self._handle[0] != now:
            engine = _stores.engine_of(self._settings, True)
            # Of another process, or of another file: other bytes.
            tag = f'"{os.getpid()}-{next(_numbers)}"'
            fetch = whole(self._place, fetcher_of(self.fetcher))
            store = engine.fetcher(self._place, self.size, tag, fetch)
            self._handle = (now, store, store.open(""))
            self._history.bind(self._handle[2])
            watcher, self._begun = watcher_of(self._place), False
            self._watchers = [] if watcher is None else [watcher]
            self._at_close = getattr(watcher, "closed", None)
        return self._handle[2]

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        return self.pread(start, stop - start)

    # As of `bowwave.File`.

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file. Raises what the file system raises."""
        handle = self._live()
        if self._watchers:
            self._watch(offset, length)
        return handle.pread(offset, length, self._history.reads)

    def _begin(self, watcher: Any) -> None:
        # At the first read, not earlier: the fetcher works only after the file is created, and the cache is created
        # first.
        if not self._begun:
            self._begun = True
            watcher.opened(self)

    def stats(self) -> dict[str, int]:
        """Counters of the file, in pages, and of its requests."""
        self._live()
        assert self._handle is not None
        return {**self._handle[1].stats(), **self._handle[2].stats()}

    def _repr_html_(self) -> str:
        return of_cache(self)

    def _counted(self) -> tuple[int, int, int]:
        if self._handle is None or self._handle[0] != _stores.generation():
            return 0, 0, 0
        stats = self.stats()
        return stats["hits"] + stats["late"], stats["misses"], stats["bytes_fetched"]

    def _reset_stats(self) -> None:
        self._base = self._counted()

    def _log_stats(self) -> Any:
        # Of every read. It is text only if the log of fsspec is on.
        return _Logged(self)

    # The counters of fsspec: hits and misses in pages of 4 KiB.

    @property
    def hit_count(self) -> int:
        return self._counted()[0] - self._base[0]

    @hit_count.setter
    def hit_count(self, value: int) -> None:
        pass

    @property
    def miss_count(self) -> int:
        return self._counted()[1] - self._base[1]

    @miss_count.setter
    def miss_count(self, value: int) -> None:
        pass

    @property
    def total_requested_bytes(self) -> int:
        return self._counted()[2] - self._base[2]

    @total_requested_bytes.setter
    def total_requested_bytes(self, value: int) -> None:
        pass

    def close(self) -> None:
        """Drops the pages."""
        if self._at_close is not None and self._begun:
            self._at_close()
        self._handle = self._at_close = None
        self._history.unbind()

    def __getstate__(self) -> dict[str, Any]:
        return {"args": (self.blocksize, self.fetcher, self.size), "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["args"], **state["options"])  # type: ignore[misc]


class _Logged:
    """The counters of a cache, for a line of the log."""

    def __init__(self, cache: BowwaveCache) -> None:
        self.cache = cache

    def __str__(self) -> str:
        return str(BaseCache._log_stats(self.cache))


def whole(place: str, fetcher: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """The fetcher, with an error for bytes of another length and with a message for timeouts without one.

    A server that ignores ranges sends the whole object, whose first bytes are not the requested ones."""

    def fetch(start: int, end: int) -> bytes:
        try:
            data = fetcher(start, end)
        except TimeoutError as error:
            if str(error):
                raise
            what = "no response within the timeout of its file system; raise that timeout, or check the server"
            raise TimeoutError(errno.ETIMEDOUT, f"{place}: {what}") from error
        count = memoryview(data).nbytes
        if count != end - start:
            what = f"the target sent {count} bytes instead of bytes {start}-{end - 1}"
            remedy = "check that the server supports ranges, and open the object again in case it was replaced"
            raise OSError(errno.EIO, f"{place}: {what}; {remedy}")
        return data

    return fetch


def connections_of(fs: Any) -> dict[str, Any]:
    """The setting for the connections of a file system, if it says how many it has, as s3fs does.

    With more requests in flight than connections, a demand request waits there behind speculative ones. Requests would
    also be smaller than they need to be."""
    config = getattr(fs, "config_kwargs", None)
    if not isinstance(config, dict):
        return {}
    return {"device_depth": config.get("max_pool_connections", BOTOCORE_CONNECTIONS)}


def fetcher_of(fetcher: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """The fetcher with a weak reference to its file: the file refers to the cache, and the garbage collector cannot see a
    cycle through the engine."""
    if not hasattr(fetcher, "__self__"):
        return fetcher
    live = weakref.WeakMethod(fetcher)

    def fetch(start: int, end: int) -> bytes:
        method = live()
        if method is None:
            raise ValueError("the file was closed")
        return method(start, end)

    return fetch


# Without this wait, CPython ends threads of calls in progress in the middle of the engine.
atexit.register(_bowwave.end_fetches, END_S)
register_cache(BowwaveCache, clobber=True)
_targets.register()
