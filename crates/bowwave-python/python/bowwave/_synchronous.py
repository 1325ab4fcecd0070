"""fsspec's synchronous methods of `BowwaveFileSystem`, in the process that made it and in its children."""

from __future__ import annotations

import inspect
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.asyn import AsyncFileSystem, get_loop, sync
from fsspec.exceptions import FSTimeoutError


class Synchronous(AsyncFileSystem):
    """fsspec's synchronous methods, which work in a child of fork, and whose timeouts keep their message."""

    _pid: int

    @property
    def loop(self) -> Any:
        if self._pid != os.getpid():
            # No thread of the parent is in the child, so none runs the parent's loop.
            self._loop = None if self.asynchronous else get_loop()
            self._pid = os.getpid()
        return self._loop


def _synchronous(name: str) -> Callable[..., Any]:
    """As fsspec's own synchronous method, which raises timeouts without their message."""

    @wraps(getattr(AbstractFileSystem, name))
    def call(self: Synchronous, *arguments: Any, **options: Any) -> Any:
        try:
            return sync(self.loop, getattr(self, f"_{name}"), *arguments, **options)
        except FSTimeoutError as error:
            if error.__cause__ is None or not str(error.__cause__):
                raise
            raise error.__cause__ from None

    return call


def mirror(kind: type[Synchronous]) -> None:
    """Adds the methods for which `kind` has a coroutine."""
    for name in dir(AbstractFileSystem):
        if (inspect.iscoroutinefunction(getattr(kind, f"_{name}", None))
                and getattr(kind, name) is getattr(AbstractFileSystem, name)):
            setattr(Synchronous, name, _synchronous(name))


def of_child(target: Any) -> Any:
    """A target of the parent, for a child of fork.

    An asynchronous one, or what is built on one, raises in any process but the one that made it, so the child has another,
    as a spawned process would."""
    below = target
    while below is not None:
        if getattr(below, "async_impl", False):
            # Without a pickle, its own error says that it is not fork-safe.
            with suppress(Exception):
                return pickle.loads(pickle.dumps(target))
            return target
        below = getattr(below, "fs", None)
    return target
