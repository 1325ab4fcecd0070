"""Servers that lie, break off and fall silent: right bytes, or a builtin exception with a message."""

import hashlib
import time

import bowwave
import pytest
from conftest import Server

#: One in three modes is tested here, in four parts; the Rust tests have all of them on every path.
PARTS = 4


class Hostile(Server):
    def __init__(self, dialect):
        super().__init__("hostile", dialect)
        self.endpoint = self.first
        self.url = self.child.stdout.readline().strip().rstrip("/") + "/a"
        self.options = {"timeout": "1s", "retries": 1}
        if dialect == "s3":
            self.options |= {"endpoint": self.endpoint, "allow_http": True, "region": "us-east-1", "key": "any", "secret": "any"}

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()


@pytest.fixture(scope="module", params=["s3", "http"])
def hostile(request):
    server = Hostile(request.param)
    yield server
    server.end()


def test_an_honest_server_is_read(hostile):
    assert hostile.ask("honest") == "ok"
    with bowwave.open(hostile.url, **hostile.options) as file:
        assert hashlib.sha256(file.read()).hexdigest() in hostile.ask("versions").split()


@pytest.mark.parametrize("part", range(PARTS))
def test_lies_are_exceptions_and_never_bytes(hostile, part):
    modes = [mode for mode in hostile.ask("modes").split()
             if not mode.startswith(("list", "upload", "silent", "trickle", "drip"))]
    results = {}
    for mode in modes[part::PARTS * 3]:
        assert hostile.ask(mode + ",calls=reads") == "ok"
        begun = time.monotonic()
        try:
            with bowwave.open(hostile.url, **hostile.options, cache=f"{64 + part}MiB") as file:
                data = file.read()
        except (OSError, ValueError) as error:
            assert str(error).strip() and "\n" not in str(error)
            results[mode] = type(error).__name__
        else:
            known = hostile.ask("versions").split()
            assert hashlib.sha256(data).hexdigest() in known, mode
            results[mode] = "read"
        assert time.monotonic() - begun < 20, mode
        assert hostile.ask("honest") == "ok"
    assert results


@pytest.mark.parametrize("mode", ["status-503,calls=all", "status-429,calls=all", "refused"])
def test_failing_servers_are_os_errors(hostile, mode):
    assert hostile.ask(mode) == "ok"
    with pytest.raises(OSError) as raised:
        bowwave.open(hostile.url, **hostile.options)
    assert "a" in str(raised.value)
    hostile.ask("honest")


def test_a_silent_server_is_a_timeout(hostile):
    assert hostile.ask("silent") == "ok"
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no response|timed out|deadline"):
        bowwave.open(hostile.url, **hostile.options)
    assert time.monotonic() - begun < 20
    hostile.ask("honest")
