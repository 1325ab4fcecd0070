"""bowwave for fsspec: `cache_type="bowwave"`, and the file system `bowwave::s3://…`.

>>> import fsspec, bowwave.fsspec
>>> fs = fsspec.filesystem("memory", skip_instance_cache=True)
>>> fs.pipe("/readme", b"hello")
>>> with fsspec.open("bowwave::memory://readme") as file:
...     file.read()
b'hello'
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import cached_property
from glob import has_magic
from time import monotonic
from typing import Any
from weakref import ref

import fsspec as _fsspec
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.implementations.chained import ChainedFileSystem

from . import _bowwave, _stores
from ._async import AsyncFile, in_thread, read
from ._cache import BowwaveCache, connections_of, whole
from ._files import START, WHOLE, File, First, Source
from ._formats import first_of, settings_of
from ._history import READS, History, shared
from ._options import LISTINGS, SCHEMES, SETTINGS, native
from ._siblings import NAMES, Siblings
from ._stores import Access, Place
from ._synchronous import Synchronous, mirror, of_child

__all__ = ["BowwaveCache", "BowwaveFileSystem"]

#: Bytes of one read of a whole file.
CHUNK = 8 << 20
#: Files whose handles and pages a file system keeps.
HANDLES = 4096
#: Files that were looked up and not opened, after which most lookups fetch nothing.
IN_VAIN = 4
#: Seconds for which a store opens small files by its own listing of their directory.
LISTED_S = 1.0
#: Directories in whose listings names were looked for.
LISTINGS_MAX = 16


class BowwaveFileSystem(Synchronous, ChainedFileSystem):
    """A file system whose reads go through bowwave's cache.

    `bowwave::s3://bucket/key`, and the same with gs, az, http, https and file, are read by the engine itself. Other
    targets are read by their own file system, several requests at a time. Listings, writes and everything else are
    the target's.

    `target_protocol` and `target_options`, or `fs`, are the target. Other arguments are settings of the cache
    (`bowwave.settings()`). `attribute_timeout` is how many seconds a file's version is taken for granted after a
    lookup, by default 1, and 0 for local files.
    """

    protocol = "bowwave"
    async_impl = True
    mirror_sync_methods = True

    def __init__(self, target_protocol: str | None = None, target_options: dict[str, Any] | None = None,
                 fs: Any = None, fo: str | None = None, attribute_timeout: float | None = None,
                 asynchronous: bool = False, loop: Any = None, batch_size: int | None = None, **settings: Any) -> None:
        super().__init__(asynchronous=asynchronous, loop=loop, batch_size=batch_size)
        if (fs is None) == (target_protocol is None):
            raise ValueError("give one of fs and target_protocol, or chain the URL as in bowwave::s3://bucket/key")
        settings.pop("skip_instance_cache", None)
        self._listings = {name: settings.pop(name) for name in LISTINGS if name in settings}
        if fs is not None:
            protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
            options = dict(fs.storage_options)
        else:
            protocol, options = str(target_protocol), dict(target_options or {})
        self.target_protocol, self.target_options = protocol, options
        # DuckDB reads the names that `glob` returns where one of these is before their `://`.
        self.protocol = "bowwave", f"bowwave::{protocol}"  # type: ignore[assignment]
        self._scheme, self._settings = native(protocol, options, settings)
        self._access = _stores.access_of(self._settings)
        #: Settings of the engines that have read for this file system.
        self._used: set[str] = set()
        if attribute_timeout is None:
            # A lookup of a local file costs little, and other programs write it.
            attribute_timeout = 0.0 if SCHEMES.get(protocol) == "file" else 1.0
        self.attribute_timeout = attribute_timeout
        self._lock = _stores.ForkLock()
        #: The target once it is needed, and the generation of the process that made it.
        self._target = fs, _stores.generation() if getattr(fs, "_pid", os.getpid()) == os.getpid() else -1
        self._sources: OrderedDict[str, tuple[float, int, Any]] = OrderedDict()
        #: Files that were looked up, with what is read of them first, and not opened; and how many lookups there were.
        self._unopened: OrderedDict[str, None] = OrderedDict()
        self._lookups = 0
        #: How often the program has changed files.
        self._changes = 0
        #: Files that the program has opened for writing, by path.
        self._written: OrderedDict[str, ref[Any]] = OrderedDict()
        #: By directory, the listing in which a name was looked for, and the names of its files.
        self._names: OrderedDict[str, tuple[Any, frozenset[str]]] = OrderedDict()
        remote = self._scheme not in (None, "file")
        self._siblings = Siblings(self._new_source, self._listed, self._is_known, self.attribute_timeout if remote else 0.0)

        def strip(path: Any) -> Any:
            if isinstance(path, list):
                return [strip(one) for one in path]
            text = os.fspath(path)
            text = text.removeprefix("bowwave::").removeprefix("bowwave://")
            return self._strip_target(text)

        # Each instance has another target.
        self._strip_protocol = strip  # type: ignore[method-assign]

    @property
    def fs(self) -> Any:
        """The target."""
        known = self._target
        target, generation = known
        if target is not None and generation == _stores.generation():
            return target
        # Without the lock: the event loop, whose coroutines ask for the target, too, may have to help.
        made = self._new_target() if target is None else of_child(target)
        if made is None:
            return target
        with self._lock:
            if self._target is known:
                self._target = made, _stores.generation()
            return self._target[0]

    def _new_target(self) -> Any:
        options = {name: value for name, value in (self._listings | self.target_options).items()
                   if name not in ("asynchronous", "loop")}
        try:
            return _fsspec.filesystem(self.target_protocol, **options)
        except ImportError as error:
            if self._scheme is None:
                scheme = SCHEMES.get(self.target_protocol)
                if scheme is not None:
                    known = ", ".join(sorted(SETTINGS.get(scheme, ())))
                    error.add_note(f"bowwave reads {scheme}:// itself with no other options than {known}")
                raise
            from ._native import NativeFileSystem

            listings = {name: options[name] for name in LISTINGS & options.keys()}
            return NativeFileSystem(self._scheme, self._access, **listings)

    def _strip_target(self, path: str) -> Any:
        return self.fs._strip_protocol(path)

    def _parent(self, path: Any) -> Any:
        return self.fs._parent(self._strip_protocol(path))

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        return os.fspath(path).removeprefix("bowwave::").removeprefix("bowwave://")

    @property
    def fsid(self) -> str:
        return f"bowwave-{self.target_protocol}"

    def unstrip_protocol(self, name: str) -> str:
        return "bowwave::" + str(self.fs.unstrip_protocol(self._strip_protocol(name)))

    # Opening.

    def _source(self, path: str, first: First | None = None, opens: bool = False) -> Source | _Fetched:
        """The object at a stripped path, looked up unless it was a moment ago. `first` is what is read of it next.

        If the program `opens` it, a listing may be the lookup."""
        is_written = self._is_written(path)
        now, generation = monotonic(), _stores.generation()
        with self._lock:
            known, changes = self._sources.get(path), self._changes
        if known is not None and known[1] == generation:
            if now - known[0] <= self.attribute_timeout:
                return known[2]  # type: ignore[no-any-return]
        source: Source | _Fetched
        if (ahead := self._siblings.take(path)) is not None:
            now, source = ahead
        elif self._scheme is not None:
            # Without a listing of the target, the store lists directories of which many files are opened.
            lists = opens and self.attribute_timeout >= LISTED_S and not self._has_listing(path)
            source = self._new_source(path, by_name=lists)
            if source.handle(first).may_be_listed:
                now -= LISTED_S
                if self.attribute_timeout <= LISTED_S:
                    return source
        else:
            info = self.fs.info(path)
            if info["type"] == "directory":
                raise IsADirectoryError(f"{path}: a directory")
            if info.get("size") is None:
                raise OSError(f"{path}: the file system does not know its size; open it without bowwave")
            source = _Fetched(self, path, info)
            if known is not None and known[1] == generation and known[2].identity == source.identity:
                source = known[2]
        with self._lock:
            if is_written or self._changes != changes:
                # It may be of the time before the change.
                return source
            self._sources[path] = (now, generation, source)
            self._sources.move_to_end(path)
            while len(self._sources) > HANDLES:
                self._sources.popitem(last=False)
        return source

    def _is_known(self, path: str) -> bool:
        """Whether an object was looked up a moment ago."""
        known = self._sources.get(path)
        return (known is not None and known[1] == _stores.generation()
                and monotonic() - known[0] <= self.attribute_timeout)

    def _new_source(self, path: str, by_name: bool = False) -> Source:
        source = Source(self._place(path), self._access_of(path), self.fs.unstrip_protocol(path), by_name)

        source.ended = lambda history: self._siblings.closed(path, _ranges_of(history))
        return source

    def _listed(self, directory: str, deep: bool) -> list[tuple[str, int]] | None:
        """Names and sizes of the files in a directory, or of all below it, as far as the target has listings."""
        listings: Any = getattr(self.fs, "dircache", {})
        if (infos := listings.get(directory)) is None:
            return None
        found: list[tuple[str, int]] = []
        # Names with empty components may be directories within themselves.
        seen, left = {directory}, [infos]
        while left:
            infos = left.pop()
            if len(infos) + len(found) + len(left) > NAMES:
                return None
            for info in infos:
                # HTTP keeps names alone.
                kind, size = (info.get("type"), info.get("size")) if isinstance(info, dict) else (None, None)
                if kind == "directory":
                    if deep and info["name"] not in seen:
                        seen.add(info["name"])
                        left.append(listings.get(info["name"]) or ())
                elif kind != "file" or not isinstance(size, int) or size < 0:
                    return None
                elif info["name"].startswith(directory + "/"):
                    found.append((info["name"][len(directory) + 1:], size))
        return found or None

    def _has_listing(self, path: str) -> bool:
        """Whether the target has a listing of the file's directory."""
        return getattr(self.fs, "dircache", {}).get(self.fs._parent(path)) is not None

    def _is_listed(self, path: str) -> bool:
        """Whether the target has a listing with this file."""
        directory = self.fs._parent(path)
        infos: Any = getattr(self.fs, "dircache", {}).get(directory)
        if infos is None:
            return False
        known = self._names.get(directory)
        if known is None or known[0] is not infos:
            files = (info for info in infos if isinstance(info, dict) and info.get("type") == "file")
            known = infos, frozenset(info["name"] for info in files if info.get("size") is not None)
            self._names[directory] = known
            while len(self._names) > LISTINGS_MAX:
                self._names.popitem(last=False)
        return path in known[1]

    def _access_of(self, path: str) -> Access:
        """The settings for an object, with those of its format."""
        implied = settings_of(path) | ({} if self._scheme is not None else connections_of(self.fs))
        access = _stores.access_of(implied | self._settings) if implied else self._access
        self._used.add(access.settings)
        return access

    def _place(self, path: str) -> Place:
        return _stores.place_of(f"{self._scheme}://{path}" if self._scheme in _stores.BUCKETS else path)

    def _forget(self, path: str) -> None:
        path = self._strip_protocol(path)
        # The target expands patterns.
        while has_magic(path) and (parent := self.fs._parent(path)) != path:
            path = parent
        self._siblings.forget(path)
        if self._scheme in _stores.BUCKETS:
            _stores.changed(self._place(path))
        with self._lock:
            self._changes += 1
            for known in [known for known in self._sources if known == path or known.startswith(path + "/")]:
                del self._sources[known]

    @contextmanager
    def _changing(self, *paths: str) -> Iterator[None]:
        """The program changes these files and directories in the context: lookups before its end do not count."""
        for path in paths:
            self._forget(path)
        try:
            yield
        finally:
            for path in paths:
                self._forget(path)

    def _is_written(self, path: str) -> bool:
        """Whether the program has a file open that writes this one: no lookup of it is kept."""
        written = self._written.get(path)
        if written is None:
            return False
        self._forget(path)
        file = written()
        if file is None or file.closed:
            self._written.pop(path, None)
            return False
        return True

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        path = self._strip_protocol(path)
        if mode != "rb":
            self._forget(path)
            file = self.fs._open(path, mode=mode, **options)
            with suppress(TypeError):
                # Of all kinds of files but those without weak references.
                self._written[path] = ref(file)
                while len(self._written) > HANDLES:
                    self._written.popitem(last=False)
            return file
        source = self._opened(path, first_of(path))
        return FileOfSystem(self, path, source)  # type: ignore[arg-type]

    def _opened(self, path: str, first: First | None) -> Source | _Fetched:
        """The object at a stripped path that a program opens."""
        if self._unopened.pop(path, self) is None:
            self._unopened.clear()
        with self._siblings.opening(path):
            source = self._source(path, first, opens=True)
            if isinstance(source, Source):
                with suppress(Exception):
                    # Whatever is wrong with a listing, it must not fail an open.
                    self._siblings.opened(path, source)
        return source

    async def open_async(self, path: str, mode: str = "rb", **options: Any) -> AsyncFile:
        if mode != "rb":
            raise ValueError(f"mode is {mode!r}, but must be 'rb': write with open")
        path = self._strip_protocol(path)
        source = await in_thread(self._opened, path, first_of(path))
        return AsyncFile(source)  # type: ignore[arg-type]

    # Reads.

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        path = self._strip_protocol(path)
        source = await in_thread(self._opened, path, _first(start, end))
        handle = source.handle()
        first, last = _clipped(start, end, handle.size)
        history = _history_of(source)
        with history.using(handle):
            if last - first > 1 << 20:
                handle.plan([(first, last)])
                history.announce([(first, last)])
            data = await _noted(history, handle, first, last - first)
        self._siblings.closed(path, [(first, len(data))])
        return data

    async def _cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None,
                          batch_size: int | None = None, on_error: str = "return", **options: Any) -> list[Any]:
        if not isinstance(paths, list):
            raise TypeError("paths is no list")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends: give one of each for a range")
        result: list[Any] = [None] * len(paths)
        by_path: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            by_path.setdefault(self._strip_protocol(path), []).append(at)

        async def one(path: str, places: list[int]) -> None:
            try:
                first = _first(starts[places[0]], ends[places[0]])
                source = await in_thread(self._source, path, first)
                handle = source.handle()
                ranges = [_clipped(starts[at], ends[at], handle.size) for at in places]
                handle.plan(sorted(ranges))
                history = _history_of(source)
                history.announce(sorted(ranges))
            except Exception as error:
                for at in places:
                    result[at] = error
                return
            with history.using(handle):
                reads = (_noted(history, handle, first, last - first) for first, last in ranges)
                for at, data in zip(places, await asyncio.gather(*reads, return_exceptions=True), strict=True):
                    result[at] = data

        await asyncio.gather(*(one(path, places) for path, places in by_path.items()))
        if on_error != "return":
            for data in result:
                if isinstance(data, BaseException):
                    raise data
        return result

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, outfile: Any = None,
                        **options: Any) -> None:
        rpath = self._strip_protocol(rpath)
        if outfile is None and await self._isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        source = await in_thread(self._opened, rpath, WHOLE)
        handle, history = source.handle(), _history_of(source)
        callback.set_size(handle.size)
        if handle.size > CHUNK:
            handle.plan([(0, handle.size)])
            history.announce([(0, handle.size)])
        if outfile is None:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
        out = outfile or open(lpath, "wb")
        try:
            with history.using(handle):
                for offset in range(0, handle.size, CHUNK):
                    data = await _noted(history, handle, offset, CHUNK)
                    await in_thread(out.write, data)
                    callback.relative_update(len(data))
            self._siblings.closed(rpath, [(0, handle.size)])
        finally:
            if outfile is None:
                out.close()

    # What the target does.

    def _first_after(self, path: str) -> First | None:
        """What to fetch with a lookup: most programs look up a file before they open it, and its format says what they
        read first. After some lookups in vain, only one in 16 fetches it until a file is opened."""
        first = first_of(path)
        if first == START:
            return None
        self._lookups += 1
        if len(self._unopened) >= IN_VAIN and self._lookups % 16:
            return None
        self._unopened[path] = None
        while len(self._unopened) > IN_VAIN:
            self._unopened.popitem(last=False)
        return first

    async def _file(self, path: str) -> dict[str, Any] | None:
        """A file of a remote store that the engine reads, by the lookup of its reads; `None` if the target must tell."""
        if self._scheme in (None, "file"):
            return None
        try:
            handle = (await in_thread(self._source, path, self._first_after(path))).handle()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        etag, modified = handle.identity
        info = {"name": path, "size": handle.size, "type": "file"}
        if etag is not None:
            info["ETag"] = etag
        if modified is not None:
            info["LastModified"] = datetime.fromtimestamp(modified / 1e9, timezone.utc)
        return info

    async def _info(self, path: str, **options: Any) -> Any:
        path = self._strip_protocol(path)
        return await self._file(path) or await in_thread(self.fs.info, path, **options)

    async def _ls(self, path: str, detail: bool | None = None, **options: Any) -> Any:
        # The default is the target's: local files are listed by name.
        if detail is not None:
            options["detail"] = detail
        return await in_thread(self.fs.ls, self._strip_protocol(path), **options)

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **options: Any) -> Any:
        path = self._strip_protocol(path)
        return await in_thread(self.fs.find, path, maxdepth=maxdepth, withdirs=withdirs, **options)

    async def _exists(self, path: str, **options: Any) -> bool:
        path = self._strip_protocol(path)
        return await self._file(path) is not None or bool(await in_thread(self.fs.exists, path, **options))

    async def _isfile(self, path: str) -> bool:
        path = self._strip_protocol(path)
        # pyarrow asks this of every file before it opens it, and the open looks it up.
        if self._scheme not in (None, "file") and self.attribute_timeout > 0 and self._is_listed(path):
            return True
        return await self._file(path) is not None or bool(await in_thread(self.fs.isfile, path))

    async def _isdir(self, path: str) -> bool:
        return bool(await in_thread(self.fs.isdir, self._strip_protocol(path)))

    async def _pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        path = self._strip_protocol(path)
        with self._changing(path):
            await in_thread(self.fs.pipe_file, path, value, mode=mode, **options)

    async def _put_file(self, lpath: Any, rpath: str, mode: str = "overwrite", **options: Any) -> None:
        rpath = self._strip_protocol(rpath)
        with self._changing(rpath):
            await in_thread(self.fs.put_file, lpath, rpath, mode=mode, **options)

    async def _cp_file(self, path1: str, path2: str, **options: Any) -> None:
        path1, path2 = self._strip_protocol([path1, path2])
        with self._changing(path2):
            await in_thread(self.fs.cp_file, path1, path2, **options)

    async def _mv_file(self, path1: str, path2: str) -> None:
        path1, path2 = self._strip_protocol([path1, path2])
        with self._changing(path1, path2):
            await in_thread(self.fs.mv, path1, path2)

    async def _rm_file(self, path: str, **options: Any) -> None:
        path = self._strip_protocol(path)
        with self._changing(path):
            await in_thread(self.fs.rm_file, path, **options)

    async def _rm(self, path: Any, recursive: bool = False, batch_size: int | None = None, maxdepth: int | None = None,
                  **options: Any) -> None:
        path = self._strip_protocol(path)
        with self._changing(*(path if isinstance(path, list) else [path])):
            await in_thread(self.fs.rm, path, recursive=recursive, maxdepth=maxdepth)

    async def _mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        await in_thread(self.fs.mkdir, self._strip_protocol(path), create_parents=create_parents, **options)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await in_thread(self.fs.makedirs, self._strip_protocol(path), exist_ok=exist_ok)

    async def _rmdir(self, path: str) -> None:
        await in_thread(self.fs.rmdir, self._strip_protocol(path))

    def rmdir(self, path: str) -> None:
        with self._changing(path):
            self.fs.rmdir(self._strip_protocol(path))

    def touch(self, path: str, truncate: bool = True, **options: Any) -> None:
        with self._changing(path):
            self.fs.touch(self._strip_protocol(path), truncate=truncate, **options)

    def created(self, path: str) -> Any:
        return self.fs.created(self._strip_protocol(path))

    def modified(self, path: str) -> Any:
        return self.fs.modified(self._strip_protocol(path))

    def sign(self, path: str, expiration: int = 100, **options: Any) -> Any:
        return self.fs.sign(self._strip_protocol(path), expiration=expiration, **options)

    def ukey(self, path: str) -> Any:
        return self.fs.ukey(self._strip_protocol(path))

    def checksum(self, path: str) -> Any:
        return self.fs.checksum(self._strip_protocol(path))

    def invalidate_cache(self, path: str | None = None) -> None:
        if path is None:
            self._siblings.forget()
            with self._lock:
                self._changes += 1
                self._sources.clear()
            for used in self._used:
                _stores.changed_all(used)
            self.fs.invalidate_cache()
        else:
            self._forget(path)
            self.fs.invalidate_cache(self._strip_protocol(path))

    def stats(self) -> dict[str, int]:
        """Counters of the cache behind this file system: pages, requests, bytes."""
        far = self._scheme != "file"
        return _stores.summed(_stores.engine_of(used, far) for used in self._used or {self._access.settings})

    def _repr_html_(self) -> str:
        from ._html import of_system

        return of_system(self)


