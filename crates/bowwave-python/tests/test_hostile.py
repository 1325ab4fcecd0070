"""Servers that lie, break off and fall silent: right bytes, or a builtin exception with place, cause and remedy.

A cell of the table is a mode of the server, a store, a way of reading, and whether the object was opened while the
server was still honest. Without settings, a fixed selection runs, with each mode and each way at least once.

Environment, as for the Rust tests in `crates/bowwave-cli/tests/hostile_stores.rs`: `BOWWAVE_HOSTILE_ALL=1` runs every
cell, `BOWWAVE_HOSTILE_TABLE=FILE` writes the table, `BOWWAVE_HOSTILE_MODE`, `_STORE` and `_CALL` select cells, and
`BOWWAVE_HOSTILE_PARALLEL` of them run at a time.
"""

import asyncio
import hashlib
import itertools
import os
import queue
import re
import socket
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import bowwave
import bowwave.fsspec
import bowwave.zarr
import pytest
from bowwave import _stores
from conftest import Server
from fsspec.asyn import sync, sync_wrapper
from fsspec.implementations.http import HTTPFile, HTTPFileSystem
from zarr.core.buffer import default_buffer_prototype

STORES = ("s3", "gs", "az", "http")
#: Bytes of the object `a`, whose first version follows this formula.
SIZE = 300_000
FIRST = bytes(at * 31 % 251 for at in range(SIZE))
#: Longest time of a cell in seconds: an open and a read, each with a timeout of 1 s and one retry, on a busy machine.
LIMIT, WATCHDOG = 12, 30
#: Credentials that no server checks, in place of those of this machine.
ENVIRONMENT = {
    "AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "c2VjcmV0LXNlY3JldC1zZWNyZXQ=",
    "GOOGLE_SERVICE_ACCOUNT_KEY":
        '{"private_key": "", "private_key_id": "", "client_email": "", "disable_oauth": true}',
}
NAMES = {"a", "b", "c", "d", "e", "f", "sub"}


