"""Files as memory: `bowwave.map`."""

from __future__ import annotations

import copyreg
import mmap
import os
import sys
import weakref
from contextlib import suppress
from time import monotonic
from typing import Any, Literal, overload

from . import _bowwave
from ._files import Source, source_of
from ._history import History
from ._progress import bar
from ._threads import Threads, interruptible

#: Bytes of one read into the memory.
PIECE = 8 << 20
#: Threads that copy. One copies about as fast as a network brings bytes; a second one overlaps waits.
THREADS = 2

#: Seconds for which a touch of a lazy map waits for a store that fails, after the retries of each request. Shorter: an
#: outage ends the process; longer: a process whose store is gone hangs.
RETRY_FOR = 60.0

Region = _bowwave.Region
#: The lazy maps of this process, which a child of `fork` maps again, with their files and `retry_for`.
_lazy: weakref.WeakKeyDictionary[Region, tuple[Source, float]] = weakref.WeakKeyDictionary()


class Map(mmap.mmap):
    """Memory with the bytes of a file. A buffer for numpy, `pyarrow.py_buffer` and torch.

    A child of `fork` has it, too. It pickles to the URL and version of its file, which is read again: what the program has
    written is not in the pickle.
    """

    name: str
    #: Counters of the file when it had been read.
    counters: dict[str, int]
    _history: History
    _source: Source
    _writable: bool

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} bytes"
        return f"<bowwave.Map {self.name!r}, {state}>"

    def _repr_html_(self) -> str:
        from ._html import of_map

        return of_map(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (self._source, self._writable)


@overload
def map(url: str | os.PathLike[str], *, lazy: Literal[False] = False, writable: bool = True,  # noqa: A001
        progress: bool = False, **options: Any) -> Map: ...


@overload
def map(url: str | os.PathLike[str], *, lazy: Literal[True], writable: bool = True, retry_for: float | None = None,  # noqa: A001
        **options: Any) -> Region: ...


@overload
def map(url: str | os.PathLike[str], *, lazy: bool, writable: bool = True, progress: bool = False,  # noqa: A001
        retry_for: float | None = None, **options: Any) -> Map | Region: ...


def map(url: str | os.PathLike[str], *, lazy: bool = False, writable: bool = True, progress: bool = False,  # noqa: A001
        retry_for: float | None = None, **options: Any) -> Map | Region:
    """The bytes of a file as memory, for `numpy.frombuffer`, `pyarrow.py_buffer` or `torch.frombuffer`.

    >>> import bowwave
    >>> memory = bowwave.map("emulate:s3/1MiB")
    >>> len(memory), memoryview(memory)[:4].nbytes
    (1048576, 4)

    The whole file is read, many requests at a time, into memory of this process. A read that fails raises here; no later
    access can fail, and children of `fork` have the memory, too: with `writable=False` they share it. Otherwise writes
    stay in the process. `progress` shows a bar, if tqdm is installed.

    With `lazy=True`, pages are fetched when they are touched, within the memory of the cache: the file may be larger
    than the memory. `memory[start:end]` and `bytes(memory)` copy, `populate(offset, length)` fetches, and all of them
    raise the error of the store. `failures()` has the pages that could not be fetched, and why.

    A touch by other code, such as numpy, cannot raise. If its page is not in memory and a request fails after all its
    retries, the touch waits and the request is repeated for `retry_for` seconds, by default 60. A line on standard error
    says so. Then, or at once if the object was changed or removed, the touch ends the process with `SIGBUS`, after a line
    with file, offset and cause. The cache may evict a populated page and fetch it again: that is a touch, too. System
    calls, such as a `write` of the memory to a file, fail with `EFAULT` on pages that are not in memory, unless the
    process may serve the kernel's faults.

    A child of `fork` has a lazy map at the same address, in the same version, with a cache of its own. It keeps what
    the parent has written. A lazy map pickles as a `Map` does. It needs Linux's userfaultfd.
    """
    source = source_of(url, options)
    if lazy:
        if progress:
            raise ValueError("progress is of a map that is read at once: leave it out with lazy=True")
        return _lazily(source, writable, RETRY_FOR if retry_for is None else retry_for)
    if retry_for is not None:
        raise ValueError("retry_for needs lazy=True; for a copied map, set retries and deadline")
    return _copied(source, writable, progress)


def _lazily(source: Source, writable: bool, retry_for: float) -> Region:
    region = interruptible(Region, source.store(), source.place.path, writable, retry_for)
    source.check(region)
    _lazy[region] = source, retry_for
    return region


def lazy_source(region: Region) -> Source | None:
    """The file of a lazy map, if `map` has made it."""
    return _lazy[region][0] if region in _lazy else None


def _reduced(region: Region) -> tuple[Any, ...]:
    if region not in _lazy:
        raise TypeError("a Region that bowwave.map did not make cannot be pickled")
    source, retry_for = _lazy[region]
    return _lazily, (source, region.writable, retry_for)


copyreg.pickle(Region, _reduced)


def _in_child() -> None:
    for region, (source, _) in list(_lazy.items()):
        try:
            region._map_in_child(source.store())
        except Exception as error:
            # A hook cannot raise: methods of the map will.
            problem = f"a child of fork cannot map it: {error}; a touch of its memory ends it with SIGSEGV"
            print(f"bowwave: {source.url}: {problem}", file=sys.stderr, flush=True)


# After the hook of `_stores`, which begins a new cache.
os.register_at_fork(after_in_child=_in_child)


def _memory(source: Source, size: int, writable: bool) -> tuple[Map, mmap.mmap]:
    """The memory of a map, and the same memory to be filled."""
    if writable:
        memory = Map(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return memory, memory
    if not hasattr(os, "memfd_create"):
        raise OSError(f"{source.url}: a read-only map needs Linux's memfd_create: leave out writable=False")
    memfd = os.memfd_create("bowwave-map")
    try:
        os.ftruncate(memfd, size)
        return Map(memfd, size, access=mmap.ACCESS_READ), mmap.mmap(memfd, size)
    finally:
        os.close(memfd)


def _copied(source: Source, writable: bool = True, progress: bool = False) -> Map:
    handle = source.handle()
    size = handle.size
    if size == 0:
        raise ValueError(f"{source.url}: an empty file cannot be mapped")
    memory, filled = _memory(source, size, writable)
    memory.name, memory._source, memory._writable = source.url, source, writable
    view = memoryview(filled)
    memory._history = history = History(source.url, source.access, listed=False)
    history.bind(handle)
    handle.plan([(0, size)])
    history.announce([(0, size)])

    def read(offset: int) -> int:
        begin, end = monotonic(), min(offset + PIECE, size)
        count = handle.readinto(offset, view[offset:end])
        history.note(begin, [(offset, count)])
        if count != end - offset:
            raise OSError(f"{source.url}: it ended at {offset + count}, before its {size} bytes")
        # The copy is what will be used.
        handle.advise("dontneed", offset, end - offset)
        return count

    try:
        pieces = range(0, size, PIECE)
        with bar(size, "B", progress) as shown:
            if len(pieces) == 1:
                shown.update(read(0))
            else:
                threads = Threads(THREADS, "bowwave-map")
                copies = [threads.submit(read, offset) for offset in pieces]
                try:
                    for copy in copies:
                        shown.update(copy.result())
                finally:
                    for copy in copies:
                        copy.cancel()
    except BaseException:
        handle.end_plan()
        view.release()
        # A thread that still reads into the memory releases it: Ctrl-C waits for none.
        with suppress(BufferError):
            filled.close()
            memory.close()
        raise
    view.release()
    if filled is not memory:
        filled.close()
    history.unbind()
    memory.counters = handle.stats()
    return memory
