"""Golden vectors of swap for tools/vectors.py: touches of memory, each about one thing, with expected decisions."""

import json

import model_swap
from model_swap import PAGE


def touch(start, count=1, name="a", pid=1, op="load"):
    return (pid, op, name, start * PAGE, count * PAGE)


def fill(start, count, name="a", pid=1):
    return touch(start, count, name, pid, "store")


def evict(start, count, name="a", pid=1):
    return touch(start, count, name, pid, "evict")


def out(count, name="a", pid=1):
    """Pages that were made and left in order: page p is at slot p + 1, if nothing went before."""
    return [fill(0, count, name, pid), evict(0, count, name, pid)]


# name: (description, page_cluster, file_pages, rows)
VECTORS = {
    "in-order": (
        "touches in order: the first window is around the page, the next ones begin at it",
        3, None, [*out(100), *[touch(page) for page in range(100)]]),
    "backwards": (
        "touches from the end: windows end at the page, but the first, which hits made grow in spite of them",
        3, None, [*out(100), *[touch(page) for page in range(99, -1, -1)]]),
    "at-random": (
        "no hits: windows halve to one page; a neighbour gets two again",
        3, None, [*out(2000), *[touch(page) for page in (900, 100, 1500, 700, 1200, 300, 1800, 301, 302, 303)]]),
    "beside-a-random-neighbour": (
        "in order beside a random neighbour whose pages left in between: slots mix both, addresses do not",
        3, None, [*[row for page in range(64) for row in (fill(page, 1), fill(page * 37 % 64, 1, "b", 2))],
                  *[row for page in range(64) for row in (evict(page, 1), evict(page * 37 % 64, 1, "b", 2))],
                  *[row for page in range(64) for row in (touch(page), touch(page * 23 % 64, 1, "b", 2))]]),
    "reclaimed-in-another-order": (
        "left from the end, touched from the start: neighbours by address are neighbours by slot, upside down",
        3, None, [fill(0, 40), *[evict(page, 1) for page in range(39, -1, -1)], *[touch(page) for page in range(40)]]),
    "edges": (
        "windows stay within 512 pages of a page table, the region, and the slots behind the header",
        5, 530, [*out(530), *[touch(page) for page in (511, 512, 513, 0, 1, 529, 528)]]),
    "written-again": (
        "a page that is only read keeps its slot, one that is written gets a new one when it leaves",
        3, None, [*out(16), touch(0, 16), evict(0, 16), *[touch(page, op="store") for page in range(0, 16, 3)],
                  evict(0, 16), *[touch(page) for page in range(16)]]),
    "hits-beyond-the-count": (
        "hits of a region stop at 63; windows are at most 32 pages by addresses, more by slots",
        9, None, [*out(600), *[touch(page) for page in range(600)]]),
    "off": (
        "page-cluster 0: one page each",
        0, None, [*out(10), *[touch(page) for page in range(10)]]),
}


def files():
    """The content of every file of swap's."""
    index = [{"name": name, "page_cluster": page_cluster, "file_pages": file_pages, "what": what}
             for name, (what, page_cluster, file_pages, _) in VECTORS.items()]
    yield "swap.json", json.dumps(index, indent=1) + "\n"
    for name, (_, page_cluster, file_pages, rows) in VECTORS.items():
        lines = ["time_ns,pid,op,file,offset,length"]
        lines += [f"{time},{pid},{op},{file},{offset},{length}"
                  for time, (pid, op, file, offset, length) in enumerate(rows)]
        yield f"swap-{name}.csv", "\n".join(lines) + "\n"
        for policy in model_swap.POLICIES:
            model = model_swap.Model(policy, page_cluster, file_pages, 1 << 20)
            decisions = [decision for row in rows for decision in model.access(*row)]
            text = "".join(json.dumps(decision, separators=(",", ":")) + "\n" for decision in decisions)
            yield f"swap-{name}.{policy}.jsonl", text