class Hostile(Server):
    def __init__(self, store):
        super().__init__("hostile", store)
        self.store = store
        self.base = self.child.stdout.readline().strip().rstrip("/")
        self.url = self.base + "/a"
        self.options = {"timeout": "1s", "retries": 1}
        if store != "http":
            self.options |= {"endpoint": self.first, "allow_http": True}
        if store == "s3":
            self.options |= {"region": "us-east-1", "key": "any", "secret": "any"}
        self.numbers = itertools.count()

    def ask(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        return self.child.stdout.readline().strip()

    def is_version(self, data):
        return hashlib.sha256(data).hexdigest() in self.ask("versions").split()


# The ways. Each opens the object if it is `late`, yields, and then reads.


def by_open(server, options, late):
    with bowwave.open(server.url, **options) as file:
        yield
        return file.read()


def system(server, options, late):
    fs = bowwave.fsspec.BowwaveFileSystem(
        target_protocol=server.store, attribute_timeout=60, skip_instance_cache=True, **options)
    if late:
        fs.info(server.url)
    return fs


def by_cat_file(server, options, late):
    fs = system(server, options, late)
    yield
    return fs.cat_file(server.url)


def by_cat_ranges(server, options, late):
    fs = system(server, options, late)
    yield
    starts, ends = (0, 200_000, 100_000), (100_000, None, 200_000)
    parts = fs.cat_ranges([server.url] * 3, starts, ends, on_error="return")
    only = len(server.ask("versions").split()) == 1
    for start, data in zip(starts, parts, strict=True):
        # Ranges that arrived are right even if others failed.
        if only and isinstance(data, bytes):
            assert data == FIRST[start:start + len(data)], f"wrong bytes from {start}"
    for data in parts:
        if isinstance(data, Exception):
            raise data
    return parts[0] + parts[2] + parts[1]


def by_map(server, options, late):
    yield
    return bytes(bowwave.map(server.url, **options))


def by_open_async(server, options, late):
    with asyncio.Runner() as runner:
        file = runner.run(bowwave.open_async(server.url, **options))
        yield
        cut = min(100_000, file.size)
        return b"".join(runner.run(file.read_ranges([(0, cut), (cut, file.size)])))


def by_zarr(server, options, late):
    store = bowwave.zarr.Store(server.base, **options)
    with asyncio.Runner() as runner:
        if late:
            runner.run(store.getsize("a"))
        yield
        value = runner.run(store.get("a"))
        return None if value is None else value.to_bytes()


class Transport(HTTPFileSystem):
    """fsspec's own HTTP, which remembers what it delivered and raised."""

    cachable = False
    # The first one keeps bowwave from reading by itself.
    protocol = ("transport", "http")

    def __init__(self):
        super().__init__(client_kwargs={"timeout": aiohttp.ClientTimeout(total=2)})
        self.delivered, self.raised = [], []

    async def noted(self, start, end, call):
        try:
            data = await call
        except BaseException as error:
            self.raised.append(error)
            raise
        self.delivered.append((start, end, data))
        return data

    async def _cat_file(self, url, start=None, end=None, **options):
        return await self.noted(start, end, super()._cat_file(url, start, end, **options))

    def checked(self, data, size):
        """bowwave delivers what the transport did, which trusts the server."""
        assert len(data) == size
        for at in range(0, size, 4096):
            block = data[at:at + 4096]
            assert any(start <= at and len(sent) == end - start and sent[at - start:at - start + len(block)] == block
                       for start, end, sent in self.delivered), f"the transport did not deliver the bytes from {at}"
        return data


class TransportFile(HTTPFile):
    async def noted(self, start, end):
        return await self.fs.noted(start, end, self.async_fetch_range(start, end))

    _fetch_range = sync_wrapper(noted)


def by_cache_type(server, options, late):
    server.transport = fs = Transport()
    size = fs.info(server.url)["size"] or 0
    session = sync(fs.loop, fs.set_session)
    settings = {name: options[name] for name in ("timeout", "retries", "cache")}
    with TransportFile(fs, server.url, session=session, block_size=4096, size=size, loop=fs.loop, cache_type="bowwave",
                       cache_options=settings) as file:
        yield
        # A read of everything would not use the cache.
        return fs.checked(file.read(size // 3) + b"".join(iter(lambda: file.read(100_000), b"")), size)


def by_fetcher(server, options, late):
    server.transport = target = Transport()
    settings = {name: options[name] for name in ("timeout", "retries", "cache")}
    fs = bowwave.fsspec.BowwaveFileSystem(fs=target, attribute_timeout=60, skip_instance_cache=True, **settings)
    with fs.open(server.url) as file:
        yield
        return target.checked(file.read(), file.size)


def by_list_dir(server, options, late):
    store = bowwave.zarr.Store(server.base, **options)

    async def names():
        return [name async for name in store.list_dir("list")]

    yield
    return asyncio.run(names())


def by_set(server, options, late):
    store = bowwave.zarr.Store(server.base, read_only=False, **options)
    server.key = f"write/new-{next(server.numbers)}"
    value = default_buffer_prototype().buffer.from_bytes(server.value)
    yield
    asyncio.run(store.set(server.key, value))
    return server.value


READS = {"open": by_open, "cat_file": by_cat_file, "cat_ranges": by_cat_ranges, "map": by_map,
         "open_async": by_open_async, "zarr": by_zarr}
#: Reads by fsspec's own HTTP, through the cache.
THROUGH = {"cache_type": by_cache_type, "fetcher": by_fetcher}
OTHERS = {"list_dir": by_list_dir, "set": by_set}
WAYS = READS | THROUGH | OTHERS


@dataclass(frozen=True, order=True)
class Cell:
    mode: str
    store: str
    way: str
    #: Whether the object was opened before the server turned hostile.
    late: bool

    def __str__(self):
        return f"{self.mode} {self.store} {self.way} {'late' if self.late else 'early'}"


@dataclass
class Result:
    cell: Cell
    outcome: str
    seconds: float
    message: str = ""
    wrong: str = ""


def run(cell, server, number):
    """Runs a cell on an honest server, and leaves it honest."""
    options = {**server.options, "cache": f"{16 + number % 512}MiB"}
    way = WAYS[cell.way](server, options, cell.late)
    # Completions are those of multipart uploads.
    server.value = FIRST * (31 if cell.mode in ("upload-error-in-200", "upload-done-but-404") else 1)
    server.transport, begun, opened = None, time.monotonic(), False
    result = Result(cell, "", 0)
    try:
        if not cell.late:
            assert server.ask(cell.mode) == "ok"
        next(way)
        opened = True
        if cell.late:
            if cell.way in READS:
                with bowwave.open(server.url, **options) as file:
                    file.read()
                    file.advise("dontneed")
            assert server.ask(cell.mode) == "ok"
            begun = time.monotonic()
        next(way)
    except StopIteration as end:
        result.outcome, result.wrong = "right", bytes_wrong(cell, server, end.value)
    except AssertionError as error:
        result.outcome, result.wrong = "wrong", str(error).partition("\n")[0]
    except BaseException as error:
        result.outcome, result.message = type(error).__name__, str(error)
        result.wrong = error_wrong(cell, server, error, opened)
    result.seconds = time.monotonic() - begun
    assert server.ask("honest") == "ok"
    if not result.wrong and result.seconds > LIMIT:
        result.wrong = f"took {result.seconds:.1f} s"
    return result if result.wrong else afterwards(result, server, options)


def bytes_wrong(cell, server, value):
    """What is wrong with a result that is no exception, in words."""
    letter = expected(cell).letter(cell)
    if cell.way == "list_dir":
        # Entries that the server invents, with valid names, are not to be told from others.
        extra = {name for name in set(value) - NAMES - {"negative", "large"} if not name.startswith("added-")}
        if cell.mode == "list-hostile-keys":
            extra = {name for name in extra if name in ("", ".", "..") or {"/", "\0"} & set(name)}
        if len(set(value)) != len(value) or not NAMES <= set(value) or extra:
            return f"{len(value)} names, not {NAMES - set(value)}, but {extra}"
    elif cell.way in READS and (value is None or not server.is_version(value)):
        return "no such object" if value is None else f"{len(value)} bytes that are in no version"
    return "works, and should fail" if letter == "F" and cell.way not in THROUGH else ""


def error_wrong(cell, server, error, opened):
    """What is wrong with an exception, in words."""
    row, text = expected(cell), str(error)
    letter, kinds, cause = row.letter(cell), row.kinds, row.cause.format(*re.findall("[0-9]+", cell.mode)[-1:])
    if cell.way in THROUGH:
        if not opened or error in server.transport.raised:
            return ""
        # The transport's exceptions are raised as they are, except for those without a message.
        letter, kinds = "?", (OSError, TimeoutError)
        cause = "the target sent [0-9]+ bytes instead of bytes|no response within the timeout"
    found = []
    if letter == "+":
        found.append("should work")
    if type(error) not in kinds:
        found.append(f"is no {' or '.join(kind.__name__ for kind in kinds)}")
    if "\n" in text or len(text) > 500:
        found.append("is no short line")
    place = server.base + {"list_dir": "/list", "set": "/" + getattr(server, "key", "")}.get(cell.way, "/a")
    # Messages of listings, writes and deadlines name the store.
    short = [place]
    if cell.way in OTHERS or type(error) is TimeoutError:
        short.append(server.base + ":")
    if not text.partition("] ")[2].startswith(tuple(short)) and not text.startswith(place):
        found.append("does not name its URL")
    if not re.search(cause, text):
        found.append(f"does not name the cause: {cause}")
    if not re.search(REMEDIES, text) and not re.search(WITHOUT_REMEDY, text):
        found.append("has no remedy")
    if re.search(r"--[a-z]", text):
        found.append("names an option of the command")
    return "; ".join(found)


def afterwards(result, server, options):
    """The engine reads an honest server again, and writes have happened or not."""
    begun, cell = time.monotonic(), result.cell
    try:
        if cell.way == "set":
            # By another engine, without names and pages of the first.
            with bowwave.open(f"{server.base}/{server.key}", **{**options, "cache": "15MiB"}) as file:
                assert file.read() == server.value, "another object than was written"
        with bowwave.open(server.url, **options) as file:
            assert server.is_version(file.read()), "wrong bytes"
    except FileNotFoundError as error:
        if result.outcome == "right":
            result.wrong = f"afterwards: {error}"
    except (OSError, AssertionError) as error:
        result.wrong = f"afterwards: {error}"
    if time.monotonic() - begun > LIMIT:
        result.wrong = f"an honest read afterwards took {time.monotonic() - begun:.1f} s"
    return result


@dataclass(frozen=True)
class Row:
    modes: str
    #: For cloud stores and web servers, each opened early and late: `+` right bytes, `F` an exception, `?` either.
    letters: str
    kinds: tuple = (OSError,)
    cause: str = "."

    def letter(self, cell):
        return self.letters.replace(" ", "")[2 * (cell.store == "http") + cell.late]


#: The first row whose expression a mode matches is its row. In a cause, `{}` is the last number of the mode.
ROWS = [
    Row("honest|body-long|extra-response|http-1.0|.*,.*", "++ ++"),
    # Requests to a cloud store are signed: they are not redirected. Web servers redirect routinely.
    Row("redirect-3.*-host", "FF ++", cause="the store redirects"),
    Row("redirect-.*", "FF FF", cause="redirect"),
    Row("status-204", "FF FF", cause="no size|not tell the size|204|empty"),
    # A GET without a condition fails as one with a condition does in writes.
    Row("status-412", "FF FF", (OSError, FileExistsError), "condition|changed|412"),
    Row("status-.*", "FF FF", cause="{}|another writer"),
    Row("retry-after.*-429", "FF FF", cause="429"),
    Row("retry-after.*", "FF FF", cause="503"),
    Row("reset.*", "FF FF", cause="reset by peer"),
    Row("refused", "FF FF", cause=r"cannot connect to 127\.0\.0\.1:\d+"),
    Row("error-body-unannounced", "FF FF", (PermissionError,), "403"),
    Row("error-body.*-of-.*", "FF FF", cause="{}"),
    Row("error-body.*", "FF FF", cause="400"),
    Row("endless.*", "FF FF", cause="head is too large"),
    # Without a range, the announced size is that of the object.
    Row("huge-length", "FF FF", (OSError, MemoryError), "announces|do not fit into memory"),
    Row("portal|empty-200", "FF .F", cause="not the expected document|leaves out the ETag"),
    Row("no-validators", "FF +F", cause="ETag"),
    # Objects that were read with one request are right.
    Row("replaced-tag-dropped-in-gets|replaced-no-validators.*", "FF ?F", cause="changed|ETag"),
    Row("replaced-after-head", "?+ ?+", cause="changed"),
    Row("replaced-.*", "?? ??", cause="changed|leaves out the ETag"),
    # A web server's status 200 delivers the whole object.
    Row("range-part-200|range-whole-200", "+? ++", cause="does not support range requests"),
    Row("range-other.*", "+? ??", cause="changed|instead of bytes"),
    Row("range-short", "+? ??", cause="instead of bytes"),
    Row("range-gzip|range-multipart", "+? FF", cause="encoded"),
    Row("body-short", "FF FF", cause="ended early"),
    Row("two-lengths", "FF FF", cause="content-length|no size"),
    Row("chunked-garbage", "FF FF", (OSError, TimeoutError), "chunk size|deadline"),
    Row("header-garbage", "FF FF", cause="invalid HTTP header"),
    Row("http-0.9", "FF FF", cause="invalid HTTP version|before message completed"),
    Row("silent.*|drip.*|trickle|informational-flood", "FF FF", (TimeoutError,),
        "no response|not all bytes|nothing came|bytes came in"),
    Row("flip", "FF ..", cause="checksum"),
    Row("list-(10000|attributes|duplicate-keys|hostile-keys|token-at-the-end)", "+. .."),
    Row("list-endless", "F. ..", (TimeoutError, OSError), "deadline|larger"),
    Row("list-(repeated|empty|truncated).*", "F. ..", cause="the listing is given up"),
    Row("list-.*", "F. ..", cause="not the expected document"),
    Row("upload-(half-read|unread)", "F. ..", (TimeoutError,), "no response"),
    # Not in the store although the server says so.
    Row("upload-discarded", "F. ..", (FileNotFoundError,), "removed since"),
    Row("upload-error-in-200", "F. ..", cause="."),
    Row("upload-no-tag", "F. ..", cause="ETag"),
    Row("upload-.*", "+. .."),
]
#: What to do, in words of a message.
REMEDIES = (r"open it again|check|is there a proxy|is the server up|use (a|another|http)|give credentials|read fewer|"
            r"raise|try again later")
#: Messages of libraries, which name no remedy. None may be added.
WITHOUT_REMEDY = r"Unable to extract metadata"
#: Modes for a part of the requests, which are repeated.
PARTIAL = ["status-503,first=1", "reset-before-head,every=3", "reset-in-body,calls=reads,every=3"]


def expected(cell):
    return next(row for row in ROWS if re.fullmatch(row.modes, cell.mode))


def is_possible(mode, store, way, late):
    if way in THROUGH and store != "http" or way in OTHERS and (store == "http" or late) or way == "map" and late:
        return False
    if store == "az" and mode in ("list-token-at-the-end", "list-truncated-without-token", "upload-done-but-404"):
        # Azure's protocol has no such thing.
        return False
    if way in OTHERS and mode.startswith(("replaced", "range", "flip", "no-validators", "huge-length")):
        return False
    if mode.startswith(("list", "upload")):
        return way == ("list_dir" if mode.startswith("list") else "set")
    if mode.startswith("flip"):
        # Without checksums it is not to be told.
        return store in ("s3", "gs")
    # Another page of a web server is another object.
    return late or store != "http" or mode not in ("portal", "empty-200")


def cells(modes, every):
    table = list(itertools.product(STORES, WAYS, (False, True)))
    for number, mode in enumerate(modes):
        possible = [one for one in table if is_possible(mode, *one)]
        # The stride is in no step with any factor of their numbers.
        for store, way, late in possible if every else [possible[number * 7 % len(possible)]]:
            yield Cell(mode, store, way, late)


def run_all(chosen):
    """The results of cells, several at a time: each mostly waits."""
    todo, results, numbers = queue.SimpleQueue(), [], itertools.count()
    for cell in chosen:
        todo.put(cell)

    def work():
        servers = {}
        while True:
            try:
                cell = todo.get_nowait()
            except queue.Empty:
                break
            server = servers.get(cell.store) or servers.setdefault(cell.store, Hostile(cell.store))
            number, done = next(numbers), []
            if number % 100 == 99:
                # Engines of the cells before.
                _stores._table.clear()
            thread = threading.Thread(target=lambda: done.append(run(cell, server, number)), daemon=True)
            thread.start()
            thread.join(WATCHDOG)
            if not done:
                del servers[cell.store]
            results.append(done[0] if done else Result(cell, "", WATCHDOG, wrong="hangs, or the test failed"))
        for server in servers.values():
            server.end()

    workers = [threading.Thread(target=work) for _ in range(int(os.environ.get("BOWWAVE_HOSTILE_PARALLEL", 16)))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(results, key=lambda result: result.cell)


@pytest.fixture(scope="module", autouse=True)
def environment():
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
                patch.delenv(name)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def modes():
    server = Hostile("s3")
    known = server.ask("modes").split()
    server.end()
    return known + PARTIAL


def test_a_hostile_server_never_gives_wrong_bytes_or_hangs(modes):
    every = os.environ.get("BOWWAVE_HOSTILE_ALL", "0") != "0" or "BOWWAVE_HOSTILE_MODE" in os.environ
    if "BOWWAVE_HOSTILE_MODE" in os.environ:
        modes = [os.environ["BOWWAVE_HOSTILE_MODE"]]
    chosen = [cell for cell in cells(modes, every)
              if os.environ.get("BOWWAVE_HOSTILE_STORE") in (None, cell.store)
              and os.environ.get("BOWWAVE_HOSTILE_CALL") in (None, cell.way)]
    if not every:
        assert {cell.mode for cell in chosen} == set(modes) and {cell.way for cell in chosen} == set(WAYS)
    results = run_all(chosen)
    for at, result in enumerate(results):
        # The machine may have been busy with others.
        if result.wrong and (result.seconds > LIMIT or "[Errno 110]" in result.message + result.wrong):
            results[at:at + 1] = run_all([result.cell])
    if file := os.environ.get("BOWWAVE_HOSTILE_TABLE"):
        with open(file, "w") as table:
            for result in results:
                cell = result.cell
                print(cell.mode, cell.store, cell.way, "late" if cell.late else "early", result.outcome,
                      f"{result.seconds:.2f}", result.message, result.wrong or "ok", sep="\t", file=table)
    wrong = [f"{one.cell}: {one.outcome} {one.message!r}: {one.wrong}" for one in results if one.wrong]
    print(f"{len(results)} cells, {len(wrong)} wrong")
    assert len(results) == len(chosen) and not wrong, "\n".join(wrong)


# What is wrong on this side: credentials, names, addresses and URLs.


class Refusing(BaseHTTPRequestHandler):
    """Answers each request with the store's document for an error."""

    def do_GET(self):
        status, code, more = self.server.error
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>No.</Message>{more}</Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def refusing():
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def fails(kind, url, texts, **options):
    """Each way to open `url` raises `kind`, whose message names the URL and has these texts."""
    options = {"timeout": "1s", "retries": 1, **options}
    protocol = url.partition("://")[0]
    ways = [lambda: bowwave.open(url, **options), lambda: bowwave.map(url, **options),
            lambda: asyncio.run(bowwave.open_async(url, **options))]
    if protocol in STORES:
        fs = bowwave.fsspec.BowwaveFileSystem(target_protocol=protocol, skip_instance_cache=True, **options)
        ways += [lambda: fs.cat_file(url), lambda: fs.cat_ranges([url], 0, 1, on_error="raise")]
    for way in ways:
        with pytest.raises(kind) as raised:
            way()
        assert raised.type is kind
        for text in texts:
            assert re.search(text, str(raised.value)), f"{text!r} is not in {str(raised.value)!r}"


def test_missing_credentials_name_the_variables(monkeypatch, tmp_path):
    vendor = Path("/sys/class/dmi/id/sys_vendor")
    if vendor.exists() and re.search("Amazon|Google|Microsoft", vendor.read_text()):
        pytest.skip("a machine of a cloud has credentials")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ENVIRONMENT:
        monkeypatch.delenv(name)
    fails(PermissionError, "s3://b/k", ["^.{11}s3://b/", "no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACC"])
    fails(PermissionError, "gs://b/k", ["^.{11}gs://b/", "no Google credentials; set GOOGLE_APPLICATION_CREDENTIALS"])
    fails(PermissionError, "az://b/k", ["^.{11}az://b/", "no Azure credentials; set AZURE_STORAGE_ACCOUNT_NAME"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    fails(PermissionError, "s3://b/k", ["AWS_ACCESS_KEY_ID is set but not AWS_SECRET_ACCESS_KEY; set both"])


def test_wrong_credentials_and_names(served, tmp_path):
    server = served(a=b"x")
    (server.path / "sub").mkdir()
    (server.path / "sub" / "b").write_bytes(b"y")
    bucket, options = server.bucket, server.options
    fails(PermissionError, bucket + "a", [bucket + "a: ", "the secret does not fit the access key; check both"],
          **{**options, "secret": "wrong"})
    fails(PermissionError, bucket + "a", [bucket + "a: ", "403 Forbidden; the credentials"],
          **{**options, "key": "other"})
    fails(PermissionError, bucket + "a", [bucket + "a: ", "access denied: these credentials, or their absence"],
          endpoint=server.endpoint, allow_http=True, region="us-east-1", anonymous=True)
    fails(FileNotFoundError, "s3://nosuchbucket/a", ["s3://nosuchbucket: no such bucket"], **options)
    for name in ("b", "sub/c", "a/b"):
        fails(FileNotFoundError, bucket + name, [f"{bucket}{name}: no such file"], **options)
    fails(FileNotFoundError, server.http + "b", [f"{server.http}b: 404 Not Found"])
    fails(FileNotFoundError, str(server.path / "b"), [f"{server.path}/b: No such file"])
    for url, given in ((bucket + "sub", options), (server.http + "sub", {}), (str(server.path / "sub"), {})):
        fails(IsADirectoryError, url, [f"{url}: is a directory; name a file in it"], **given)
    fails(NotADirectoryError, str(server.path / "a/b"), [f"{server.path}/a/b: Not a directory"])


@pytest.mark.parametrize("store", ["s3", "gs", "az"])
@pytest.mark.parametrize(("error", "kind", "texts"), [
    ((400, "ExpiredToken", ""), PermissionError, ["the session token has expired"]),
    ((403, "InvalidAccessKeyId", ""), PermissionError, ["does not know this access key; check it and .*endpoint"]),
    ((403, "AuthenticationFailed", ""), PermissionError, ["the secret does not fit the access key; check both"]),
    ((403, "AccessDenied", ""), PermissionError, ["access denied: these credentials, or their absence"]),
    ((401, "Unauthorized", ""), PermissionError, ["401 Unauthorized; give credentials"]),
    ((400, "AuthorizationHeaderMalformed", "<Region>eu-west-9</Region>"), OSError,
     ["the bucket is in another region; use .*region.eu-west-9"]),
    ((404, "NoSuchBucket", ""), FileNotFoundError, ["no such bucket"]),
])
def test_refusals_of_stores_name_cause_and_remedy(refusing, store, error, kind, texts):
    refusing.error = error
    # The server answers at once, but on a busy machine a second is short.
    options = {"timeout": "20s"}
    options |= {"key": "k", "secret": "s", "token": "t", "region": "us-east-1"} if store == "s3" else {}
    url = f"{store}://bucket/{error[1]}"
    texts = [f"^.{{10,11}}{url if kind is not FileNotFoundError else store + '://bucket'}: ", *texts]
    fails(kind, url, texts, endpoint=f"http://127.0.0.1:{refusing.server_port}", allow_http=True, **options)


def test_unreachable_servers_are_named(served):
    keys = {"key": "k", "secret": "s", "region": "us-east-1", "allow_http": True}
    with socket.socket() as bound:
        # Nothing listens there, and nothing else can.
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        texts = [f"cannot connect to {address}; is the server up and the address right", "Connection refused"]
        fails(OSError, f"http://{address}/a", [f"http://{address}/a: ", *texts])
        fails(OSError, "s3://b/a", ["s3://b/a: ", *texts], endpoint=f"http://{address}", **keys)
    # The resolver fails without a query: a label has at most 63 letters.
    host = "n" * 64 + ".invalid"
    texts = [f"{host}:80 has no address; check the name"]
    fails(OSError, f"http://{host}/a", [f"http://{host}/a: ", *texts])
    fails(OSError, "s3://b/a", ["s3://b/a: ", *texts], endpoint=f"http://{host}", **keys)
    server = served(a=b"x")
    url = server.http.replace("http:", "https:") + "a"
    fails(OSError, url, [f"{url}: the server does not speak TLS; use http://"])


@pytest.mark.parametrize(("url", "texts"), [
    ("gopher://x/y", ["gopher://x/y: unknown scheme `gopher`; known: a path"]),
    ("s3:/k", ["s3:/k: wants a bucket, such as s3://bucket/prefix"]),
    ("s3:///k", ["s3:///", "wants a bucket, such as s3://bucket/prefix"]),
    ("http:///a", ["http:///: empty host"]),
    ("http://[::1/a", [r"http://\[::1/a: Invalid IPv6 URL; write http://host/path"]),
    ("http://h:99999/x", ["http://h:99999/: invalid port number"]),
    ("file://host/x", ["file://host/x: .* such as file:///data"]),
])
def test_bad_urls_are_value_errors_with_an_example(url, texts):
    fails(ValueError, url, texts, **({"key": "k", "secret": "s"} if url.startswith("s3") else {}))


def test_bad_endpoints_are_value_errors():
    keys = {"key": "k", "secret": "s"}
    fails(ValueError, "s3://b/k", ["s3://b/: the endpoint `nonsense` wants https:// or http://"], endpoint="nonsense",
          **keys)
    # The file system allows it, as other file systems of fsspec do.
    with pytest.raises(ValueError, match="s3://b/: the endpoint `http://h` is plain http; allow it"):
        bowwave.open("s3://b/k", endpoint="http://h", **keys)
