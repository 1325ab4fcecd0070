#!/usr/bin/env bash
# Fuzzes what reads the bytes of others, and what others call: builds the targets once, with coverage counters and, where there
# is a nightly compiler, the address sanitizer, and runs them two at a time.
#
#   tools/fuzz.sh [SECONDS [TARGET...]]     SECONDS for each target, 60 if not said; all targets if none is named
#   tools/fuzz.sh build                     build them only
#   tools/fuzz.sh reproduce TARGET FILE     run one input, as a failure says
#
# Needs nothing but stable Rust and a C++ compiler: the counters are the compiler's own, libFuzzer comes as a crate.
# Each starts from the tests' samples or from fuzz/seeds; inputs that reach new code are kept beside what was built, for the next
# run.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
root=$PWD
built=${CARGO_TARGET_DIR:-$root/target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p')
programs=$built/$host/release
corpus=$built/corpus
artifacts=$built/artifacts
samples=$root/crates/bowwave-trace/tests/samples
boundaries=(response server listing segment mount capi region)
targets=(detect csv bwt fio strace blkparse tracefs msr alibaba tencent spc arc lirs mqsim vscsi vscsi-csv oracle-general
    plan device "${boundaries[@]}")

build() {
    if ! command -v c++ >/dev/null; then
        echo "fuzz: error: 'c++' is missing, which builds libFuzzer (try: apt-get install g++, as root)" >&2
        exit 1
    fi
    local toolchain=() sanitizer=
    if cargo +nightly --version >/dev/null 2>&1; then
        toolchain=(+nightly) sanitizer=-Zsanitizer=address
    else
        echo "fuzz: without the address sanitizer, which needs a nightly compiler (try: rustup toolchain install nightly)" >&2
    fi
    # Cargo does not notice other flags.
    [ "$programs/boundaries" -nt fuzz/rustc.sh ] || rm -rf "$programs"
    BOWWAVE_FUZZ_ROOT=$root BOWWAVE_FUZZ_SANITIZER=$sanitizer RUSTC_WRAPPER=$root/fuzz/rustc.sh \
        cargo "${toolchain[@]}" build --locked --quiet --release --manifest-path fuzz/Cargo.toml --target-dir "$built" \
        --target "$host"
}

# program TARGET: the program that contains the target.
program() {
    case " ${boundaries[*]} " in
    *" $1 "*) echo "$programs/boundaries" ;;
    *) echo "$programs/traces" ;;
    esac
}

# seeds TARGET: its seed inputs, separated by commas. Samples of other formats would be rejected.
seeds() {
    local found
    case $1 in
    device) found=("$root"/crates/bowwave-device/devices/*) ;;
    detect) found=("$samples"/*.*) ;;
    csv) found=("$samples"/expected/*.csv) ;;
    fio) found=("$samples"/*.iolog) ;;
    strace | blkparse | tracefs | spc | mqsim) found=("$samples"/*."$1") ;;
    msr | alibaba | tencent) found=("$samples/$1.csv") ;;
    arc) found=("$samples"/*.lis) ;;
    lirs) found=("$samples/sprite.trace") ;;
    vscsi) found=("$samples"/*.vscsi?) ;;
    vscsi-csv) found=("$samples/vm.csv") ;;
    oracle-general) found=("$samples"/*.oracleGeneral) ;;
    *) found=("$root/fuzz/seeds/$1"/*) ;;
    esac
    local IFS=,
    echo "${found[*]}"
}

# fuzz TARGET: runs one target; on failure prints the end of its log and how to reproduce it.
fuzz() {
    local target=$1 log=$artifacts/$1.log len_max=8192 leaks=1
    # The header of a segment alone is two pages.
    [ "$target" != segment ] || len_max=24576
    # A thread that starts or ends during the check for leaks looks like one.
    case $target in
    server | mount | capi | region) leaks=0 ;;
    esac
    mkdir -p "$corpus/$target" "$artifacts/$target"
    if RUST_BACKTRACE=0 BOWWAVE_FUZZ=$target "$(program "$target")" -max_total_time="$seconds" -timeout=20 \
        -rss_limit_mb=2560 -max_len="$len_max" -detect_leaks="$leaks" -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$artifacts/$target/" \
        -seed_inputs="$(seeds "$target")" "$corpus/$target" >"$log" 2>&1; then
        local accepted
        accepted=$(sed -n 's/^stat::accepted_inputs: *//p' "$log" | tail -n 1)
        echo "fuzz: $target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, none fails;" \
            "of the first ${accepted#* of }, ${accepted% of *} were accepted"
        return 0
    fi
    {
        echo "fuzz: $target fails:"
        # The panic, the sanitizer's report, or libFuzzer's own verdict (a hang, too much memory).
        grep -A 2 -e 'panicked at' -e 'ERROR: libFuzzer' -e 'ERROR: AddressSanitizer' "$log" || tail -n 30 "$log"
        echo "fuzz: repeat it with: tools/fuzz.sh reproduce $target ${log%.log}/$(ls -t "${log%.log}" | head -n 1)"
    } >&2
    return 1
}

build
[ "${1:-}" != build ] || exit 0
if [ "${1:-}" = reproduce ]; then
    exec env BOWWAVE_FUZZ="${2:?a target}" "$(program "$2")" "${3:?a file}"
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
