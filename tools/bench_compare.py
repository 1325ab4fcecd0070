#!/usr/bin/env python3
"""Compares bowwave's mount with other mounts of object stores, on twelve workloads and a slow S3 server.

    tools/bench_compare.py [--bowwave target/release/bowwave] [--rounds N] [--limit SECONDS] [--only LETTERS]
                           [--who NAME,...] [--json FILE] [--markdown FILE]

The server is `cargo build --release -p bowwave-testkit --example shaped`: 30 ms to first byte, 90 MB/s a connection.
It generates its objects, so no disk is measured. Each measurement has a mount of its own, so all caches are cold.
Contenders alternate within a round, so that noise of the machine affects all alike. Figures are medians of the rounds.
The bytes at both ends of each read are compared with those of the server, and a wrong byte ends the program. A reader
that exceeds the limit stops, and its row says so. The contenders, where installed:

    stream     bowwave mount --policy stream
    ondemand   bowwave mount --policy ondemand
    old        bowwave mount --policy stream of the program that --old names, such as the last release
    https      policy stream, and nginx before the server, which ends TLS
    process    policy stream without a mount, through the C library (`cargo build --release -p bowwave-capi`)
    simulated  policy stream in virtual time: `bowwave replay` of the same reads on device s3-steady. Its latency is
               the server's latency for a minimal client. Its bandwidth is that of `process` on a server without
               latency, which includes the processor time of both ends. One request more opens the object
    rclone     rclone mount with its defaults, without checksums: generated objects have none
    s3fs       s3fs with 16 concurrent parts of 10 MB
    mount-s3   mountpoint-s3 with its defaults

`stream@160MiB` has that much memory for pages, in place of --cache.

tools/compare_workloads.py has the workloads. The server counts requests and bytes. Memory and processor time are those
of the mount's process, or of the reading process where there is no mount. Amplification is bytes fetched for each byte
requested, in pages of 4 KiB. A third table has seconds and requests of `process` and `stream` as ratios to `simulated`.
"""

import argparse
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

from compare_workloads import KIB, LETTERS, MAPPED, MIB, PAGE, PLAYER_PERIOD, SIZES, Directory, accesses, pages_of, run
from mounts import can_mount, end_mounts_when_stopped, undisturbed

# The project's own bars: seconds, and bytes relative to the requested ones.
BARS = {"a": (1.5, 1.01), "b": (2.5, 1.01), "c": (15.8, 1.05), "d": (9.8, 1.05), "e": (0.8, 1.5), "f": (0.8, 1.5),
        "g": (4.2, 2.0), "h": (1.6, 1.5), "i": (0.6, 2.0), "j": (1.2, 1.05), "k": (None, 1.5), "l": (3.2, 1.05)}
# Link rate of workload k.
LINK_MB_S = 60
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
# The engine's requests to an object store: fills of 256 KiB, merged while all connections are busy.
ENGINE = ("queue_elevator=deadline,queue_merge=1,queue_fill_kb=256,queue_spread_kb=512,request_kb_max=16384,"
          "queue_async_depth=62,queue_async_depth_start=15,queue_sync_fast_ms=60,queue_sync_sample_kb=512")
# Costs of a reader's call, wake-up and copy, as in `bowwave reproduce beyond`.
MACHINE = """[machine]
call_ns = 1000
wait_ns = 5000
copy_ns_a_kib = 100.0
"""
PLAN = """[sweep]
policies = ["stream"]
ra_pages = [{ra_pages}]
cache_bytes = [{cache}]
devices = ["{device}"]
""" + MACHINE + """[[readers]]
trace = "trace.csv"
pace = "{pace}"
file_bytes = {file_bytes}
"""
# Certificate bundles and proxies are not needed, and rclone rejects the former.
OURS = {name: value for name, value in os.environ.items()
        if name != "AWS_CA_BUNDLE" and not name.lower().endswith("_proxy")}


