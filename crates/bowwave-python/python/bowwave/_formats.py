"""Which files announce their reads by themselves, by the end of their name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import hdf5, parquet
from ._files import START, First, Source

_WATCHERS: dict[str, Any] = {".parquet": parquet.Watcher, ".parq": parquet.Watcher, ".h5": hdf5.Watcher,
                             ".hdf5": hdf5.Watcher, ".nc": hdf5.Watcher, ".nc4": hdf5.Watcher}
_FETCH: dict[str, Any] = {".parquet": parquet.fetch, ".parq": parquet.fetch, ".h5": hdf5.fetch, ".hdf5": hdf5.fetch,
                          ".nc": hdf5.fetch, ".nc4": hdf5.fetch}


def _ending(name: str) -> str:
    name = name.split("?")[0]
    dot = name.rfind(".")
    return name[dot:].lower() if dot >= 0 else ""


def settings_of(name: str) -> dict[str, Any]:
    """Settings for a file with this name, unless the caller has others."""
    found = _WATCHERS.get(_ending(name))
    return dict(getattr(found, "SETTINGS", {}))


def first_of(name: str) -> First | None:
    """What is read first of a file with this name."""
    first: First | None = getattr(_WATCHERS.get(_ending(name)), "FIRST", START)
    return first


def fetch_of(name: str) -> Callable[[Source, int], int] | None:
    """What fetches the parts of a file with this name that a reader will probably use, before it is opened."""
    fetch: Callable[[Source, int], int] | None = _FETCH.get(_ending(name))
    return fetch


def watcher_of(name: str) -> Any | None:
    """What watches the reads of a file with this name."""
    found = _WATCHERS.get(_ending(name))
    return found() if found is not None else None
