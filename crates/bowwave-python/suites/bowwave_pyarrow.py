"""pyarrow over bowwave: its local file system is one of fsspec's, and that is `BowwaveFileSystem`."""

import os
import re

import fsspec.implementations.local
import pyarrow.fs
from pyarrow.fs import FileInfo, FSSpecHandler, PyFileSystem, SubTreeFileSystem

import bowwave_suites

NATIVE = pyarrow.fs.LocalFileSystem


class Handler(FSSpecHandler):
    """Local files by the rules of pyarrow's own local file system where it has some: URLs are no paths."""

    def __init__(self, fs=None):
        super().__init__(fs or bowwave_suites.Local())

    def get_file_info(self, paths):
        for path in paths:
            if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
                raise ValueError(f"Expected a local filesystem path, got a URI: '{path}'")
        return super().get_file_info(paths)

    def get_file_info_selector(self, selector):
        infos = super().get_file_info_selector(selector)
        if os.path.isabs(selector.base_dir):
            return infos
        # fsspec lists absolute paths.
        return [FileInfo(os.path.relpath(info.path), info.type, size=info.size, mtime_ns=info.mtime_ns)
                for info in infos]


class Kind(type):
    """What the tests and pyarrow take for a local file system."""

    def __instancecheck__(cls, instance):
        ours = isinstance(instance, PyFileSystem) and isinstance(instance.handler, Handler)
        return ours or isinstance(instance, NATIVE)

    def __call__(cls, *, use_mmap=False):
        # A map is no read of a file system.
        return NATIVE(use_mmap=True) if use_mmap else PyFileSystem(Handler())


class LocalFileSystem(metaclass=Kind):
    """In place of pyarrow's class of this name."""

    from_uri = NATIVE.from_uri


def _below(filesystem):
    """The same file system, with bowwave in place of the native one, and local if it is bowwave over local files."""
    if isinstance(filesystem, SubTreeFileSystem):
        base = _below(filesystem.base_fs)
        return filesystem if base is filesystem.base_fs else SubTreeFileSystem(filesystem.base_path, base)
    if type(filesystem) is NATIVE:
        return PyFileSystem(Handler())
    if isinstance(filesystem, PyFileSystem) and type(handler := filesystem.handler) is FSSpecHandler:
        if isinstance(getattr(handler.fs, "fs", None), fsspec.implementations.local.LocalFileSystem):
            return PyFileSystem(Handler(handler.fs))
    return filesystem


def put_below():
    """Replaces the local file system wherever pyarrow resolves a path or a URL. Call it before `pyarrow.parquet` is
    imported, which binds these names."""
    resolve, ensure = pyarrow.fs._resolve_filesystem_and_path, pyarrow.fs._ensure_filesystem

    def resolve_filesystem_and_path(path, filesystem=None, *, memory_map=False):
        filesystem, path = resolve(path, filesystem, memory_map=memory_map)
        return (filesystem if memory_map else _below(filesystem)), path

    def ensure_filesystem(filesystem, *, use_mmap=False):
        found = ensure(filesystem, use_mmap=use_mmap)
        return found if found is filesystem or use_mmap else _below(found)

    pyarrow.fs.LocalFileSystem = LocalFileSystem
    pyarrow.fs._resolve_filesystem_and_path = resolve_filesystem_and_path
    pyarrow.fs._ensure_filesystem = ensure_filesystem