class Server:
    """The shaped server, with every object there is; or one that does not wait."""

    def __init__(self, program, total_mb_s=0, shaped=True, objects=None):
        shape = ("30", "90", str(total_mb_s)) if shaped else ("0", "0", "0")
        with tempfile.NamedTemporaryFile("w", suffix=".objects") as listed:
            listed.writelines(f"{key}={size}\n" for key, size in (objects or SIZES).items())
            listed.flush()
            self.child = subprocess.Popen([program, *shape, f"--objects={listed.name}"], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True, start_new_session=True)
            self.url = self.child.stdout.readline().strip()
        if not self.url:
            raise SystemExit(f"{program} did not start; build it: cargo build --release -p bowwave-testkit --example shaped")
        self.pattern = urllib.request.urlopen(self.url + "/_pattern").read()

    def counters(self):
        return json.load(urllib.request.urlopen(self.url + "/_counters"))

    def first_byte_ms(self, key="a"):
        """How long a client of a few lines waits for 4 KiB of an object of at least 100 pages: the median of many."""
        client = http.client.HTTPConnection(urllib.parse.urlsplit(self.url).netloc)
        took = []
        for at in range(100):
            begun = time.monotonic()
            client.request("GET", f"/data/{key}", headers={"Range": f"bytes={at * PAGE}-{at * PAGE + PAGE - 1}"})
            client.getresponse().read()
            took.append(time.monotonic() - begun)
        return 1e3 * statistics.median(took)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


class TlsFront:
    """nginx before a server: it ends TLS, and passes the bytes on."""

    def __init__(self, server, directory):
        self.certificate = os.path.join(directory, "authority.pem")
        path = lambda name: os.path.join(directory, name)
        with open(path("names"), "w") as file:
            file.write("subjectAltName=DNS:localhost")
        new_key = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj")
        for command in ((*new_key, "/CN=bench authority", "-x509", "-days", "2", "-keyout", path("authority.key"), "-out", self.certificate),
                        (*new_key, "/CN=localhost", "-keyout", path("key.pem"), "-out", path("request.pem")),
                        ("openssl", "x509", "-req", "-days", "2", "-in", path("request.pem"), "-CA", self.certificate, "-CAkey",
                         path("authority.key"), "-CAcreateserial", "-extfile", path("names"), "-out", path("front.pem"))):
            subprocess.run(command, check=True, capture_output=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with open(path("nginx.conf"), "w") as file:
            file.write(f"daemon off; worker_processes 1; pid {path('pid')}; error_log {path('log')};\n"
                       "events { worker_connections 1024; }\n"
                       f"http {{ access_log off; keepalive_requests 1000000; upstream shaped {{ keepalive 256; "
                       f"keepalive_requests 1000000; server {urllib.parse.urlsplit(server.url).netloc}; }}\n"
                       f"server {{ listen 127.0.0.1:{port} ssl; ssl_certificate {path('front.pem')}; "
                       f"ssl_certificate_key {path('key.pem')}; location / {{ proxy_pass http://shaped; proxy_http_version 1.1; "
                       "proxy_set_header Connection ''; proxy_buffering off; proxy_buffer_size 64k; proxy_buffers 4 64k; } } }\n")
        self.child = subprocess.Popen(["nginx", "-e", path("log"), "-c", path("nginx.conf")], start_new_session=True)
        self.url = f"https://localhost:{port}"
        until = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                if self.child.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"nginx did not start: {open(path('log')).read()}") from None
                time.sleep(0.02)

    def end(self):
        self.child.terminate()
        self.child.wait()


class Lab:
    """What a simulated store is like: the server as it is measured, and the processors before it."""

    def __init__(self, options, server, directory):
        self.options, self.directory = options, directory
        self.first_byte_ms = server.first_byte_ms()
        self.at_once = Server(options.server, shaped=False)
        self.known = {}

    def mb_s(self, letter):
        """Bytes a microsecond that a process gets for a workload if the store does not wait; 0 if its bytes take no time."""
        if letter == "k":
            return LINK_MB_S
        if sum(length for reads in accesses(letter).values() for _, length in reads) < 64 * MIB and letter not in MAPPED:
            return 0
        if letter not in self.known:
            before = self.at_once.counters()["bytes"]
            seconds = in_process(letter, "process", self.options, self.at_once, self.directory)["seconds"]
            self.known[letter] = (self.at_once.counters()["bytes"] - before) / seconds / 1e6
        return self.known[letter]

    def device(self, letter):
        return f"s3-steady:{ENGINE},first_byte_ms={self.first_byte_ms:.2f},total_mb_s={self.mb_s(letter):.0f}"

    def __str__(self):
        rates = ", ".join(f"{letter} {rate:.0f}" for letter, rate in self.known.items())
        return f"Simulated: first byte {self.first_byte_ms:.2f} ms; MB/s without a wait: {rates or 'not measured'}"

    def end(self):
        self.at_once.end()


