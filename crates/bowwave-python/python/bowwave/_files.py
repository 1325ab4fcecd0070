"""Files: `bowwave.open`."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _bowwave, _stores
from ._history import History
from ._threads import interruptible

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._stores import Access, Place

#: What `advise` accepts.
ADVICE = ("normal", "sequential", "random", "willneed", "dontneed", "noreuse")

#: What a program reads first of an object, which may come with the open: bytes from a start to an end, without an end to
#: that of the object; or from a negative start, the last bytes. All of it; and its beginning, all of a small object.
First: TypeAlias = "tuple[int, int | None]"
WHOLE: First = (0, None)
START: First = (0, 256 << 10)
#: Bytes of one read while the end of a line is sought.
LINE = 8192


class Source:
    """An object of a store: opens handles of it, again after a fork, and always of the same version.

    `by_name`: files that a program will probably open next are read ahead."""

    def __init__(self, place: Place, access: Access, url: str, by_name: bool = False) -> None:
        self.place, self.access, self.url, self.by_name = place, access, url, by_name
        self.identity: tuple[str | None, int | None] | None = None
        #: What is told of the reads of each file that is closed.
        self.ended: Callable[[History], None] | None = None
        #: What its format found in it before it was opened.
        self.contents: object = None
        self._lock = _stores.ForkLock()
        self._opened: tuple[int, _bowwave.Handle] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"place": self.place, "access": self.access, "url": self.url, "by_name": self.by_name, "identity": self.identity}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["place"], state["access"], state["url"], state.get("by_name", False))  # type: ignore[misc]
        self.identity = state["identity"]

    def store(self) -> _bowwave.Store:
        """The store of the object."""
        return _stores.store_of(self.place.store, self.access)

    def handle(self, first: First | None = None) -> _bowwave.Handle:
        """The handle of this process. If it is not open yet, `first` is what is read next."""
        opened, now = self._opened, _stores.generation()
        if opened is not None and opened[0] == now:
            return opened[1]
        with self._lock:
            if self._opened is not None and self._opened[0] == now:
                # Another thread was faster.
                return self._opened[1]
            handle = self._open_object(first)
            self.check(handle)
            self._opened = (now, handle)
            return handle

    def _open_object(self, first: First | None) -> _bowwave.Handle:
        store = self.store()
        if not _stores.is_far(self.place.store):
            return store.open(self.place.path, first)
        # A version that is known already may be newer than a listing.
        return interruptible(store.open, self.place.path, first, self.by_name and self.identity is None)

    def check(self, opened: _bowwave.Handle | _bowwave.Region) -> None:
        """Raises `OSError` if it is not the version that was opened first."""
        if self.identity is None:
            self.identity = opened.identity
        elif self.identity != opened.identity:
            raise OSError(f"{self.url}: the object was replaced since it was opened; open it again")


def joined(ranges: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Sorts half-open ranges, drops empty ones, and joins those at most `gap` bytes apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(pair for pair in ranges if pair[0] < pair[1]):
        if found and start - found[-1][1] <= gap:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found


def taken(file: object) -> object:
    """What the format of a file found in it before it was opened, for the first reader of its source."""
    source = getattr(file, "_source", None)
    contents = getattr(source, "contents", None)
    if contents is not None:
        source.contents = None  # type: ignore[union-attr]
    return contents


def _closed(offset: int, into: object, reads: object) -> Any:
    raise ValueError("I/O operation on closed file")


class Watched:
    """A file whose reads the watcher of its format sees, and whose program may announce reads."""

    size: int
    _history: History
    #: The watcher, while no thread is in it.
    _watchers: list[Any]

    @abstractmethod
    def _live(self) -> _bowwave.Handle:
        """The handle of this process."""

    def _begin(self, watcher: Any) -> None:
        """Called before the watcher sees a read."""

    def _watch(self, offset: int, length: int) -> None:
        # A child of fork has others.
        watchers = self._watchers
        try:
            watcher = watchers.pop()
        except IndexError:
            # It reads itself, or sees the read of another thread.
            return
        try:
            self._begin(watcher)
            watcher.before(self, offset, min(length, max(0, self.size - offset)))
        finally:
            watchers.append(watcher)

    def plan(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announces half-open ranges in the order of their use; they are read ahead, many at a time.

        A later plan continues an earlier one. Reads elsewhere work as without a plan. It is in place of the one of the
        file's format. Raises `ValueError` for a range that ends before it starts."""
        ranges, handle = list(ranges), self._live()
        handle.plan(ranges)
        self._history.announce(ranges)
        if any(getattr(watcher, "plans", False) for watcher in self._watchers):
            # It would end this plan, and with it the requests in flight.
            self._watchers.clear()

    def end_plan(self) -> None:
        """Ends the plan: what is not in flight is not read."""
        self._live().end_plan()

    def advise(self, advice: str, offset: int = 0, length: int = 0) -> None:
        """Advises how the file will be read: one of `bowwave.ADVICE`. A length of 0 is to the end."""
        self._live().advise(advice, offset, length)
        if advice == "willneed":
            self._history.announce([(offset, offset + length if length else self.size)])


