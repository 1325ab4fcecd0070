#!/usr/bin/env python3
"""Measures an fsync beside a bulk writer under the kernel's schedulers: the job of `bowwave reproduce fsync-tester`.

    sudo tools/kernel_schedulers.py                      every scheduler of the kernel, 60 s each
    sudo tools/kernel_schedulers.py --seconds 20 --scheduler none --scheduler bfq

A file becomes a loop device, throttled to the rate of a disk. A second loop device on it has the scheduler, and ext4 is
on that. One process runs `dd bs=8M; sync; rm` in a loop; another writes 1 MiB at the start of a file and syncs it, each
second. The throttle is below the scheduler, where a slow device would be. It passes bytes in slices of 100 ms and has
no seeks, so trust the ratios, not the times.

Needs root, losetup, mkfs.ext4, and the blkio (v1) or io (v2) controller. The tool removes devices, mounts, rules and
files in any case except kill -9.
"""

import argparse
import contextlib
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MB = 1_000_000
# Dirty limit of the file system, in bytes: 10 % of 1 GiB.
DIRTY_BYTES = 100 << 20


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(str(text))


def try_write(path, text):
    """For cleaning up, and for what not every kernel has."""
    try:
        write(path, text)
        return True
    except OSError:
        return False


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def queue(device, name):
    return f"/sys/block/{os.path.basename(device)}/queue/{name}"


def number(device):
    """Its major and minor number, as sysfs has them."""
    return read(f"/sys/block/{os.path.basename(device)}/dev")


def schedulers(device):
    return [name.strip("[]") for name in read(queue(device, "scheduler")).split()]


def loop(stack, backing):
    device = run("losetup", "--find", "--show", "--direct-io=on", backing)
    stack.callback(subprocess.run, ["losetup", "--detach", device], check=False)
    return device


def throttle(stack, device, bytes_per_second):
    """Bounds what the device takes; with cgroups of version 2, what this process and its children give it."""
    root = "/sys/fs/cgroup"
    rules = [f"{root}/blkio/blkio.throttle.{way}_bps_device" for way in ("write", "read")]
    if all(os.path.exists(rule) for rule in rules):
        for rule in rules:
            write(rule, f"{number(device)} {bytes_per_second}")
            stack.callback(try_write, rule, f"{number(device)} 0")
        return
    if "io" not in (read(f"{root}/cgroup.controllers") if os.path.exists(f"{root}/cgroup.controllers") else ""):
        sys.exit("neither the blkio nor the io controller is there: nothing to throttle a device with")
    try_write(f"{root}/cgroup.subtree_control", "+io")
    group = tempfile.mkdtemp(prefix="bowwave-", dir=root)
    stack.callback(os.rmdir, group)
    write(f"{group}/io.max", f"{number(device)} rbps={bytes_per_second} wbps={bytes_per_second}")
    with open("/proc/self/cgroup", encoding="ascii") as file:
        home = next(line.split("::")[1].strip() for line in file if line.startswith("0::"))
    write(f"{group}/cgroup.procs", os.getpid())
    stack.callback(try_write, f"{root}{home}/cgroup.procs", os.getpid())


def job(directory, seconds, count):
    """How long each fsync took, and the writer's bytes a second."""
    script = f"while :; do dd if=/dev/zero of=bigfile bs=8M count={count} 2>/dev/null; sync -f .; echo; rm bigfile; done"
    with subprocess.Popen(["sh", "-c", script], cwd=directory, stdout=subprocess.PIPE, start_new_session=True) as writer:
        taken = []
        try:
            # Until the writer is over its limit.
            time.sleep(5)
            end = time.monotonic() + seconds
            before = sectors(directory)
            begun = time.monotonic()
            file = os.open(f"{directory}/file", os.O_WRONLY | os.O_CREAT, 0o600)
            while time.monotonic() < end:
                os.pwrite(file, b"a" * (1 << 20), 0)
                at = time.monotonic()
                os.fsync(file)
                taken.append(time.monotonic() - at)
                time.sleep(1)
            os.close(file)
            rate = (sectors(directory) - before) * 512 / (time.monotonic() - begun)
        finally:
            os.killpg(writer.pid, signal.SIGKILL)
    return taken, rate


