"""A pytest plugin that puts bowwave below the tests of other projects, which are unchanged.

`fsspec.filesystem("file")` and `("memory")` are wrapped in `BowwaveFileSystem`, and all S3 files have
`cache_type="bowwave"`. With `BOWWAVE_REGISTER=1`, `file://` URLs and paths are served by such a file system, too. With
`BOWWAVE_H5PY=1`, `h5py.File(path)` reads through `bowwave.hdf5.open`. `BOWWAVE_DESELECT` names a file with the tests that
are left out, each with its reason.
"""

import os

import fsspec
import fsspec.config
from fsspec.implementations.local import LocalFileSystem

import bowwave.fsspec

_original = fsspec.filesystem
#: Reads that went through bowwave, so that a suite that bypasses it is noticed.
COUNTS = {"opened": 0, "cached": 0}


def filesystem(protocol, **options):
    target = _original(protocol, **options)
    if protocol not in ("file", "memory"):
        return target
    wrapped = bowwave.fsspec.BowwaveFileSystem(fs=target)
    # Tests know the target's peculiarities by its name.
    wrapped.protocol = target.protocol
    return wrapped


class Local(bowwave.fsspec.BowwaveFileSystem):
    """Local files, for libraries that look up a class by the protocol of a URL."""

    protocol = ("file", "local")
    local_file = True

    def __init__(self, auto_mkdir=False, **options):
        options.pop("fs", None)
        super().__init__(fs=LocalFileSystem(auto_mkdir=auto_mkdir), **options)

    _strip_protocol = LocalFileSystem._strip_protocol


def pytest_configure(config):
    fsspec.filesystem = filesystem
    if os.environ.get("BOWWAVE_REGISTER"):
        for protocol in Local.protocol:
            fsspec.register_implementation(protocol, Local, clobber=True)
    if os.environ.get("BOWWAVE_H5PY"):
        put_below_h5py()
    fsspec.config.conf.setdefault("s3", {})["default_cache_type"] = "bowwave"
    opened, cached = bowwave.fsspec.FileOfSystem.__init__, bowwave.fsspec.BowwaveCache._fetch

    def count_opened(self, *arguments, **options):
        COUNTS["opened"] += 1
        opened(self, *arguments, **options)

    def count_cached(self, *arguments):
        COUNTS["cached"] += 1
        return cached(self, *arguments)

    bowwave.fsspec.FileOfSystem.__init__ = count_opened
    bowwave.fsspec.BowwaveCache._fetch = count_cached


def put_below_h5py():
    """Files that h5py opens by path for reading are read through bowwave."""
    import h5py

    import bowwave.hdf5

    original = h5py.File.__init__

    def init(self, name, mode="r", *arguments, **options):
        if mode == "r" and not arguments and not options and isinstance(name, str | bytes | os.PathLike):
            name = bowwave.hdf5.open(os.fsdecode(name))
            COUNTS["opened"] += 1
        original(self, name, mode, *arguments, **options)

    h5py.File.__init__ = init


def pytest_collection_modifyitems(config, items):
    path = os.environ.get("BOWWAVE_DESELECT")
    if not path:
        return
    with open(path, encoding="utf-8") as file:
        names = [line.split("#")[0].strip() for line in file]
    # The node's name has the directory only if pytest's root is above it.
    left_out = [item for item in items if any(name and name in f"{item.path} {item.nodeid}" for name in names)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"bowwave: {COUNTS['opened']} files opened, {COUNTS['cached']} cached reads")
