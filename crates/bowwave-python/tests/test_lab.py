"""The laboratory, through the command."""

import os
import re
import shutil
import textwrap
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import bowwave
import cloudpickle
import pytest

pytestmark = pytest.mark.usefixtures("command")

ROWS = [{"offset": at * 65536, "length": 65536} for at in range(64)]


def test_rows_are_replayed():
    results = bowwave.replay(ROWS, ["stream", "none"], "s3", "64MiB")
    assert [row["policy"] for row in results] == ["stream", "none"]
    assert results[0]["seconds"] < results[1]["seconds"] and results.best()["policy"] == "stream"
    assert results == bowwave.replay(ROWS, ["stream", "none"], "s3", "64MiB"), "equal digits"
    assert "<table>" in results._repr_html_()


def test_arrow_in_and_out():
    import pyarrow as pa

    results = bowwave.replay(pa.Table.from_pylist(ROWS), "stream")
    assert results == bowwave.replay(ROWS, "stream")
    assert results.to_arrow()["policy"].to_pylist() == ["stream"]


def test_the_reads_of_a_file_are_a_trace():
    with bowwave.open("pattern:/8MiB") as file:
        while file.read(1 << 20):
            pass
        assert bowwave.replay(file, "none")[0]["bytes_wanted"] == 8 << 20


def test_the_faults_of_a_lazy_map_are_a_trace():
    memory = bowwave.map("pattern:/8MiB", lazy=True)
    memory.populate(0, len(memory))
    assert bowwave.replay(memory, "none")[0]["bytes_wanted"] == 8 << 20


def test_bad_input_is_a_value_error():
    with pytest.raises(ValueError, match="not a policy; there are all, none"):
        bowwave.replay(ROWS, "bogus")
    with pytest.raises(ValueError, match="lacks 'length'"):
        bowwave.replay([{"offset": 1}])
    with pytest.raises(OSError, match="/no/such"):
        bowwave.replay("/no/such/trace")


