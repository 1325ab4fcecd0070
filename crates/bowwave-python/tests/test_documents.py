"""The examples of the guide and of the docstrings."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_first_block_of_the_guide_runs():
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs/guide-python.md").read_text(), re.S).group(1)
    exec(compile(block, "guide-python.md", "exec"), {})  # noqa: S102


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
    pytest.importorskip("mypy")
    import bowwave

    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--python-version", "3.11",
               "--cache-dir", str(tmp_path), str(Path(__file__).parent / "typed_program.py")]
    environment = {**os.environ, "MYPYPATH": str(Path(bowwave.__file__).parents[1])}
    checked = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
