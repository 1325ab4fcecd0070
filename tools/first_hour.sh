#!/usr/bin/env bash
# Runs the first hour of a new user: installs bowwave in an empty home, runs the commands of README.md in their order
# against versitygw and nginx, compares exit codes and results, uninstalls, and checks that nothing is left.
#
#   tools/first_hour.sh [BUILD]     BUILD: debug (the default) or release
#
# A command of README.md without an expectation here is a failure. Exits with 1 at the first difference.
set -euo pipefail
shopt -s extglob
cd "$(dirname "$0")/.."
source=$PWD build=${1:-debug}
target=${CARGO_TARGET_DIR:-$source/target}
export PATH=$PATH:$target/tools/bin:/usr/sbin:/sbin

skip() { printf 'first hour: skipped: %s\n' "$*"; exit 0; }
[ -e /dev/fuse ] || skip "/dev/fuse is missing"
command -v fusermount3 >/dev/null || skip "fusermount3 is missing (try: tools/setup.sh fuse)"
for program in versitygw nginx rsync; do
    command -v "$program" >/dev/null || skip "$program is missing (try: tools/setup.sh servers)"
done

home=
root=$(mktemp -d "${TMPDIR:-/tmp}/bowwave-first-hour.XXXXXX")
servers=()
finish() {
    local code=$? mount
    for mount in "$home"/*; do
        mountpoint -q "$mount" && fusermount3 -uz "$mount"
    done
    [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    if [ "$code" -eq 0 ]; then rm -rf "$root"; else printf 'first hour: see %s\n' "$root" >&2; fi
}
trap finish EXIT
fail() { printf 'first hour: FAILED: %s\n' "$*" >&2; tail -n 20 "$root/out" "$root/err" >&2 || true; exit 1; }

# The user's files, and the servers' contents.
home=$root/user
mkdir -p "$home"/{photos,results} "$root"/{tmp,run,buckets/bucket/models,iam,web/data/images,nginx}
chmod 700 "$root/run"
head -c 9000000 /dev/urandom >"$root/buckets/bucket/models/model.safetensors"
for name in one two 'three & four'; do
    head -c 70000 /dev/urandom >"$home/photos/$name.jpg"
    head -c 70000 /dev/urandom >"$root/web/data/images/$name.jpg"
    printf '%s\n' "$name" >"$home/results/$name.txt"
done
touch -d 2007-07-07T07:07:07 "$home/photos/one.jpg"
chmod 600 "$home/photos/two.jpg"

port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
listens() {
    local tries
    for tries in {1..100}; do
        (: >"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
        sleep 0.1
    done
    fail "$2 does not listen on port $1 after $tries tries"
}
s3=$(port)
versitygw --access user --secret secret --quiet --port "127.0.0.1:$s3" --iam-dir "$root/iam" posix "$root/buckets" \
    >"$root/versitygw.log" 2>&1 &
servers+=($!)
listens "$s3" versitygw
web=$(port)
user=''
[ "$(id -u)" -ne 0 ] || user='user root;'
cat >"$root/nginx/conf" <<END
$user daemon off; pid $root/nginx/pid; error_log stderr; worker_processes 1; master_process off;
events { worker_connections 64; }
http { access_log off; client_body_temp_path $root/nginx/body; proxy_temp_path $root/nginx/proxy;
       fastcgi_temp_path $root/nginx/fastcgi; uwsgi_temp_path $root/nginx/uwsgi; scgi_temp_path $root/nginx/scgi;
       server { listen 127.0.0.1:$web; root $root/web; autoindex on; } }
END
nginx -p "$root/nginx" -c "$root/nginx/conf" >"$root/nginx.log" 2>&1 &
servers+=($!)
listens "$web" nginx

# An environment with only the credentials. Commands run in the home directory.
user_runs() {
    (cd "$home" && env -i HOME="$home" PATH="$home/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin" TMPDIR="$root/tmp" \
        XDG_RUNTIME_DIR="$root/run" LANG=C.UTF-8 AWS_ACCESS_KEY_ID=user AWS_SECRET_ACCESS_KEY=secret \
        AWS_REGION=us-east-1 AWS_ENDPOINT_URL="http://127.0.0.1:$s3" AWS_ALLOW_HTTP=true \
        bash -euo pipefail -c "$1") >"$root/out" 2>"$root/err" </dev/null
}

# says TEXT...: the last command printed each text, on standard output or error.
says() { local text; for text in "$@"; do grep -qF -- "$text" "$root/out" "$root/err" || fail "'$line' does not say '$text'"; done; }
# holds COMMAND...: COMMAND succeeds after the last command.
holds() { "$@" >"$root/out" 2>"$root/err" || fail "after '$line': not so: $*"; }
# prints: the last command printed the block that follows it in README.md.
prints() { diff <(block_after "$line") "$root/out" >&2 || fail "'$line' prints something else than README.md says"; }

block_after() { awk -v line="$1" 'index($0, line) == 1 { seen = 1 } seen && /^```text/ { inside = 1; next } inside && /^```/ { exit } inside' README.md; }

bucket=$root/buckets/bucket
expect() {
    case $line in
        'bowwave doctor'*) says '/dev/fuse' ;;
        'bowwave ls -l s3://'*) says 'model.safetensors' '9000000' ;;
        'bowwave cp s3://'*) holds cmp "$bucket/models/model.safetensors" "$home/model.safetensors" ;;
        'bowwave cp -r results'*) holds diff -r "$home/results" "$bucket/results" ;;
        'mkdir '*) ;;
        'bowwave mount '*'~/data'*) says 'mounted at' ;  holds mountpoint -q "$home/data" ;;
        'bowwave mount '*'~/web'*) says 'mounted at' ; holds diff -r "$root/web/data" "$home/web" ;;
        'cp -r ~/web/images'*) holds diff -r "$root/web/data/images" "$bucket/prefix/images" ;;
        'bowwave status'*) says "$home/data" "$home/web" ;;
        'bowwave mount '*'~/mnt'*) says 'mounted at' ;;
        'tar cf'*) holds tar df "$bucket/backup/photos.tar" -C "$home" ;;
        'rsync -a'*)
            holds diff -r "$home/photos" "$bucket/backup/photos"
            again=$(user_runs 'rsync -ai ~/photos/ ~/mnt/photos/' && cat "$root/out")
            [ -z "$again" ] || fail "a second rsync transfers again: $again"
            ;;
        'bowwave umount'*) ! mountpoint -q "$home/$(basename "${line##* }")" || fail "'$line' leaves it mounted" ;;
        'bowwave run'*) says "$(sha256sum <"$bucket/models/model.safetensors" | cut -d' ' -f1)" ;;
        'bowwave read'*) says 'none' 'ondemand' 'stream' ;;
        printf*) holds test -s "$home/trace.csv" ;;
        'bowwave explain'*) prints ;;
        'bowwave generate'*) holds test -s "$home/app.bwt" ;;
        'bowwave replay'*--html*) says 'stream' 'oracle' ; holds grep -q '</html>' "$home/app.html" ;;
        'bowwave replay'*--save*) says 'stream' ; holds test -s "$home/run.json" ;;
        'bowwave report'*) holds grep -q '</html>' "$home/run.html" ;;
        'bowwave reproduce'*) says 'thrashing' ;;
        *) fail "README.md has a command without an expectation in $0: $line" ;;
    esac
}

printf 'first hour: make install\n'
make --no-print-directory install PREFIX="$home/.local" BUILD="$build" >"$root/out" 2>"$root/err" || fail 'make install'
commands=$(awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside && NF' README.md)
while IFS= read -r line; do
    line=${line%%+( )#*}
    case $line in
        # This run uses its own `make install`; the demo, the tests and the wheel (`make wheel`) run separately.
        'make '* | 'tools/wheel.sh '*) continue ;;
    esac
    printf 'first hour: %s\n' "$line"
    code=0
    user_runs "${line//https:\/\/example.org/http://127.0.0.1:$web}" || code=$?
    [ "$code" -eq 0 ] || fail "'$line' exits with $code"
    expect
done <<<"$commands"

printf 'first hour: make uninstall\n'
make --no-print-directory uninstall PREFIX="$home/.local" >"$root/out" 2>"$root/err" || fail 'make uninstall'
line='make uninstall'
# Directories of the prefix may hold other programs, and stay.
find "$home" "$root/tmp" "$root/run" -mindepth 1 ! -path "$home/photos*" ! -path "$home/results*" \
    ! \( -path "$home/.local*" -type d \) | sort >"$root/left"
printf '%s\n' "$home"/{app.bwt,app.html,data,mnt,model.safetensors,run.html,run.json,trace.csv,web} | sort >"$root/expected"
diff "$root/expected" "$root/left" >&2 || fail 'files are left behind, or missing'
grep -F "$root" /proc/self/mountinfo && fail 'mounts are left behind'
# The servers name the directory, too.
for process in /proc/[0-9]*; do
    case " ${servers[*]} $$ " in *" ${process#/proc/} "*) continue ;; esac
    ! tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -F bowwave | grep -qF "$home" ||
        fail "a process is left behind: $(tr '\0' ' ' <"$process/cmdline")"
done
printf 'first hour: passed\n'
