#!/usr/bin/env bash
# Builds the wheel of the Python package, with the command `bowwave` in it, in target/wheels. `make wheel` also tests it.
#
#   tools/wheel.sh [PROFILE]      release (the default) or dev
#
# The wheel is manylinux_2_17: zig links it for glibc 2.17, and auditwheel checks that it needs nothing newer.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/wheel
packages=(maturin==1.16.0 ziglang==0.17.1 cargo-zigbuild==0.24.1 auditwheel==6.8.2)
if ! [ -x "$directory/bin/auditwheel" ]; then
    echo "wheel: installing ${packages[*]} in $directory" >&2
    python3 -m venv "$directory" >&2
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi
# Both tools find zig as a module of this python3.
PATH=$directory/bin:$PATH
triple=$(rustc -vV | sed -n 's/^host: //p')
options=(--locked --profile "$profile")
cargo zigbuild "${options[@]}" --target "$triple.2.17" --package bowwave-cli --bin bowwave
built=$target/$triple/${profile/#dev/debug}/bowwave
# maturin installs what is in NAME.data/scripts as commands.
scripts=crates/bowwave-python/bowwave.data/scripts
mkdir -p "$scripts"
strip -o "$scripts/bowwave" "$built"
rm -rf "$target/wheels"
maturin build "${options[@]}" --target "$triple" --zig --compatibility manylinux_2_17 \
    --manifest-path crates/bowwave-python/Cargo.toml --out "$target/wheels"
# A library links without a function that glibc 2.17 lacks, and fails when it is loaded.
libraries=("$(dirname "$built")"/{lib_bowwave.so,deps/libbowwave_preload.so,deps/libbowwave_heap.so})
missing=$(nm -D --undefined-only "${libraries[@]}" | awk '$1 == "U" && $2 !~ /@|^_?Py/ { print $2 }')
if [ -n "$missing" ]; then
    echo "wheel: error: glibc 2.17 has no" $missing "(call it by libc::syscall, or use rustix)" >&2
    exit 1
fi
found=$(auditwheel show "$target"/wheels/*.whl | tr '\n' ' ')
if [[ $found != *'consistent with the following platform tag: "manylinux_2_17_'* ]]; then
    echo "wheel: error: it is not manylinux_2_17: $found" >&2
    exit 1
fi
