#!/usr/bin/env python3
"""Measures how a FUSE server can pass cached pages to the kernel: copied, spliced, or not at all.

    sudo tools/bench_replies.py [--rounds N] [--mib N] [--request-kib N]

A server in this file serves one file of memory, by each method in turn. A process of its own reads the file from start
to end, with the kernel's cache of it dropped. bowwave takes no part: these are the kernel's costs.

    copied       one write of header and bytes, from a program's memory
    vmspliced    the same memory, as pages in a pipe, spliced to the kernel
    spliced      pages of a memory file in a pipe, spliced
    moved        the same, offered for removal from that file (SPLICE_F_MOVE)
    passthrough  no server: the kernel reads the memory file itself (Linux 6.9)

Prints medians of the rounds: GB/s of the reader, and milliseconds of the server's processor time for each GiB.
"""

import argparse
import ctypes
import errno
import fcntl
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from mounts import end_mounts_when_stopped, undisturbed

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE = 4 * KIB
WAYS = ("copied", "vmspliced", "spliced", "moved", "passthrough")
LOOKUP, FORGET, GETATTR, OPEN, READ, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 1, 2, 3, 14, 15, 26, 36, 38, 42
DONE = {17, 18, 25}  # statfs, release, flush: nothing to say
ASYNC_READ, SPLICES, MAX_PAGES, INIT_EXT, PASSTHROUGH = 1 << 0, 7 << 7, 1 << 22, 1 << 30, 1 << 37
FOPEN_PASSTHROUGH = 1 << 7
BACKING_OPEN, BACKING_CLOSE = 0x4010E501, 0x4004E502
SPLICE_F_MOVE = 1
FILE = 2
LIBC = ctypes.CDLL(None, use_errno=True)

READER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_RDONLY)
buffer = bytearray(1 << 20)
begun = time.monotonic()
total = 0
while count := os.preadv(file, [buffer], total):
    total += count
print(total, time.monotonic() - begun)
"""


class Span(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Server:
    """A mount of one file, served in one way."""

    def __init__(self, way, size, memory, file, at):
        self.way, self.size, self.memory, self.file, self.at = way, size, memory, file, at
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.device = os.open("/dev/fuse", os.O_RDWR)
        self.out, self.into = os.pipe()
        fcntl.fcntl(self.into, fcntl.F_SETPIPE_SZ, MIB)
        self.backing = None
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,max_read={MIB}"
        if LIBC.mount(b"bench", at.encode(), b"fuse", 0, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), f"mount {at}: {os.strerror(ctypes.get_errno())}")

    def end(self):
        with undisturbed():
            LIBC.umount2(self.at.encode(), 2)
            for descriptor in (self.device, self.out, self.into):
                os.close(descriptor)

    def serve(self):
        """Answers until the mount is gone."""
        while True:
            try:
                request = os.read(self.device, 2 * MIB)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                    continue
                raise
            _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
            self.answer(opcode, unique, node, memoryview(request)[40:])

    def answer(self, opcode, unique, node, body):
        if opcode in (FORGET, INTERRUPT, BATCH_FORGET):
            return
        if opcode == READ:
            _, offset, length = struct.unpack_from("<QQI", body)
            self.send(unique, offset, max(0, min(length, self.size - offset)))
            return
        text = b""
        if opcode == INIT:
            flags = ASYNC_READ | SPLICES | MAX_PAGES | INIT_EXT | (PASSTHROUGH if self.way == "passthrough" else 0)
            text = struct.pack("<IIIIHHIIHHIIH22x", 7, 40, MIB, flags & 0xFFFFFFFF, 12, 9, MIB, 1, 256, 0, flags >> 32, 1, 0)
        elif opcode == GETATTR:
            text = struct.pack("<QII", 1, 0, 0) + self.attributes(node)
        elif opcode == LOOKUP:
            text = struct.pack("<QQQQII", FILE, 0, 1, 1, 0, 0) + self.attributes(FILE)
        elif opcode == OPEN:
            text = struct.pack("<QIi", 0, *((FOPEN_PASSTHROUGH, self.backed()) if self.way == "passthrough" else (0, 0)))
        elif opcode != DESTROY and opcode not in DONE:
            os.write(self.device, struct.pack("<IiQ", 16, -errno.ENOSYS, unique))
            return
        os.write(self.device, struct.pack("<IiQ", 16 + len(text), 0, unique) + text)

    def attributes(self, node):
        mode, size = (0o100444, self.size) if node == FILE else (0o040555, 0)
        return struct.pack("<QQQ24xIIIIIIIIII", node, size, size // 512, 0, 0, 0, mode, 1, 0, 0, 0, PAGE, 0)

    def backed(self):
        """The kernel's name of the memory file."""
        if self.backing is None:
            self.backing = fcntl.ioctl(self.device, BACKING_OPEN, struct.pack("<iIQ", self.file, 0, 0))
            self.backing = self.backing if isinstance(self.backing, int) else LIBC.ioctl(
                self.device, BACKING_OPEN, struct.pack("<iIQ", self.file, 0, 0))
        return self.backing

    def send(self, unique, offset, length):
        header = struct.pack("<IiQ", 16 + length, 0, unique)
        if self.way == "copied":
            os.writev(self.device, [header, memoryview(self.memory)[offset:offset + length]])
            return
        os.write(self.into, header)
        if self.way == "vmspliced":
            span = Span(self.address + offset, length)
            sent = LIBC.vmsplice(self.into, ctypes.byref(span), 1, 0)
            if sent != length:
                raise OSError(ctypes.get_errno(), f"vmsplice: {sent} of {length} bytes")
        else:
            done = 0
            while done < length:
                done += os.splice(self.file, self.into, length - done, offset_src=offset + done)
        flags = SPLICE_F_MOVE if self.way == "moved" else 0
        sent = LIBC.splice(self.out, None, self.device, None, ctypes.c_size_t(16 + length), flags)
        if sent != 16 + length:
            raise OSError(ctypes.get_errno(), f"splice: {sent} of {16 + length} bytes: {os.strerror(ctypes.get_errno())}")