def sectors(directory):
    """Sectors written to the device of a directory."""
    numbers = os.stat(directory).st_dev
    return int(read(f"/sys/dev/block/{os.major(numbers)}:{os.minor(numbers)}/stat").split()[6])


def unmount(directory):
    """What was killed may still wait for the device."""
    for _ in range(600):
        if subprocess.run(["umount", directory], capture_output=True, check=False).returncode == 0:
            return
        time.sleep(0.1)
    subprocess.run(["umount", "--lazy", directory], check=False)


def measure(device, mount, scheduler, options):
    write(queue(device, "scheduler"), scheduler)
    with contextlib.ExitStack() as stack:
        run("mount", device, mount)
        stack.callback(unmount, mount)
        return job(mount, options.seconds, options.count)


def prepare(stack, options):
    directory = tempfile.mkdtemp(prefix="bowwave-schedulers-", dir=options.dir)
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    image, mount = f"{directory}/image", f"{directory}/mount"
    os.mkdir(mount)
    # Allocate blocks first: otherwise holes would be filled during the measurement.
    run("fallocate", "--length", str(options.count * 2 * (8 << 20) + (256 << 20)), image)
    slow = loop(stack, image)
    device = loop(stack, slow)
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard", device)
    write(queue(device, "max_sectors_kb"), options.request_kb)
    bdi = f"/sys/class/bdi/{number(device)}"
    if not (try_write(f"{bdi}/max_bytes", DIRTY_BYTES) and try_write(f"{bdi}/strict_limit", 1)):
        say("note: this kernel has no limit of dirty bytes for one device; the writer dirties what memory allows")
    throttle(stack, slow, options.mb_s * MB)
    return device, mount


def table(results):
    base = next(iter(results))
    print(f"{'scheduler':<12} {'fsyncs':>6} {'median s':>9} {'p99 s':>7} {'worst s':>8} {'MB/s':>6}"
          f"   {'median':>7} {'worst':>7} {'rate':>6}   against {base}")
    first = None
    for name, (taken, rate) in results.items():
        taken = sorted(taken)
        row = (statistics.median(taken), taken[min(len(taken) - 1, int(len(taken) * 0.99))], taken[-1], rate / MB)
        first = first or row
        print(f"{name:<12} {len(taken):>6} {row[0]:>9.3f} {row[1]:>7.3f} {row[2]:>8.3f} {row[3]:>6.1f}"
              f"   {row[0] / first[0]:>7.3f} {row[2] / first[2]:>7.3f} {row[3] / first[3]:>6.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="for each scheduler")
    parser.add_argument("--scheduler", action="append", help="only this one; may be given several times")
    parser.add_argument("--mb-s", type=int, default=60, help="what the device takes")
    parser.add_argument("--request-kb", type=int, default=64, help="largest request: the device holds 128 of them")
    parser.add_argument("--count", type=int, default=64, help="blocks of 8 MiB that the writer writes before it syncs")
    parser.add_argument("--dir", default="/var/tmp", help="where the file for the device goes")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("loop devices, mounts and throttles need root: sudo tools/kernel_schedulers.py")
    missing = [tool for tool in ("losetup", "mkfs.ext4", "mount", "umount", "fallocate", "dd") if not shutil.which(tool)]
    if missing or not os.path.exists("/dev/loop-control"):
        sys.exit(f"missing: {', '.join(missing) or '/dev/loop-control (loop devices)'}")
    for name in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(name, lambda caught, _frame: sys.exit(128 + caught))
    with contextlib.ExitStack() as stack:
        device, mount = prepare(stack, options)
        known = schedulers(device)
        lacking = [name for name in ("none", "mq-deadline", "bfq") if name not in known]
        say(f"kernel {os.uname().release} has {', '.join(known)}"
            + (f"; it lacks {', '.join(lacking)}" if lacking else ""))
        wanted = options.scheduler or known
        unknown = [name for name in wanted if name not in known]
        if unknown:
            sys.exit(f"this kernel has no {', '.join(unknown)}")
        results = {}
        for name in wanted:
            say(f"{name}: {options.seconds:.0f} s")
            results[name] = measure(device, mount, name, options)
    table(results)


if __name__ == "__main__":
    main()
