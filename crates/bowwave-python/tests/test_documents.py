"""The examples of the guide, the notebooks and the docstrings, and the page of the calls."""

import ast
import doctest
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "bowwave"
GUIDE = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide-python.md").read_text(), re.S)
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """A directory with the objects of the examples, which is also the working directory."""
    import pyarrow
    import pyarrow.parquet

    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 64)
    table = pyarrow.table({"price": [1.5, 2.5], "size": [1, 2], "name": ["a", "b"]})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOWWAVE", os.environ.get("BOWWAVE") or str(BUILT))
    subprocess.run([os.environ["BOWWAVE"], "generate", "zipf", "--rows", "2000", "-o", "app.bwt"], check=True)
    return tmp_path


@pytest.mark.parametrize("block", [block for block in GUIDE if "torch" not in block])
def test_the_blocks_of_the_guide_run(block, bucket):
    block = block.replace("s3://bucket/", f"file://{bucket}/")
    exec(compile(block, "guide-python.md", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_guide_has_no_other_blocks():
    assert len(GUIDE) == 6 and sum("torch" in block for block in GUIDE) == 1
    # That one runs in tools/python_suites.sh, with torch.


def shown(value):
    """What a notebook shows."""
    if value is not None:
        assert getattr(value, "_repr_html_", value.__repr__)()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_from_top_to_bottom(path, bucket):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names = {"__name__": "notebook"}
    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)  # noqa: S102
        if last is not None:
            shown(eval(compile(ast.Expression(last.value), path.name, "eval"), names))  # noqa: S307


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 2


def test_the_page_of_the_calls_is_current():
    checked = subprocess.run([sys.executable, ROOT / "tools/python_api.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("name", ["bowwave", "bowwave._files", "bowwave._map", "bowwave.fsspec"])
def test_docstrings_are_right(name):
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"bowwave": importlib.import_module("bowwave")})
    assert tried > 0 and failed == 0


def test_every_public_name_exists_and_is_documented():
    import bowwave

    for name in bowwave.__all__:
        thing = getattr(bowwave, name)
        assert name == "ADVICE" or thing.__doc__, name


def test_a_program_with_every_call_is_typed(tmp_path):
    import bowwave

    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--python-version", "3.11",
               "--cache-dir", str(tmp_path), str(Path(__file__).parent / "typed_program.py")]
    environment = {**os.environ, "MYPYPATH": str(Path(bowwave.__file__).parents[1])}
    checked = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