def test_a_sweep_has_the_same_digits_with_every_executor(tmp_path, monkeypatch):
    grid = {"policies": ["stream", "none"], "devices": ["s3", "hdd"], "ra_pages": ["128KiB", "1MiB"]}
    with ThreadPoolExecutor(4) as threads:
        expected = bowwave.sweep(ROWS, executor=threads, keep=tmp_path / "kept", **grid)
    assert len(expected) == 8
    assert bowwave.sweep(ROWS, **grid) == expected
    with ProcessPoolExecutor(2) as processes:
        assert bowwave.sweep(ROWS, executor=processes, **grid) == expected
    monkeypatch.setenv("BOWWAVE", "/no/such/command")
    assert bowwave.sweep(ROWS, keep=tmp_path / "kept", **grid) == expected, "all results are kept"


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Puts a script in place of the command, which notes each run and ends its worker before the run `killed`, once."""
    def put(killed=None):
        script, log, mark = tmp_path / "bowwave", tmp_path / "runs", tmp_path / "killed"
        # This process asks for the tasks, and workers run them.
        script.write_text(f"#!/bin/sh\ncase \"$*\" in *--emit-tasks*) ;; *)\n"
                          f"if [ -e {log} ] && [ $(wc -l < {log}) = {killed} ] && ! [ -e {mark} ]; then\n"
                          f"touch {mark}; kill -9 $PPID; exit 1; fi\necho run >> {log};; esac\n"
                          f"exec {os.environ['BOWWAVE']} \"$@\"\n")
        script.chmod(0o755)
        log.touch()
        monkeypatch.setenv("BOWWAVE", str(script))
        return mark, lambda: len(log.read_text().splitlines())

    return put


POLICIES = ["stream", "none", "linux"]


def test_a_killed_worker_loses_nothing(counted):
    expected = bowwave.replay(ROWS, POLICIES)
    mark, _ = counted(killed=0)
    assert bowwave.sweep(ROWS, POLICIES) == expected
    assert mark.exists()


def test_a_killed_worker_of_a_passed_executor_loses_no_run_that_is_finished(counted):
    expected = bowwave.replay(ROWS, POLICIES)
    mark, runs = counted(killed=2)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes, pytest.raises(BrokenExecutor) as raised:
        bowwave.sweep(ROWS, POLICIES, executor=processes)
    assert mark.exists() and runs() == 2
    note, = raised.value.__notes__
    kept = re.fullmatch(r"2 of 3 runs are finished: keep='(.*)' continues", note)[1]
    assert bowwave.sweep(ROWS, POLICIES, keep=kept) == expected
    assert runs() == 3, "the third run only"
    shutil.rmtree(kept)


def test_a_sweep_continues_with_the_runs_that_are_not_kept(tmp_path, counted):
    _, runs = counted()
    with ThreadPoolExecutor(2) as threads:
        expected = bowwave.sweep(ROWS, POLICIES, executor=threads, keep=tmp_path / "kept")
        assert runs() == 3
        results = [path for path in (tmp_path / "kept").iterdir() if '"policy"' in path.read_text()]
        results[0].unlink()
        results[1].write_text('[{"policy": "st')
        assert bowwave.sweep(ROWS, POLICIES, executor=threads, keep=tmp_path / "kept") == expected
        assert runs() == 5
        # Another grid has runs in common with this one.
        assert bowwave.sweep(ROWS, POLICIES[:2], executor=threads, keep=tmp_path / "kept") == expected[:2]
        assert runs() == 5
        assert bowwave.sweep(ROWS[1:], POLICIES[:1], executor=threads, keep=tmp_path / "kept") != expected[:1]
        assert runs() == 6, "another trace"


def test_dask_runs_a_sweep_although_a_worker_is_killed(counted):
    import distributed

    expected = bowwave.replay(ROWS, POLICIES)
    mark, runs = counted(killed=1)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster, \
            distributed.Client(cluster) as client:
        with client.get_executor() as executor:
            assert bowwave.sweep(ROWS, POLICIES, executor=executor) == expected
    assert mark.exists() and runs() == 4, "the run that was in the memory of the worker is run again"


def test_submitit_runs_a_sweep(tmp_path):
    import submitit

    # Jobs as of Slurm, as processes of this machine.
    executor = submitit.AutoExecutor(tmp_path / "jobs" / "%j", cluster="local")
    executor.update_parameters(timeout_min=5)
    assert bowwave.sweep(ROWS, ["stream", "none"], executor=executor) == bowwave.replay(ROWS, ["stream", "none"])
    assert len(list((tmp_path / "jobs").glob("*/*_result.pkl"))) == 2, "the jobs ran there"
    assert len(list((tmp_path / "jobs").glob("trace-*.csv"))) == 1, "one file for all jobs"


class Remote:
    """An executor as the guide has it for Ray: its futures are none of `concurrent.futures`."""

    class Reference:
        def __init__(self, future):
            self.result = future.result

    def __init__(self, processes):
        self.processes, self.objects = processes, []

    def put(self, value):
        self.objects.append(value)
        return len(self.objects) - 1

    def submit(self, call, *arguments):
        # Ray gives a worker the object in place of its reference.
        arguments = [self.objects[one] if isinstance(one, int) else one for one in arguments]
        return self.Reference(self.processes.submit(call, *arguments))


def test_an_executor_like_that_of_ray_gets_the_trace_once():
    with ProcessPoolExecutor(2) as processes:
        executor = Remote(processes)
        assert bowwave.sweep(ROWS, ["stream", "none"], executor=executor) == bowwave.replay(ROWS, ["stream", "none"])
        assert len(executor.objects) == 1


def test_ray_runs_a_sweep_with_the_object_of_the_guide(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is large: install it to run this test")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    text = (Path(__file__).parents[3] / "docs/guide-python.md").read_text()
    block = textwrap.dedent(re.search(r"```text\n(.*?class Ray:.*?)```", text, re.S)[1])
    names = {"ray": ray}
    exec(block, names)  # noqa: S102
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert bowwave.sweep(ROWS, POLICIES, executor=names["Ray"]()) == bowwave.replay(ROWS, POLICIES)
    finally:
        ray.shutdown()


def test_tasks_are_small_whatever_the_trace(monkeypatch):
    import distributed.cfexecutor

    rows = [{"offset": at * 4096, "length": 4096} for at in range(20_000)]
    sizes = []

    def measured(submit):
        def measuring(self, call, *arguments):
            sizes.append(len(cloudpickle.dumps((call, arguments))))
            return submit(self, call, *arguments)
        return measuring

    for kind in (ProcessPoolExecutor, distributed.cfexecutor.ClientExecutor):
        monkeypatch.setattr(kind, "submit", measured(kind.submit))
    expected = bowwave.replay(rows, ["stream", "none"])
    with ProcessPoolExecutor(2) as processes:
        assert bowwave.sweep(rows, ["stream", "none"], executor=processes) == expected
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, \
            distributed.Client(cluster) as client, client.get_executor() as executor:
        assert bowwave.sweep(rows, ["stream", "none"], executor=executor) == expected
    assert len(sizes) == 4 and max(sizes) < 4096, sizes


def test_a_report_is_one_page(tmp_path):
    page = bowwave.report(ROWS, tmp_path / "report.html", policies=["stream", "none"])
    text = Path(page).read_text()
    assert "<svg" in text or "<canvas" in text


def test_commands_give_the_rows_of_a_sweep(tmp_path):
    import json
    import subprocess

    from bowwave._traces import csv_of

    trace = tmp_path / "a trace.csv"
    trace.write_bytes(csv_of(ROWS))
    grid = {"policies": ["stream", "none"], "devices": ["s3", "hdd"]}
    commands = bowwave.sweep_commands(trace, **grid)
    assert len(commands) == 4 and all(command.startswith("bowwave replay ") for command in commands)
    rows = []
    for command in commands:
        command = os.environ["BOWWAVE"] + command.removeprefix("bowwave")
        rows += json.loads(subprocess.run(command, shell=True, check=True, capture_output=True).stdout)
    assert rows == bowwave.sweep(trace, **grid)
    assert bowwave.sweep_commands(trace, "all")[-1].count("oracle") == 1, "a bound is no run of its own"


def traces():
    """Two files, and names that need quotes."""
    return [{"time_ns": at // 3, "pid": 1 + at % 2, "op": "read", "file": ["a b", "x=1,y"][at % 2], "offset": at * 4096,
             "length": 8192} for at in range(200)]


@pytest.mark.parametrize("sharded", [False, True])
def test_traces_are_parquet_in_and_out(sharded, tmp_path):
    path = bowwave.write_trace(traces(), tmp_path / ("trace" if sharded else "trace.parquet"), sharded=sharded)
    table = bowwave.read_trace(path)
    assert table.to_pylist() == traces(), "in the same order"
    assert bowwave.read_trace(traces()).equals(table.cast(bowwave.read_trace(traces()).schema))
    assert bowwave.read_trace(path, files=["x=1,y"]).to_pylist() == traces()[1::2]
    assert bowwave.replay(path, ["none"]) == bowwave.replay(traces(), ["none"])
    assert bowwave.sweep(table, ["none"]) == bowwave.sweep(path, ["none"]) == bowwave.replay(traces(), ["none"])
    if sharded:
        assert len(list((tmp_path / "trace").iterdir())) == 2, "a shard for each volume"


def skewed(count):
    """Accesses to 32768 pages, some of them far more often than others."""
    import random

    chance = random.Random(5)
    return [{"offset": int(32768 * chance.random() ** 3) * 4096, "length": 4096} for _ in range(count)]


def test_a_sample_has_all_accesses_of_its_pages():
    rows = skewed(20000) + [{"offset": 4096 * 10, "length": 40960}]
    taken = bowwave.sample(rows, 0.2)["offset"].to_pylist()
    pages = [page for row in rows for page in range(row["offset"], row["offset"] + row["length"], 4096)]
    assert taken == [page for page in pages if page in set(taken)]
    assert 0.17 < len(set(taken)) / len(set(pages)) < 0.23
    assert set(taken) != set(bowwave.sample(rows, 0.2, seed=1)["offset"].to_pylist())
    for share in (0, 1.5):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            bowwave.sample(rows, share)


def test_the_miss_ratios_of_a_sample_are_those_of_the_trace_within_their_error():
    rows = skewed(60000)
    caches = [16 << 20, 64 << 20]
    whole = bowwave.replay(rows, "none", "instant", caches, eviction="lru")
    exact = [row["misses"] / row["accesses"] for row in whole]
    with ThreadPoolExecutor(2) as threads:
        found = bowwave.miss_ratios(rows, caches, 0.5, parts=4, eviction="lru", executor=threads)
    for row, ratio in zip(found, exact, strict=True):
        assert 0 < row["error"] < 0.02, row
        assert abs(row["miss_ratio"] - ratio) < 3 * row["error"] + 0.005, (row, ratio)
    assert exact[0] - exact[1] > 0.1, "the sizes differ"
    with pytest.raises(ValueError, match="a share of .* or more"):
        bowwave.miss_ratios(rows, [1 << 20], 0.1)
