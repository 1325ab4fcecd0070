# Everything a newcomer types. Each target sets up what it needs; see tools/setup.sh.
#
#   make demo    see bowwave work: builds it, mounts an emulated slow store, reads it with and without readahead
#   make test    every check there is, as CI runs it
#   make lint    the quick part of it: formatting, clippy, tidy, licences
#   make soak    hold the mount against everything that finds faults of file systems, for an hour
#   make python-suites  tests of zarr, pyarrow, s3fs, dask, h5py and torch over the Python package
#   make wheel   build the wheel of the Python package, audit it, and test it in a fresh virtual environment
#   make reproduce  run every published experiment, and compare its kinds with docs/REPRODUCED.md
#   make reproduced write docs/REPRODUCED.md anew
#   make bench   measure (a quiet machine gives quiet figures)
#   make install put the command and the libraries below $(PREFIX)
#   make uninstall  remove them again
#   make doc     the API documentation, in $(TARGET)/doc
#   make clean   remove what was built

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo reproduce reproduced test python-after-rust programs-after-rust fuzz-after-rust test-rust fuzz-programs test-builds test-python test-programs test-fuzz prepare lint soak bench python-suites wheel install uninstall doc clean

# rustup installs cargo here; only login shells have it in PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Without MAKEFLAGS, which names a job server that cargo cannot reach.
CARGO := MAKEFLAGS= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Where tools/setup.sh installs cargo-deny.
export PATH := $(PATH):$(abspath $(TARGET))/tools/deny/bin
# Destination of `make install`.
PREFIX := /usr/local
# What to install: the release or the debug build.
BUILD := release
# What `make install` builds. A debug build takes all that `make test` has compiled, with the same features of libraries.
INSTALLED = $(if $(filter release,$(BUILD)),--release $(addprefix --package bowwave-,cli preload heap capi),--workspace --lib --bins --examples)
# Random traces per policy and scheduler that `make test` compares with the models.
TRACES := 300
# Seconds per fuzz target in `make test`, two at a time; CI uses 16, because other tests run at the same time.
FUZZ_SECONDS := 2

demo:
	@tools/setup.sh build fuse
	$(CARGO) build --locked --release --package bowwave-cli
	@$(TARGET)/release/bowwave demo

reproduce:
	$(CARGO) run --locked --release --package bowwave-cli -- reproduce --check docs/REPRODUCED.md

reproduced:
	$(CARGO) run --locked --release --package bowwave-cli -- reproduce --write docs/REPRODUCED.md

# Tests wait for disks and servers, so builds that nothing waits for run beside them, at a lower priority.
test:
	@tools/setup.sh build fuse deny
	@$(MAKE) --no-print-directory -j2 lint prepare
	$(CARGO) test --locked --workspace --no-run --quiet
	@$(MAKE) --no-print-directory -j3 fuzz-programs python-after-rust programs-after-rust fuzz-after-rust

# The Rust tests build what the Python and program tests run. These tests mostly wait, so the fuzz programs run at the same time.
python-after-rust programs-after-rust fuzz-after-rust: %-after-rust: test-rust test-builds
	@$(MAKE) --no-print-directory test-$*
fuzz-after-rust: fuzz-programs

test-rust:
	$(CARGO) test --locked --workspace -- --skip full_size::

fuzz-programs:
	MAKEFLAGS= nice -n 19 tools/fuzz.sh build

test-fuzz:
	MAKEFLAGS= nice -n 19 tools/fuzz.sh $(FUZZ_SECONDS)

# Published experiments, the model of the region, documentation, packages, and counts of instructions.
test-builds:
	MAKEFLAGS= nice cargo test --locked --workspace --test reproduced full_size::
	MAKEFLAGS= nice cargo test --locked --workspace --features bowwave-region/model --test model
	MAKEFLAGS= RUSTDOCFLAGS=-Dwarnings nice cargo doc --locked --workspace --no-deps --quiet
	MAKEFLAGS= nice tools/packages.sh
	MAKEFLAGS= nice cargo xtask cost