class File(Watched, io.BufferedIOBase):
    """A file that is read ahead of its reader.

    It is a binary file as the builtin `open` returns them. In addition, any number of threads may call `pread` at once,
    and `plan`, `prefetch` and `advise` announce what will be read. It pickles to its URL, version and position, and
    works in a child of `fork`.
    """

    def __init__(self, source: Source, position: int = 0, watcher: Any | None = None) -> None:
        from ._formats import first_of, watcher_of

        self._source = source
        self._position = position
        #: Counters when it was closed.
        self._totals: dict[str, int] | None = None
        self._history = History(source.url, getattr(source, "access", None))
        self._reads = self._history.reads
        self._bind(source.handle(first_of(source.url)))
        self.name = source.url
        self.size = self._handle.size
        #: Entity tag of this version, if the store has one.
        self.etag = self._handle.identity[0]
        self._watchers = []
        #: What the watcher does at the end, even if a plan of the program has ended it.
        self._at_close: Callable[[], None] | None = getattr(watcher, "closed", None)
        if watcher is None:
            watcher = watcher_of(self.name)
            self._at_close = getattr(watcher, "closed", None)
        if watcher is not None:
            watcher.opened(self)
            self._watchers.append(watcher)

    def _bind(self, handle: _bowwave.Handle) -> None:
        """Reads through a handle of this process."""
        # First: another thread may read as soon as the handle is there.
        self._history.bind(handle)
        self._handle, self._generation = handle, _stores.generation()
        # Short reads of cached bytes take less than the checks of `_live`: a closed file has another function here, and
        # the handle itself knows of a fork.
        self._pread: Callable[[int, int, _bowwave.Reads], bytes] = handle.pread
        self._preadinto: Callable[[int, Buffer, _bowwave.Reads], int] = handle.readinto

    @property
    def mode(self) -> str:
        return "rb"

    def _live(self) -> _bowwave.Handle:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if self._generation != _stores.generation():
            self._bind(self._source.handle())
        return self._handle

    def close(self) -> None:
        handle = None if self.closed else getattr(self, "_handle", None)
        super().close()
        self._pread = self._preadinto = _closed
        if handle is not None:
            if self._generation == _stores.generation():
                self._totals = handle.stats()
            self._history.unbind()
            if self._at_close is not None:
                self._at_close()
            ended = getattr(self._source, "ended", None)
            if ended is not None:
                ended(self._history)

    # Reads of the position.

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._live()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._live()
        if whence == os.SEEK_SET:
            base = 0
        elif whence == os.SEEK_CUR:
            base = self._position
        elif whence == os.SEEK_END:
            base = self.size
        else:
            raise ValueError(f"whence is {whence}, but must be 0, 1 or 2")
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}: positions begin at 0")
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        length = self.size if size is None or size < 0 else size
        data = self.pread(self._position, length)
        self._position += len(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(io.DEFAULT_BUFFER_SIZE if size < 0 else size)

    def readinto(self, buffer: Buffer, /) -> int:
        count = self.preadinto(self._position, buffer)
        self._position += count
        return count

    def readinto1(self, buffer: Buffer, /) -> int:
        return self.readinto(buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        handle, begin, offset = self._live(), monotonic(), self._position
        left = most = self.size if size is None or size < 0 else size
        if self._watchers:
            self._watch(offset, min(most, LINE))
        parts, waited = [], False
        while left > 0:
            part = handle.pread(self._position, min(left, LINE))
            waited = waited or _bowwave.waited()
            end = part.find(b"\n") + 1
            part = part[:end] if end else part
            parts.append(part)
            self._position += len(part)
            left -= len(part)
            if end or not part:
                break
        if most > 0:
            # Another thread may have moved the position.
            self._history.note(begin, [(offset, sum(map(len, parts)))], waited)
        return b"".join(parts)

    # Reads elsewhere.

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file. Leaves the position."""
        if self._watchers:
            self._watch(offset, length)
        try:
            return self._pread(offset, length, self._reads)
        except _bowwave.Forked:
            return self._live().pread(offset, length, self._reads)

    def preadinto(self, offset: int, buffer: Buffer) -> int:
        """Reads from `offset` into a writable buffer; returns how many bytes. Leaves the position."""
        if self._watchers:
            self._watch(offset, memoryview(buffer).nbytes)
        try:
            return self._preadinto(offset, buffer, self._reads)
        except _bowwave.Forked:
            return self._live().readinto(offset, buffer, self._reads)

    def read_ranges(self, ranges: Iterable[tuple[int, int]]) -> list[bytes]:
        """The bytes of half-open ranges, all of them in flight at once.

        Raises `ValueError` for a range that ends before it starts, and the first error of a read."""
        ranges, handle, begin = list(ranges), self._live(), monotonic()
        read = handle.read_ranges(ranges)
        for data in read:
            if isinstance(data, BaseException):
                raise data
        lengths = (len(data) for data in read)  # type: ignore[arg-type]
        self._history.note(begin, [(start, length) for (start, _), length in zip(ranges, lengths, strict=True)])
        return read  # type: ignore[return-value]

    # Announcements.

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Reads `(offset, length)` ranges into the cache, without waiting for them.

        Raises `ValueError` for an offset or a length below 0."""
        for offset, length in ranges:
            # A length of 0 would be to the end.
            if length != 0:
                self.advise("willneed", offset, length)

    # Reports.

    def stats(self) -> dict[str, int]:
        """Counters of this file, in pages, over all its handles of this process; of a closed file, those at its end."""
        if self._totals is not None:
            return dict(self._totals)
        return self._live().stats()

    def reads(self) -> list[tuple[float, float, int, int]]:
        """The last 1000 reads: begin and end in seconds of `time.monotonic`, offset and length in bytes."""
        return [read[:4] for read in self._reads.all()]

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.size} bytes"
        return f"<bowwave.File {self.name!r}, {state}>"

    def _repr_html_(self) -> str:
        from ._html import of_file

        return of_file(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return File, (self._source, self._position)


def open(url: str | os.PathLike[str], mode: str = "rb", **options: Any) -> File:  # noqa: A001
    """Opens an object for reading: a path, `file:`, `http:`, `https:`, `s3:`, `gs:` or `az:` URL.

    >>> with bowwave.open("emulate:s3/1MiB") as file:
    ...     len(file.read())
    1048576

    Options are the settings of the cache (`bowwave.settings()`) and the keys of a cloud: `key`, `secret` and `token`
    for S3, `account_name` with `account_key` or `sas_token` for Azure, and `service_account`, the text of its key file,
    for Google. Files with equal options share one cache.

    Raises `FileNotFoundError`, `PermissionError`, `IsADirectoryError`, `TimeoutError` or another `OSError` as the store
    says, and `ValueError` for a URL or a setting that cannot be used.
    """
    if mode != "rb":
        raise ValueError(f"mode is {mode!r}, but must be 'rb': wrap the file in io.TextIOWrapper to read text")
    return File(source_of(url, options, by_name=True))


def source_of(url: str | os.PathLike[str], options: dict[str, object], by_name: bool = False) -> Source:
    """The object at a URL or path. `by_name`: a program opens it now, and perhaps others like it."""
    from ._formats import settings_of

    text = os.fspath(url)
    options = {**settings_of(text), **options}
    return Source(_stores.place_of(text), _stores.access_of(options), text, by_name)
