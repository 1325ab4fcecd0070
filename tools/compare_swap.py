#!/usr/bin/env python3
"""Memory larger than memory, the kernel's and bowwave's, on one file behind one loop device: a writer in order beside writers at random.

    cargo build --release -p bowwave-region --example swap_beside
    sudo tools/compare_swap.py --program target/release/examples/swap_beside --folder /var/tmp

The kernel swaps to the device with slot readahead, with VMA readahead at its default and at larger windows, with the
memory of a cgroup; bowwave spills to a file on the same device with --memory. Prints a line of JSON for each run.

Needs root, cgroup v1 or v2, losetup. It makes a file in --folder, which must lie on a disk: never on a tmpfs, for the kernel would
swap the file into itself. Swap is taken off, and all it made removed, whatever ends it. Nothing for CI, and for no machine that is short of
memory while it runs.
"""

import argparse
import atexit
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Undo:
    """What is to be undone, last first, whatever happens."""

    def __init__(self):
        self.steps = []
        atexit.register(self.all)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))

    def add(self, what, *args):
        self.steps.append((what, args))

    def all(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Who asks twice must not have the rest left as it is.
        while self.steps:
            what, args = self.steps.pop()
            try:
                what(*args)
            except Exception as error:  # The others must be undone all the same.
                print(f"could not undo {what} {args}: {error}", file=sys.stderr)


def run(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout.strip()


def write(path, value):
    Path(path).write_text(str(value))


def remember(undo, path, value):
    """Sets a knob until the end."""
    before = Path(path).read_text()
    for word in before.split():  # As in "always [madvise] never".
        if word.startswith("["):
            before = word.strip("[]")
    undo.add(write, path, before)
    write(path, value)


def check(args):
    if os.geteuid() != 0:
        sys.exit("compare_swap.py: needs root, for swap, loop devices and cgroups")
    kind = run("stat", "--file-system", "--format=%T", args.folder)
    if kind in ("tmpfs", "ramfs", "overlayfs"):
        sys.exit(f"compare_swap.py: {args.folder} is on {kind}: name a --folder on a disk, or the machine may hang")
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        sys.exit("compare_swap.py: the machine swaps already: figures would be of both; swapoff -a first")
    free = int(next(line.split()[1] for line in Path("/proc/meminfo").read_text().splitlines() if "MemAvailable" in line))
    if free * 1024 < 8 * args.memory:
        sys.exit(f"compare_swap.py: {free} KiB of memory are too few to be safe with --memory {args.memory}")


def device(undo, args, size):
    """A loop device over a preallocated file on a disk, past the page cache."""
    path = Path(args.folder) / f"compare-swap-{os.getpid()}"
    undo.add(lambda: path.unlink(missing_ok=True))
    with open(path, "wb") as file:
        for _ in range(0, size, 1 << 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())
    loop = run("losetup", "--find", "--show", "--direct-io=on", str(path))
    undo.add(run, "losetup", "--detach", loop)
    if Path(f"/sys/block/{Path(loop).name}/loop/dio").read_text().strip() != "1":
        sys.exit(f"compare_swap.py: {args.folder} has no direct I/O: the page cache would be measured")
    # A loop device says that it rotates, for which the kernel turns VMA readahead off.
    write(f"/sys/block/{Path(loop).name}/queue/rotational", 0)
    return loop


def group(undo, args, loop, memory):
    """Folders of a cgroup with that much memory, if any, and so many requests a second."""
    made = []
    root = Path("/sys/fs/cgroup")
    if (root / "memory").is_dir():
        for kind in ("memory", "blkio"):
            folder = root / kind / f"compare-swap-{os.getpid()}"
            folder.mkdir(exist_ok=True)
            made.append(folder)
        if memory:
            write(made[0] / "memory.limit_in_bytes", memory)
        if args.iops:
            number = Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip()
            for way in ("read", "write"):
                write(made[1] / f"blkio.throttle.{way}_iops_device", f"{number} {args.iops}")
    else:
        folder = root / f"compare-swap-{os.getpid()}"
        write(root / "cgroup.subtree_control", "+memory +io")
        folder.mkdir(exist_ok=True)
        made.append(folder)
        if memory:
            write(folder / "memory.max", memory)
        if args.iops:
            number = Path(f"/sys/block/{Path(loop).name}/dev").read_text().strip()
            write(folder / "io.max", f"{number} riops={args.iops} wiops={args.iops}")
    return made


def end(child):
    """Without it the folders of its cgroup stay."""
    child.kill()
    child.wait()


def ungroup(made):
    for folder in made:
        for _ in range(50):
            try:
                folder.rmdir()
                break
            except OSError:  # The last process is still on its way out.
                time.sleep(0.1)


def counters(loop):
    vm = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    stat = [int(word) for word in Path(f"/sys/block/{Path(loop).name}/stat").read_text().split()]
    named = {name: int(vm.get(name, 0)) for name in ("swap_ra", "swap_ra_hit", "pswpin", "pswpout")}
    return named | {"reads": stat[0], "read_sectors": stat[2], "writes": stat[4], "write_sectors": stat[6]}


def measure(undo, args, loop, name, memory, extra):
    """Runs the program in a cgroup and prints what it did, and what the device did meanwhile."""
    made = group(undo, args, loop, memory)
    command = [args.program, *extra, "--memory", args.memory, "--sequential", args.sequential, "--random", args.random]
    command += ["--writers", args.writers, "--seconds", args.seconds]

    def enter():
        for folder in made:
            write(folder / "cgroup.procs", os.getpid())

    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, preexec_fn=enter)
    undo.add(ungroup, made)
    undo.add(end, child)
    try:
        filled = child.stdout.readline()
        before = counters(loop)
        line = child.stdout.readline()
        after = counters(loop)
        if child.wait() != 0 or not filled or not line:
            sys.exit(f"compare_swap.py: {name}: the program ended with {child.returncode}")
    finally:
        for _ in range(2):
            what, words = undo.steps.pop()
            what(*words)
    result = json.loads(line)
    moved = {key: after[key] - before[key] for key in after}
    requests = moved["reads"] + moved["writes"]
    moved["kib_per_request"] = round((moved["read_sectors"] + moved["write_sectors"]) / 2 / max(requests, 1), 1)
    print(json.dumps({"run": name, **result, "device": moved}), flush=True)


def kernel(undo, args, loop):
    run("mkswap", loop)
    run("swapon", loop)
    undo.add(run, "swapoff", loop)
    runs = [("kernel, by slots", "0", 3), ("kernel, VMA", "1", 3), *((f"kernel, VMA, window {1 << n}", "1", n) for n in args.clusters)]
    for name, vma, cluster in runs:
        write("/sys/kernel/mm/swap/vma_ra_enabled", vma)
        write("/proc/sys/vm/page-cluster", cluster)
        measure(undo, args, loop, name, args.memory, [])
    undo.steps.pop()
    run("swapoff", loop)


def unmount(folder):
    for left in reversed(range(100)):
        try:
            return run("umount", str(folder))
        except subprocess.CalledProcessError:  # What a process had in flight keeps its file open for a moment after its end.
            if not left:
                raise
            time.sleep(0.1)


def ours(undo, args, loop):
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,nodiscard", loop)
    folder = Path(args.folder) / f"compare-swap-mount-{os.getpid()}"
    folder.mkdir()
    undo.add(folder.rmdir)
    run("mount", loop, str(folder))
    undo.add(unmount, folder)
    for window in args.ahead:
        measure(undo, args, loop, f"bowwave, window {window}", None, [str(folder), "--ahead", window])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="See the head of the file.")
    parser.add_argument("--program", default="target/release/examples/swap_beside", help="the example, built for release")
    parser.add_argument("--folder", default="/var/tmp", help="on a disk, with room for the arrays")
    parser.add_argument("--memory", type=int, default=256 << 20, help="bytes of memory for both arrays")
    parser.add_argument("--sequential", type=int, default=512 << 20, help="bytes of the array that is written in order; 0 for none")
    parser.add_argument("--random", type=int, default=512 << 20, help="bytes of the array that is written at random; 0 for none")
    parser.add_argument("--writers", type=int, default=1, help="threads that write at random")
    parser.add_argument("--seconds", type=int, default=15, help="for each run")
    parser.add_argument("--iops", type=int, default=0, help="requests a second of the device, each way; 0 for no limit")
    parser.add_argument("--clusters", type=int, nargs="*", default=[5], help="more windows of the kernel's, as powers of two")
    parser.add_argument("--ahead", type=int, nargs="*", default=[8, 32, 256], help="largest windows of ours in pages")
    args = parser.parse_args()
    check(args)
    undo = Undo()
    remember(undo, "/proc/sys/vm/page-cluster", 3)
    vma = Path("/sys/kernel/mm/swap/vma_ra_enabled")
    undo.add(write, vma, "1" if vma.read_text().strip() in ("true", "1") else "0")
    loop = device(undo, args, args.sequential + args.random + (256 << 20))
    kernel(undo, args, loop)
    ours(undo, args, loop)


if __name__ == "__main__":
    main()
