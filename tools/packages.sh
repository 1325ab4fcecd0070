#!/usr/bin/env bash
# Checks the published crates as their users see them: features alone, dependencies, packaged files, oldest Rust.
# Works offline. usage: tools/packages.sh
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_NET_OFFLINE=true

# Packages in `cargo tree`, which marks repeated ones with (*); with the default features there are 187.
DEPENDENCIES_MAX=30
count=$(cargo tree --locked -p bowwave-engine --no-default-features -e normal --prefix none | sed 's/ (\*)$//' | sort -u | wc -l)
if ((count > DEPENDENCIES_MAX)); then
    echo "bowwave-engine without default features has $count dependencies, but must have at most $DEPENDENCIES_MAX" >&2
    exit 1
fi

for features in "" http s3 io-uring; do
    cargo clippy --locked --quiet -p bowwave-backend --no-default-features --features "$features" -- -D warnings
done
# These only pass the features on, so what compiles without them compiles with each.
for crate in engine region; do
    cargo clippy --locked --quiet -p "bowwave-$crate" --no-default-features -- -D warnings
done

private=$(cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, sys
print(*("--exclude=" + p["name"] for p in json.load(sys.stdin)["packages"] if p["publish"] == []))')
# Uncommitted files are packaged, too: a check before a commit is worth more than one after.
# cargo's own verification would build every dependency again. Instead the packaged files become a
# workspace with the profiles of this one, so that its check reuses what `make lint` has checked.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
packed=$target/package/unpacked
rm -rf "$target"/package/*.crate "$packed"
# shellcheck disable=SC2086
cargo package --locked --quiet --workspace $private --allow-dirty --no-verify
mkdir -p "$packed"
for crate in "$target"/package/*.crate; do
    tar xzf "$crate" -C "$packed"
done
{
    sed '/^members = /c members = ["*"]' Cargo.toml
    printf '\n[patch.crates-io]\n'
    for crate in "$packed"/*/; do
        name=$(basename "$crate")
        printf '%s = { path = "%s" }\n' "${name%-*}" "$name"
    done
} >"$packed/Cargo.toml"
cp Cargo.lock "$packed"
# Packages have files of one fixed time, by which an earlier check would count as one of these.
find "$packed" -name '*.rs' -exec touch {} +
cargo check --quiet --manifest-path "$packed/Cargo.toml" --workspace --target-dir "$target"

oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# The default compiler has checked everything above.
[[ $(rustc --version) != "rustc $oldest".* ]] || exit 0
toolchain=$(rustup toolchain list 2>/dev/null | grep -o "^$oldest[.0-9]*-[^ ]*" | head -1 || true)
if [[ -n $toolchain ]]; then
    cargo "+$toolchain" check --locked --quiet --workspace
else
    echo "not checked with Rust $oldest: rustup toolchain install $oldest" >&2
fi
