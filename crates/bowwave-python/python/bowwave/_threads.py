"""Threads that wait for stores. The end of the process does not wait for these threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from . import _stores

P = ParamSpec("P")
T = TypeVar("T")

#: Fork generation, and the pool of one thread in which the main thread's calls wait.
_waiting: tuple[int, Threads] | None = None


class Threads:
    """A pool of at most `most` daemon threads, started when calls wait.

    A `ThreadPoolExecutor` runs its whole queue before the process ends: a program that ends early, or by Ctrl-C, would
    wait for every announced lookup. Daemon threads stop when they next request the GIL after the interpreter's end.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name, self._count = most, name, 0
        self._lock = threading.Lock()
        self._calls: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> Future[T]:
        """Calls a function in a thread."""
        future: Future[T] = Future()
        with self._lock:
            if not self._idle.acquire(blocking=False) and self._count < self._most:
                # The thread has no reference to the pool, so that the pool can be collected, which ends the thread.
                thread = threading.Thread(target=_work, args=(self._calls, self._idle), daemon=True)
                thread.name = f"{self._name}_{self._count}"
                thread.start()
                self._count += 1
            self._calls.put((future, call, arguments, options))
        return future

    def __del__(self) -> None:
        self._calls.put(None)


def _work(calls: SimpleQueue[tuple[Any, ...] | None], idle: threading.Semaphore) -> None:
    while (entry := calls.get()) is not None:
        future, call, arguments, options = entry
        if future.set_running_or_notify_cancel():
            run(future, call, *arguments, **options)
        del entry, future, call, arguments, options
        idle.release()
    # For the next thread.
    calls.put(None)


def run(future: Future[T], call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> None:
    """Calls a function for a future that is running."""
    try:
        future.set_result(call(*arguments, **options))
    except BaseException as error:
        future.set_exception(error)


def interruptible(call: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
    """Calls a function that ignores signals while it waits.

    In the main thread, Ctrl-C raises at once, and the call ends in another thread."""
    global _waiting
    if threading.current_thread() is not threading.main_thread():
        return call(*arguments, **options)
    now = _stores.generation()
    if _waiting is None or _waiting[0] != now:
        _waiting = (now, Threads(1, "bowwave-wait"))
    future = _waiting[1].submit(call, *arguments, **options)
    try:
        return future.result()
    finally:
        if not future.done():
            # After Ctrl-C, the thread still waits for this call: the next call gets another thread.
            _waiting = None
