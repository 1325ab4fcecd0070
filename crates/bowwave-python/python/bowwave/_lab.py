"""The laboratory: traces of reads in virtual time, under any policy, device and cache size.

It runs the command `bowwave`, which the wheel installs.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any, NamedTuple

from ._command import ran
from ._progress import bar
from ._traces import csv_of, is_parquet

#: How often a pool of processes that lost a worker is started again.
RESTARTS = 5
#: Options whose lists the command combines itself.
AXES = ("ra_pages", "scheduler")


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
        return min((row for row in self if row["policy"] not in ("oracle", "belady")), key=lambda row: row["seconds"])

    def _repr_html_(self) -> str:
        from ._html import of_results

        return of_results(self)


class Report(str):
    """The path of a page of `report`, which notebooks show."""

    #: The runs of the page.
    results: Results

    def _repr_html_(self) -> str:
        from ._html import of_report

        return of_report(self)


def _listed(values: Any) -> list[str]:
    return [str(value) for value in ([values] if isinstance(values, str | int | os.PathLike) else values)]


def replay(trace: Any, policies: Any = "stream", devices: Any = "s3", caches: Any = "1GiB", **options: Any) -> Results:
    """Replays a trace in virtual time: one row for each policy, device and cache size.

    A trace is a path of any format that `bowwave import` knows, Parquet, a directory of `write_trace`, rows with `offset`
    and `length` (an iterable of dictionaries or an Arrow table), or a `bowwave.File`: the reads it remembers.

    Options are those of `bowwave replay`, such as `ra_pages="1MiB"` and `pace="trace"`. Equal calls give equal digits.
    """
    arguments = _grid(policies, devices, caches, options)
    if isinstance(trace, str | os.PathLike) and not is_parquet(trace):
        return Results(json.loads(ran(["replay", os.fspath(trace), "--json", *arguments])))
    return Results(json.loads(ran(["replay", "-", "--json", *arguments], csv_of(trace))))


def _grid(policies: Any, devices: Any, caches: Any, options: Mapping[str, Any]) -> list[str]:
    return ["--policy", ",".join(_listed(policies)), "--device", ",".join(_listed(devices)),
            "--cache", ",".join(_listed(caches)), *_arguments(options)]


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
    """One run of a sweep: a command that reads its trace from standard input."""

    trace: bytes
    arguments: tuple[str, ...]


def run_task(task: Task) -> list[dict[str, Any]]:
    """Runs one task, in any process that has the command."""
    return json.loads(ran(task.arguments, task.trace))  # type: ignore[no-any-return]


def sweep(trace: Any, policies: Any = "all", devices: Any = "s3", caches: Any = "1GiB", *, executor: Executor | None = None,
          keep: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any) -> Results:
    """As `replay`, with each combination as a task of an executor: processes by default, or any
    `concurrent.futures.Executor`, such as Dask's `Client.get_executor()`, of submitit or of Ray.

    Other options may be lists too, and are combined: `ra_pages=["128KiB", "1MiB"]`. Rows are in the order of the lists, and
    equal for all executors. `keep` names a directory for results: a sweep that is run again continues. A worker that is
    killed loses nothing: its task is run again. `progress` shows a bar, if tqdm is installed.
    """
    data = csv_of(trace)
    kept = _Kept(keep, data)
    grid = repr((_grid(policies, devices, caches, options), sorted(options.items())))
    lines = kept.get(grid)
    if lines is None:
        lines = _commands("-", data, policies, devices, caches, options)
        kept.put(grid, lines)
    tasks = [Task(data, tuple(shlex.split(line)[1:])) for line in lines]
    results: list[list[dict[str, Any]] | None] = [kept.get(line) for line in lines]
    missing = [at for at, result in enumerate(results) if result is None]
    for at, rows in _run(tasks, missing, executor, progress):
        results[at] = rows
        kept.put(lines[at], rows)
    return Results(row for rows in results for row in rows or [])


def sweep_commands(trace: str | os.PathLike[str], policies: Any = "all", devices: Any = "s3", caches: Any = "1GiB",
                   **options: Any) -> list[str]:
    """The tasks of a sweep as shell commands, one for each run, for GNU parallel and job arrays of a cluster:

    `parallel -k < commands > rows.json`. Each prints an array with its rows, in the order of `sweep`. The command
    `bowwave sweep TRACE --emit-tasks` prints the same.
    """
    return _commands(os.fspath(trace), None, policies, devices, caches, options)


def _commands(trace: str, data: bytes | None, policies: Any, devices: Any, caches: Any,
              options: Mapping[str, Any]) -> list[str]:
    """One command for each run, as the command itself lists them."""
    combined = {name: value for name, value in options.items() if name in AXES or not isinstance(value, list | tuple)}
    lists = [[(name, value) for value in values] for name, values in sorted(options.items()) if name not in combined]
    commands = []
    for chosen in itertools.product(*lists):
        arguments = _grid(policies, devices, caches, {**combined, **dict(chosen)})
        commands += ran(["replay", trace, "--emit-tasks", *arguments], data).decode().splitlines()
    return commands


def _run(tasks: list[Task], missing: list[int], executor: Executor | None,
         progress: bool) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    left = list(missing)
    own = executor is None
    with bar(len(missing), "run", progress) as shown:
        for restart in range(RESTARTS + 1):
            pool = executor if executor is not None else ProcessPoolExecutor(mp_context=get_context("spawn"))
            try:
                futures: dict[Future[list[dict[str, Any]]], int] = {pool.submit(run_task, tasks[at]): at for at in left}
                waiting = futures if own or isinstance(next(iter(futures), None), Future) else None
                for future in as_completed(waiting) if waiting is not None else _polled(futures):
                    rows = future.result()
                    left.remove(futures[future])
                    shown.update(1)
                    yield futures[future], rows
                break
            except BrokenExecutor:
                # A worker was killed. An executor that was passed cannot be started again.
                if not own or restart == RESTARTS:
                    raise
            finally:
                if own:
                    pool.shutdown(cancel_futures=True)


def _polled(futures: Mapping[Any, int]) -> Iterator[Any]:
    """Futures of executors that are no `concurrent.futures.Future`: in order."""
    for future in futures:
        future.result()
        yield future


class _Kept:
    """Results in a directory, by trace and command; nothing without a directory."""

    def __init__(self, directory: str | os.PathLike[str] | None, trace: bytes) -> None:
        self.directory = directory
        self.trace = hashlib.sha256(trace)

    def _path(self, name: str) -> str:
        assert self.directory is not None
        digest = self.trace.copy()
        digest.update(name.encode())
        return os.path.join(self.directory, digest.hexdigest()[:32] + ".json")

    def get(self, name: str) -> Any:
        if self.directory is None:
            return None
        try:
            with open(self._path(name), encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):
            return None

    def put(self, name: str, value: Any) -> None:
        if self.directory is None:
            return
        os.makedirs(self.directory, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self.directory, suffix=".part", delete=False, encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(file.name, self._path(name))


def report(trace: Any, output: str | os.PathLike[str], policies: Any = ("stream", "none", "oracle"), devices: Any = "s3",
           caches: Any = "1GiB", **options: Any) -> Report:
    """Writes one HTML page with pictures of replayed runs; returns its path, which shows the page in a notebook.

    The page loads nothing from elsewhere. The `results` of the path are those of `replay`."""
    path = Report(os.fspath(output))
    path.results = replay(trace, policies, devices, caches, html=str(path), **options)
    return path
