#!/usr/bin/env python3
"""Compares memory larger than RAM by the kernel's swap and by bowwave, on one file behind one loop device.

    cargo build --release -p bowwave-region --example swap_beside
    sudo tools/compare_swap.py --program target/release/examples/swap_beside --directory /var/tmp

A sequential writer runs beside random writers. The kernel swaps to the device with slot readahead, and with VMA
readahead at its default and at larger windows, with the memory of a cgroup. bowwave spills to a file on the same device
with --memory. The cases: `beside` as above; `iops`, the same on a device of --iops requests a second in each direction;
`isolated`, the random writers alone. Contenders of a case alternate, --rounds times. Prints a line of JSON for each
run, then the medians and the bars; exits with 1 if a bar is missed.

Needs root, cgroup v1 or v2, and losetup. It creates a file in --directory, which must be on a disk: on a tmpfs the
kernel would swap the file into itself. The tool removes its swap and files in any case. Do not run it in CI, or on a
machine that is short of memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from swapping import Group, Undo, check, end, loop_device, remember, run, unmount, vmstat, write

# Faults served by handler threads, as under `bowwave run`; otherwise by the faulting threads.
HANDLERS = "bowwave by handlers"
CASES = ("beside", "iops", "isolated")
DEFAULT = "kernel, VMA"


def counters(loop):
    vm = vmstat()
    stat = [int(word) for word in (Path("/sys/block") / Path(loop).name / "stat").read_text(encoding="ascii").split()]
    named = {name: vm.get(name, 0) for name in ("swap_ra", "swap_ra_hit", "pswpin", "pswpout")}
    return named | {"reads": stat[0], "read_sectors": stat[2], "writes": stat[4], "write_sectors": stat[6]}


class Comparison:
    def __init__(self, args, undo, loop):
        self.args, self.undo, self.loop = args, undo, loop
        # Results per round, by case and method.
        self.results = {}

    def measure(self, case, name, memory, extra):
        """Runs the program in a cgroup and prints what it did, and what the device did meanwhile."""
        args, undo = self.args, self.undo
        begun = len(undo.steps)
        group = Group(undo, memory)
        sequential = 0 if case == "isolated" else args.sequential
        command = [args.program, *extra, "--memory", args.memory, "--sequential", sequential, "--random", args.random]
        command += ["--writers", args.writers, "--seconds", args.seconds]
        child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, preexec_fn=group.enter)
        undo.add(end, child)
        try:
            filled = child.stdout.readline()
            if case == "iops":
                group.limit(self.loop, args.iops)
                undo.add(group.limit, self.loop, 0)
            before, waited = counters(self.loop), group.waits
            line = child.stdout.readline()
            after, waited = counters(self.loop), group.waits - waited
            if child.wait() != 0 or not filled or not line:
                sys.exit(f"compare_swap.py: {name}: the program ended with {child.returncode}")
        finally:
            undo.back_to(begun)
        result = json.loads(line)
        moved = {key: after[key] - before[key] for key in after}
        requests = moved["reads"] + moved["writes"]
        moved["kib_per_request"] = round((moved["read_sectors"] + moved["write_sectors"]) / 2 / max(requests, 1), 1)
        for way in ("reads", "writes"):
            rate = moved[way] / args.seconds
            if case == "iops" and rate > 1.2 * args.iops:
                sys.exit(f"compare_swap.py: {name}: {rate:.0f} {way} a second: the limit of {args.iops} does not hold")
        told = {"case": case, "run": name, **result, "device": moved, "waits_for_memory": waited, "load": os.getloadavg()[0]}
        print(json.dumps(told), flush=True)
        self.results.setdefault(case, {}).setdefault(name, []).append(told)

    def kernel(self, case):
        run("mkswap", self.loop)
        run("swapon", self.loop)
        self.undo.add(run, "swapoff", self.loop)
        larger = [(f"{DEFAULT}, window {1 << n}", "1", n) for n in self.args.clusters]
        ways = [("kernel, by slots", "0", 3), (DEFAULT, "1", 3), *larger]
        for name, vma, cluster in ways if case != "isolated" else ways[1:2]:
            write("/sys/kernel/mm/swap/vma_ra_enabled", vma)
            write("/proc/sys/vm/page-cluster", cluster)
            self.measure(case, name, self.args.memory, [])
        self.undo.pop()

    def ours(self, case):
        begun = len(self.undo.steps)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", self.loop)
        directory = Path(self.args.directory) / f"compare-swap-mount-{os.getpid()}"
        directory.mkdir()
        self.undo.add(directory.rmdir)
        run("mount", self.loop, str(directory))
        self.undo.add(unmount, directory)
        windows = self.args.ahead if case != "isolated" else self.args.ahead[-1:]
        ways = [(f"bowwave, window {window}", window, 1) for window in windows]
        for name, window, in_thread in [*ways, (f"{HANDLERS}, window {windows[-1]}", windows[-1], 0)]:
            self.measure(case, name, None, [str(directory), "--ahead", window, "--in-thread", in_thread])
            run("sync", "--file-system", str(directory))  # The last one's file is gone, and its blocks are free once that is written.
        self.undo.back_to(begun)

    def median(self, case, name, *keys):
        def value(result):
            for key in keys:
                result = result[key]
            return result

        return statistics.median(value(result) for result in self.results[case][name])

    def table(self):
        print("\n| case | who swaps | in order, MB/s | mean, us | at random, touches/s | mean, us | KiB a request |\n|---|---|---|---|---|---|---|")
        for case, ways in self.results.items():
            for name in ways:
                figures = [self.median(case, name, *keys) for keys in (
                    ("sequential", "mb_per_second"), ("sequential", "mean_us"), ("random", "touches_per_second"),
                    ("random", "mean_us"), ("device", "kib_per_request"))]
                print(f"| {case} | {name} | " + " | ".join(f"{figure:.1f}" for figure in figures) + " |")

    def bars(self):
        """Each bar: what it is of, the ratio that is wanted, and the one that was seen."""
        order, chance = ("sequential", "mb_per_second"), ("random", "touches_per_second")
        for case, ways in self.results.items():
            kernels = [name for name in ways if name.startswith("kernel")]
            own = [name for name in ways if name.startswith("bowwave,")]

            def ratio(mine, theirs, keys, case=case):
                return self.median(case, mine, *keys) / max(self.median(case, theirs, *keys), 1e-9)

            if case == "isolated":
                yield case, "at random alone, beside the kernel", 0.9, ratio(own[-1], DEFAULT, chance)
                continue
            wanted = 2.0 if case == "beside" else 5.0
            yield case, f"{own[-1]}: in order, beside its default", wanted, ratio(own[-1], DEFAULT, order)
            best = max(kernels, key=lambda name: self.median(case, name, *order))
            yield case, f"{own[-1]}: in order, beside its best ({best})", 1.0, ratio(own[-1], best, order)
            for name in own:
                yield case, f"{name}: at random, beside its default", 0.8, ratio(name, DEFAULT, chance)

    def verdict(self):
        """Prints what the medians make of the bars; how many are missed."""
        print("\n| case | bar | at least | seen | |\n|---|---|---|---|---|")
        missed = 0
        for case, what, wanted, seen in self.bars():
            missed += seen < wanted
            print(f"| {case} | {what} | {wanted} | {seen:.2f} | {'holds' if seen >= wanted else 'MISSED'} |")
        return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="See the head of the file.")
    parser.add_argument("--program", default="target/release/examples/swap_beside", help="the example, built for release")
    parser.add_argument("--directory", default="/var/tmp", help="on a disk, with room for the arrays")
    parser.add_argument("--memory", type=int, default=128 << 20, help="bytes of memory for both arrays")
    parser.add_argument("--sequential", type=int, default=256 << 20, help="bytes of the array that is written in order")
    parser.add_argument("--random", type=int, default=256 << 20, help="bytes of the array that is written at random")
    parser.add_argument("--writers", type=int, default=1, help="threads that write at random")
    parser.add_argument("--seconds", type=int, default=8, help="for each run")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all ways")
    parser.add_argument("--iops", type=int, default=5000, help="requests a second of the device, each way, where they are limited")
    parser.add_argument("--clusters", type=int, nargs="*", default=[5], help="more windows of the kernel's, as powers of two")
    parser.add_argument("--ahead", type=int, nargs="+", default=[8, 32, 256], help="largest windows of ours in pages, the default last")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; all, unless said")
    args = parser.parse_args()
    if set(args.cases) - set(CASES):
        parser.error(f"no such case: one of {', '.join(CASES)}")
    check(args.directory, args.memory)
    undo = Undo()
    remember(undo, "/proc/sys/vm/page-cluster", 3)
    vma = Path("/sys/kernel/mm/swap/vma_ra_enabled")
    undo.add(write, vma, "1" if vma.read_text(encoding="ascii").strip() in ("true", "1") else "0")
    loop = loop_device(undo, args.directory, args.sequential + args.random + (256 << 20))
    comparison = Comparison(args, undo, loop)
    for _ in range(args.rounds):
        for case in args.cases or CASES:
            comparison.kernel(case)
            comparison.ours(case)
    comparison.table()
    return 1 if comparison.verdict() else 0


if __name__ == "__main__":
    sys.exit(main())