mirror(BowwaveFileSystem)


class FileOfSystem(File):
    """A file of a `BowwaveFileSystem`, with what fsspec's own files have."""

    def __init__(self, fs: BowwaveFileSystem, path: str, source: Source, position: int = 0) -> None:
        super().__init__(source, position)
        self.fs, self.path = fs, path
        self.blocksize = 4096

    @property
    def full_name(self) -> str:
        return self.fs.unstrip_protocol(self.path)

    @cached_property
    def details(self) -> dict[str, Any]:
        return self.fs.info(self.path)  # type: ignore[no-any-return]

    def info(self) -> dict[str, Any]:
        return self.details

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.fs, self.path, self._position, self._source.identity)


def _reopened(fs: BowwaveFileSystem, path: str, position: int, identity: Any) -> FileOfSystem:
    source = fs._source(path)
    if source.identity != identity:
        raise OSError(f"{path}: the object was replaced since it was opened; open it again")
    return FileOfSystem(fs, path, source, position)  # type: ignore[arg-type]


class _Fetched:
    """An object of another file system: as `Source`, read by that file system."""

    def __init__(self, fs: BowwaveFileSystem, path: str, info: dict[str, Any]) -> None:
        self.fs, self.path, self.size = fs, path, info["size"]
        self.url = str(fs.fs.unstrip_protocol(path))
        version = [str(info[name]) for name in ("ETag", "etag", "mtime", "LastModified", "last_modified", "created", "ino",
                                                "generation", "md5") if info.get(name) is not None]
        self.identity = ('"' + "-".join([*version, str(self.size)]) + '"', None)
        self._opened: tuple[int, _bowwave.Store, _bowwave.Handle] | None = None
        self._lock = _stores.ForkLock()

    def handle(self, first: First | None = None) -> _bowwave.Handle:
        now, opened = _stores.generation(), self._opened
        if opened is not None and opened[0] == now:
            return opened[2]
        with self._lock:
            if self._opened is None or self._opened[0] != now:
                target, path = self.fs.fs, self.path

                def fetch(start: int, end: int) -> bytes:
                    return target.cat_file(path, start=start, end=end)  # type: ignore[no-any-return]

                engine = _stores.engine_of(self.fs._access_of(path).settings, True)
                store = engine.fetcher(self.url, self.size, self.identity[0], whole(self.url, fetch))
                self._opened = (now, store, store.open(""))
            return self._opened[2]


def _history_of(source: Source | _Fetched) -> History:
    return shared(source.url, getattr(source, "access", None))


def _ranges_of(history: History) -> Iterator[tuple[int, int]]:
    """Offsets and lengths of a file's reads."""
    reads = history.reads.all()
    if len(reads) == READS:
        # The first reads are forgotten: the file counts as read whole.
        yield 0, history.size
        return
    for _, _, offset, length, _ in reads:
        yield offset, length


async def _noted(history: History, handle: _bowwave.Handle, offset: int, length: int) -> bytes:
    """A read that its picture shows."""
    begin = monotonic()
    data = await read(handle, offset, length)
    history.note(begin, [(offset, len(data))])
    return data


def _first(start: int | None, end: int | None) -> First | None:
    """What a read of a slice reads of a file of any size; `None` if that depends on the size."""
    start = start or 0
    if start < 0:
        return None if end is not None else (start, None)
    return None if end is not None and end <= start else (start, end)


def _clipped(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """A range as Python's slices clip it."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


# For a package that is imported without being installed; otherwise the entry point has done it.
_fsspec.register_implementation("bowwave", BowwaveFileSystem, clobber=True)
