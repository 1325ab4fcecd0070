#!/usr/bin/env bash
# Tests a wheel as a user gets it: installs it in a fresh virtual environment that has nothing else, without a network,
# runs the command, the first block of docs/guide-python.md and a type check, uninstalls, and checks that nothing is left.
#
#   tools/wheel_test.sh [WHEEL]     by default the one in target/wheels, which tools/wheel.sh builds
#
# PYTHON names another interpreter, such as python3.14.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
wheels=("$target"/wheels/*.whl)
[ $# -eq 0 ] || wheels=("$1")
[ ${#wheels[@]} -eq 1 ] && [ -f "${wheels[0]}" ] || {
    echo "wheel_test: error: not one wheel: ${wheels[*]} (try: tools/wheel.sh)" >&2
    exit 2
}
wheel=$(realpath "${wheels[0]}")
version=$(basename "$wheel" | cut -d- -f2)
guide=$PWD/docs/guide-python.md
# A checker of the same version as in tools/python_tests.sh, outside the environment under test.
checker=$target/tools/wheel-test
mypy=mypy==2.4.1
[ -x "$checker/bin/mypy" ] || {
    echo "wheel_test: installing $mypy in $checker" >&2
    python3 -m venv "$checker" >&2
    "$checker/bin/pip" install --quiet --disable-pip-version-check "$mypy" >&2
}

root=$(mktemp -d "${TMPDIR:-/tmp}/bowwave-wheel.XXXXXX")
trap 'rm -rf "$root"' EXIT
fail() { printf 'wheel_test: FAILED: %s\n' "$*" >&2; exit 1; }
# A user's environment: without the variables, packages and directory of the caller.
user_runs() {
    (cd "$root" && env -i HOME="$root" PATH="$root/venv/bin:/usr/bin:/bin" TMPDIR="$root" LANG=C.UTF-8 "$@")
}

"${PYTHON:-python3}" -m venv "$root/venv"
files() { (cd "$root/venv" && find . -type f ! -name '*.pyc' | sort); }
files >"$root/before"
pip=("$root/venv/bin/pip" --quiet --disable-pip-version-check)
"${pip[@]}" install --no-index "$wheel"
"${pip[@]}" check >/dev/null || fail 'pip check'

printed=$(user_runs bowwave --version) || fail 'bowwave --version'
[ "${printed%%$'\n'*}" = "bowwave $version" ] || fail "'bowwave --version' prints '$printed', and the wheel is $version"
# The libraries that it loads into programs are within it.
bytes=$(user_runs bowwave run --map pattern:/64KiB=/data -- wc -c /data) || fail 'bowwave run'
[ "$bytes" = '65536 /data' ] || fail "'bowwave run' prints '$bytes'"

awk '/^```python$/ { inside = 1; next } /^```/ && inside { exit } inside' "$guide" >"$root/guide.py"
grep -q 'bowwave.open' "$root/guide.py" || fail "$guide has no first block"
user_runs python guide.py || fail "the first block of $guide"

cat >"$root/uses.py" <<'END'
from importlib.metadata import entry_points, version
from pathlib import Path

import bowwave

assert bowwave.__version__ == version("bowwave"), bowwave.__version__
# The laboratory finds the command of this environment.
rows = bowwave.replay([{"offset": 0, "length": 4096}], ["none"])
assert rows[0]["misses"] == 1, rows
# fsspec, once installed, finds `bowwave::` without an import.
assert [point.value for point in entry_points(group="fsspec.specs", name="bowwave")] == ["bowwave.fsspec:BowwaveFileSystem"]
assert Path(bowwave.__file__).with_name("py.typed").exists()
END
user_runs python uses.py || fail 'a program over the package'

check() { user_runs "$checker/bin/mypy" --strict --python-executable "$root/venv/bin/python" --cache-dir "$root/mypy" -c "$1"; }
check 'import bowwave; data: bytes = bowwave.open("a").read()' >"$root/typed" || fail "types: $(cat "$root/typed")"
! check 'import bowwave; data: str = bowwave.open("a").read()' >"$root/typed" || fail 'types: bytes are accepted as str'

"${pip[@]}" uninstall --yes bowwave
diff "$root/before" <(files) >&2 || fail 'files are left behind'
printf 'wheel_test: passed: %s, %s\n' "$(basename "$wheel")" "$("$root/venv/bin/python" --version)"
