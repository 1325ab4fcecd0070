"""Reads for asyncio: the event loop waits for one descriptor, and no thread waits for bytes."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from . import _bowwave, _stores
from ._files import File, Source, source_of
from ._threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

T = TypeVar("T")

#: Threads for lookups, which the engine cannot wait for in an event loop.
LOOKUPS = 64


class _Reads:
    """Reads in progress of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.generation = _stores.generation()
        self.completions = _bowwave.Completions()
        self.waiting: dict[int, asyncio.Future[bytes]] = {}
        loop.add_reader(self.completions.fileno(), self._ended)

    async def read(self, handle: _bowwave.Handle, offset: int, length: int) -> bytes:
        token = self.completions.submit(handle, offset, length)
        if isinstance(token, bytes):
            return token
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting[token] = future
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
    """Reads without blocking the event loop. Raises `RuntimeError` in one that was running before a fork."""
    loop = asyncio.get_running_loop()
    reads = _reads.get(loop)
    if reads is None:
        reads = _reads[loop] = _Reads(loop)
    elif reads.generation != _stores.generation():
        # Its parent waits for the same descriptors.
        raise RuntimeError("the event loop is of the parent process: run the reads of a child of fork in a new one")
    return await reads.read(handle, offset, length)


async def in_thread(call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a blocking function in a thread."""
    global _lookups
    now = _stores.generation()
    if _lookups is None or _lookups[0] != now:
        _lookups = (now, Threads(LOOKUPS, "bowwave-lookup"))
    return await asyncio.wrap_future(_lookups[1].submit(call, *arguments, **options))


class AsyncFile:
    """A file of `open_async`. Its reads are coroutines, several of which may run at once.

    As a `File`, it pickles to its URL, version and position, works in a child of `fork`, and announces by itself what
    readers of its format read next.
    """

    def __init__(self, source: Source, position: int = 0) -> None:
        self._source = source
        self._file = File(source, position)
        self._position = position
        #: Whether its format is watched; the watcher itself is away while it reads.
        self._watched = bool(self._file._watchers)
        self._watching = _stores.ForkLock()
        self.name, self.size = self._file.name, self._file.size
        #: Entity tag of this version, if the store has one.
        self.etag = self._file.etag

    @property
    def closed(self) -> bool:
        return self._file.closed

    def _watch(self, offset: int, length: int) -> None:
        # One read after another: a watcher plans what follows from all of them.
        with self._watching:
            self._file._watch(offset, length)

    async def read(self, length: int = -1) -> bytes:
        """Reads from the position, which moves at once: concurrent reads get consecutive bytes."""
        start = self._position
        left = max(0, self.size - start)
        length = left if length < 0 else min(length, left)
        self._position += length
        return await self.pread(start, length)

    async def readinto(self, buffer: Buffer) -> int:
        """Reads from the position into a writable buffer; returns how many bytes. The position moves at once."""
        with memoryview(buffer) as view, view.cast("B") as into:
            data = await self.read(len(into))
            into[:len(data)] = data
            return len(data)

    async def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file. Leaves the position.

        Raises `ValueError` for an offset or a length below 0."""
        file = self._file
        if not file.closed and file._generation != _stores.generation():
            # The lookup waits for the store.
            await in_thread(file._live)
        if self._watched:
            # It may read the footer of the file.
            await in_thread(self._watch, offset, length)
        begin = monotonic()
        data = await read(file._live(), offset, length)
        file._history.note(begin, [(offset, len(data))])
        return data

    async def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of half-open ranges, all of them in flight at once.

        Raises `ValueError` for a range that ends before it starts, and the first error of a read."""
        ranges = list(ranges)
        self.plan(ranges)
        return await asyncio.gather(*(self.pread(start, end - start) for start, end in ranges))

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves the position to `offset` bytes from the beginning, the position or the end; returns it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}.get(whence)
        if base is None or base + offset < 0:
            raise ValueError(f"cannot seek to {offset} from {whence}")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """The position in bytes."""
        return self._position

    def plan(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces half-open ranges in the order of their use, as `File.plan`."""
        self._file.plan(ranges)

    def end_plan(self) -> None:
        """Ends the plan: what is not in flight is not read."""
        self._file.end_plan()

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Reads `(offset, length)` ranges into the cache, without waiting for them."""
        self._file.prefetch(ranges)

    def advise(self, advice: str, offset: int = 0, length: int = 0) -> None:
        """Advises how the file will be read: one of `bowwave.ADVICE`. A length of 0 is to the end."""
        self._file.advise(advice, offset, length)

    def stats(self) -> dict[str, int]:
        """Counters of this file, in pages, as `File.stats`."""
        return self._file.stats()

    def reads(self) -> list[tuple[float, float, int, int]]:
        """The last 1000 reads, as `File.reads`."""
        return self._file.reads()

    async def close(self) -> None:
        """Ends the use of the file: later reads raise `ValueError`."""
        self._file.close()

    async def __aenter__(self) -> AsyncFile:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<bowwave.AsyncFile {self.name!r}, {'closed' if self.closed else f'{self.size} bytes'}>"

    def _repr_html_(self) -> str:
        return self._file._repr_html_()

    def __reduce__(self) -> tuple[Any, ...]:
        return AsyncFile, (self._source, self._position)


async def open_async(url: str | os.PathLike[str], **options: Any) -> AsyncFile:
    """As `open`, for asyncio: a file whose reads are coroutines.

    >>> import asyncio, bowwave
    >>> async def read():
    ...     async with await bowwave.open_async("s3://bucket/data.bin") as file:
    ...         return await asyncio.gather(file.pread(0, 2), file.pread(1000, 3))
    >>> [len(data) for data in asyncio.run(read())]
    [2, 3]

    In a notebook, `await` works without `asyncio.run`. Raises as `open`.
    """
    return await in_thread(lambda: AsyncFile(source_of(url, options, by_name=True)))
