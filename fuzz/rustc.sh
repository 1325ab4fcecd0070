#!/bin/sh
# Compiles crates of bowwave with coverage counters, and those with unsafe code with the address
# sanitizer, too. Dependencies stay as they are, which halves the build.
# `RUSTC_WRAPPER` of tools/fuzz.sh, which sets BOWWAVE_FUZZ_ROOT and BOWWAVE_FUZZ_SANITIZER.
case $CARGO_MANIFEST_DIR in
"$BOWWAVE_FUZZ_ROOT"/*/bowwave-baselines | "$BOWWAVE_FUZZ_ROOT"/*/bowwave-core | "$BOWWAVE_FUZZ_ROOT"/*/bowwave-device | \
    "$BOWWAVE_FUZZ_ROOT"/*/bowwave-sim) sanitizer= ;;
"$BOWWAVE_FUZZ_ROOT"/*) sanitizer=$BOWWAVE_FUZZ_SANITIZER ;;
*) exec "$@" ;;
esac
# The flags of cargo-fuzz.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares ${sanitizer:+"$sanitizer"}
