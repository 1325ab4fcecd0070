#!/usr/bin/env python3
"""Runs the benchmarks of the VMA readahead patch (2017) in real memory: policies by turns on each store.

    cargo build --release -p bowwave-region --examples
    tools/bench_swap.py --directory /var/tmp

Micro-benchmark: 4 threads write an array each in order, again and again, beside 8 threads that each write another at random. As in the
document the arrays are 50 to 30 and together 2.5 times the memory (--factor), and are filled by all writers at the same time. Linpack: a
dense system of equations of --factor times the memory is solved by LU decomposition, and its residual checked. Stores: emulated devices
over memory, and a file in --directory. Each round runs all policies of a store one after the other. Prints a line of JSON for each run,
then tables of medians with the lowest and highest value, and whether hits are as in the document: at least 99 % by vma, at most 60 % by
cluster.

"as Linux": one pair of lists for all regions, and slots in the order of eviction. The document compares its policies on that reclaim.

Hits: of the pages read ahead and not mapped before their touch, how many were touched. Policies of the document map none before.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

# linux: cluster on a disk with a head, else vma.
POLICIES = ("none", "cluster", "vma", "linux", "adaptive")
# The document's baseline, and its policy.
AS_LINUX = ("cluster, as Linux", "vma, as Linux")
MIB = 1 << 20
PERCENTILES = ("p50", "p60", "p70", "p80", "p90", "p95", "p99")
# Parts of 8 of all arrays: 50 and 30 GB.
SEQUENTIAL, RANDOM = 5, 3


def hits(result):
    """Percent; None without readahead. Of all regions, or of some."""
    visible = result["swap_ra"] - result["mapped_ahead"]
    return 100 * result["swap_ra_hit"] / visible if visible else None


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench_swap.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def micro(args, store, policy):
    eighth = int(args.memory * args.factor) // 8
    name, *reclaim = policy.split(",")
    result = run([
        args.examples / "swap_beside", store, "--policy", name, "--memory", args.memory, "--sequential", SEQUENTIAL * eighth, "--random",
        RANDOM * eighth, "--readers", 4, "--writers", 8, "--seconds", args.seconds, "--reclaim", len(reclaim)])
    sequential = result["sequential"]
    figures = {"MB/s": sequential["mb_per_second"], "mean us": sequential["mean_us"]}
    figures |= dict(zip(PERCENTILES, sequential["p50_60_70_80_90_95_99_us"]))
    return figures | {"at random/s": result["random"]["touches_per_second"], "hits %": hits(result),
                      "in order, hits %": hits(result["sequential_regions"]), "pages ahead": result["swap_ra"]}


def linpack(args, store, policy):
    order = int((args.memory * args.factor / 8) ** 0.5)
    result = run([args.examples / "swap_linpack", store, policy, "--order", order, "--memory", args.memory])
    parts = ("generate_s", "factorise_s", "solve_s")
    return {"s": sum(result[part] for part in parts)} | {part[:-2] + " s": result[part] for part in parts} | {
        "pages in": result["swap_in"], "hits %": hits(result)}


def median(results, name):
    values = [result[name] for result in results if result[name] is not None]
    if not values:
        return "–"
    middle = f"{statistics.median(values):.4g}"
    return f"{middle} ({min(values):.4g} to {max(values):.4g})" if len(values) > 1 else middle


def table(title, all_results):
    print(f"\n{title}\n")
    names = None
    for (store, policy), results in all_results.items():
        if not names:
            names = list(results[0])
            print(f"| store | policy | {' | '.join(names)} |\n|{'---|' * (len(names) + 2)}")
        print(f"| {store} | {policy} | {' | '.join(median(results, name) for name in names)} |")


#: Pages that a policy must have read ahead for its hits to mean something.
AHEAD_MIN = 1000


def bar(all_results):
    """Says for each store whether hits are as in the document."""
    for how in ("", ", as Linux"):
        for store in dict.fromkeys(store for store, _ in all_results):
            vma, cluster = ([result["hits %"] or 0 for result in all_results[store, policy + how]] for policy in ("vma", "cluster"))
            few = [policy for policy in ("vma", "cluster") if any(result["pages ahead"] < AHEAD_MIN for result in all_results[store, policy + how])]
            holds = statistics.median(vma) >= 99 and statistics.median(cluster) <= 60
            verdict = f"NO EVIDENCE, too few pages ahead by {' and '.join(few)}" if few else "holds" if holds else "DOES NOT HOLD"
            print(f"{store}{how}: hits {statistics.median(vma):.1f} % by vma, {statistics.median(cluster):.1f} % by cluster; "
                  f">= 99 and <= 60: {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="See the head of the file.")
    parser.add_argument("--examples", type=Path, default=Path("target/release/examples"), help="directory of the examples")
    parser.add_argument("--directory", type=Path, help="on a disk, for the spill file; without it emulated devices alone")
    parser.add_argument("--emulate", nargs="*", default=["nvme", "hdd"], metavar="DEVICE", help="emulated devices")
    parser.add_argument("--memory", type=int, default=64 * MIB, help="bytes of memory")
    parser.add_argument("--factor", type=float, default=2.5, help="all arrays, in times the memory")
    parser.add_argument("--seconds", type=int, default=20, help="for each run of the micro-benchmark")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all policies")
    parser.add_argument("--only", choices=("micro", "linpack"), help="one of the benchmarks")
    args = parser.parse_args()
    stores = {f"emulate:{device}": f"emulate:{device}:memory:" for device in args.emulate}
    if args.directory:
        stores["disk"] = str(args.directory)
    all_results = {"micro": {}, "linpack": {}}
    for number in range(args.rounds):
        for name, store in stores.items():
            for benchmark, of in (("micro", micro), ("linpack", linpack)):
                if args.only not in (None, benchmark):
                    continue
                for policy in POLICIES if benchmark == "linpack" else (*AS_LINUX, *POLICIES):
                    figures = of(args, store, policy)
                    told = {"round": number, "benchmark": benchmark, "store": name, "policy": policy, "load": os.getloadavg()[0]}
                    print(json.dumps(told | figures), flush=True)
                    all_results[benchmark].setdefault((name, policy), []).append(figures)
    for benchmark, results in all_results.items():
        if results:
            table(benchmark, results)
        if benchmark == "micro" and results:
            bar(results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
