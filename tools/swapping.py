"""Fixtures for comparisons with the kernel's swap: a device and cgroups that limit memory, removed at the end."""

import atexit
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PAGE = 4096
# Bytes by which a group's limit moves up and down to wake waiters.
NUDGE = 64 * PAGE


class Undo:
    """What is to be undone, last first, whatever happens."""

    def __init__(self):
        self.steps = []
        atexit.register(self.all)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _frame: sys.exit(128 + number))

    def add(self, what, *args):
        self.steps.append((what, args))

    def pop(self):
        """Undoes the last."""
        what, args = self.steps.pop()
        return what(*args)

    def back_to(self, count):
        """Undoes all steps after the first `count`."""
        while len(self.steps) > count:
            self.pop()

    def all(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # Who asks twice must not have the rest left as it is.
        while self.steps:
            try:
                self.pop()
            except Exception as error:  # The others must be undone all the same.
                print(f"could not undo: {error}", file=sys.stderr)


def run(*args):
    return subprocess.run(args, check=True, capture_output=True, text=True).stdout.strip()


def write(path, value):
    Path(path).write_text(str(value), encoding="ascii")


def remember(undo, path, value):
    """Sets a knob until the end."""
    before = Path(path).read_text(encoding="ascii")
    for word in before.split():  # As in "always [madvise] never".
        if word.startswith("["):
            before = word.strip("[]")
    undo.add(write, path, before)
    write(path, value)


def check(directory, memory):
    """Ends the program where such a comparison would hang the machine, or measure something else."""
    if os.geteuid() != 0:
        sys.exit("needs root, for swap, loop devices and cgroups")
    kind = run("stat", "--file-system", "--format=%T", directory)
    if kind in ("tmpfs", "ramfs", "overlayfs"):
        sys.exit(f"{directory} is on {kind}: name a --directory on a disk, or the machine may hang")
    swaps = Path("/proc/swaps").read_text(encoding="ascii").splitlines()
    if len(swaps) > 1:
        sys.exit("the machine swaps already: figures would be of both; swapoff -a first")
    free = int(next(line.split()[1] for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
                    if "MemAvailable" in line))
    if free * 1024 < 8 * memory:
        sys.exit(f"{free} KiB of memory are too few to be safe with {memory} bytes for those that are compared")


def preallocated(path, size):
    """A file whose blocks are all there: the kernel swaps to no other."""
    with open(path, "wb") as file:
        os.chmod(path, 0o600)
        for _ in range(0, size, 1 << 20):
            file.write(bytes(1 << 20))
        os.fsync(file.fileno())


def loop_device(undo, directory, size):
    """A loop device over a file on a disk, past the page cache."""
    path = Path(directory) / f"compare-swap-{os.getpid()}"
    undo.add(lambda: path.unlink(missing_ok=True))
    preallocated(path, size)
    loop = run("losetup", "--find", "--show", "--direct-io=on", str(path))
    undo.add(run, "losetup", "--detach", loop)
    about = Path("/sys/block") / Path(loop).name
    if (about / "loop" / "dio").read_text(encoding="ascii").strip() != "1":
        sys.exit(f"{directory} has no direct I/O: the page cache would be measured")
    # A loop device claims to be rotational, for which the kernel disables VMA readahead.
    write(about / "queue" / "rotational", 0)
    return loop


def not_rotating(undo, directory):
    """Has the disk of a directory say that it does not rotate, until the end: else the kernel has no VMA readahead. Disks of virtual
    machines often say that they do."""
    at = os.stat(directory).st_dev
    about = Path(f"/sys/dev/block/{os.major(at)}:{os.minor(at)}").resolve()
    for queue in (about / "queue", about.parent / "queue"):
        if (queue / "rotational").is_file():
            return remember(undo, queue / "rotational", 0)
    return None


def is_v1():
    return (CGROUPS / "memory").is_dir()


class Group:
    """A cgroup for one program: memory for the kernel's side, a limit of requests for either."""

    def __init__(self, undo, memory=None):
        self.undo, self.memory = undo, memory
        self.waits, self.over, self.nudger = 0, threading.Event(), None
        name = f"compare-swap-{os.getpid()}"
        if is_v1():
            self.directories = [CGROUPS / "memory" / name, CGROUPS / "blkio" / name]
        else:
            write(CGROUPS / "cgroup.subtree_control", "+memory +io")
            self.directories = [CGROUPS / name]
        for directory in self.directories:
            directory.mkdir()
        undo.add(self.remove)
        if memory:
            self.hold(memory)

    def hold(self, memory):
        """Limits the memory. Where reclaim fails because all pages are in flight to the device, the program waits instead of ending."""
        first = self.directories[0]
        if is_v1():
            write(first / "memory.limit_in_bytes", memory)
            write(first / "memory.oom_control", 1)
            self.nudger = threading.Thread(target=self.nudge, daemon=True)
            self.nudger.start()
        else:
            # Above memory.high the kernel throttles allocations; memory.max is then never reached.
            write(first / "memory.high", memory)
            write(first / "memory.max", memory + memory // 4)

    def nudge(self):
        """Wakes processes that wait for memory: while none of the group runs, none frees memory."""
        first = self.directories[0]
        while not self.over.wait(0.005):
            try:
                waits = "under_oom 1" in (first / "memory.oom_control").read_text(encoding="ascii")
                if waits:
                    self.waits += 1
                    write(first / "memory.limit_in_bytes", self.memory + NUDGE)
                    write(first / "memory.limit_in_bytes", self.memory)
            except OSError:  # Nothing can be taken back just now.
                pass

    def enter(self):
        """For the program, before it begins."""
        for directory in self.directories:
            write(directory / "cgroup.procs", os.getpid())

    def used(self):
        """Bytes in memory that are not pages of files: what a program would have to swap out, and the kernel's own for it."""
        first = self.directories[0]
        stat = dict(line.split() for line in (first / "memory.stat").read_text(encoding="ascii").splitlines())
        if is_v1():
            kernel = int((first / "memory.kmem.usage_in_bytes").read_text(encoding="ascii"))
            return int(stat["rss"]) + int(stat["shmem"]) + kernel
        return int(stat["anon"]) + int(stat["shmem"]) + int(stat.get("kernel", 0))

    def limit(self, loop, requests):
        """Limits a device to `requests` a second, each way; 0 for no limit."""
        number = (Path("/sys/block") / Path(loop).name / "dev").read_text(encoding="ascii").strip()
        if not is_v1():
            write(self.directories[0] / "io.max", f"{number} riops={requests or 'max'} wiops={requests or 'max'}")
            return
        # The kernel charges reclaim's writes to the top-level group, whichever group waits; it
        # writes nothing else to this device.
        for directory in (self.directories[1], CGROUPS / "blkio"):
            for way in ("read", "write"):
                write(directory / f"blkio.throttle.{way}_iops_device", f"{number} {requests}")

    def remove(self):
        self.over.set()
        if self.nudger:
            self.nudger.join()
        for directory in self.directories:
            for _ in range(50):
                try:
                    directory.rmdir()
                    break
                except OSError:  # The last process is still ending.
                    time.sleep(0.1)


def end(child):
    """Without it the directories of its cgroup stay."""
    child.kill()
    child.wait()


def unmount(directory):
    for left in reversed(range(100)):
        try:
            return run("umount", str(directory))
        except subprocess.CalledProcessError:  # What a process had in flight keeps its file open for a moment after its end.
            if not left:
                raise
            time.sleep(0.1)


def vmstat():
    lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}
