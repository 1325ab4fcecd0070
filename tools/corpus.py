#!/usr/bin/env python3
"""Proves that a refactoring changes no decision: compares the outputs of two builds of bowwave byte by byte.

    tools/corpus.py record --bowwave OLD -o FILE            write the digests of all outputs to FILE
    tools/corpus.py compare --bowwave NEW FILE              compare with them; exit 1 if an output differs
    tools/corpus.py compare --bowwave NEW FILE --against OLD    also print a diff of each output that differs
    tools/corpus.py compare --bowwave NEW --against OLD     run both builds now; no file

The corpus is `explain` of every policy, swap policy and scheduler, `replay` of every policy on every device, `generate`,
and every document of `reproduce`. Its random traces and plans come from seeds and do not depend on the build. All of it
runs in virtual time, so outputs are compared as they are. `reproduce --measure` is left out: its rows are real times.

A digest is the first half of a SHA-256 over the outputs of an item: stdout, and for a run that fails its exit status and
stderr. stderr of a run that succeeds is advice for people and is left out.
"""

import argparse
import collections
import difflib
import fnmatch
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import compare_explain_swap
import compare_scheduler
import comparing
import random_traces

ROOT = Path(__file__).resolve().parent.parent
POLICIES = ("none", "legacy", "ondemand", "ondemand-patch", "linux", "range", "range-literal", "stream")
SWAP_POLICIES = ("cluster", "vma", "adaptive")
SCHEDULERS = ("noop", "deadline-rw", "deadline", "deadline-literal")
DEVICES = ("hdd", "ssd", "nvme", "s3", "s3-steady", "lustre", "instant")
PATTERNS = ("sequential", "random", "interleaved", "strided", "backward", "clustered", "zipf", "oltp")
EXPERIMENTS = ("lustre-mmap", "lustre-sweep", "iozone", "oltp", "swap", "beyond", "fsync-tester", "tiotest",
               "overlapped", "sysbench-fileio", "thrashing", "aio-stress", "overheads", "patterns")
SHIPPED_TRACES = ("crates/bowwave-cli/tests/vectors/*.csv", "crates/bowwave-trace/tests/samples/expected/*.csv",
                  "crates/bowwave-sim/plans/*.csv", "fuzz/seeds/bwt/*.bwt")
SHIPPED_PLANS = "crates/bowwave-sim/plans/*.toml"
# Window and file lengths, in pages, of each shipped trace.
SHIPPED_WINDOWS = ((32, None), (8, 100), (256, None), (33, 1000))
RA_PAGES = (8, 16, 32, 33, 64, 100, 128, 256, 500, 1024, 4096)
# Random traces per item: large enough for a small record, small enough to find the differing one.
BLOCK = 50
# Sets of random options per item of `explain`, and per device of `replay`.
VARIANTS = 3
REPLAYS = 20
# A run takes seconds; after this time it is deadlocked.
TIMEOUT_SECONDS = 600
FORMAT = "# bowwave corpus 1"
# Exit statuses of input that bowwave rejects with a message. Other failures are crashes, which a
# record must not contain.
REFUSALS = (1, 2)
# Exit status and stderr of the runs that failed, by their arguments.
FAILED = {}


class Run(NamedTuple):
    """One call of bowwave. Paths in `args` are relative to `directory`."""
    args: tuple
    stdin: bytes = b""
    directory: Path = ROOT


class Item(NamedTuple):
    """Calls whose outputs share a digest."""
    group: str
    name: str
    runs: list

    def key(self):
        return f"{self.group} {self.name}"


def csv_of(rows, gap_ns=1):
    return comparing.csv_of(rows, gap_ns).encode()


def random_rows(seed):
    """One random trace: every second one with mapped memory, every third one with advice and writes."""
    reach = random.Random(f"reach {seed}").choice((200, 1000, 5000))
    rows = random_traces.trace(seed, f"trace-{seed}", reach, loads=seed % 2 == 1)
    return random_traces.advised(seed, rows) if seed % 3 == 2 else rows


