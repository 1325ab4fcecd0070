#!/usr/bin/env bash
# Builds the wheel of the Python package, with the command `bowwave` in it, in target/wheels.
#
#   tools/wheel.sh [PROFILE]      release (the default) or dev
#
# Wheels for other machines need an old glibc: with ziglang installed beside maturin (`pip install ziglang`) the wheel is
# manylinux_2_17; without it, it is for the glibc of this machine and later ones.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=${1:-release}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
directory=$target/tools/maturin
if ! [ -x "$directory/bin/maturin" ]; then
    echo "wheel: installing maturin in $directory" >&2
    python3 -m venv "$directory" >&2
    "$directory/bin/pip" install --quiet --disable-pip-version-check maturin==1.16.0 >&2
fi
cargo build --locked --profile "$profile" --package bowwave-cli --bin bowwave
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")/bowwave
# maturin installs what is in NAME.data/scripts as commands.
scripts=crates/bowwave-python/bowwave.data/scripts
mkdir -p "$scripts"
strip -o "$scripts/bowwave" "$built"
options=(--locked --profile "$profile" --manifest-path crates/bowwave-python/Cargo.toml --out "$target/wheels")
if "$directory/bin/python3" -c 'import ziglang' 2>/dev/null; then
    options+=(--zig --compatibility manylinux_2_17)
fi
"$directory/bin/maturin" build "${options[@]}"
