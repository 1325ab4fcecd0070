"""`cache_type="bowwave"` for every fsspec file system.

The file system's own fetcher brings the bytes, several requests at a time; bowwave's engine decides which.
"""

from __future__ import annotations

import errno
import itertools
import os
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from fsspec.caching import BaseCache, register_cache

from . import _bowwave, _stores

_numbers = itertools.count()


class BowwaveCache(BaseCache):
    """Readahead, several requests in flight and a bounded waste, for one file.

    `cache_options` are settings of the engine (`bowwave.settings()`), such as `policy="none"`. Caches with equal settings
    share their memory.
    """

    name: ClassVar[str] = "bowwave"

    def __init__(self, blocksize: int, fetcher: Callable[[int, int], bytes], size: int, **options: Any) -> None:
        self._options = options
        self._settings = _stores.access_of(options).settings
        self._base = (0, 0, 0)
        self._handle: tuple[int, _bowwave.Store, _bowwave.Handle] | None = None
        super().__init__(blocksize, fetcher, size)
        if size:
            self._live()

    def _live(self) -> _bowwave.Handle:
        now = _stores.generation()
        if self._handle is None or self._handle[0] != now:
            engine = _stores.engine_of(self._settings, True)
            # Of another process, or of another file: other bytes.
            tag = f'"{os.getpid()}-{next(_numbers)}"'
            place = self._place()
            store = engine.fetcher(place, self.size, tag, whole(place, _fetcher_of(self.fetcher)))
            self._handle = (now, store, store.open(""))
        return self._handle[2]

    def _place(self) -> str:
        file = getattr(self.fetcher, "__self__", None)
        return str(getattr(file, "path", None) or "fetcher")

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        start = 0 if start is None else start
        stop = self.size if stop is None else min(stop, self.size)
        if start >= stop:
            return b""
        return self._live().pread(start, stop - start)

    def plan(self, ranges: list[tuple[int, int]]) -> None:
        """Announces half-open ranges in the order of their use."""
        self._live().plan(ranges)

    def stats(self) -> dict[str, int]:
        """Counters of the file, in pages, and of its requests."""
        self._live()
        assert self._handle is not None
        return {**self._handle[1].stats(), **self._handle[2].stats()}

    def _counted(self) -> tuple[int, int, int]:
        if self._handle is None or self._handle[0] != _stores.generation():
            return 0, 0, 0
        stats = self.stats()
        return stats["hits"] + stats["late"], stats["misses"], stats["bytes_fetched"]

    def _reset_stats(self) -> None:
        self._base = self._counted()

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
        self._handle = None

    def __getstate__(self) -> dict[str, Any]:
        return {"args": (self.blocksize, self.fetcher, self.size), "options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["args"], **state["options"])  # type: ignore[misc]


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
            what = f"requested were bytes {start}-{end - 1}, but {count} bytes came"
            remedy = "check that the server supports ranges, and open the object again in case it was replaced"
            raise OSError(errno.EIO, f"{place}: {what}; {remedy}")
        return data

    return fetch


def _fetcher_of(fetcher: Callable[[int, int], bytes]) -> Callable[[int, int], bytes]:
    """The fetcher without a reference to its file: the file refers to the cache, and the collector cannot see a circle
    that leads through the engine."""
    if not hasattr(fetcher, "__self__"):
        return fetcher
    method = weakref.WeakMethod(fetcher)

    def fetch(start: int, end: int) -> bytes:
        live = method()
        if live is None:
            raise ValueError("the file was closed")
        return live(start, end)

    return fetch


register_cache(BowwaveCache, clobber=True)
