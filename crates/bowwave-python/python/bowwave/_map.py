"""Files as memory: `bowwave.map`."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from typing import Any

from . import _bowwave
from ._files import Source, source_of
from ._threads import Threads

#: Bytes of one read into the memory.
PIECE = 8 << 20
#: Threads that copy. One copies about as fast as a network brings bytes; a second one overlaps waits.
THREADS = 2

Region = _bowwave.Region


class Map(mmap.mmap):
    """Private, writable memory with the bytes of a file. A buffer for numpy, `pyarrow.py_buffer` and torch."""

    name: str

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} bytes"
        return f"<bowwave.Map {self.name!r}, {state}>"


def map(url: str | os.PathLike[str], *, lazy: bool = False, writable: bool = True, **options: Any) -> Map | Region:  # noqa: A001
    """The bytes of a file as memory, for `numpy.frombuffer`, `pyarrow.py_buffer` or `torch.frombuffer`.

    >>> import bowwave
    >>> memory = bowwave.map("emulate:s3/1MiB")
    >>> len(memory), memoryview(memory)[:4].nbytes
    (1048576, 4)

    The whole file is read, many requests at a time, into memory of this process. A read that fails raises here; no later
    access can fail, and children of `fork` have the memory, too.

    With `lazy=True`, pages are fetched when they are touched, within the memory of the cache: the file may be larger than
    the memory. Then a page that cannot be fetched stops the process with `SIGBUS`; `populate(offset, length)` fetches a
    range beforehand and raises. System calls, such as a `write` of the memory to a file, fail with `EFAULT` on pages that
    are not there, unless the process may serve the kernel's faults. It needs Linux's userfaultfd, and children of `fork` do
    not have the memory.
    """
    source = source_of(url, options)
    if lazy:
        return Region(source.store(), source.place.path, writable)
    return _copied(source)


def _copied(source: Source) -> Map:
    handle = source.handle()
    size = handle.size
    if size == 0:
        raise ValueError(f"{source.url}: an empty file cannot be mapped")
    memory = Map(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.name = source.url
    if size >= 4 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            # A kernel without huge pages.
            pass
    view = memoryview(memory)
    handle.plan([(0, size)])

    def read(offset: int) -> None:
        end = min(offset + PIECE, size)
        count = handle.readinto(offset, view[offset:end])
        if count != end - offset:
            raise OSError(f"{source.url}: it ended at {offset + count}, before its {size} bytes")
        # The copy is what will be used.
        handle.advise("dontneed", offset, end - offset)

    try:
        pieces = range(0, size, PIECE)
        if len(pieces) == 1:
            read(0)
        else:
            threads = Threads(THREADS, "bowwave-map")
            copies = [threads.submit(read, offset) for offset in pieces]
            try:
                for copy in copies:
                    copy.result()
            finally:
                for copy in copies:
                    copy.cancel()
    except BaseException:
        handle.end_plan()
        view.release()
        # A thread that still reads into the memory releases it: Ctrl-C waits for none.
        with suppress(BufferError):
            memory.close()
        raise
    view.release()
    return memory