def measure(way, options, directory):
    """GB/s, and milliseconds of the server's processor time for each GiB."""
    size = options.mib * MIB
    memory, file = bytearray(size if way in ("copied", "vmspliced") else PAGE), os.memfd_create("bench")
    at = tempfile.mkdtemp(dir=directory)
    if way in ("copied", "vmspliced"):
        memory[:] = b"bowwave!" * (size // 8)
    else:
        for _ in range(options.mib):
            os.write(file, b"bowwave!" * (MIB // 8))
    server = Server(way, size, memory, file, at)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            server.serve()
            code = 0
        finally:
            used = resource.getrusage(resource.RUSAGE_SELF)
            with open(os.path.join(directory, "cpu"), "w") as cpu:
                cpu.write(str(used.ru_utime + used.ru_stime))
            os._exit(code)
    try:
        path = os.path.join(at, "file")
        device = os.stat(at).st_dev
        with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", "w") as window:
            window.write(str(options.request_kib))
        done = subprocess.run([sys.executable, "-c", READER, path], capture_output=True, text=True, check=True)
        total, seconds = done.stdout.split()
        if int(total) != size:
            raise SystemExit(f"{way}: {total} of {size} bytes")
    finally:
        server.end()
        os.waitpid(child, 0)
        os.close(file)
    with open(os.path.join(directory, "cpu")) as cpu:
        return size / float(seconds) / 1e9, float(cpu.read()) * 1000 * GIB / size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--mib", type=int, default=512, help="size of the file (default 512)")
    parser.add_argument("--request-kib", type=int, default=512, help="the kernel's readahead, and so its requests (default 512; a pipe holds little more)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("mounting without a helper needs root")
    end_mounts_when_stopped()
    seen = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(prefix="bowwave-replies-") as directory:
        for _ in range(options.rounds):
            for way in WAYS:
                seen[way].append(measure(way, options, directory))
    print(f"{'way':12} {'GB/s':>6} {'of copied':>10} {'server, ms a GiB':>17}")
    base = statistics.median(rate for rate, _ in seen["copied"])
    for way, figures in seen.items():
        rate, cpu = (statistics.median(column) for column in zip(*figures))
        print(f"{way:12} {rate:6.2f} {rate / base:10.2f} {cpu:17.0f}")


if __name__ == "__main__":
    main()
