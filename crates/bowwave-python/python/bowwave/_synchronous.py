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
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        # In this thread: the target's creation may need the event loop.
        _ = self.fs
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


def of_child(target: Any) -> Any | None:
    """The target that a child of fork uses in place of its parent's `target`; `None` if there is none yet.

    fsspec's asynchronous file systems raise in any process but the one that made them, and those over an open file share its
    position with the parent. The child makes them again from their pickle."""
    below = target
    while below is not None:
        if getattr(below, "async_impl", False) or hasattr(below, "fo") or hasattr(below, "of"):
            # One without a pickle raises fsspec's own error. One that needs the event loop is made by the next call.
            with suppress(Exception):
                return pickle.loads(pickle.dumps(target))
            return None
        below = getattr(below, "fs", None)
    return target
