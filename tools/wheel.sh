#!/usr/bin/env bash
# Builds the wheel of the Python package, with the command `bowwave` in it.
#
#   tools/wheel.sh          in target/wheels, manylinux_2_17: zig links it for glibc 2.17, and auditwheel checks that it needs
#                           nothing newer
#   tools/wheel.sh debug    in target/debug/wheels, for this machine: the command that the tests have built, and a debug module
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-}" in
    '' | debug) ;;
    *)
        echo "wheel: error: no kind of wheel '$1' (debug, or nothing for the release)" >&2
        exit 2
        ;;
esac
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/wheel
maturin=maturin==1.16.0
packages=("$maturin" ziglang==0.17.1 cargo-zigbuild==0.24.1 auditwheel==6.8.2)
needed=auditwheel
if [ "${1:-}" = debug ]; then
    packages=("$maturin")
    needed=maturin
fi
if ! [ -x "$directory/bin/$needed" ]; then
    echo "wheel: installing ${packages[*]} in $directory" >&2
    python3 -m venv "$directory" >&2
    "$directory/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi

package() { # package DIRECTORY COMMAND OPTIONS...: the wheel with this command
    # maturin installs what is in NAME.data/scripts as commands.
    local scripts=crates/bowwave-python/bowwave.data/scripts
    mkdir -p "$scripts"
    trap "rm -rf $scripts" EXIT
    strip -o "$scripts/bowwave" "$2"
    rm -rf "$1"
    maturin build --locked "${@:3}" --manifest-path crates/bowwave-python/Cargo.toml --out "$1"
}

if [ "${1:-}" = debug ]; then
    cargo build --locked --quiet --workspace --lib --bins --examples
    PATH=$directory/bin:$PATH
    package "$target/debug/wheels" "$target/debug/bowwave" --profile dev --compatibility linux
    exit
fi
# The tools find zig as a module of this python3.
PATH=$directory/bin:$PATH
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo zigbuild --locked --release --target "$triple.2.17" --package bowwave-cli --bin bowwave
built=$target/$triple/release
package "$target/wheels" "$built/bowwave" --release --target "$triple" --zig --compatibility manylinux_2_17
# A library links without a function that glibc 2.17 lacks, and fails when it is loaded.
libraries=("$built"/{lib_bowwave.so,deps/libbowwave_preload.so,deps/libbowwave_heap.so})
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
