#!/usr/bin/env python3
"""Runs a workload of tools/bench_compare.py without a mount, through the C library, and prints the result as JSON.

    tools/compare_engine.py LETTER LIBRARY URL "OPTIONS" LIMIT PATTERN_FILE

bench_compare.py starts it as a process of its own, so that memory and processor time are those of the reads alone.
"""

import contextlib
import ctypes
import json
import resource
import sys
from typing import NamedTuple

from compare_workloads import KIB, MIB, PLAYER_BYTES, run

U64, TEXT, POINTER = ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p
FUNCTIONS = {
    "open": (POINTER, [TEXT, TEXT]), "close": (None, [POINTER]), "last_error": (TEXT, []),
    "file_open": (POINTER, [POINTER, TEXT]), "file_close": (None, [POINTER]),
    "read_at": (ctypes.c_int64, [POINTER, U64, POINTER, ctypes.c_size_t]),
    "map": (POINTER, [POINTER, TEXT, U64, U64, ctypes.c_uint]), "unmap": (None, [POINTER]),
    "region_address": (POINTER, [POINTER]), "region_size": (ctypes.c_size_t, [POINTER])}


# BOWWAVE_IN_THREAD: the touching thread serves its own fault.
IN_THREAD = {"g": 2, "j": 2}
# Larger than the longest read of any workload, in bytes.
LONGEST = 4 * MIB


class Open(NamedTuple):
    """A file, and what is read of it: one buffer, as programs that read in turns have, so that it is not memory that is measured."""

    handle: int
    buffer: ctypes.Array


class Library:
    """A store behind a cache of this process."""

    def __init__(self, path, url, options, map_flags=0, longest=LONGEST):
        self.map_flags, self.longest = map_flags, longest
        library = ctypes.CDLL(path)
        for name, (result, arguments) in FUNCTIONS.items():
            function = getattr(library, f"bowwave_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, f"_{name}", function)
        self.store = self.known(self._open(url.encode(), options.encode()))

    def known(self, handle):
        if not handle:
            raise OSError(self._last_error().decode())
        return handle

    def end(self):
        self._close(self.store)

    def open(self, key):
        return Open(self.known(self._file_open(self.store, key.encode())), ctypes.create_string_buffer(self.longest))

    def read(self, file, length, offset):
        if length > self.longest:
            raise ValueError(f"a read of {length} bytes: the buffer has {self.longest}")
        count = self._read_at(file.handle, offset, file.buffer, length)
        if count < 0:
            raise OSError(self._last_error().decode())
        return memoryview(file.buffer).cast("B")[:count]

    def close(self, file):
        self._file_close(file.handle)

    @contextlib.contextmanager
    def mapped(self, key):
        region = self.known(self._map(self.store, key.encode(), 0, 0, self.map_flags))
        try:
            yield (ctypes.c_uint8 * self._region_size(region)).from_address(self._region_address(region))
        finally:
            self._unmap(region)


def main():
    letter, library, url, options, limit, pattern = sys.argv[1:]
    with open(pattern, "rb") as file:
        pattern = file.read()
    longest = PLAYER_BYTES if letter == "k" else LONGEST
    store = Library(library, url, options, IN_THREAD.get(letter, 0), longest)
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = run(letter, store, pattern, float(limit))
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # Not getrusage's value, which includes the parent program's peak.
    with open("/proc/self/status") as status:
        most = next((int(line.split()[1]) * KIB for line in status if line.startswith("VmHWM")), 0)
    print(json.dumps({**result, "rss": most / MIB, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    main()
