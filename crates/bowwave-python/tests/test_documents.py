"""README's example, the guide, the notebooks and the docstrings run; the page of the calls and the types are complete."""

import ast
import asyncio
import doctest
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import bowwave
import pytest
from conftest import KEYS, Directory

ROOT = Path(__file__).parents[3]
PACKAGE = Path(bowwave.__file__).parent
PROGRAM = Path(__file__).parent / "typed_program.py"
BUILT = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "bowwave"
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


def blocks_of(path):
    return re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(), re.S)


README, GUIDE = blocks_of("README.md"), blocks_of("docs/guide-python.md")
#: Modules that a program may import, by name.
MODULES = ["bowwave", *(f"bowwave.{module.name}" for module in pkgutil.iter_modules([PACKAGE]) if module.name[0] != "_")]
PRIVATE = [f"bowwave.{module.name}" for module in pkgutil.iter_modules([PACKAGE]) if module.name[0] == "_"]


def tool():
    """tools/python_api.py, which knows the public names."""
    spec = importlib.util.spec_from_file_location("python_api", ROOT / "tools/python_api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Examples.


def safetensors(**shapes):
    header, end = {}, 0
    for name, (rows, columns) in shapes.items():
        start, end = end, end + 4 * rows * columns
        header[f"{name}.weight"] = {"dtype": "F32", "shape": [rows, columns], "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


def gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("blk.0.attn_q.weight") + struct.pack("<IQQIQ", 2, 32, 32, 0, 0)
    return head + bytes(-len(head) % 32) + bytes(4096)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory):
    """A directory with the objects of the examples, served as `s3://bucket/`, which is also the working directory."""
    import pyarrow
    import pyarrow.parquet
    import zarr

    directory = tmp_path_factory.mktemp("examples") / "bucket"
    directory.mkdir()
    (directory / "data.bin").write_bytes(bytes(range(256)) * 64)
    table = pyarrow.table({"price": [1.5, 2.5], "size": [1, 2], "name": ["a", "b"]})
    pyarrow.parquet.write_table(table, directory / "data.parquet")
    batch = pyarrow.record_batch({"n": list(range(10))})
    with pyarrow.OSFile(str(directory / "data.arrow"), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        for _ in range(5):
            writer.write(batch)
    (directory / "model.safetensors").write_bytes(safetensors(embed=(20, 4), head=(4, 20)))
    (directory / "model.gguf").write_bytes(gguf())
    (directory / "images").mkdir()
    for number in range(3):
        for place in (directory, directory / "images"):
            (place / f"{number}.jpg").write_bytes(bytes(1000))
        with tarfile.open(directory / f"train-{number:05}.tar", "w") as archive:
            archive.add(directory / f"{number}.jpg", f"{number}.jpg")
    array = zarr.create_array(str(directory / "data.zarr"), shape=(100,), chunks=(10,), dtype="i8")
    array[:] = list(range(100))
    server = Directory(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        for name, value in {**KEYS, "AWS_ENDPOINT_URL": server.endpoint, "AWS_ALLOW_HTTP": "true",
                            "AWS_REGION": "us-east-1", "BOWWAVE": os.environ.get("BOWWAVE") or str(BUILT)}.items():
            patch.setenv(name, value)
        subprocess.run([os.environ["BOWWAVE"], "generate", "zipf", "--rows", "2000", "-o", "app.bwt"], check=True)
        yield server
    server.end()


@pytest.mark.parametrize("block", [block for block in README + GUIDE if "torch" not in block])
def test_the_blocks_of_readme_and_the_guide_run(block, bucket):
    # fsspec needs s3fs for S3, but not below `bowwave::`. It may be missing here, and HTTP's package is not.
    block = block.replace('fsspec.filesystem("s3")', 'fsspec.filesystem("http")')
    block = block.replace('.open("bucket/', f'.open("{bucket.http}')
    exec(compile(block, "the block", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_there_are_no_other_blocks():
    assert len(README) == 1 and len(GUIDE) == 8 and sum("torch" in block for block in GUIDE) == 1
    # That one runs in tools/python_suites.sh, with torch.


def shown(value):
    """What a notebook shows."""
    if value is not None:
        assert getattr(value, "_repr_html_", value.__repr__)()


async def run_cells(path, cells):
    """As a kernel runs them: within its event loop, with `await` at top level."""
    names = {"__name__": "notebook"}

    async def run(tree, mode):
        code = compile(tree, path.name, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, names)  # noqa: S307
        return await value if code.co_flags & inspect.CO_COROUTINE else value

    for cell in cells:
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        await run(tree, "exec")
        if last is not None:
            shown(await run(ast.Expression(last.value), "eval"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_from_top_to_bottom(path, bucket):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    assert cells and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    asyncio.run(run_cells(path, cells))


def test_notebooks_show_each_way_to_read():
    text = "".join(path.read_text() for path in NOTEBOOKS)
    for way in ("bowwave.open(", "await bowwave.open_async(", "bowwave::", "cache_type=", "bowwave.parquet", "bowwave.zarr",
                "bowwave.replay(", "bowwave.sweep("):
        assert way in text, way


@pytest.mark.parametrize("name", [name for name in MODULES + PRIVATE if name != "bowwave._bowwave"])
def test_docstrings_are_right(name, bucket):
    failed, tried = doctest.testmod(importlib.import_module(name), extraglobs={"bowwave": bowwave})
    assert failed == 0
    # HDF5's call is `open`, as that of the package.
    assert tried > 0 or name.startswith("bowwave._") or name == "bowwave.hdf5"


# The page of the calls.


def test_the_page_of_the_calls_is_current():
    checked = subprocess.run([sys.executable, ROOT / "tools/python_api.py", "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_the_page_has_every_module_and_name():
    assert sorted(tool().MODULES) == sorted(MODULES)
    page = (ROOT / "docs/python-api.md").read_text()
    for name in bowwave.__all__:
        assert f"\n### `{name}`\n" in page, name
        assert name == "ADVICE" or getattr(bowwave, name).__doc__, name


def test_an_example_that_no_test_runs_is_refused():
    module = type(os)("example", "A module.\n\n    bowwave.open(url)\n")
    with pytest.raises(SystemExit, match=r"no doctest.*bowwave\.open\(url\)"):
        tool().wrapped(tool().text_of(module))


# Types.

#: Libraries that have no types, and classes of ours above them.
MYPY = """[mypy]
strict = true
python_version = 3.11
[mypy-fsspec.*,pandas.*,pyarrow.*,torch.*,tqdm.*]
ignore_missing_imports = true
[mypy-bowwave.*]
disallow_subclassing_any = false
"""


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy; the second run takes less."""
    directory = tmp_path_factory.mktemp("mypy")
    (directory / "mypy.ini").write_text(MYPY)

    def run(*arguments):
        command = [sys.executable, "-m", "mypy", "--config-file", directory / "mypy.ini", "--cache-dir", directory, *arguments]
        return subprocess.run(command, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True)

    return run


def test_the_package_and_a_program_with_every_call_are_typed(mypy):
    checked = mypy(PROGRAM, PACKAGE)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_names_and_types_that_are_wrong_are_refused(mypy):
    checked = mypy("-c", 'import bowwave\nbowwave.bogus\nbowwave.map("a").populate(0, 1)\nbowwave.open(1)\n')
    assert [line.split(":")[1] for line in checked.stdout.splitlines() if ": error: " in line] == ["2", "3", "4"], checked.stdout


def test_the_typed_program_has_every_call():
    uses = [node for node in ast.walk(ast.parse(PROGRAM.read_text())) if isinstance(node, ast.Attribute)]
    names, attributes = {ast.unparse(node) for node in uses}, {node.attr for node in uses}
    missing = []
    for module_name, listed in tool().MODULES.items():
        module = importlib.import_module(module_name)
        for name in listed or [*module.__all__, "__version__"]:
            if f"{module_name}.{name}" not in names:
                missing.append(f"{module_name}.{name}")
            thing = getattr(module, name)
            members = vars(thing) if inspect.isclass(thing) else ()
            missing += [f"{module_name}.{name}.{member}" for member in members
                        if not member.startswith("_") and member not in attributes
                        and member not in ("protocol", "async_impl", "mirror_sync_methods", "name")]
    assert missing == []


def test_the_stub_is_that_of_the_module(tmp_path):
    allowed = tmp_path / "allowed"
    # Python 3.11 has buffers without the method; checkers want it for all versions.
    allowed.write_text("bowwave._bowwave.Region.__buffer__\n")
    command = [sys.executable, "-m", "mypy.stubtest", "--allowlist", allowed, "--ignore-unused-allowlist", "bowwave._bowwave"]
    checked = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)}, cwd=tmp_path,
                             capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
