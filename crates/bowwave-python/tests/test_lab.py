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
        pytest.skip("the command bowwave is not built")
    monkeypatch.setenv("BOWWAVE", found)


ROWS = [{"offset": at * 65536, "length": 65536} for at in range(64)]


def test_rows_are_replayed():
    results = bowwave.replay(ROWS, ["stream", "none"], "s3", "64MiB")
    assert [row["policy"] for row in results] == ["stream", "none"]
    assert results[0]["seconds"] < results[1]["seconds"] and results.best()["policy"] == "stream"
    assert results == bowwave.replay(ROWS, ["stream", "none"], "s3", "64MiB"), "equal digits"
    assert "<table>" in results._repr_html_()


def test_arrow_in_and_out():
    pa = pytest.importorskip("pyarrow")
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
    script.write_text(f"#!/bin/sh\nif ! [ -e {mark} ]; then touch {mark}; kill -9 $PPID; fi\n"
                      f"exec {os.environ['BOWWAVE']} \"$@\"\n")
    script.chmod(0o755)
    expected = bowwave.replay(ROWS, ["stream", "none"])
    monkeypatch.setenv("BOWWAVE", str(script))
    found = bowwave.sweep(ROWS, ["stream", "none"])
    assert mark.exists()
    assert [row["seconds"] for row in found] == [row["seconds"] for row in expected]


def test_dask_runs_a_sweep():
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, \
            distributed.Client(cluster) as client:
        with client.get_executor() as executor:
            assert bowwave.sweep(ROWS, ["stream", "none"], executor=executor) == bowwave.replay(ROWS, ["stream", "none"])


def test_a_report_is_one_page(tmp_path):
    page = bowwave.report(ROWS, tmp_path / "report.html", policies=["stream", "none"])
    text = Path(page).read_text()
    assert "<svg" in text or "<canvas" in text


def test_commands_give_the_rows_of_a_sweep(tmp_path):
    import json
    import subprocess

    from bowwave._lab import rows_of

    trace = tmp_path / "a trace.csv"
    trace.write_bytes(rows_of(ROWS))
    grid = {"policies": ["stream", "none"], "devices": ["s3", "hdd"]}
    commands = bowwave.sweep_commands(trace, **grid)
    assert len(commands) == 4 and all(command.startswith("bowwave replay ") for command in commands)
    rows = []
    for command in commands:
        command = os.environ["BOWWAVE"] + command.removeprefix("bowwave")
        rows += json.loads(subprocess.run(command, shell=True, check=True, capture_output=True).stdout)
    assert rows == bowwave.sweep(trace, **grid)
