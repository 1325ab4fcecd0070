#!/usr/bin/env python3
"""Golden vectors for `bowwave explain`: small traces, each about one thing, with the expected decisions.

    tools/vectors.py            check that the models of tools/model_*.py still produce the files
    tools/vectors.py --write    write the traces, and the models' decisions on them

The expected decisions come from the models, which were written from the published descriptions; bowwave's own tests
run `explain` on the same files. Change them only together with the reason why the description was misread.
"""

import argparse
import json
import pathlib
import sys

import models
import vectors_swap
from model_ondemand import HEADER, PAGE

DIRECTORY = pathlib.Path(__file__).parent.parent / "crates" / "bowwave-cli" / "tests" / "vectors"


def read(start, count=1, file="a", pid=1):
    """A row that reads `count` pages from page `start`."""
    return (pid, "read", file, start * PAGE, count * PAGE)


def evict(start, count=1, file="a"):
    """A row that takes `count` pages out from page `start`."""
    return (1, "evict", file, start * PAGE, count * PAGE)


def load(start, count=1, file="a", pid=1):
    """A row that touches `count` mapped pages from page `start`."""
    return (pid, "load", file, start * PAGE, count * PAGE)


def read_bytes(offset, length):
    return (1, "read", "a", offset, length)


def interleave(*streams):
    return [row for rows in zip(*streams) for row in rows]


# name: (description, ra_pages, file_pages, rows)
VECTORS = {
    "sequential-2-pages": (
        "the ramp of a reader from the start of the file, two pages at a time",
        32, None, [read(2 * step, 2) for step in range(50)]),
    "sequential-from-page-100": (
        "the first read is random, the second sequential",
        32, None, [read(100 + step) for step in range(40)]),
    "unaligned-6000-bytes": (
        "requests that share a page with the one before are sequential",
        32, None, [read_bytes(6000 * step, 6000) for step in range(30)]),
    "every-third-page": (
        "sparse reads: random to the paper's figure, and a ramped readahead hit to the patch where one lands on the end",
        32, None, [read(3 * step) for step in range(30)]),
    "interleaved-3-streams": (
        "three sequential readers share one state; the marks keep those going that got one",
        32, None, interleave(*[[read(base + step) for step in range(24)] for base in (0, 500, 1000)])),
    "two-processes-one-file": (
        "each pid has a state of its own, pages are shared: the second reader meets the first one's marks",
        32, None, interleave([read(step) for step in range(30)], [read(step, pid=2) for step in range(30)])),
    "two-files": (
        "pages, marks and states of two files do not meet",
        32, None, interleave([read(step) for step in range(12)], [read(step, file="b,\"c\"") for step in range(12)])),
    "oversize-in-the-middle": (
        "a read larger than the window, out of sequence, marks its own first page and goes on from there",
        16, None, [read(321, 70), read(900, 17), read(917, 40)]),
    "oversize-on-the-window-end": (
        "a large read out of sequence that misses exactly where the next window begins is a hit of that window: "
        "figure 4 sets aside small random reads only",
        8, None, [read(0, 2), read(40), read(4, 20), read(100), read(60, 9)]),
    "retried": (
        "a read tried again from where it got to, each time for the rest",
        64, None, [read(25 * step, 300 - 25 * step) for step in range(12)]),
    "backward-4-pages": (
        "a backward reader is random, but at page 0",
        32, None, [read(80 - 4 * step, 4) for step in range(21)]),
    "mark-evicted": (
        "the window is evicted up to its mark's end: the miss on the marked page pushes the window forward and leaves "
        "the page itself to a demand read; the page behind it starts a new window",
        32, None, [*[read(step) for step in range(4)], evict(4, 8), *[read(step) for step in range(4, 40)]]),
    "window-with-holes": (
        "resident pages are left out of a window, and a resident page gets no mark",
        32, None, [read(4, 1), read(20, 6), *[read(step, 2) for step in range(0, 60, 2)]]),
    "back-to-page-0": (
        "a miss at page 0 after other reads: initial to the paper, random to the patch",
        32, None, [read(50), read(0), read(1), evict(0, 64), read(0, 3), read(3, 3), evict(0), read(0, 40)]),
    "whole-window-at-0": (
        "a first read of a whole window marks page 0 itself: initial again to the paper, interleaved to the patch",
        32, None, [read(0, 32), read(32, 32), read(64, 32), read(96, 32)]),
    "end-of-file": (
        "windows are cut at the end of the file and plans beyond it send nothing; a read reaches past the end and is "
        "walked up to it, its size is not cut",
        32, 21, [*[read(3 * step, 3) for step in range(7)], read(18, 10), read(30, 2), evict(20), read(19, 9)]),
    "byte-edges": (
        "single bytes at the edges of pages; an eviction by bytes takes every page it touches; nothing is no access",
        32, None, [read_bytes(4095, 1), read_bytes(4096, 1), read_bytes(8191, 2), read_bytes(12288, 0),
                   (1, "evict", "a", 4095, 2), read_bytes(0, 1), read_bytes(4096, 4097), read_bytes(2**63 - 1, 1)]),
    "evicted-under-the-reader": (
        "pages of the current window vanish before the reader comes: on-demand readahead starts anew, 2.6.20 reads them "
        "back one by one and makes its next window two pages smaller",
        32, None, [*[read(step) for step in range(20)], evict(22, 3), *[read(step) for step in range(20, 120)]]),
    "cached-file": (
        "a second process reads what the first has read, and goes on: after 256 pages of windows found cached 2.6.20 is "
        "asked at each page and does nothing until one is absent",
        32, None, [*[read(100 * step, 100, pid=2) for step in range(5)], *[read(7 * step, 7) for step in range(90)]]),
    "cached-small-pieces": (
        "the count of cached pages goes on over seeks and starts anew at any page that is sent",
        32, None, [read(0, 200), *[read(step * 12 % 200, 12) for step in range(30)], read(500, 2), read(502, 4),
                   *[read(step * 12 % 200, 12) for step in range(30)], read(160, 100)]),
    "small-window": (
        "the least window of Linux's old rules, 8 pages: two doublings and it is full",
        8, None, [read(step) for step in range(40)]),
    "large-window": (
        "4096 pages: times four while the window is small, then times two",
        4096, None, [read(step * 64, 64) for step in range(120)]),
}

