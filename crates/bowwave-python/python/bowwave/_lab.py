"""The laboratory: traces of reads in virtual time, under any policy, device and cache size.

It runs the command `bowwave`, which the wheel installs.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, NamedTuple

from ._files import File

COLUMNS = ("time_ns", "pid", "op", "file", "offset", "length")
#: How often a pool of processes that lost a worker is started again.
RESTARTS = 5


def command() -> str:
    """The command `bowwave`: `BOWWAVE` of the environment, beside the interpreter, or in `PATH`."""
    beside = os.path.join(os.path.dirname(sys.executable), "bowwave")
    found = os.environ.get("BOWWAVE") or (beside if os.access(beside, os.X_OK) else shutil.which("bowwave"))
    if not found:
        raise FileNotFoundError("the command `bowwave` is not in PATH: cargo install --path crates/bowwave-cli, or set BOWWAVE")
    return found


def _ran(arguments: Sequence[str], data: bytes | None = None) -> bytes:
    ended = subprocess.run([command(), *arguments], input=data, capture_output=True)
    if ended.returncode == 0:
        return ended.stdout
    message = ended.stderr.decode(errors="replace").strip().removeprefix("bowwave: error: ")
    if ended.returncode == 2:
        raise ValueError(message)
    raise OSError(message)


class Results(list[dict[str, Any]]):
    """Rows of `replay` and `sweep`: a list of dictionaries, and a table for Arrow, pandas and notebooks."""

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`."""
        import pyarrow

        return pyarrow.Table.from_pylist(list(self))

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        import pandas

        return pandas.DataFrame(list(self))

    def best(self) -> dict[str, Any]:
        """The row with the least seconds, without the oracle's."""
        return min((row for row in self if row["policy"] != "oracle"), key=lambda row: row["seconds"])

    def _repr_html_(self) -> str:
        names = ("policy", "device", "cache_bytes", "seconds", "hits", "late", "misses", "requests", "amplification")
        head = "".join(f"<th>{name}</th>" for name in names)
        rows = "".join("<tr>" + "".join(f"<td>{_text(row.get(name))}</td>" for name in names) + "</tr>" for row in self)
        return f"<table><tr>{head}</tr>{rows}</table>"


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def rows_of(trace: Any) -> bytes:
    """A trace in CSV: of rows, an Arrow table, or the last reads of a `bowwave.File`."""
    if isinstance(trace, File):
        reads = trace.reads()
        begun = min((read[0] for read in reads), default=0.0)
        rows: Iterable[Mapping[str, Any]] = (
            {"time_ns": round((begin - begun) * 1e9), "pid": 1, "op": "read", "file": "file", "offset": offset, "length": length}
            for begin, _, offset, length in reads if length)
    elif hasattr(trace, "to_pylist"):
        rows = trace.to_pylist()
    else:
        rows = trace
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    defaults = {"time_ns": 0, "pid": 1, "op": "read", "file": "file"}
    for row in rows:
        try:
            writer.writerow([row[name] if name in row else defaults[name] for name in COLUMNS])
        except KeyError as missing:
            raise ValueError(f"a row of the trace lacks {missing}; it has {', '.join(row)}") from None
    return out.getvalue().encode()


def _bytes_of(trace: Any) -> bytes:
    if isinstance(trace, str | os.PathLike):
        with open(trace, "rb") as file:
            return file.read()
    return rows_of(trace)


def _listed(values: Any) -> list[str]:
    return [str(value) for value in ([values] if isinstance(values, str | int | os.PathLike) else values)]


def replay(trace: Any, policies: Any = "stream", devices: Any = "s3", caches: Any = "1GiB", **options: Any) -> Results:
    """Replays a trace in virtual time: one row for each policy, device and cache size.

    A trace is a path of any format that `bowwave import` knows, rows with `offset` and `length` (an iterable of
    dictionaries or an Arrow table), or a `bowwave.File`: the reads it remembers.

    Options are those of `bowwave replay`, such as `ra_pages="1MiB"` and `pace="trace"`. Equal calls give equal digits.
    """
    arguments = ["--policy", ",".join(_listed(policies)), "--device", ",".join(_listed(devices)),
                 "--cache", ",".join(_listed(caches)), *_arguments(options)]
    if isinstance(trace, str | os.PathLike):
        return Results(json.loads(_ran(["replay", os.fspath(trace), "--json", *arguments])))
    return Results(json.loads(_ran(["replay", "-", "--json", *arguments], rows_of(trace))))


def _arguments(options: Mapping[str, Any]) -> list[str]:
    arguments = []
    for name, value in sorted(options.items()):
        flag = "--" + name.replace("_", "-")
        if value is True:
            arguments.append(flag)
        elif value not in (None, False):
            arguments += [flag, ",".join(_listed(value))]
    return arguments


