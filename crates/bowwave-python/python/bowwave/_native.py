"""The target of `BowwaveFileSystem` where its fsspec implementation is not installed: listings and writes by the engine."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.spec import AbstractBufferedFile

from . import _bowwave, _stores
from ._options import SCHEMES
from ._stores import Access


class NativeFileSystem(AbstractFileSystem):
    """A file system of bowwave's own stores.

    As in other file systems of fsspec, listings are cached until the file system itself changes them or
    `invalidate_cache` is called, unless `listings` has `use_listings_cache`, `listings_expiry_time` (seconds) or
    `max_paths`."""

    cachable = False

    def __init__(self, scheme: str, access: Access, **listings: Any) -> None:
        super().__init__(**listings)
        self.protocol = self.scheme = scheme
        self.access = access
        self._strip_protocol = self._stripped

    def _stripped(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._stripped(one) for one in path]
        text = os.fspath(path)
        if self.scheme in ("http", "https"):
            return text
        protocol, separator, rest = text.partition("://")
        if separator and SCHEMES.get(protocol) == self.scheme:
            text = rest
        if self.scheme == "az":
            # As adlfs: abfs://container@account.dfs.core.windows.net/path.
            container, separator, rest = text.partition("/")
            text = container.partition("@")[0] + separator + rest
        return text.rstrip("/")

    def unstrip_protocol(self, name: str) -> str:
        return name if "://" in name else f"{self.scheme}://{name}"

    def _at(self, path: str) -> tuple[_bowwave.Store, str]:
        if self.scheme in _stores.BUCKETS:
            path = f"{self.scheme}://{self._stripped(path)}"
        place = _stores.place_of(path)
        return _stores.store_of(place.store, self.access), place.path

    def _described(self, name: str, entry: tuple[str, str, int, int | None, str | None]) -> dict[str, Any]:
        _, kind, size, modified, etag = entry
        info: dict[str, Any] = {"name": name, "type": kind, "size": size}
        if modified is not None:
            info["mtime"] = modified / 1e9
        if etag is not None:
            info["ETag"] = etag
        return info

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._stripped(path)
        store, place = self._at(path)
        return self._described(path, store.stat(place))

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **options: Any) -> list[Any]:
        path = self._stripped(path).rstrip("/")
        infos = None if refresh else self.dircache.get(path)
        if infos is None:
            store, place = self._at(path)
            try:
                entries = store.list(place)
            except NotADirectoryError:
                infos = [self.info(path)]
            else:
                infos = self.dircache[path] = [self._described(f"{path}/{entry[0]}", entry) for entry in entries]
        return list(infos) if detail else [info["name"] for info in infos]

    def _refuse_existing(self, path: str) -> None:
        """Raises for an object that exists, and if the store does not tell."""
        try:
            self.info(path)
        except FileNotFoundError:
            return
        raise FileExistsError(errno.EEXIST, f"{self.unstrip_protocol(path)}: exists; write another name, or use mode 'wb'")

    def invalidate_cache(self, path: str | None = None) -> None:
        super().invalidate_cache(path)
        if path is None:
            self.dircache.clear()
            return
        # A new object may be the first one of the directories above it.
        path = self._stripped(path).rstrip("/")
        while path:
            self.dircache.pop(path, None)
            path = self._parent(path)

    def mkdir(self, path: str, create_parents: bool = True, **options: Any) -> None:
        # Directories of object stores exist as long as they have objects.
        if self.scheme not in _stores.BUCKETS:
            store, place = self._at(path)
            store.mkdir(place)
            self.invalidate_cache(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.mkdir(path)

    def rmdir(self, path: str) -> None:
        if self.scheme not in _stores.BUCKETS:
            store, place = self._at(path)
            store.rmdir(place)
            self.invalidate_cache(path)

    def _rm(self, path: str) -> None:
        store, place = self._at(path)
        try:
            store.remove(place)
        except IsADirectoryError:
            # A directory without a marker has no object of its own.
            with suppress(FileNotFoundError):
                store.rmdir(place)
        self.invalidate_cache(path)

    def rm_file(self, path: str) -> None:
        self._rm(path)

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        (store, place), (other, to) = self._at(path1), self._at(path2)
        if store is not other:
            super().mv(path1, path2, **options)
            return
        store.rename(place, to)
        # Of directories, with all below them.
        self.invalidate_cache()

    def cp_file(self, path1: str, path2: str, **options: Any) -> None:
        try:
            data = self.cat_file(path1)
        except IsADirectoryError:
            self.makedirs(path2, exist_ok=True)
        else:
            self.pipe_file(path2, data)

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        if mode == "create":
            self._refuse_existing(path)
        store, place = self._at(path)
        handle = store.create(place)
        handle.write(0, value)
        handle.sync()
        self.invalidate_cache(path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        store, place = self._at(path)
        handle = store.open(place)
        first, last, _ = slice(start, end).indices(handle.size)
        return handle.pread(first, max(0, last - first))

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if mode == "rb":
            return AbstractBufferedFile(self, path, mode, cache_type="none")
        if mode == "xb":
            self._refuse_existing(path)
        return _Written(self, path, mode)


class _Written(AbstractBufferedFile):
    """A file being written: an upload in parts."""

    def _initiate_upload(self) -> None:
        store, place = self.fs._at(self.path)
        if self.mode == "xb":
            self.fs._refuse_existing(self.path)
        before = self.fs.cat_file(self.path) if self.mode == "ab" and self.fs.exists(self.path) else b""
        self.handle: _bowwave.Handle = store.create(place)
        self.at = self.handle.write(0, before) if before else 0

    def _upload_chunk(self, final: bool = False) -> bool:
        data = self.buffer.getvalue()
        if data:
            self.at += self.handle.write(self.at, data)
        if final:
            self.handle.sync()
            self.fs.invalidate_cache(self.path)
        return True
