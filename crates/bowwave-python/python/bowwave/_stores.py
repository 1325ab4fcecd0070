"""Engines and stores of this process, and what happens to them at a fork.

An engine is a cache. All stores with the same settings share one, or two: remote stores need larger readahead
windows than local files. A child of `fork` begins without engines: its parent's have threads that it does not have.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from . import _bowwave

#: Schemes that the engine reads itself.
NATIVE = frozenset({"file", "http", "https", "s3", "gs", "az"})
#: Schemes whose store is a bucket, with keys as they are, not percent-encoded.
BUCKETS = frozenset({"s3", "gs", "az"})


class Place(NamedTuple):
    """A store and a path within it."""

    store: str
    path: str


#: Names of keys by scheme: those that belong together, then those that may be added.
KEYS = {"s3": (("key", "secret"), ("token",)), "az": (("account_name",), ("account_key", "sas_token")),
        "gs": (("service_account",), ())}


class Access(NamedTuple):
    """How stores are opened: settings as text, and names and values of keys in place of those in the environment."""

    settings: str = ""
    keys: tuple[tuple[str, str], ...] = ()


def access_of(options: dict[str, object]) -> Access:
    """The settings of keyword arguments: `cache="1GiB"`, `anonymous=True`, the keys of `KEYS`, and the rest of
    `bowwave.settings()`."""
    options = dict(options)
    given = {name: str(options.pop(name)) for names in KEYS.values() for name in (*names[0], *names[1])
             if options.get(name) is not None}
    for needed, others in KEYS.values():
        missing = [name for name in needed if name not in given]
        if missing and any(name in given for name in (*needed, *others)):
            there = next(name for name in (*needed, *others) if name in given)
            raise ValueError(f"{there} is given without {' and '.join(missing)}; they belong together: "
                             "give all of them, or none to use the environment's")
    keys = tuple(sorted(given.items()))
    parts = []
    for name, value in sorted(options.items()):
        if value is None:
            continue
        text = ("yes" if value else "no") if isinstance(value, bool) else str(value)
        if not text or any(letter.isspace() for letter in text):
            raise ValueError(f"{name}={text!r}: a value has at least one character and no blank")
        parts.append(f"{name}={text}")
    return Access(" ".join(parts), keys)


def place_of(url: str) -> Place:
    """Splits a URL so that all objects of a bucket or server share one store, with its connections."""
    if not url:
        raise ValueError("the URL is empty; name a file, or a URL such as s3://bucket/key")
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme or not scheme.isascii() or len(scheme) < 2:
        return Place("file:///", os.path.realpath(url).lstrip("/"))
    if scheme == "file":
        path = unquote(rest[2:] if rest.startswith("//") else rest)
        if path.startswith("localhost/"):
            path = path[len("localhost"):]
        if not path.startswith("/"):
            raise ValueError(f"{url}: a file URL has an absolute path and no host, such as file:///data")
        return Place("file:///", os.path.realpath(path).lstrip("/"))
    if scheme in BUCKETS and rest.startswith("//"):
        bucket, _, key = rest[2:].partition("/")
        return Place(f"{scheme}://{bucket}/", key)
    if scheme in ("http", "https"):
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ValueError(f"{url}: {error}; write http://host/path") from None
        path = unquote(parts.path.lstrip("/"))
        plain = path and not parts.query and not parts.fragment and not path.endswith("/")
        if plain and all(part not in ("", ".", "..") for part in path.split("/")):
            return Place(f"{parts.scheme}://{parts.netloc}/", path)
    return Place(url, "")


class ForkLock:
    """A lock that is free in a child of `fork`, whatever threads its parent had.

    It is reentrant: the garbage collector may close a file while its thread holds the lock."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class _Table:
    """Engines and stores, shared by all threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.generation = 0
        self.clear()

    def clear(self) -> None:
        self.engines: dict[tuple[str, bool], _bowwave.Engine] = {}
        self.stores: dict[tuple[str, Access], _bowwave.Store] = {}


_table = _Table()


def generation() -> int:
    """How often this process and its ancestors have forked."""
    return _table.generation


def engine_of(settings: str, far: bool) -> _bowwave.Engine:
    """The engine of these settings, created at its first use."""
    with _table.lock:
        engine = _table.engines.get((settings, far))
        if engine is None:
            engine = _table.engines[settings, far] = _bowwave.Engine(settings, far)
        return engine


def is_far(url: str) -> bool:
    """Whether a store has a latency worth large windows."""
    return not url.startswith(("file:", "memory:", "pattern:"))


def store_of(url: str, access: Access) -> _bowwave.Store:
    """The store at `url`, opened at its first use."""
    with _table.lock:
        store = _table.stores.get((url, access))
        if store is None:
            store = engine_of(access.settings, is_far(url)).store(url, access.settings, dict(access.keys) or None)
            _table.stores[url, access] = store
        return store


def changed(place: Place) -> None:
    """The program changes an object, or all below a directory: later opens ask the store, not a listing."""
    with _table.lock:
        stores = [store for (url, _), store in _table.stores.items() if url == place.store]
    for store in stores:
        store.changed(place.path)


def changed_all(settings: str) -> None:
    """Any object may have changed: later opens through stores of these settings ask the store, not a listing."""
    with _table.lock:
        stores = [store for (_, access), store in _table.stores.items() if access.settings == settings]
    for store in stores:
        store.changed("")


def engines() -> list[_bowwave.Engine]:
    """All engines of this process."""
    with _table.lock:
        return list(_table.engines.values())


def summed(engines: Iterable[_bowwave.Engine]) -> dict[str, int]:
    """Counters of engines together: pages, requests, bytes."""
    total: dict[str, int] = {}
    for engine in engines:
        for name, value in engine.stats().items():
            total[name] = value if name == "page_bytes" else total.get(name, 0) + value
    return total


def _in_child() -> None:
    # Locks of the parent's threads stay locked: new ones. The parent's engines are leaked, not dropped.
    _bowwave.forked()
    _table.lock = threading.RLock()
    for lock in _locks:
        lock.lock = threading.RLock()
    _table.generation += 1
    _table.clear()


os.register_at_fork(after_in_child=_in_child)