# The Python package, its wheel, and the suites of others over it.
test-python:
	MAKEFLAGS= tools/python_tests.sh
	MAKEFLAGS= tools/python_suites.sh --quick
	MAKEFLAGS= tools/wheel.sh debug
	MAKEFLAGS= tools/wheel_test.sh $(TARGET)/debug/wheels/*.whl

# Tools that run the command, and the independent models of its decisions.
test-programs:
	python3 -B tools/test_setup.py --quiet
	python3 -B tools/test_verify.py --quiet
	python3 -B tools/verify.py --bowwave $(TARGET)/debug/bowwave
	python3 -B tools/test_power_loss.py --quiet
	python3 -B tools/power_loss.py --bowwave $(TARGET)/debug/bowwave
	python3 -B tools/test_databases.py --quiet
	python3 -B tools/databases.py --bowwave $(TARGET)/debug/bowwave --rounds 2
	python3 -B tools/programs.py --bowwave $(TARGET)/debug/bowwave
	python3 -B tools/programs_swap.py --bowwave $(TARGET)/debug/bowwave
	python3 -B tools/vectors.py
	python3 -B tools/compare_explain.py --bowwave $(TARGET)/debug/bowwave -n $(TRACES)
	python3 -B tools/compare_scheduler.py --bowwave $(TARGET)/debug/bowwave -n $(TRACES)
	python3 -B tools/compare_explain_swap.py --bowwave $(TARGET)/debug/bowwave -n $(TRACES)
	python3 -B tools/compare_stream.py --bowwave $(TARGET)/debug/bowwave -n $(TRACES)
	python3 -B tools/compare_waste.py --bowwave $(TARGET)/debug/bowwave -n $(TRACES)
	python3 -B tools/test_models.py --bowwave $(TARGET)/debug/bowwave
	MAKEFLAGS= tools/first_hour.sh debug

# Programs and servers for the tests, most of them from the network.
prepare:
	@tools/setup.sh build python browser servers cost fuzz verify programs power databases
	@tools/python_tests.sh install
	@tools/python_suites.sh --quick install

lint:
	@tools/setup.sh build fuse deny
	$(CARGO) fmt --all --check
	$(CARGO) xtask tidy
	$(CARGO) metadata --locked --format-version 1 --manifest-path fuzz/Cargo.toml >/dev/null
	! command -v cargo-deny >/dev/null || cargo-deny --locked check --hide-inclusion-graph licenses bans sources
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings
	$(CARGO) clippy --locked --workspace --features bowwave-sim/ablation --bench ablation --quiet -- -D warnings

bench:
	@tools/setup.sh build fuse python programs
	$(CARGO) build --locked --release --package bowwave-cli --package bowwave-capi
	$(CARGO) run --locked --release --package bowwave-trace --example read_speed
	$(CARGO) run --locked --release --package bowwave-trace --example binary_speed
	$(CARGO) bench --locked --package bowwave-core --bench decide
	$(CARGO) bench --locked --package bowwave-sim --bench fast
	$(CARGO) bench --locked --package bowwave-sim --bench machine
	$(CARGO) bench --locked --package bowwave-core --bench replay
	$(CARGO) bench --locked --package bowwave-engine --bench warm
	$(CARGO) bench --locked --package bowwave-region --bench faults
	$(CARGO) bench --locked --package bowwave-backend --bench stores
	python3 -B tools/programs.py --bowwave $(TARGET)/release/bowwave --whole
	python3 -B tools/programs_swap.py --bowwave $(TARGET)/release/bowwave --whole
	python3 -B tools/bench.py --bowwave $(TARGET)/release/bowwave
	python3 -B tools/bench_maps.py --bowwave $(TARGET)/release/bowwave

# The checks that `make test` runs for seconds, for the durations in docs/INTEGRITY.md.
soak:
	@tools/setup.sh build fuse python verify power databases
	$(CARGO) build --locked --package bowwave-cli
	$(CARGO) build --locked --package bowwave-fuse --package bowwave-testkit --examples
	python3 -B tools/verify.py --bowwave $(TARGET)/debug/bowwave --whole
	python3 -B tools/power_loss.py --bowwave $(TARGET)/debug/bowwave --whole
	python3 -B tools/databases.py --bowwave $(TARGET)/debug/bowwave
	BOWWAVE_CRASH_POINTS=500 $(CARGO) test --locked --package bowwave-cli --test crash -- --nocapture
	BOWWAVE_INJECTED_STEPS=3000 $(CARGO) test --locked --package bowwave-cli --test injected -- --nocapture
	BOWWAVE_TWIN_STEPS=250000 $(CARGO) test --locked --package bowwave-cli --test twin -- --nocapture
	BOWWAVE_HOSTILE_ALL=1 $(CARGO) test --locked --package bowwave-cli --test hostile_stores -- --nocapture

# The package below the tests of other projects, and its own tests with all optional libraries.
python-suites:
	@tools/setup.sh build python
	$(CARGO) build --locked --package bowwave-cli
	tools/python_suites.sh

wheel:
	@tools/setup.sh build
	tools/wheel.sh
	tools/wheel_test.sh

install:
	@tools/setup.sh build
	$(CARGO) build --locked --no-default-features $(INSTALLED)
	install -D -t $(DESTDIR)$(PREFIX)/bin $(TARGET)/$(BUILD)/bowwave
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/bowwave $(TARGET)/$(BUILD)/libbowwave_preload.so $(TARGET)/$(BUILD)/libbowwave_heap.so
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib $(TARGET)/$(BUILD)/libbowwave.so $(TARGET)/$(BUILD)/libbowwave.a
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include crates/bowwave-capi/include/bowwave.h

uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/,bin/bowwave lib/bowwave/libbowwave_preload.so lib/bowwave/libbowwave_heap.so lib/libbowwave.so lib/libbowwave.a include/bowwave.h)
	-rmdir $(DESTDIR)$(PREFIX)/lib/bowwave

doc:
	@tools/setup.sh build
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --locked --workspace --no-deps

clean:
	$(CARGO) clean
