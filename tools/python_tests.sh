#!/usr/bin/env bash
# Tests the Python package: builds the extension module and the servers of its tests (dev profile, shared with
# `cargo test`), installs pytest and the libraries below test in a directory of their own, and runs pytest.
#
#   tools/python_tests.sh [PYTEST ARGUMENTS]      by default all of crates/bowwave-python/tests
#   tools/python_tests.sh install                 installs the libraries only
#
# PYTHON names the interpreter of that directory, if it is not to be created.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/python
python=${PYTHON:-$directory/bin/python3}
packages=(pytest==9.2.0 pytest-asyncio==1.5.0 fsspec==2026.9.0 aiohttp==3.14.5 numpy==2.4.6 pyarrow==26.0.1 zarr==3.1.6
    pandas==3.1.1 polars==2.1.0 h5py==3.16.0 distributed==2026.8.0 submitit==1.5.4 webdataset==1.0.2 mypy==2.4.1 tqdm==4.70.1
    safetensors==0.8.0 xarray==2026.9.0 h5netcdf==1.8.2)
needed='aiohttp, distributed, h5netcdf, h5py, mypy, pandas, polars, pyarrow, pytest_asyncio, safetensors, submitit, tqdm, webdataset, xarray, zarr'

if ! [ -x "$python" ] || ! "$python" -c "import $needed" 2>/dev/null; then
    echo "python_tests: installing ${packages[*]} in $directory" >&2
    python3 -m venv "$directory" >&2
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2 || {
        echo "python_tests: they could not be installed (try: apt-get install python3-venv, as root, and a network)" >&2
        exit 1
    }
fi
[ "${1:-}" != install ] || exit 0
# With the features of `cargo test --workspace`, so that little is compiled again.
cargo build --locked --quiet --workspace --lib --bins --examples

# The package as a wheel would have it: the sources with the module in them.
staged=$target/python
mkdir -p "$staged"
rm -rf "$staged/bowwave"
cp -r crates/bowwave-python/python/bowwave "$staged/"
cp "$target/debug/lib_bowwave.so" "$staged/bowwave/_bowwave.abi3.so"
"$python" - crates/bowwave-python/pyproject.toml "$staged/bowwave-0.dist-info" <<'END'
import pathlib, sys, tomllib

project = tomllib.loads(pathlib.Path(sys.argv[1]).read_text())["project"]
info = pathlib.Path(sys.argv[2])
info.mkdir(exist_ok=True)
(info / "METADATA").write_text("Metadata-Version: 2.1\nName: bowwave\nVersion: 0\n")
groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
lines = (f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in names.items()) for group, names in groups.items())
(info / "entry_points.txt").write_text("\n".join(lines))
END
export PYTHONPATH=$staged${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
exec "$python" -m pytest -q -p no:cacheprovider -c crates/bowwave-python/tests/pytest.ini "${@:-crates/bowwave-python/tests}"
