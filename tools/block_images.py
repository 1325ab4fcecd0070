"""A disk that records what a file system sends it, and the images that a power loss may leave of it.

The disk is a loop device over the file of the example `block_log` of bowwave-fuse. A disk with a volatile cache guarantees
two things. When a flush returns, all writes that were acknowledged before it are durable. A sector is written whole or
not at all. Writes since the last flush may be lost, wholly or in part, and may reach the disk in any order.
"""

import bisect
import contextlib
import os
import struct
import subprocess

from mounts import is_mounted, undisturbed

SECTOR = 512
WRITE, FLUSH = 1, 2
HEADER = struct.Struct("=IIQ")

# Creates a file system of each type, without discarding blocks and without lazy initialization by ext4.
MKFS = {
    "ext4": ("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4"),
    # mkfs.xfs refuses sizes below 300 MB without it.
    "xfs": ("mkfs.xfs", "-q", "-K", "--unsupported"),
}
# Type and options of mount(8). An image has the UUID of the disk it was taken from.
MOUNT = {
    "ext4": ("-t", "ext4", "-o", "nodiscard"),
    "xfs": ("-t", "xfs", "-o", "nodiscard,nouuid"),
}
# Bytes that the disk writes atomically. XFS decides by the LSN in a block's first sector whether to
# replay the block, so it needs atomic blocks.
ATOMIC = {"ext4": SECTOR, "xfs": 4096}

# Which of the writes since the last flush reach the disk.
MODES = ("none", "all", "prefix", "subset", "torn", "reordered", "only one", "all but one")


def run(*command):
    """Runs a command that must succeed; returns its output."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


class Disk:
    """A recording disk with a file system, mounted at `at`. `close` unmounts in order; `detach` cleans up after any failure."""

    def __init__(self, program, directory, kind, size):
        self.log = os.path.join(directory, "log")
        self.at = os.path.join(directory, "disk")
        self.served = os.path.join(directory, "served")
        self.device = None
        for path in (self.at, self.served):
            os.mkdir(path)
        self.child = subprocess.Popen([program, self.served, self.log, str(size)], stdout=subprocess.PIPE, text=True,
                                      start_new_session=True)
        try:
            if self.child.stdout.readline() != "ready\n":
                raise OSError(f"{program} cannot mount at {self.served}")
            self.device = run("losetup", "--find", "--show", os.path.join(self.served, "disk"))
            run(*MKFS[kind], self.device)
            run("mount", *MOUNT[kind], self.device, self.at)
        except BaseException:
            self.detach()
            raise

    def position(self):
        """Bytes of the log so far: everything that was acknowledged until now is in them."""
        return os.stat(self.log).st_size

    def close(self):
        run("umount", self.at)
        self.detach()

    def detach(self):
        """Detaches everything from the top, so that nothing waits for a loop device whose file is no longer served."""
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
        if is_mounted(self.at):
            subprocess.run(["umount", "-l", self.at], **quiet)
        if self.device:
            subprocess.run(["losetup", "-d", self.device], **quiet)
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(["umount", self.served], timeout=10, **quiet)
        if self.child.poll() is None:
            subprocess.run(["umount", "-l", self.served], **quiet)
            try:
                self.child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.child.stdout.close()


class Images:
    """Images of the disk after a power loss, at positions of the log."""

    def __init__(self, log, size, unit):
        self.unit = unit
        with open(log, "rb") as file:
            self.data = file.read()
        self.records, self.ends = [], []
        offset = 0
        while offset + HEADER.size <= len(self.data):
            kind, length, at = HEADER.unpack_from(self.data, offset)
            offset += HEADER.size
            if offset + length > len(self.data):
                break
            self.records.append((kind, at, offset, length))
            offset += length
            self.ends.append(offset)
        self.durable = bytearray(size)
        self.done = 0

    def count(self, position):
        """How many records are complete at `position`."""
        return bisect.bisect_right(self.ends, position)

    def waiting(self, position):
        """How many writes are pending at `position`."""
        count = self.count(position)
        return next((back for back in range(count) if self.records[count - back - 1][0] == FLUSH), count)

    def kinds(self, start, end):
        """How many writes and flushes there are between two positions."""
        between = [record[0] for record in self.records[self.count(start):self.count(end)]]
        return between.count(WRITE), between.count(FLUSH)

    def pending(self, position):
        """The writes since the last flush before `position`; older writes become durable."""
        count = self.count(position)
        if count < self.done:
            self.durable, self.done = bytearray(len(self.durable)), 0
        flushed = next((number + 1 for number in range(count - 1, self.done - 1, -1) if self.records[number][0] == FLUSH),
                       self.done)
        for number in range(self.done, flushed):
            self.apply(self.durable, self.write(number))
        self.done = flushed
        return [self.write(number) for number in range(flushed, count)]

    def write(self, number):
        _, at, start, length = self.records[number]
        return at, memoryview(self.data)[start:start + length]

    @staticmethod
    def apply(image, write):
        at, data = write
        image[at:at + len(data)] = data

    def kept(self, pending, mode, rng):
        """The pending writes that reached the disk, in the order in which they did."""
        if mode == "none" or not pending:
            return []
        if mode == "all":
            return pending
        if mode == "prefix":
            return pending[:rng.randrange(len(pending))]
        if mode == "subset":
            return [write for write in pending if rng.random() < 0.5]
        if mode == "reordered":
            kept = [write for write in pending if rng.random() < 0.7]
            rng.shuffle(kept)
            return kept
        chosen = rng.randrange(len(pending))
        if mode == "only one":
            return [pending[chosen]]
        if mode == "all but one":
            return pending[:chosen] + pending[chosen + 1:]
        torn = []
        for at, data in pending:
            for start in range(0, len(data), self.unit):
                if rng.random() < 0.5:
                    torn.append((at + start, data[start:start + self.unit]))
        rng.shuffle(torn)
        return torn

    def build(self, path, position, mode, rng):
        """Writes an image to `path`; returns the number of pending writes."""
        pending = self.pending(position)
        with open(path, "wb") as file:
            file.write(self.durable)
            for at, data in self.kept(pending, mode, rng):
                file.seek(at)
                file.write(data)
        return len(pending)


@contextlib.contextmanager
def mounted_image(image, kind, at):
    """The file system of an image, after it has replayed its journal."""
    # A signal between the mount and the `try` would leave it mounted.
    with undisturbed():
        run("mount", *MOUNT[kind], "-o", "loop", image, at)
    try:
        yield at
    finally:
        with undisturbed():
            run("umount", at)
