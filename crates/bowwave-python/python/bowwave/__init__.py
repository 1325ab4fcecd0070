"""bowwave: a page cache for Python. Reads of slow storage are in flight before they are asked for.

>>> import bowwave
>>> with bowwave.open("emulate:s3/1MiB") as file:      # or a path, https://…, s3://…
...     header = file.read(8)
>>> len(header)
8

`bowwave.fsspec` has the cache for fsspec (`cache_type="bowwave"`) and the file system `bowwave::s3://…`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _bowwave
from ._files import ADVICE, File, open  # noqa: A004
from ._map import Map, Region, map  # noqa: A004

if TYPE_CHECKING:
    from ._async import AsyncFile, open_async
    from ._lab import Report, Results, replay, report, sweep, sweep_commands
    from ._traces import miss_ratios, read_trace, sample, write_trace

__version__ = _bowwave.__version__
__all__ = ["ADVICE", "AsyncFile", "File", "Map", "Region", "Report", "Results", "map", "miss_ratios", "open", "open_async",
           "read_trace", "replay", "report", "sample", "settings", "stats", "sweep", "sweep_commands", "write_trace"]


def settings() -> dict[str, str]:
    """Every setting that `open` and the file system accept, and its meaning."""
    return dict(_bowwave.settings())


def stats() -> dict[str, int]:
    """Counters of all caches of this process: pages, requests, bytes."""
    from ._stores import engines, summed

    return summed(engines())


if not TYPE_CHECKING:
    # Checkers see the imports above: with this function, they would accept any name.
    def __getattr__(name: str) -> Any:
        # asyncio takes as long to import as all the rest.
        if name in ("AsyncFile", "open_async"):
            from . import _async

            return getattr(_async, name)
        if name in ("Report", "Results", "replay", "report", "sweep", "sweep_commands"):
            from . import _lab

            return getattr(_lab, name)
        if name in ("miss_ratios", "read_trace", "sample", "write_trace"):
            from . import _traces

            return getattr(_traces, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


try:
    from . import _cache as _cache
except ModuleNotFoundError as missing:
    # Without fsspec there is no cache to register.
    if missing.name != "fsspec":
        raise