# For policies that handle mapped faults or strides only.
MAPPED_VECTORS = {
    "mapped-blocks": (
        "the pattern of Lustre's patch: [1M data][hole][0.5M data][hole][0.7M data][1M data], touched page by page",
        256, None, [load(1000, 256), load(2000, 128), load(3000, 179), load(4000, 256), load(9000, 40)]),
    "mapped-clusters": (
        "three touches near each other, then a seek: the width of one cluster is the window of the next",
        256, None, [load(base + step) for base in (5000, 900, 7000, 20, 3000) for step in (0, 60, 30, 99, 7)]),
    "mapped-page-0": (
        "clusters of page 0: as published its index means that there was none",
        256, None, [load(0), load(3), load(1), evict(0, 8), load(0), load(0), load(2), load(40), load(90), load(5)]),
    "mapped-sequential": (
        "touches in order: windows of the cluster's size until a whole range was touched, then windows that grow",
        64, None, [load(0, 1200)]),
    "strided-reads": (
        "two pages of each 20: the third turn makes it a stride, and windows hold its pages alone",
        64, None, [read(20 * step, 2) for step in range(80)]),
    "strided-loads": (
        "the same, of mapped memory",
        64, None, [load(20 * step, 2) for step in range(60)]),
    "stride-lost": (
        "a stride that is left, a stride with pages evicted inside its window, and one that begins again",
        32, None, [*[read(100 + 10 * step, 3) for step in range(12)], evict(230, 40),
                   *[read(220 + 10 * step, 3) for step in range(8)], read(5000, 3),
                   *[read(6000 + 50 * step, 10) for step in range(6)]]),
    "small-file": (
        "the second read of a file of at most 4 MiB reads it whole",
        32, 700, [read(300, 2), read(10, 1), read(600, 5), evict(0, 700), read(5, 1)]),
    "miss-inside-window": (
        "pages evicted before their use: the window is forgotten",
        32, None, [*[read(4 * step, 4) for step in range(10)], evict(44, 30), *[read(4 * step, 4) for step in range(10, 30)]]),
    "loosely-sequential": (
        "reads within 8 pages of where the last one ended are in order",
        64, None, [read(max(9 * step + (-5, 4, 0, -8, 7)[step % 5], 0), 9) for step in range(60)]),
    "handed-over": (
        "a window of 256 MiB is read 16 MiB at a time without a reader that waits",
        4096, None, [read(step * 2048, 2048) for step in range(60)]),
}


def trace_of(rows):
    lines = [",".join(HEADER)]
    for time, (pid, op, file, offset, length) in enumerate(rows):
        name = '"' + file.replace('"', '""') + '"' if set(file) & set(',"\n') else file
        lines.append(f"{time},{pid},{op},{name},{offset},{length}")
    return "\n".join(lines) + "\n"


def expected_of(policy, ra_pages, file_pages, rows):
    model = models.model(policy, ra_pages, file_pages)
    decisions = [decision for row in rows for decision in model.access(*row)]
    return "".join(json.dumps(decision, separators=(",", ":")) + "\n" for decision in decisions)


def policies_of(name):
    return models.POLICIES if name in VECTORS else models.MAPPED


def files():
    """The content of every file of the directory."""
    index = [{"name": name, "ra_pages": ra_pages, "file_pages": file_pages, "policies": policies_of(name), "what": what}
             for name, (what, ra_pages, file_pages, _) in (VECTORS | MAPPED_VECTORS).items()]
    yield "index.json", json.dumps(index, indent=1) + "\n"
    for name, (_, ra_pages, file_pages, rows) in (VECTORS | MAPPED_VECTORS).items():
        yield f"{name}.csv", trace_of(rows)
        for policy in policies_of(name):
            yield f"{name}.{policy}.jsonl", expected_of(policy, ra_pages, file_pages, rows)
    yield from vectors_swap.files()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the files instead of checking them")
    if parser.parse_args().write:
        DIRECTORY.mkdir(parents=True, exist_ok=True)
        for name, text in files():
            (DIRECTORY / name).write_text(text, encoding="utf-8")
        return
    wanted = dict(files())
    found = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.iterdir()}
    differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    if differing:
        sys.exit(f"vectors: {len(differing)} files differ from the models, the first is {differing[0]}")
    print(f"vectors: {len(wanted)} files are as the models have them", file=sys.stderr)


if __name__ == "__main__":
    main()
