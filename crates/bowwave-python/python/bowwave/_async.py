"""Reads for asyncio: the event loop waits for one descriptor, and no thread waits for bytes."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _bowwave, _stores
from ._files import Source, source_of
from ._threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

#: Threads for lookups, which the engine cannot wait for in an event loop.
LOOKUPS = 64


class _Reads:
    """Reads in progress of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.completions = _bowwave.Completions()
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        loop.add_reader(self.completions.fileno(), self._ended)

    async def read(self, handle: _bowwave.Handle, offset: int, length: int) -> bytes:
        token = self.completions.submit(handle, offset, length)
        if isinstance(token, bytes):
            return token
        future = self.waiting[token] = asyncio.get_running_loop().create_future()
        try:
            return await future
        finally:
            if self.waiting.pop(token, None) is not None:
                self.completions.cancel(token)

    def _ended(self) -> None:
        for token, result in self.completions.poll():
            future = self.waiting.pop(token, None)
            if future is None or future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


_reads: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Reads] = weakref.WeakKeyDictionary()
_lookups: tuple[int, Threads] | None = None


async def read(handle: _bowwave.Handle, offset: int, length: int) -> bytes:
    """Reads without blocking the event loop."""
    loop = asyncio.get_running_loop()
    reads = _reads.get(loop)
    if reads is None:
        reads = _reads[loop] = _Reads(loop)
    return await reads.read(handle, offset, length)


async def in_thread(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a blocking function in a thread."""
    global _lookups
    now = _stores.generation()
    if _lookups is None or _lookups[0] != now:
        _lookups = (now, Threads(LOOKUPS, "bowwave-lookup"))
    return await asyncio.wrap_future(_lookups[1].submit(call, *arguments, **options))


class AsyncFile:
    """A file of `open_async`. Its reads are coroutines, several of which may run at once."""

    def __init__(self, source: Source) -> None:
        from ._formats import first_of

        self._source = source
        self._handle = source.handle(first_of(source.url))
        self._position = 0
        self.closed = False
        self.name = source.url
        self.size = self._handle.size

    def _live(self) -> _bowwave.Handle:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._handle

    async def read(self, length: int = -1) -> bytes:
        """Reads from the position, which moves at once: concurrent reads get consecutive bytes."""
        start = self._position
        left = max(0, self.size - start)
        length = left if length < 0 else min(length, left)
        self._position += length
        return await read(self._live(), start, length)

    async def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        return await read(self._live(), offset, length)

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of half-open ranges, all of them in flight at once."""
        ranges = list(ranges)
        self._live().plan(ranges)
        return await asyncio.gather(*(self.pread(start, end - start) for start, end in ranges))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise ValueError(f"cannot seek to {offset} from {whence}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def plan(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces half-open ranges in the order of their use."""
        self._live().plan(list(ranges))

    def stats(self) -> dict[str, int]:
        """Counters of this file, in pages."""
        return self._live().stats()

    async def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<bowwave.AsyncFile {self.name!r}, {'closed' if self.closed else f'{self.size} bytes'}>"


async def open_async(url: str | os.PathLike[str], **options: Any) -> AsyncFile:
    """As `open`, for asyncio: a file whose reads are coroutines."""
    return await in_thread(lambda: AsyncFile(source_of(url, options)))
