#!/usr/bin/env bash
# Runs the tests of other projects, unchanged, over the Python package: crates/bowwave-python/suites has the plugin that
# puts bowwave below them, and the tests that are left out, each with its reason.
#
#   tools/python_suites.sh [own|pyarrow|s3fs|dask|zarr|h5py|torch]...     by default all; own: our tests with every library
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/python-suites
python=$directory/bin/python3
packages=(pytest==9.2.0 pytest-asyncio pytest-timeout hypothesis fsspec==2026.9.0 s3fs==2026.9.0 'moto[server]' pyarrow==26.0.1
    pandas==3.1.1 zarr==3.1.6 h5py==3.16.0 numpy==2.4.6 'dask[dataframe]' distributed submitit==1.5.4 webdataset==1.0.2 mypy==2.4.1 tqdm requests lxml)

if ! "$python" -c 'import dask, moto, mypy, s3fs, submitit, webdataset, zarr' 2>/dev/null; then
    echo "python_suites: installing ${packages[*]} in $directory" >&2
    python3 -m venv "$directory" >&2
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi
# Builds and stages the package, and runs nothing.
PYTHON=$python tools/python_tests.sh --collect-only -q crates/bowwave-python/tests/test_files.py >/dev/null

suites=$root/crates/bowwave-python/suites
export PYTHONPATH=$target/python:$suites PYTHONDONTWRITEBYTECODE=1 BOWWAVE_DESELECT=$suites/left_out.txt
export AWS_EC2_METADATA_DISABLED=true
work=$target/python-suites
mkdir -p "$work"

run() { # run SUITE ARGUMENTS...: pytest in a directory of its own
    echo "python_suites: $1" >&2
    (cd "$work" && "$python" -m pytest -q -p bowwave_suites -p no:cacheprovider --timeout 120 "${@:2}")
}

pyarrow() { run pyarrow --pyargs pyarrow.tests.test_fs pyarrow.tests.test_dataset pyarrow.tests.parquet; }

dask() {
    local bytes='test_bytes_utils or test_compression or test_local'
    BOWWAVE_REGISTER=1 run dask --pyargs dask.bytes.tests dask.dataframe.io.tests -k "$bytes or test_csv or test_parquet or test_json"
}

# Its tests are in the source distribution only.
s3fs() {
    if ! [ -d "$work/s3fs" ]; then
        "$directory/bin/pip" download --quiet --no-deps --no-binary :all: s3fs==2026.9.0 -d "$work" >&2
        mkdir -p "$work/s3fs"
        tar -xzf "$work"/s3fs-*.tar.gz -C "$work/s3fs" --strip-components 1
    fi
    run s3fs -c /dev/null --rootdir "$work/s3fs" -o asyncio_mode=auto "$work/s3fs/s3fs/tests/test_s3fs.py"
}

# Its stores' tests are in our own; these are its state machines.
zarr() { run zarr "$suites/zarr_stateful.py"; }

# Files that its tests open by path for reading go through `bowwave.hdf5.open`.
h5py() { BOWWAVE_H5PY=1 run h5py --pyargs h5py.tests; }

# The wheel of the package index has gigabytes; Debian's torch is for the CPU, and for Debian's Python.
torch() {
    echo "python_suites: torch" >&2
    /usr/bin/python3 -c 'import torch' 2>/dev/null || {
        echo "python_suites: torch is missing (try: apt-get install --no-install-recommends python3-torch, as root)" >&2
        exit 1
    }
    PYTHONPATH=$target/python OMP_NUM_THREADS=1 /usr/bin/python3 -W ignore "$suites/torch_loader.py" 200
}

own() { PYTHON=$python tools/python_tests.sh; }

for suite in "${@:-own pyarrow s3fs dask zarr h5py torch}"; do
    for name in $suite; do
        case $name in
            own | pyarrow | s3fs | dask | zarr | h5py | torch) "$name" ;;
            *)
                echo "python_suites: error: no suite '$name' (one of own, pyarrow, s3fs, dask, zarr, h5py, torch)" >&2
                exit 2
                ;;
        esac
    done
done
