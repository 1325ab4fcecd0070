#!/usr/bin/env bash
# Runs the tests of other projects, unchanged, over the Python package: crates/bowwave-python/suites has the plugin that
# puts bowwave below them, and the tests that are left out, each with its reason.
#
#   tools/python_suites.sh [own|pyarrow|s3fs|dask|zarr|h5py|torch]...     by default all; own: our tests with every library
#   tools/python_suites.sh [--quick] install  installs the libraries only
#   tools/python_suites.sh --quick [...]     of pyarrow, s3fs, dask, zarr and h5py, the part that `make test` runs
#
# A run fails if fewer files or bytes are read through bowwave than it names.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/python-suites
# Without these versions pip tries those of years.
moto=(s3fs==2026.9.0 'moto[s3]==5.2.5' boto3==1.43.117 flask flask-cors)
packages=(pytest==9.2.0 pytest-asyncio==1.5.0 pytest-timeout hypothesis fsspec==2026.9.0 "${moto[@]}" pyarrow==26.0.1 pandas==3.1.1
    zarr==3.1.6 h5py==3.16.0 numpy==2.4.6 distributed==2026.8.0 'dask[dataframe]==2026.8.0' polars==2.1.0 submitit==1.5.4
    webdataset==1.0.2 mypy==2.4.1 tqdm==4.70.1 aiohttp==3.14.5 requests lxml safetensors==0.8.0 xarray==2026.9.0 h5netcdf==1.8.2 ray==2.60.0)
all=(own pyarrow s3fs dask zarr h5py torch)
quick=
if [ "${1:-}" = --quick ]; then
    quick=yes
    shift
    all=(pyarrow s3fs dask zarr h5py)
    # Above the packages of tools/python_tests.sh, which has run before, and has no s3fs.
    below=$(echo "$target"/tools/python/lib/python3*/site-packages)
    directory=$target/tools/python-quick
    packages=(pytest-timeout hypothesis "${moto[@]}")
fi
python=$directory/bin/python3
modules='distributed, flask_cors, h5netcdf, h5py, hypothesis, moto, mypy, pandas, polars, pytest_timeout, s3fs, safetensors, submitit'
modules+=', webdataset, xarray, zarr'
[ "$quick" ] || modules+=', ray'

if ! "$python" -c "import $modules" 2>/dev/null; then
    echo "python_suites: installing ${packages[*]} in $directory" >&2
    python3 -m venv "$directory" >&2
    if [ "$quick" ]; then
        echo "$below" > "$(echo "$directory"/lib/python3*/site-packages)/below.pth"
    fi
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi
[ "${1:-}" != install ] || exit 0
# Builds and stages the package, and runs nothing.
PYTHON=$python tools/python_tests.sh --collect-only -q crates/bowwave-python/tests/test_files.py >/dev/null

suites=$root/crates/bowwave-python/suites
export PYTHONPATH=$target/python:$suites PYTHONDONTWRITEBYTECODE=1 AWS_EC2_METADATA_DISABLED=true
# dask's tests start a server by its name.
export PATH=$suites/bin:$directory/bin:$PATH
work=$target/python-suites
mkdir -p "$work"

run() { # run SUITE FILES BYTES ARGUMENTS...: pytest in a directory of its own
    echo "python_suites: $1" >&2
    (cd "$work" && "$python" -W ignore -m pytest -q -p bowwave_suites --bowwave "$1" --bowwave-files "$2" --bowwave-bytes "$3" \
        -p no:cacheprovider --disable-warnings --timeout 120 "${@:4}")
}

pyarrow() {
    if [ "$quick" ]; then
        # Tests of S3 wait for hosts of Amazon.
        run pyarrow 300 1000000 --pyargs pyarrow.tests.test_fs pyarrow.tests.parquet.test_dataset \
            pyarrow.tests.parquet.test_metadata -k 'not s3'
    else
        run pyarrow 2000 25000000 --bowwave-whole --pyargs pyarrow.tests.test_fs pyarrow.tests.test_dataset pyarrow.tests.parquet
    fi
}

dask() {
    if [ "$quick" ]; then
        run dask 200 80000 --pyargs dask.bytes.tests -k 'not compression'
    else
        run dask 5500 15000000 --bowwave-whole --pyargs dask.bytes.tests dask.dataframe.io.tests
    fi
}

# Its tests are in the source distribution only.
s3fs() {
    if ! [ -d "$work/s3fs" ]; then
        "$directory/bin/pip" download --quiet --no-deps --no-binary :all: s3fs==2026.9.0 -d "$work" >&2
        mkdir -p "$work/s3fs"
        tar -xzf "$work"/s3fs-*.tar.gz -C "$work/s3fs" --strip-components 1
    fi
    local tests=$work/s3fs/s3fs/tests
    local options=(-c /dev/null --rootdir "$work/s3fs" -o asyncio_mode=auto "$tests/test_s3fs.py")
    if [ "$quick" ]; then
        run s3fs 20 8000000 "${options[@]}" -k '(read or text) and not seek'
    else
        run s3fs 60 80000000 --bowwave-whole "${options[@]}" "$tests"/test_{mapping,custom_error_handler,utils}.py
        # fsspec's tests of file systems. They start a server of their own.
        run s3fs 1 4 "${options[@]:0:6}" "$tests/derived/s3fs_test.py"
    fi
}

# Its stores' tests are in our own; these are its state machines.
zarr() {
    if [ "$quick" ]; then
        run zarr 100 100 "$suites/zarr_stateful.py" -k keys
    else
        run zarr 1000 20000 "$suites/zarr_stateful.py"
    fi
}

# Files that its tests open by path for reading go through `bowwave.hdf5.open`.
h5py() {
    if [ "$quick" ]; then
        run h5py 20 800000 --pyargs h5py.tests.test_file h5py.tests.test_file2 h5py.tests.test_dataset
    else
        run h5py 40 1400000 --bowwave-whole --pyargs h5py.tests
    fi
}

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

[ $# -gt 0 ] || set -- "${all[@]}"
for name in "$@"; do
    if ! [[ " ${all[*]} " = *" $name "* ]]; then
        echo "python_suites: error: no suite '$name' (one of ${all[*]})" >&2
        exit 2
    fi
    "$name"
done
