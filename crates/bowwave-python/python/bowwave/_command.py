"""The command `bowwave`, which the wheel installs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from ._progress import bar

#: Control sequences of terminals, and what the command prints of its progress.
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_ROWS = re.compile(rb"([0-9,]+)/([0-9,]+) rows")


def command() -> str:
    """The command: `BOWWAVE` of the environment, beside the interpreter, or in `PATH`."""
    beside = os.path.join(os.path.dirname(sys.executable), "bowwave")
    found = os.environ.get("BOWWAVE") or (beside if os.access(beside, os.X_OK) else shutil.which("bowwave"))
    if not found:
        raise FileNotFoundError("the command `bowwave` is not in PATH: cargo install --path crates/bowwave-cli, or set BOWWAVE")
    return found


def ran(arguments: Sequence[str], data: bytes | str | None = None, progress: bool = False) -> bytes:
    """What the command prints. Its standard input is `data`, or the file of that path. `progress` shows a bar of its
    rows, if it takes more than a second.

    Raises `ValueError` for arguments that it does not accept, and `OSError` otherwise."""
    run = _shown if progress and hasattr(os, "openpty") else _captured
    if isinstance(data, str):
        with open(data, "rb") as file:
            status, out, errors = run([command(), *arguments], file, None)
    else:
        status, out, errors = run([command(), *arguments], None if data is None else subprocess.PIPE, data)
    if status == 0:
        return out
    message = errors.decode(errors="replace").strip().removeprefix("bowwave: error: ")
    if status == 2:
        raise ValueError(message)
    raise OSError(message)


def _captured(line: list[str], stdin: IO[bytes] | int | None, data: bytes | None) -> tuple[int, bytes, bytes]:
    with subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            out, errors = child.communicate(data)
        except BaseException:
            child.kill()
            raise
    return child.returncode, out, errors


def _shown(line: list[str], stdin: IO[bytes] | int | None, data: bytes | None) -> tuple[int, bytes, bytes]:
    """As `_captured`, with a terminal as standard error: the command reports its progress only there."""
    master, slave = os.openpty()
    errors = bytearray()
    reader = threading.Thread(target=_read, args=(master, errors), name="bowwave-progress", daemon=True)
    try:
        try:
            child = subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, stderr=slave,
                                     env={**os.environ, "NO_COLOR": "1"})
        finally:
            # The reader ends when the command has closed its own.
            os.close(slave)
        with child:
            reader.start()
            try:
                out, _ = child.communicate(data)
            except BaseException:
                child.kill()
                raise
            finally:
                reader.join()
    finally:
        os.close(master)
    lines = re.split(rb"[\r\n]+", _CONTROL.sub(b"", errors))
    return child.returncode, out, b"\n".join(text for text in lines if not _ROWS.search(text))


def _read(terminal: int, errors: bytearray) -> None:
    shown: bar | None = None
    done = 0
    try:
        while data := os.read(terminal, 65536):
            errors += data
            for rows, total in _ROWS.findall(data):
                shown = shown or bar(int(total.replace(b",", b"")), "row", True)
                at = int(rows.replace(b",", b""))
                shown.update(at - done)
                done = at
    except OSError:
        # EIO: the command has ended.
        pass
    if shown is not None:
        shown.__exit__()