def windows(ra_pages, file_pages):
    args = ("--ra-pages", str(ra_pages))
    return args if file_pages is None else (*args, "--file-pages", str(file_pages))


def explain_items(count):
    for first in range(0, count, BLOCK):
        seeds = range(first, min(first + BLOCK, count))
        text = csv_of([row for seed in seeds for row in random_rows(seed)])
        rng = random.Random(f"explain {first}")
        options = [windows(32, None)]
        for _ in range(VARIANTS - 1):
            ra_pages = rng.choice(RA_PAGES)
            options.append(windows(ra_pages, rng.choice((None, rng.randint(1, 4 * ra_pages), rng.randint(100, 3000)))))
        for policy in POLICIES:
            yield Item("explain", f"{policy}/{seeds[0]}-{seeds[-1]}",
                       [Run(("explain", "-", "--json", "--policy", policy, *option), text) for option in options])


def swap_items(count):
    """A fourth of the traces, each in a run of its own, because regions share the slots of the store."""
    for first in range(0, count // 4, BLOCK):
        seeds = range(first, min(first + BLOCK, count // 4))
        traces = [compare_explain_swap.trace(seed) for seed in seeds]
        for policy in SWAP_POLICIES:
            runs = []
            for options, rows in traces:
                pages = () if options["pages"] is None else ("--file-pages", str(options["pages"]))
                runs.append(Run(("explain", "-", "--json", "--policy", policy, "--slots", str(options["slots"]),
                                 "--page-cluster", str(options["page_cluster"]), *pages), csv_of(rows)))
            yield Item("swap", f"{policy}/{seeds[0]}-{seeds[-1]}", runs)


def scheduler_items(count):
    """A fourth of the traces for each scheduler: half of them on the plain device that the models know, half on others."""
    for scheduler in SCHEDULERS:
        for first in range(0, count // 4, BLOCK):
            seeds = range(first, min(first + BLOCK, count // 4))
            yield Item("scheduler", f"{scheduler}/{seeds[0]}-{seeds[-1]}", [scheduler_run(scheduler, seed) for seed in seeds])


def scheduler_run(scheduler, seed):
    rng = random.Random(seed)
    text = comparing.csv_of_timed(compare_scheduler.trace(rng)).encode()
    knobs, (request_ns, page_ns, depth), request_pages, priorities, merge = compare_scheduler.setup(rng)
    page_us = page_ns // 1000
    device = (f"lustre:page_kb=4,slow_share=0,queue_seeks=1,rpc_us={request_ns // 1000},page_us_min={page_us},"
              f"page_us_max={page_us},request_kb_max={4 * request_pages},queue_merge={int(merge)}")
    if rng.random() < 0.5:
        device = rng.choice(DEVICES)
    named = ",".join(f"{name}={value}" for name, value in knobs.items())
    args = ["explain", "-", "--json", "--scheduler", f"{scheduler}:{named}" if named else scheduler, "--device", device]
    # `instant` holds any number of requests and refuses a depth.
    if rng.random() < 0.7 and device != "instant":
        args += ["--device-depth", str(depth)]
    if rng.random() < 0.5:
        args += ["--policy", rng.choice(POLICIES), *windows(rng.choice(RA_PAGES), None)]
    for pid, priority in priorities.items():
        args += ["--priority", f"{pid}={priority}"]
    return Run(tuple(args), text)


def trace_items(group, named):
    """`explain` of every policy and scheduler, and one replay, of each trace in `named` (name, content, full recording)."""
    for name, text, full in named:
        runs = [Run(("explain", "-", "--json", "--policy", policy, *windows(*pages)), text)
                for policy in POLICIES for pages in SHIPPED_WINDOWS]
        runs += [Run(("explain", "-", "--json", "--policy", policy), text) for policy in SWAP_POLICIES]
        runs += [Run(("explain", "-", "--json", "--scheduler", scheduler, *policy), text)
                 for scheduler in SCHEDULERS for policy in ((), ("--policy", "ondemand"))]
        runs.append(Run(("replay", "-", "--policy", "all", "--device", "hdd,nvme,s3,instant", "--cache", "4MiB,unlimited",
                         "--json=full" if full else "--json"), text))
        yield Item(group, name, runs)


def shipped_items():
    paths = sorted(path for pattern in SHIPPED_TRACES for path in ROOT.glob(pattern))
    named = [(f"{path.parent.name}/{path.name}", path.read_bytes(), True) for path in paths]
    yield from trace_items("shipped", named)
    runs = [Run(args, text) for _, text, _ in named[::8] for args in (
        *(("explain", "-", "--policy", policy) for policy in (*POLICIES, *SWAP_POLICIES)),
        *(("explain", "-", "--scheduler", scheduler) for scheduler in SCHEDULERS),
        ("replay", "-", "--policy", "all", "--device", "hdd,s3"),
        ("replay", "-", "--policy", "all", "--device", "hdd,s3", "--csv"))]
    yield Item("text", "tables", runs)


def replay_items(count):
    """All policies and the oracle on each device, on blocks of random traces whose processes run at the same time."""
    for device in DEVICES:
        for number in range(REPLAYS):
            rng = random.Random(f"replay {device} {number}")
            first = rng.randrange(max(count - 20, 1))
            rows = [(pid + 2 * (seed % 5), *rest) for seed in range(first, min(first + 20, count))
                    for pid, *rest in random_rows(seed)]
            args = ["replay", "-", "--json=full", "--policy", "all", "--device", device, "--seed", str(rng.randrange(9)),
                    "--ra-pages", str(rng.choice(RA_PAGES)), "--cache", rng.choice(("unlimited", "1MiB", "8MiB", "64MiB")),
                    "--eviction", rng.choice(("linux", "linux", "linux-2.6", "lru")),
                    "--pace", rng.choice(("closed", "closed", "trace", "open"))]
            if rng.random() < 0.5:
                args += ["--scheduler", rng.choice(("clook", "anticipatory", "deadline:batch=2,sync_slowdown=1", *SCHEDULERS))]
            for share, extra in ((0.3, ("--page-by-page",)), (0.3, ("--depth", "4")), (0.2, ("--failing", "0.02")),
                                 (0.3, ("--writes", "as-reads")), (0.2, ("--check",))):
                if rng.random() < share:
                    args += extra
            yield Item("replay", f"{device}/{number}", [Run(tuple(args), csv_of(rows, rng.choice((1, 20_000, 1_000_000))))])


def plan_items(directory):
    """Small plans of each pattern on each device, written to `directory`, and those that the repository ships."""
    for pattern in PATTERNS:
        for device in DEVICES:
            rng = random.Random(f"plan {pattern} {device}")
            name = f"{pattern}-{device}.toml"
            (directory / name).write_text(plan(rng, pattern, device), encoding="ascii")
            yield Item("plan", name.removesuffix(".toml"), [Run(("replay", name, "--json=full"), directory=directory)])
    for path in sorted(ROOT.glob(SHIPPED_PLANS)):
        yield Item("plan", path.name, [
            Run(("replay", path.name, "--json=full", "--policy", "all"), directory=path.parent),
            Run(("replay", path.name, "--json", "--device", "hdd,nvme,lustre", "--ra-pages", "8,100"), directory=path.parent)])


def plan(rng, pattern, device):
    """The TOML text of a plan: readers of `pattern` beside one reader at random."""
    read_bytes = rng.choice((4096, 16384, 100_000, 131_072))
    policies = ", ".join(f'"{policy}"' for policy in POLICIES)
    return f"""
[sweep]
policies = [{policies}]
ra_pages = [32, {rng.choice((8, 100, 256, 1024))}]
cache_bytes = [{rng.choice((1, 4, 16)) << 20}, 0]
devices = ["{device}"]
seeds = [{rng.randrange(100)}]

[machine]
walk = "{rng.choice(("at-once", "page-by-page"))}"
eviction = "{rng.choice(("linux", "linux-2.6", "lru"))}"
call_ns = 500
wait_ns = 5_000
copy_ns_a_kib = 100.0
failing = {rng.choice((0.0, 0.0, 0.01))}

[[readers]]
count = {rng.randint(1, 4)}
pattern = "{pattern}"
file_bytes = {rng.choice((8, 32, 128)) << 20}
read_bytes = {read_bytes}
reads = {rng.choice((50, 100, 200))}
share_file = {rng.choice(("true", "false"))}
mapped = {rng.choice(("true", "false"))}
depth = {rng.choice((1, 1, 3))}
think_ns = {rng.choice((0, 200_000))}
start_every_ns = {rng.choice((0, 1_000_000))}

[[readers]]
pattern = "random"
file_bytes = 33_554_432
read_bytes = 8_192
reads = 50
"""


def generate_items():
    for pattern in (*PATTERNS, "phases"):
        phases = ("--phases", "sequential,zipf,backward") if pattern == "phases" else ()
        yield Item("generate", pattern, [Run(("generate", pattern, "--rows", "2000", "--seed", str(seed), "--file-size", size,
                                              *phases)) for seed, size in ((0, "1GiB"), (7, "10MiB"))])


def reproduce_items():
    for experiment in EXPERIMENTS:
        yield Item("reproduce", experiment, [Run(("reproduce", "--json", experiment))])
    # Fails when the build has experiments that are not named above.
    yield Item("reproduce", "list", [Run(("reproduce", "--list"))])


def given_items(directory):
    yield from trace_items("given", [(path.name.replace(" ", "-"), path.read_bytes(), False)
                                     for path in sorted(directory.iterdir()) if path.suffix != ".md"])


def corpus(count, scratch, traces, patterns):
    """All items, those that take longest first."""
    items = [*reproduce_items(), *(given_items(traces) if traces else ()), *replay_items(count), *plan_items(scratch),
             *shipped_items(), *scheduler_items(count), *swap_items(count), *generate_items(), *explain_items(count)]
    return [item for item in items if not patterns or any(fnmatch.fnmatch(item.key(), pattern) for pattern in patterns)]


def inputs_digest(items):
    """A digest of traces and plans without command lines: a refactoring may rename options, never change traces."""
    total = hashlib.sha256()
    for key, item in sorted((item.key(), item) for item in items if item.group != "given"):
        total.update(key.encode())
        for run in item.runs:
            total.update(run.stdin)
            if item.group == "plan":
                total.update((run.directory / run.args[1]).read_bytes())
    return total.hexdigest()[:32]


def output(bowwave, run):
    """What a run prints. A run that fails says so in its output, so that a crash is a difference."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOWWAVE_")} | {"LC_ALL": "C"}
    try:
        done = subprocess.run([bowwave, *run.args], input=run.stdin, capture_output=True, cwd=run.directory,
                              env=environment, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        FAILED[" ".join(run.args)] = ("no status", b"timeout")
        return f"no end after {TIMEOUT_SECONDS} seconds\n".encode()
    if done.returncode == 0:
        return done.stdout
    FAILED[" ".join(run.args)] = (done.returncode, done.stderr)
    return done.stdout + f"exit {done.returncode}\n".encode() + done.stderr


class Names:
    """Names of JSON members and strings that the new build changes, as `old=new`.

    The new names are put back in the new output. The other way round, a new name that stands for two old ones would hide it.
    """

    def __init__(self, pairs):
        self.pairs = [tuple(pair.split("=", 1)) for pair in pairs]
        self.old = {f'"{new}"'.encode(): f'"{old}"'.encode() for old, new in self.pairs}
        self.seen = collections.Counter()
        self.pattern = re.compile(b"|".join(map(re.escape, self.old))) if self.old else None

    def restore(self, text):
        if self.pattern is None:
            return text
        self.seen.update(self.pattern.findall(text))
        return self.pattern.sub(lambda found: self.old[found[0]], text)


def digests(bowwave, items, jobs, names):
    """The digest of each item by its key."""
    def digest(item):
        total = hashlib.sha256()
        for run in item.runs:
            text = names.restore(output(bowwave, run))
            # The length keeps the outputs of neighbouring runs apart.
            total.update(b"%d\n" % len(text) + text)
        return item.key(), total.hexdigest()[:32]

    found, shown = {}, 0.0
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for key, value in pool.map(digest, items):
            found[key] = value
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                print(f"{bowwave}: {len(found)} of {len(items)} items", file=sys.stderr)
    return found


def lines_of(text):
    """Lines for a diff. An array in one line is split after each of its objects."""
    return text.decode(errors="replace").replace("},{", "},\n{").replace("],[", "],\n[").splitlines()


def sorted_members(lines):
    """The lines with the members of each JSON object in alphabetical order, numbers as they are written."""
    for line in lines:
        try:
            yield json.dumps(json.loads(line, parse_float=str), sort_keys=True)
        except ValueError:
            yield line


def show(item, old, new, names, options):
    """Prints the first lines that differ in each run of an item; whether any does but for the order of members."""
    different, printed = False, False
    for run in item.runs:
        before, after = output(old, run), names.restore(output(new, run))
        if before == after:
            continue
        before_lines, after_lines = before.decode(errors="replace").splitlines(), after.decode(errors="replace").splitlines()
        # A renamed member may sort elsewhere; order is part of the output unless names change.
        if names.pairs and list(sorted_members(before_lines)) == list(sorted_members(after_lines)):
            continue
        different = True
        if printed:
            continue
        printed = True
        print(f"{item.key()}: bowwave {' '.join(run.args)}")
        before_lines, after_lines = lines_of(before), lines_of(after)
        first = next((index for index, pair in enumerate(zip(before_lines, after_lines)) if pair[0] != pair[1]),
                     min(len(before_lines), len(after_lines)))
        start, end = max(first - 2, 0), first + options.lines
        print(f"  line {first + 1} of {len(before_lines)} is the first that differs; {len(after_lines)} lines now")
        for line in difflib.unified_diff(before_lines[start:end], after_lines[start:end], "old", "new", lineterm="", n=2):
            print(f"  {line[:options.width]}")
        if options.keep:
            keep(options.keep, item, run, before, after)
    return different


def keep(directory, item, run, before, after):
    directory.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^\w.-]", "-", item.key())
    for suffix, text in (("in", run.stdin), ("old", before), ("new", after)):
        (directory / f"{stem}.{suffix}").write_bytes(text)


def write_record(path, bowwave, count, items, found):
    version = subprocess.run([bowwave, "--version"], capture_output=True, text=True, check=True).stdout.split()
    build = " ".join(version[:4])
    lines = [FORMAT, f"# recorded with {build}: group, item, first half of the SHA-256 of its outputs",
             f"count {count}", f"inputs {inputs_digest(items)}", *(f"{key} {found[key]}" for key in sorted(found))]
    path.write_text("\n".join(lines) + "\n", encoding="ascii")


def read_record(path):
    """The number of traces, the digest of the inputs, and the digest of each item."""
    lines = path.read_text(encoding="ascii").splitlines()
    if not lines or lines[0] != FORMAT:
        sys.exit(f"corpus.py: {path}: not a record: the first line must be '{FORMAT}'; write one with `corpus.py record`")
    fields = dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return int(fields.pop("count")), fields.pop("inputs"), fields


def record(options):
    with tempfile.TemporaryDirectory() as scratch:
        items = corpus(options.count, Path(scratch), options.traces, None)
        found = digests(options.bowwave, items, options.jobs, Names([]))
        for run, (status, message) in FAILED.items():
            print(f"fails with {status}: bowwave {run}: {message.decode(errors='replace').strip()}", file=sys.stderr)
        if any(status not in REFUSALS for status, _ in FAILED.values()):
            sys.exit("corpus.py: nothing recorded: a run crashes or does not end, see above")
        write_record(options.output, options.bowwave, options.count, items, found)
    print(f"{len(items)} items, {sum(len(item.runs) for item in items)} runs", file=sys.stderr)
    return 0


def compare(options):
    if not options.record and not options.against:
        sys.exit("corpus.py: nothing to compare with: name a record, or a build with --against")
    count, inputs, expected = read_record(options.record) if options.record else (options.count, None, None)
    with tempfile.TemporaryDirectory() as scratch:
        items = corpus(count, Path(scratch), options.traces, None)
        if inputs not in (None, inputs_digest(items)):
            sys.exit(f"corpus.py: {options.record}: the traces have changed since; record it again with the old build, "
                     "or compare with the old build itself: --against")
        if options.only:
            items = corpus(count, Path(scratch), options.traces, options.only)
        names = Names(options.rename)
        if expected is None:
            expected = digests(options.against, items, options.jobs, Names([]))
        found = digests(options.bowwave, items, options.jobs, names)
        differing = [item for item in items if expected.get(item.key()) != found[item.key()]]
        if options.against:
            # A record of another machine or build may differ where both builds agree: that is still a difference.
            shown = [item for item in differing[:options.items]
                     if show(item, options.against, options.bowwave, names, options) or not names.pairs]
            rest = differing[options.items:]
            if names.pairs:
                rest = [item for item in rest if differs(item, options.against, options.bowwave, names)]
            differing = shown + rest
    return verdict(options, items, differing, expected, names)


def differs(item, old, new, names):
    """Whether an item differs but for the order of members."""
    return any(list(sorted_members(output(old, run).decode(errors="replace").splitlines()))
               != list(sorted_members(names.restore(output(new, run)).decode(errors="replace").splitlines()))
               for run in item.runs)


def verdict(options, items, differing, expected, names):
    """Prints which items differ and what was not compared; the exit status."""
    for item in differing:
        known = item.key() in expected
        print(f"differs: {item.key()}" if known else f"not in the record: {item.key()}: record it with the old build")
    for old, new in names.pairs:
        times = names.seen[f'"{new}"'.encode()]
        print(f"renamed: {old} to {new}, {times} times")
    missing = sorted(set(expected) - {item.key() for item in items})
    lost = [key for key in missing if not options.only and (options.traces or not key.startswith("given "))]
    for key in lost:
        print(f"missing: {key}: the record has it, the corpus does not")
    if len(missing) > len(lost):
        print(f"not compared: {len(missing) - len(lost)} items of the record (--only, or no --traces)")
    print(f"{len(items)} items compared, {len(differing)} differ")
    return 1 if differing or lost else 0


def program(text):
    """A program as an absolute path, because runs have directories of their own."""
    path = Path(text).resolve()
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text}: no such program; build one with `cargo build`")
    return str(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="write the digests of all outputs of a build")
    recording.set_defaults(command=record)
    recording.add_argument("-o", "--output", type=Path, required=True, help="the record")
    comparing = commands.add_parser("compare", help="compare a build with a record or with another build")
    comparing.set_defaults(command=compare)
    comparing.add_argument("record", type=Path, nargs="?", help="the record")
    comparing.add_argument("--against", type=program, help="the old build, to run now")
    comparing.add_argument("--rename", action="append", default=[], metavar="OLD=NEW",
                           help="a JSON member or string that the new build names otherwise")
    comparing.add_argument("--only", action="append", metavar="PATTERN", help="only items like this: 'explain stream/*'")
    comparing.add_argument("--items", type=int, default=10, help="items to print a diff of")
    comparing.add_argument("--lines", type=int, default=4, help="lines of a diff")
    comparing.add_argument("--width", type=int, default=400, help="characters of a line of a diff")
    comparing.add_argument("--keep", type=Path, help="directory for input and both outputs of each diff")
    for command in (recording, comparing):
        command.add_argument("--bowwave", type=program, required=True, help="the build to run")
        command.add_argument("--traces", type=Path, help="directory of more traces, in any format that explain recognises")
        command.add_argument("--count", type=int, default=2000, help="random traces; a record has its own number")
        command.add_argument("--jobs", type=int, default=os.cpu_count(), help="runs at the same time")
    options = parser.parse_args()
    if not all("=" in pair for pair in getattr(options, "rename", [])):
        parser.error("--rename takes OLD=NEW")
    return options.command(options)


if __name__ == "__main__":
    sys.exit(main())
