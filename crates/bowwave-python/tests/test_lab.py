"""The laboratory, through the command."""

import os
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import bowwave
import pytest

BUILT = Path(os.environ.get("CARGO_TARGET_DIR", Path(__file__).parents[3] / "target")) / "debug" / "bowwave"


@pytest.fixture(autouse=True)
def command(monkeypatch):
    found = os.environ.get("BOWWAVE") or (str(BUILT) if BUILT.exists() else shutil.which("bowwave"))
    if not found:
        pytest.fail("the command bowwave is not built: cargo build -p bowwave-cli")
    monkeypatch.setenv("BOWWAVE", found)


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


def test_a_killed_worker_loses_nothing(monkeypatch, tmp_path):
    script = tmp_path / "bowwave"
    mark = tmp_path / "killed"
    # This process asks for the tasks, and workers run them.
    script.write_text(f"#!/bin/sh\ncase \"$*\" in *--emit-tasks*) ;; *)\n"
                      f"if ! [ -e {mark} ]; then touch {mark}; kill -9 $PPID; fi;; esac\n"
                      f"exec {os.environ['BOWWAVE']} \"$@\"\n")
    script.chmod(0o755)
    expected = bowwave.replay(ROWS, ["stream", "none"])
    monkeypatch.setenv("BOWWAVE", str(script))
    found = bowwave.sweep(ROWS, ["stream", "none"])
    assert mark.exists()
    assert [row["seconds"] for row in found] == [row["seconds"] for row in expected]


def test_dask_runs_a_sweep():
    import distributed

    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, \
            distributed.Client(cluster) as client:
        with client.get_executor() as executor:
            assert bowwave.sweep(ROWS, ["stream", "none"], executor=executor) == bowwave.replay(ROWS, ["stream", "none"])


def test_submitit_runs_a_sweep(tmp_path):
    submitit = pytest.importorskip("submitit", reason="pip install submitit")
    # Jobs as of Slurm, as processes of this machine.
    executor = submitit.LocalExecutor(tmp_path / "jobs")
    executor.update_parameters(timeout_min=5)
    assert bowwave.sweep(ROWS, ["stream", "none"], executor=executor) == bowwave.replay(ROWS, ["stream", "none"])
    assert any((tmp_path / "jobs").glob("*_result.pkl")), "the jobs ran there"


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