class Task(NamedTuple):
    """One run of a sweep."""

    trace: bytes
    policy: str
    device: str
    cache: str
    options: tuple[tuple[str, Any], ...]

    def key(self) -> str:
        """Names the run, for results that are kept."""
        digest = hashlib.sha256(self.trace)
        digest.update(json.dumps(self[1:], sort_keys=True, default=str).encode())
        return digest.hexdigest()[:32]

    def command_line(self, path: str) -> list[str]:
        """The run as arguments of the command, with the trace in a file."""
        return ["replay", path, "--json", "--policy", self.policy, "--device", self.device, "--cache", self.cache, "--jobs",
                "1", *_arguments(dict(self.options))]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Runs one task, in any process that has the command."""
    return json.loads(_ran(task.command_line("-"), task.trace))  # type: ignore[no-any-return]


def sweep(trace: Any, policies: Any = "all", devices: Any = "s3", caches: Any = "1GiB", *, executor: Executor | None = None,
          keep: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any) -> Results:
    """As `replay`, with each combination as a task of an executor: processes by default, or any
    `concurrent.futures.Executor`, such as Dask's `Client.get_executor()`, of submitit or of Ray.

    Other options may be lists too, and are combined: `ra_pages=["128KiB", "1MiB"]`. Rows are in the order of the lists, and
    equal for all executors. `keep` names a directory for results: a sweep that is run again continues. A worker that is
    killed loses nothing: its task is run again. `progress` shows a bar, if tqdm is installed.
    """
    tasks = _tasks(_bytes_of(trace), policies, devices, caches, options)
    results: list[list[dict[str, Any]] | None] = [_kept(task, keep) for task in tasks]
    missing = [at for at, result in enumerate(results) if result is None]
    for at, rows in _run(tasks, missing, executor, progress):
        results[at] = rows
        _keep(tasks[at], rows, keep)
    return Results(row for rows in results for row in rows or [])


def _tasks(data: bytes, policies: Any, devices: Any, caches: Any, options: Mapping[str, Any]) -> list[Task]:
    lists = [[(name, value) for value in (values if isinstance(values, list | tuple) else [values])]
             for name, values in sorted(options.items())]
    return [Task(data, policy, device, cache, tuple(rest))
            for device in _listed(devices) for cache in _listed(caches) for rest in itertools.product(*lists)
            for policy in _policies(_listed(policies))]


def sweep_commands(trace: str | os.PathLike[str], policies: Any = "all", devices: Any = "s3", caches: Any = "1GiB",
                   **options: Any) -> list[str]:
    """The tasks of a sweep as shell commands, one for each row, for GNU parallel and job arrays of a cluster:

    `parallel -k < commands > rows.json`. Each prints an array with its row, in the order of `sweep`.
    """
    tasks = _tasks(b"", policies, devices, caches, options)
    return [shlex.join(["bowwave", *task.command_line(os.fspath(trace))]) for task in tasks]


def _policies(names: list[str]) -> list[str]:
    # The command resolves `all`, but a task has one policy.
    if names != ["all"]:
        return names
    return ["none", "legacy", "ondemand", "ondemand-patch", "linux", "range", "range-literal", "stream", "oracle"]


def _run(tasks: list[Task], missing: list[int], executor: Executor | None,
         progress: bool) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    bar = _bar(len(missing)) if progress else None
    left = list(missing)
    own = executor is None
    for restart in range(RESTARTS + 1):
        pool = executor if executor is not None else ProcessPoolExecutor(mp_context=get_context("spawn"))
        try:
            futures: dict[Future[list[dict[str, Any]]], int] = {pool.submit(run_task, tasks[at]): at for at in left}
            waiting = futures if own or isinstance(next(iter(futures), None), Future) else None
            for future in as_completed(waiting) if waiting is not None else _polled(futures):
                rows = future.result()
                left.remove(futures[future])
                if bar is not None:
                    bar.update(1)
                yield futures[future], rows
            break
        except BrokenExecutor:
            # A worker was killed. An executor that was passed cannot be started again.
            if not own or restart == RESTARTS:
                raise
        finally:
            if own:
                pool.shutdown(cancel_futures=True)
    if bar is not None:
        bar.close()


def _polled(futures: Mapping[Any, int]) -> Iterator[Any]:
    """Futures of executors that are no `concurrent.futures.Future`: in order."""
    for future in futures:
        future.result()
        yield future


def _bar(total: int) -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, unit="run")


def _kept(task: Task, keep: str | os.PathLike[str] | None) -> list[dict[str, Any]] | None:
    if keep is None:
        return None
    try:
        with open(os.path.join(keep, task.key() + ".json"), encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _keep(task: Task, rows: list[dict[str, Any]], keep: str | os.PathLike[str] | None) -> None:
    if keep is None:
        return
    os.makedirs(keep, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=keep, suffix=".part", delete=False, encoding="utf-8") as file:
        json.dump(rows, file)
    os.replace(file.name, os.path.join(keep, task.key() + ".json"))


def report(trace: Any, output: str | os.PathLike[str], policies: Any = ("stream", "none", "oracle"), devices: Any = "s3",
           caches: Any = "1GiB", **options: Any) -> str:
    """Writes one HTML page with pictures of replayed runs; returns its path. It loads nothing from elsewhere."""
    path = os.fspath(output)
    replay(trace, policies, devices, caches, html=path, **options)
    return path
