#!/usr/bin/env python3
"""Opens many small objects one after another, reads and closes each: through the C library, bowwave.open and fsspec.

    tools/bench_opens.py [--library target/release/libbowwave.so] [--files N] [--size BYTES] [--shuffled]

The server is the slow one of tools/bench_compare.py. Python's bowwave is used if it can be imported. Each way begins with
an empty cache. Prints seconds, and the requests that the server counted.
"""

import argparse
import importlib.util
import os
import random
import time

from bench_compare import KEYS, Server
from compare_engine import Library


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=os.path.join(target, "release", "libbowwave.so"))
    parser.add_argument("--server", default=os.path.join(target, "release", "examples", "shaped"))
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--shuffled", action="store_true")
    options = parser.parse_args()
    os.environ.update(KEYS)
    names = [f"d/{at:06}.jpg" for at in range(options.files)]
    server = Server(options.server, objects=dict.fromkeys(names, options.size))
    if options.shuffled:
        random.Random(1).shuffle(names)

    def by_library():
        store = Library(options.library, "s3://data/", f"cache=1GiB endpoint={server.url} allow_http=yes")
        for name in names:
            file = store.open(name)
            yield len(store.read(file, options.size, 0))
            store.close(file)
        store.end()

    def by_python():
        import bowwave

        for name in names:
            with bowwave.open(f"s3://data/{name}", endpoint=server.url, allow_http=True, cache="1GiB") as file:
                yield len(file.read())

    def by_fsspec():
        from bowwave.fsspec import BowwaveFileSystem

        # Another size is another engine, whose cache is empty.
        files = BowwaveFileSystem(target_protocol="s3", target_options={"endpoint_url": server.url}, cache="1023MiB")
        for name in names:
            with files.open(f"data/{name}") as file:
                yield len(file.read())

    ways = {"C library": by_library}
    if importlib.util.find_spec("bowwave") is not None:
        ways |= {"bowwave.open": by_python, "bowwave::": by_fsspec}
    try:
        for way, reads in ways.items():
            before, begun = server.counters(), time.monotonic()
            if any(length != options.size for length in reads()):
                raise SystemExit(f"{way}: a read is short")
            seconds, after = time.monotonic() - begun, server.counters()
            sent = ", ".join(f"{after[kind] - before[kind]} {kind}" for kind in ("requests", "heads", "lists"))
            print(f"{way}: {seconds:.2f} s, {sent}", flush=True)
    finally:
        server.end()


if __name__ == "__main__":
    main()
