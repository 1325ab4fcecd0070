"""The command `bowwave`, which the wheel installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence


def command() -> str:
    """The command: `BOWWAVE` of the environment, beside the interpreter, or in `PATH`."""
    beside = os.path.join(os.path.dirname(sys.executable), "bowwave")
    found = os.environ.get("BOWWAVE") or (beside if os.access(beside, os.X_OK) else shutil.which("bowwave"))
    if not found:
        raise FileNotFoundError("the command `bowwave` is not in PATH: cargo install --path crates/bowwave-cli, or set BOWWAVE")
    return found


def ran(arguments: Sequence[str], data: bytes | str | None = None) -> bytes:
    """What the command prints. Its standard input is `data`, or the file of that path.

    Raises `ValueError` for arguments that it does not accept, and `OSError` otherwise."""
    if isinstance(data, str):
        with open(data, "rb") as file:
            ended = subprocess.run([command(), *arguments], stdin=file, capture_output=True)
    else:
        ended = subprocess.run([command(), *arguments], input=data, capture_output=True)
    if ended.returncode == 0:
        return ended.stdout
    message = ended.stderr.decode(errors="replace").strip().removeprefix("bowwave: error: ")
    if ended.returncode == 2:
        raise ValueError(message)
    raise OSError(message)