def command_of(who, options, url, at, cache):
    """The command and the variables of a contender's mount of the server."""
    policy = who.partition("@")[0]
    if policy not in ("rclone", "mount-s3", "s3fs"):
        program = options.old if policy == "old" else options.bowwave
        policy = "stream" if policy in ("old", "https") else policy
        return ([program, "mount", "s3://data/", at, "--policy", policy, "--read-only", *(("--cache", cache) if cache else ()),
                 *options.mount_options.split()],
                {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true",
                 **({"SSL_CERT_FILE": options.certificate} if url.startswith("https:") else {})})
    if who == "rclone":
        remote = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": url, "ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any"}
        return (["rclone", "mount", "bench:data", at, "--read-only", "--no-checksum", "--config", os.devnull],
                {f"RCLONE_CONFIG_BENCH_{name}": value for name, value in remote.items()})
    if who == "mount-s3":
        return (["mount-s3", "data", at, "--endpoint-url", url, "--force-path-style", "--region", "us-east-1", "--read-only",
                 "--foreground", "--no-log"], KEYS)
    settings = f"url={url},use_path_request_style,public_bucket=1,ro,parallel_count=16,multipart_size=10"
    return (["s3fs", "data", at, "-f", "-o", settings], {})


class Mount:
    """A contender's mount, and what its process took."""

    def __init__(self, who, options, url, directory, cache, more=""):
        self.at = tempfile.mkdtemp(dir=directory)
        command, variables = command_of(who, options, url, self.at, cache)
        command += more.split()
        self.log = tempfile.TemporaryFile(dir=directory)
        self.child = subprocess.Popen(command, env={**OURS, **variables}, stdout=self.log, stderr=self.log,
                                      start_new_session=True)
        until = time.monotonic() + 60
        while not os.path.ismount(self.at):
            if self.child.poll() is not None or time.monotonic() > until:
                self.end()
                self.log.seek(0)
                raise SystemExit(f"{' '.join(command)}: no mount: {self.log.read().decode(errors='replace').strip()}")
            time.sleep(0.02)

    def took(self):
        """Most memory in bytes, and seconds of processor time."""
        with open(f"/proc/{self.child.pid}/status") as status:
            most = next((int(line.split()[1]) * KIB for line in status if line.startswith("VmHWM")), 0)
        with open(f"/proc/{self.child.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return most, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        with undisturbed():
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            if os.path.ismount(self.at):
                subprocess.run(["umount", "-l", self.at], check=False)
            os.rmdir(self.at)


def mounted(letter, who, options, server, directory):
    """A workload on a new mount."""
    front = None
    if who.partition("@")[0] == "https":
        front = TlsFront(server, tempfile.mkdtemp(dir=directory))
        options.certificate = front.certificate
    mount = Mount(who, options, front.url if front else server.url, directory, cache_of(letter, who, options))
    try:
        _, cpu = mount.took()
        result = run(letter, Directory(mount.at), server.pattern, options.limit)
        rss, cpu_after = mount.took()
    finally:
        mount.end()
        if front:
            front.end()
    return {**result, "rss": rss / MIB, "cpu": cpu_after - cpu}


def in_process(letter, who, options, server, directory):
    """A workload without a mount."""
    pattern = os.path.join(directory, "pattern")
    with open(pattern, "wb") as file:
        file.write(server.pattern)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compare_engine.py")
    settings = f"cache={cache_of(letter, who, options)} policy=stream endpoint={server.url} allow_http=yes"
    command = [sys.executable, program, letter, options.shared_object, "s3://data/", settings, str(options.limit), pattern]
    done = subprocess.run(command, env={**OURS, **KEYS}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def simulated(letter, who, options, lab, directory):
    """A workload in virtual time, with the window that bowwave chooses for such a store."""
    trace = os.path.join(directory, "trace.csv")
    rows = []
    for process, (key, reads) in enumerate(accesses(letter).items()):
        period = PLAYER_PERIOD * 1e9 if letter == "k" else 0
        op = "load" if letter in MAPPED else "read"
        rows += [(int(at * period), process, op, key, *read) for at, read in enumerate(reads)]
    with open(trace, "w") as file:
        file.write("time_ns,pid,op,file,offset,length\n")
        # In order of time; without times, alternating between readers.
        order = sorted(range(len(rows)), key=lambda at: rows[at][0])
        file.writelines(",".join(map(str, rows[at])) + "\n" for at in order)
    plan = os.path.join(directory, "plan.toml")
    with open(plan, "w") as file:
        file.write(PLAN.format(device=lab.device(letter), ra_pages=options.ra_pages, cache=bytes_of(cache_of(letter, who, options)),
                               pace="trace" if letter == "k" else "closed",
                               file_bytes=SIZES.get(letter) or SIZES[letter + "0"]))
    saved = os.path.join(directory, "run.json")
    command = [options.bowwave, "replay", plan, "--json", "--save", saved]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    row = json.loads(done.stdout)[0]
    wanted = sum(len(pages_of(reads)) * PAGE for reads in accesses(letter).values())
    late = 0.0
    if letter == "k":
        with open(saved) as file:
            took = json.load(file)["runs"][0]["reads"]["latency_ns"]
        late = 100 * sum(ns > PLAYER_PERIOD * 1e9 for ns in took) / len(took)
    # Players open their files while the first one is already playing.
    opened = 0 if letter == "k" else lab.first_byte_ms / 1e3
    return {"seconds": row["seconds"] + opened, "done": True, "late": late, "amplification": row["bytes_fetched"] / wanted,
            "requests": row["requests"] + len(accesses(letter)), "rss": 0.0, "cpu": 0.0}


def measure(letter, who, options, server, lab, directory):
    """One workload with one contender."""
    kind = who.partition("@")[0]
    if kind == "simulated":
        return simulated(letter, who, options, lab, directory)
    before = server.counters()
    if kind == "process":
        result = in_process(letter, who, options, server, directory)
    else:
        result = mounted(letter, who, options, server, directory)
    after = server.counters()
    if result["wrong"]:
        raise SystemExit(f"{who}: {result['wrong']}")
    return {**result, "amplification": (after["bytes"] - before["bytes"]) / max(result["wanted"], 1),
            "requests": after["requests"] - before["requests"]}


def bytes_of(size):
    """160MiB and the like as a number."""
    number = size.rstrip("KMGiB")
    return int(number) * {"": 1, "KiB": KIB, "MiB": MIB, "GiB": 1 << 30}[size[len(number):]]


def cache_of(letter, who, options):
    """Memory for pages; of workload k so much that the process stays within its 256 MiB."""
    return who.partition("@")[2] or ("160MiB" if letter == "k" else options.cache)


def summary(letter, samples):
    """Medians of the rounds."""
    middle = {name: statistics.median(sample[name] for sample in samples)
              for name in ("seconds", "late", "amplification", "requests", "rss", "cpu")}
    return {**middle, "lowest": min(sample["seconds"] for sample in samples),
            "highest": max(sample["seconds"] for sample in samples), "done": all(sample["done"] for sample in samples),
            "rounds": len(samples), "workload": letter}


def cell(letter, row):
    value = f"{row['late']:.1f} % late" if letter == "k" else f"{'' if row['done'] else '> '}{row['seconds']:.2f}"
    return f"{value} ({row['amplification']:.2f})"


def table(rows, whos):
    """The table as Markdown: medians of seconds, and in brackets bytes fetched for each wanted."""
    lines = ["| workload | bar | " + " | ".join(whos) + " |", "|---" * (len(whos) + 2) + "|"]
    for letter in dict.fromkeys(letter for letter, _ in rows):
        seconds, times = BARS[letter]
        bar = f"≤ {seconds}, {times}×" if seconds else f"0 % late, {times}×"
        cells = [cell(letter, rows[letter, who]) if (letter, who) in rows else "–" for who in whos]
        lines.append(f"| {letter} | {bar} | " + " | ".join(cells) + " |")
    lines += ["", "| workload: requests, most memory in MiB, processor seconds | " + " | ".join(whos) + " |",
              "|---" * (len(whos) + 1) + "|"]
    for letter in dict.fromkeys(letter for letter, _ in rows):
        got = [rows.get((letter, who)) for who in whos]
        cells = [f"{row['requests']:.0f}, {row['rss']:.0f}, {row['cpu']:.2f}" if row else "–" for row in got]
        lines.append(f"| {letter} | " + " | ".join(cells) + " |")
    return "\n".join(lines + agreement(rows, whos))


def agreement(rows, whos):
    """Seconds and requests as parts of what the simulator has, as Markdown."""
    real = [who for who in ("process", "stream") if who in whos]
    if "simulated" not in whos or not real:
        return []
    lines = ["", "| workload: seconds, requests, bytes: times the simulator's | " + " | ".join(real) + " |",
             "|---" * (len(real) + 1) + "|"]
    for letter in dict.fromkeys(letter for letter, _ in rows):
        of = rows[letter, "simulated"]
        parts = [[rows[letter, who][name] / of[name] for name in ("seconds", "requests", "amplification")] for who in real]
        cells = [", ".join(f"{part:.2f}" for part in each) for each in parts]
        lines.append(f"| {letter} | " + " | ".join(cells) + " |")
    return lines


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default=os.path.join(target, "release", "bowwave"))
    parser.add_argument("--old", default="", help="the program of contender `old`")
    parser.add_argument("--server", default=os.path.join(target, "release", "examples", "shaped"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that a reader may take (default 60)")
    parser.add_argument("--only", default=LETTERS, help="letters of the workloads")
    parser.add_argument("--who", default="stream,ondemand,process,simulated,rclone,s3fs,mount-s3")
    parser.add_argument("--library", dest="shared_object", default=os.path.join(target, "release", "libbowwave.so"))
    parser.add_argument("--mount-options", default="", help="more options of bowwave's mounts, as in '--ra-pages 512'")
    parser.add_argument("--ra-pages", type=int, default=256, help="window that is simulated (default 256, as bowwave chooses)")
    parser.add_argument("--cache", default="2GiB", help="bowwave's memory for pages, but for k, where it is 160MiB (default 2GiB)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    options = parser.parse_args()
    if not can_mount():
        raise SystemExit("no /dev/fuse that may be used: nothing can be mounted")
    unknown = set(options.only) - set(BARS)
    if unknown:
        raise SystemExit(f"no such workload: {', '.join(sorted(unknown))}; there are a to l")
    tools = {"old": options.old, "rclone": "rclone", "s3fs": "s3fs", "mount-s3": "mount-s3", "https": "nginx",
             "process": options.shared_object}
    there = lambda program: shutil.which(program) or os.path.exists(program)
    whos = [who for who in options.who.split(",") if there(tools.get(who.partition("@")[0], options.bowwave))]
    for who in options.who.split(","):
        if who not in whos:
            print(f"{who} is not installed and is left out", file=sys.stderr)
    end_mounts_when_stopped()
    server, slow = Server(options.server), Server(options.server, LINK_MB_S)
    samples = {}
    with tempfile.TemporaryDirectory() as directory:
        lab = Lab(options, server, directory)
        try:
            for turn in range(options.rounds):
                for letter in options.only:
                    for who in whos[turn % len(whos):] + whos[:turn % len(whos)]:
                        one = measure(letter, who, options, slow if letter == "k" else server, lab, directory)
                        samples.setdefault((letter, who), []).append(one)
                        print(f"round {turn + 1} {letter} {who:<9} {cell(letter, one)}, {one['requests']} requests, "
                              f"{one['rss']:.0f} MiB, {one['cpu']:.2f} s of processor", file=sys.stderr, flush=True)
        finally:
            server.end()
            slow.end()
            lab.end()
    rows = {key: summary(key[0], of) for key, of in samples.items()}
    text = table(rows, whos) + (f"\n\n{lab}" if "simulated" in whos else "")
    print(text)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(text + "\n")
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"who": who, **row} for (_, who), row in rows.items()], file, indent=1)


if __name__ == "__main__":
    main()
