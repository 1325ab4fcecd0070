#!/usr/bin/env bash
# Fuzzes every reader of traces, plans and devices: builds the targets once, with coverage counters, and runs them two at a time.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]     SECONDS for each target, 60 if not said; all targets if none is named
#   tools/fuzz.sh reproduce TARGET FILE     run one input, as a failure says
#
# Needs nothing but stable Rust and a C++ compiler: the counters are the compiler's own, libFuzzer comes as a crate.
# It starts from the tests' samples; inputs that reach new code are kept beside what was built, for the next run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
root=$PWD
built=${CARGO_TARGET_DIR:-$root/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
program=$built/$host/release/traces
corpus=$built/corpus
artifacts=$built/artifacts
targets=(detect csv bwt fio strace blkparse tracefs msr alibaba tencent spc arc lirs mqsim vscsi vscsi-csv oracle-general
    plan device)

build() {
    if ! command -v c++ >/dev/null; then
        echo "fuzz: error: 'c++' is missing, which builds libFuzzer (try: apt-get install g++, as root)" >&2
        exit 1
    fi
    # What cargo-fuzz passes, less the address sanitizer, which needs a nightly compiler.
    RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing" \
        cargo build --locked --quiet --release --manifest-path fuzz/Cargo.toml --target-dir "$built" --target "$host"
}

# fuzz TARGET: runs one; on a failure prints its end and how to repeat it.
fuzz() {
    local target=$1 log=$artifacts/$1.log samples=crates/bowwave-trace/tests/samples
    case $target in
    plan) samples=crates/bowwave-sim/plans ;;
    device) samples=crates/bowwave-sim/devices ;;
    esac
    mkdir -p "$corpus/$target" "$artifacts/$target"
    if RUST_BACKTRACE=0 BOWWAVE_FUZZ=$target "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
        -print_final_stats=1 -verbosity=0 -artifact_prefix="$artifacts/$target/" \
        "$corpus/$target" "$root/$samples" >"$log" 2>&1; then
        echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none fails"
        return 0
    fi
    {
        echo "fuzz: $target fails:"
        # The panic, or libFuzzer's own verdict (a hang, too much memory).
        grep -A 2 -e 'panicked at' -e 'ERROR: libFuzzer' "$log" || tail -n 30 "$log"
        echo "fuzz: repeat it with: tools/fuzz.sh reproduce $target ${log%.log}/$(ls -t "${log%.log}" | head -n 1)"
    } >&2
    return 1
}

build
if [ "${1:-}" = reproduce ]; then
    exec env BOWWAVE_FUZZ="${2:?a target}" "$program" "${3:?a file}"
fi
seconds=${1:-60}
shift || true
[ $# -eq 0 ] || targets=("$@")
failed=0
running=0
for target in "${targets[@]}"; do
    if [ "$running" -ge 2 ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    fuzz "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
exit "$failed"
