"""Chained URLs without the package of their target.

For `bowwave::s3://bucket/key`, fsspec loads the class of `s3` to split the URL. If its package is not installed, a
class here stands in for it. It splits URLs, and creating a file system of it is the `ImportError` that fsspec raises.
"""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from typing import Any, ClassVar

from fsspec import AbstractFileSystem
from fsspec.registry import known_implementations, register_implementation

#: The module that each protocol needs.
MODULES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
           "http": "aiohttp", "https": "aiohttp"}


class Missing(AbstractFileSystem):
    """A file system whose package is not installed."""

    cachable = False
    error: ClassVar[str] = ""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        raise ImportError(self.error)


class MissingS3(Missing):
    protocol = ("s3", "s3a")
    error = "Install s3fs to access S3, or read it as bowwave::s3://"


class MissingGoogle(Missing):
    protocol = ("gs", "gcs")
    error = "Install gcsfs to access Google Storage, or read it as bowwave::gs://"


class MissingAzure(Missing):
    protocol = ("az", "abfs")
    error = "Install adlfs to access Azure, or read it as bowwave::az://"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        container, separator, rest = super()._strip_protocol(path).partition("/")
        return container.partition("@")[0] + separator + rest

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        # As adlfs: abfs://container@account.dfs.core.windows.net/path.
        host = url.partition("://")[2].partition("/")[0].partition("@")[2]
        if not host:
            return {}
        known = re.fullmatch(r"([^.]+)\.(?:dfs|blob)\.core\.windows\.net", host)
        if known is None:
            raise ValueError(f"{url}: an unknown host; name the container alone, and give account_name and account_host")
        return {"account_name": known[1]}


class MissingHttp(Missing):
    protocol = ("http", "https")
    error = "Install aiohttp to access HTTP, or read it as bowwave::https://"

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        # As of fsspec's own: an address without its protocol says nothing.
        return path if isinstance(path, list) else os.fspath(path)


CLASSES = {"s3fs": MissingS3, "gcsfs": MissingGoogle, "adlfs": MissingAzure, "aiohttp": MissingHttp}


def register() -> None:
    """Registers a class for each protocol whose package is not installed."""
    missing = {module for module in CLASSES if find_spec(module) is None}
    for protocol, module in MODULES.items():
        known = str(known_implementations.get(protocol, {}).get("class", ""))
        # A program may have registered its own.
        if module in missing and known.startswith((f"{module}.", "fsspec.implementations.http.")):
            name = CLASSES[module].__name__
            register_implementation(protocol, f"{__name__}.{name}", clobber=True, errtxt=CLASSES[module].error)
