"""Servers on loopback, from the test kit of the Rust tests: `tools/python_tests.sh` builds them."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import traceback
import urllib.request
from pathlib import Path

import bowwave.hdf5
import pytest
from bowwave import _targets
from bowwave._alike import Alike
from fsspec.implementations.local import LocalFileSystem
from fsspec.registry import _registry, known_implementations
from fsspec.spec import AbstractBufferedFile

EXAMPLES = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target")) / "debug" / "examples"
KEYS = {"AWS_ACCESS_KEY_ID": "TESTKITACCESSKEY", "AWS_SECRET_ACCESS_KEY": "testkit-secret-key"}


class Server:
    """An example of the test kit, which ends with its standard input."""

    def __init__(self, name, *arguments):
        command = [str(EXAMPLES / name), *map(str, arguments)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self.child.stdout.readline().strip()
        assert self.first, f"{name} did not start: cargo build -p bowwave-testkit --examples"

    def end(self):
        self.child.stdin.close()
        self.child.wait()


class Shaped(Server):
    """Slow S3 with generated objects, in bucket `data`: 30 ms to first byte, 90 MB/s a connection."""

    def __init__(self, first_byte_ms=30, connection_mb_s=90, **objects):
        sizes = (f"{key}={size}" for key, size in objects.items())
        super().__init__("shaped", first_byte_ms, connection_mb_s, 0, *sizes)
        self.url = self.first
        self.options = {"endpoint": self.url, "allow_http": True, "anonymous": True}
        #: Options of s3fs.
        self.target = {"anon": True, "client_kwargs": {"endpoint_url": self.url, "region_name": "us-east-1"}}
        self.period = urllib.request.urlopen(self.url + "/_pattern").read()

    def counters(self):
        import json

        return json.load(urllib.request.urlopen(self.url + "/_counters"))

    def counters_at_rest(self):
        """The counters once no request of an earlier test is in flight."""
        until = time.monotonic() + 10
        while (counters := self.counters())["in_flight_max"]:
            assert time.monotonic() < until, counters
            time.sleep(0.005)
        return counters

    def bytes(self, offset, length):
        """What an object has there."""
        at = offset % len(self.period)
        return (self.period * (1 + (at + length) // len(self.period)))[at : at + length]


class Directory(Server):
    """A directory over HTTP and S3."""

    def __init__(self, path):
        self.path = path
        super().__init__("serve", path)
        self.http = self.first.split()[-1]
        line = self.child.stdout.readline()
        self.bucket, self.endpoint = re.fullmatch(r"s3:\s+(s3://\S+/) at (\S+)\s*", line).groups()
        self.options = {"endpoint": self.endpoint, "allow_http": True, "region": "us-east-1",
                        "key": KEYS["AWS_ACCESS_KEY_ID"], "secret": KEYS["AWS_SECRET_ACCESS_KEY"]}


class CachedFiles(LocalFileSystem):
    """Local files, read through a cache of fsspec."""

    cachable = False

    def _open(self, path, mode="rb", block_size=None, cache_type="bowwave", **options):
        if mode == "rb":
            return _CachedFile(self, path, mode, cache_type=cache_type, size=self.info(path)["size"])
        return super()._open(path, mode=mode, block_size=block_size, **options)


class _CachedFile(AbstractBufferedFile):
    def _fetch_range(self, start, end):
        with open(self.path, "rb") as file:
            file.seek(start)
            return file.read(end - start)


def run(program, *arguments, **options):
    """Runs a program in an interpreter of its own."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.run(command, timeout=60, capture_output=True, **{"text": True, **options})


def status_of(child):
    """The status of a forked child that runs a function."""
    process = os.fork()
    if process == 0:
        try:
            child()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return ended(process)


def ended(child):
    """The status of a process at its end."""
    until = time.monotonic() + 60
    while (waited := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError("a forked child hangs")
        time.sleep(0.002)
    return waited[1]


@pytest.fixture(scope="session")
def shaped():
    server = Shaped(small=1 << 20, large=64 << 20)
    yield server
    server.end()


@pytest.fixture
def served(tmp_path):
    """Starts a server for files given by name."""
    servers = []

    def serve(**files):
        directory = tmp_path / f"bucket{len(servers)}"
        directory.mkdir()
        for name, data in files.items():
            path = directory / name.replace("__", ".")
            path.write_bytes(data)
        servers.append(Directory(directory))
        return servers[-1]

    yield serve
    for server in servers:
        server.end()


@pytest.fixture
def command(monkeypatch):
    """The command, for the laboratory."""
    built = EXAMPLES.parent / "bowwave"
    found = os.environ.get("BOWWAVE") or (str(built) if built.exists() else shutil.which("bowwave"))
    if not found:
        pytest.fail("the command bowwave is not built: cargo build -p bowwave-cli")
    monkeypatch.setenv("BOWWAVE", found)


@pytest.fixture
def without_s3fs(monkeypatch):
    """As if s3fs were not installed."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for protocol in ("s3", "s3a"):
        monkeypatch.setitem(known_implementations, protocol, known_implementations[protocol])
        # What is registered meanwhile is removed afterwards.
        monkeypatch.setitem(_registry, protocol, None)
        del _registry[protocol]
    _targets.register()


@pytest.fixture(autouse=True)
def other_files_are_forgotten(monkeypatch):
    """As if no HDF5 file had been read."""
    monkeypatch.setattr(bowwave.hdf5, "ALIKE", Alike())


@pytest.fixture(autouse=True)
def targets_are_new():
    """Forgets instances: those of s3fs, if installed, keep the listings of earlier tests."""
    yield
    for known in _registry.values():
        known.clear_instance_cache()
