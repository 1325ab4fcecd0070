"""A pytest plugin that puts bowwave below the tests of other projects, which are unchanged.

`--bowwave SUITE` names the project:

- `pyarrow`: every local file system of pyarrow is a bowwave file system (`bowwave_pyarrow.py`),
- `dask`: `file://` URLs and paths are served by a bowwave file system,
- `h5py`: `h5py.File(path)` reads through `bowwave.hdf5.open`,
- `s3fs` and `zarr`: nothing else.

In all of them `fsspec.filesystem("file")` and `("memory")` are wrapped in `BowwaveFileSystem`, and S3 files have
`cache_type="bowwave"`. `left_out.txt` has the tests that are left out, each with its reason.

The run fails if fewer files than `--bowwave-files`, or fewer bytes than `--bowwave-bytes`, are read through bowwave: a
suite that bypasses it proves nothing. With `--bowwave-whole` it also fails if a line of `left_out.txt` names no test.
"""

import os
import pathlib

import fsspec
import fsspec.config
import pytest
from fsspec.implementations.local import LocalFileSystem

import bowwave.fsspec

SUITES = ("pyarrow", "s3fs", "dask", "zarr", "h5py")
LEFT_OUT = pathlib.Path(__file__).with_name("left_out.txt")

_original = fsspec.filesystem
#: Files opened and bytes returned by bowwave, in this process.
COUNTS = {"files": 0, "bytes": 0}
#: Names in `left_out.txt` that no test has.
_unused: list[str] = []


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


def pytest_addoption(parser):
    group = parser.getgroup("bowwave")
    group.addoption("--bowwave", metavar="SUITE", choices=SUITES, help="the project whose tests these are")
    group.addoption("--bowwave-files", metavar="N", type=int, default=1, help="fail if bowwave opens fewer files")
    group.addoption("--bowwave-bytes", metavar="N", type=int, default=1, help="fail if bowwave reads fewer bytes")
    group.addoption("--bowwave-whole", action="store_true", help="fail if a line of left_out.txt names no test")


def pytest_configure(config):
    suite = config.getoption("--bowwave")
    if suite is None:
        raise pytest.UsageError(f"name the suite: --bowwave, one of {', '.join(SUITES)}")
    fsspec.filesystem = filesystem
    fsspec.config.conf.setdefault("s3", {})["default_cache_type"] = "bowwave"
    count()
    if suite == "pyarrow":
        import bowwave_pyarrow

        bowwave_pyarrow.put_below()
    elif suite == "dask":
        for protocol in Local.protocol:
            fsspec.register_implementation(protocol, Local, clobber=True)
    elif suite == "h5py":
        put_below_h5py()
    elif suite == "zarr":
        count_keys()


def count():
    """Counts files and bytes at the entry points of bowwave."""
    import bowwave._async

    def counting(original, size):
        def counted(*arguments, **options):
            result = original(*arguments, **options)
            COUNTS["bytes"] += size(result)
            return result

        return counted

    file = bowwave.File
    opened, read = file.__init__, bowwave._async._Reads.read

    def count_opened(self, *arguments, **options):
        opened(self, *arguments, **options)
        COUNTS["files"] += 1

    async def count_read(self, handle, offset, length):
        data = await read(self, handle, offset, length)
        COUNTS["bytes"] += len(data)
        return data

    file.__init__ = count_opened
    bowwave._async._Reads.read = count_read
    for name, size in (("pread", len), ("readline", len), ("readinto", int), ("preadinto", int),
                       ("read_ranges", lambda parts: sum(map(len, parts)))):
        setattr(file, name, counting(getattr(file, name), size))
    cache = bowwave.fsspec.BowwaveCache
    created = cache.__init__

    def count_created(self, *arguments, **options):
        created(self, *arguments, **options)
        COUNTS["files"] += 1

    cache.__init__ = count_created
    cache._fetch = counting(cache._fetch, len)


def count_keys():
    """Keys of zarr are read without a file object: each counts as a file."""
    import bowwave.zarr

    get = bowwave.zarr.Store.get

    async def counted(self, *arguments, **options):
        COUNTS["files"] += 1
        return await get(self, *arguments, **options)

    bowwave.zarr.Store.get = counted


def put_below_h5py():
    """Files that h5py opens by path for reading are read through bowwave."""
    import h5py

    import bowwave.hdf5

    original = h5py.File.__init__

    def init(self, name, mode="r", *arguments, **options):
        if mode == "r" and not arguments and not options and isinstance(name, str | bytes | os.PathLike):
            name = bowwave.hdf5.open(os.fsdecode(name))
        original(self, name, mode, *arguments, **options)

    h5py.File.__init__ = init


def pytest_collection_modifyitems(config, items):
    suite = config.getoption("--bowwave")
    left_out = []
    for line in LEFT_OUT.read_text(encoding="utf-8").splitlines():
        words = line.partition("  #")[0].split()
        if not words or words[0] != suite:
            continue
        # The node's name has the directory only if pytest's root is above it.
        found = [item for item in items if words[1] in f"{item.path}::{item.nodeid.partition('::')[2]}"]
        left_out += found
        if not found:
            _unused.append(words[1])
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def faults(config):
    """Why the run proves less than it claims."""
    for name in COUNTS:
        floor = config.getoption(f"--bowwave-{name}")
        if COUNTS[name] < floor:
            yield f"{COUNTS[name]} {name} went through bowwave, fewer than {floor}: the tests bypass it"
    if config.getoption("--bowwave-whole"):
        for name in _unused:
            yield f"left_out.txt names '{name}', which is no test of this suite"


def pytest_sessionfinish(session, exitstatus):
    if not session.config.option.collectonly and any(faults(session.config)) and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"bowwave: {COUNTS['files']} files opened, {COUNTS['bytes']} bytes read")
    for fault in faults(config):
        terminalreporter.write_line(f"bowwave: error: {fault}", red=True)
