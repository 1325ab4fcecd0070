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
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

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


def replay(trace: Any, policies: Any = "stream", devices: Any = "s3", caches: Any = "1GiB", *, progress: bool = False,
           **options: Any) -> Results:
    """Replays a trace in virtual time: one row for each policy, device and cache size.

    A trace is a path of any format that `bowwave import` knows, Parquet, a directory of `write_trace`, rows with `offset`
    and `length` (an iterable of dictionaries or an Arrow table), or a `bowwave.File` or lazy map: the reads or
    page faults it remembers.

    Options are those of `bowwave replay`, such as `ra_pages="1MiB"` and `pace="trace"`. Equal calls give equal digits.
    `progress` shows a bar after the first second, if tqdm is installed.
    """
    arguments = _grid(policies, devices, caches, options)
    if isinstance(trace, str | os.PathLike) and not is_parquet(trace):
        return Results(json.loads(ran(["replay", os.fspath(trace), "--json", *arguments], progress=progress)))
    return Results(json.loads(ran(["replay", "-", "--json", *arguments], csv_of(trace), progress)))


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


def run_task(trace: bytes | str, *arguments: str) -> list[dict[str, Any]]:
    """Runs the command in any process that has it, with a trace or the file of a trace as its standard input."""
    return json.loads(ran(arguments, trace))  # type: ignore[no-any-return]


def sweep(trace: Any, policies: Any = "all", devices: Any = "s3", caches: Any = "1GiB", *, executor: Executor | None = None,
          keep: str | os.PathLike[str] | None = None, progress: bool = False, **options: Any) -> Results:
    """As `replay`, with each combination as a task of an executor: processes by default, or any
    `concurrent.futures.Executor`, such as Dask's `Client.get_executor()`, of submitit or of Ray.

    Other options may be lists too, and are combined: `ra_pages=["128KiB", "1MiB"]`. Rows are in the order of the lists,
    and equal for all executors. `keep` names a directory for results: a sweep that is run again continues. `progress`
    shows a bar, if tqdm is installed.

    A killed worker loses no finished run. Without `executor`, and with executors that start workers again, such as
    Dask, its run is started again. Other executors raise their exception, with a note that names the directory of the
    finished runs: `keep` with this directory continues. Any other exception, such as by Ctrl-C, has this note too.

    The trace is sent once: in a file to processes of this machine and to jobs of submitit, as a task of Dask, and by
    the method `put` of an executor that has one, whose result a worker must receive as the trace. An executor without
    these gets the trace with each task.
    """
    data = csv_of(trace)
    kept = _Kept(keep, data)
    grid = repr((_grid(policies, devices, caches, options), sorted(options.items())))
    lines = kept.get(grid)
    if lines is None:
        lines = _commands("-", data, policies, devices, caches, options)
        kept.put(grid, lines)
    results: list[list[dict[str, Any]] | None] = [kept.get(line) for line in lines]
    missing = [at for at, result in enumerate(results) if result is None]
    try:
        with tempfile.TemporaryDirectory(prefix="bowwave-sweep-") as directory:
            shipped = _shipped(data, executor, directory) if missing else data
            tasks = {at: (shipped, *shlex.split(lines[at])[1:]) for at in missing}
            for at, rows in _run(tasks, executor, progress):
                results[at] = rows
                kept.put(lines[at], rows)
    except BaseException as error:
        _note(error, kept, data, lines, results)
        raise
    return Results(row for rows in results for row in rows or [])


def _shipped(data: bytes, executor: Executor | None, directory: str) -> Any:
    """A trace as an argument of tasks, which is small where the executor allows it."""
    if isinstance(executor, ProcessPoolExecutor | ThreadPoolExecutor) or executor is None:
        return _written(data, directory)
    if type(executor).__module__.partition(".")[0] == "submitit":
        # Its only path is the directory that all its jobs have; with a `%`, each job has its own below it.
        path = next(os.fspath(value) for value in vars(executor).values() if isinstance(value, os.PathLike))
        return _written(data, path if "%" not in path else os.path.dirname(path.partition("%")[0]))
    client: Any = getattr(executor, "_client", None)
    if hasattr(client, "scatter"):
        # As a task: workers get it from each other, and the scheduler has it for one that is started again.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")
            return client.submit(bytes, data)
    put = getattr(executor, "put", None)
    return data if put is None else put(data)


def _written(data: bytes, directory: str) -> str:
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"trace-{hashlib.sha256(data).hexdigest()[:32]}.csv")
    with tempfile.NamedTemporaryFile("wb", dir=directory, suffix=".part", delete=False) as file:
        file.write(data)
    os.replace(file.name, path)
    return path


def _note(error: BaseException, kept: _Kept, data: bytes, lines: list[str], results: list[Any]) -> None:
    """Keeps the runs that are finished, and tells where."""
    finished = {line: rows for line, rows in zip(lines, results, strict=True) if rows is not None}
    if not finished:
        return
    if kept.directory is None:
        kept = _Kept(tempfile.mkdtemp(prefix="bowwave-kept-"), data)
        for line, rows in finished.items():
            kept.put(line, rows)
    directory = os.fspath(kept.directory or "")
    error.add_note(f"{len(finished)} of {len(lines)} runs are finished: keep={directory!r} continues")


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


def _run(tasks: Mapping[int, tuple[Any, ...]], executor: Executor | None,
         progress: bool) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    left = set(tasks)
    with bar(len(tasks), "run", progress) as shown:
        for restart in range(RESTARTS + 1):
            pool = executor if executor is not None else ProcessPoolExecutor(mp_context=get_context("spawn"))
            futures: dict[Any, int] = {}
            broken = None
            try:
                for at in sorted(left):
                    futures[pool.submit(run_task, *tasks[at])] = at
            except BrokenExecutor as error:
                broken = error
            try:
                for future in _ended(futures):
                    try:
                        rows = future.result()
                    except BrokenExecutor as error:
                        # A worker was killed: other runs may be finished.
                        broken = error
                        continue
                    left.remove(futures[future])
                    shown.update(1)
                    yield futures[future], rows
            finally:
                for future, at in futures.items():
                    if at in left and hasattr(future, "cancel"):
                        future.cancel()
                if executor is None:
                    pool.shutdown(cancel_futures=True)
            # An executor that was passed cannot be started again.
            if broken is not None and (executor is not None or restart == RESTARTS):
                raise broken
            if broken is None:
                break


def _ended(futures: Mapping[Any, int]) -> Iterable[Any]:
    """Futures as they end; those of executors that are no `concurrent.futures.Future`, in order."""
    return as_completed(futures) if all(isinstance(future, Future) for future in futures) else futures


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
           caches: Any = "1GiB", *, progress: bool = False, **options: Any) -> Report:
    """Writes one HTML page with pictures of replayed runs; returns its path, which shows the page in a notebook.

    The page loads nothing from elsewhere. The `results` of the path are those of `replay`. `progress` shows a bar after
    the first second, if tqdm is installed."""
    path = Report(os.fspath(output))
    path.results = replay(trace, policies, devices, caches, html=str(path), progress=progress, **options)
    return path
