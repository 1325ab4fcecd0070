"""Random traces from a seed, with each access pattern that the readahead algorithms treat differently."""

import random

PAGE = 4096


def trace(seed, file, pages, loads=False):
    """Rows (pid, op, file, offset, length) of one trace over files whose names begin with `file`.

    `pages` is roughly how far the trace reaches; the same seed gives the same rows. With `loads`, some rows touch mapped
    memory.
    """
    rng = random.Random(seed)
    rows = []
    names = [file] if rng.random() < 0.6 else [f"{file}/{index}" for index in range(rng.randint(2, 3))]
    while len(rows) < rng.choice((8, 20, 60)):
        kind = rng.choice(KINDS + MAPPED_KINDS if loads else KINDS)
        op = rng.choice(("read", "load")) if loads else "read"
        name = rng.choice(names)
        readers = [1] if rng.random() < 0.7 else [1, 2]
        for position, (offset, length) in enumerate(kind(rng, pages)):
            rows.append((readers[position % len(readers)], op, name, max(offset, 0), length))
            if rng.random() < 0.08:
                rows.append(hole(rng, name, offset))
        if rng.random() < 0.4:
            rows.append(hole(rng, name, rng.randrange(pages) * PAGE))
    return rows


def hole(rng, name, near):
    """Takes pages out around `near`, sometimes by bytes that only touch them."""
    offset = max(near + rng.randint(-8, 70) * PAGE + rng.choice((0, 0, 1, 4095)), 0)
    return (1, "evict", name, offset, rng.choice((1, PAGE, PAGE, 2 * PAGE, 16 * PAGE + 1, 200 * PAGE, 0)))


def advised(seed, rows):
    """The rows of a trace with advice, announced ranges, writes and `fsync` between them; the same seed gives the same rows."""
    rng = random.Random(f"advised {seed}")
    result = []
    for pid, op, name, offset, length in rows:
        if rng.random() < 0.1:
            near = max(offset + rng.randint(-20, 100) * PAGE, 0)
            extra = rng.choice(("willneed", "plan", "random", "sequential", "dontneed", "write", "fsync", "store"))
            result.append((pid, extra, name, 0 if extra == "fsync" else near,
                           0 if extra == "fsync" else rng.choice((0, 1, PAGE, 30 * PAGE, 300 * PAGE))))
        result.append((pid, op, name, offset, length))
    return result


def start(rng, pages):
    return 0 if rng.random() < 0.4 else rng.randrange(pages) * PAGE


def record_length(rng):
    """Aligned and unaligned, from a byte to more than most windows."""
    return rng.choice((1, 100, PAGE, PAGE, 2 * PAGE, 10000, 4 * PAGE, 16 * PAGE, 65 * PAGE, rng.randint(1, 40 * PAGE)))


def count(rng):
    return rng.choice((1, 2, 3, 5, 10, 30))


def sequential(rng, pages):
    at, length = start(rng, pages), record_length(rng)
    for _ in range(count(rng)):
        yield at, length
        at += length


def unaligned(rng, pages):
    at = start(rng, pages) + rng.randint(0, PAGE - 1)
    for _ in range(count(rng)):
        length = rng.randint(1, 6 * PAGE)
        yield at, length
        at += length


def clusters(rng, pages):
    """Touches near each other, in any order, then a seek to the next such place."""
    for _ in range(rng.randint(2, 5)):
        base, width = rng.randrange(pages), rng.choice((3, 10, 40, 128, 256, 300))
        for _ in range(rng.choice((2, 3, 4, 12))):
            yield (base + rng.randrange(width)) * PAGE, rng.choice((1, PAGE, PAGE, 2 * PAGE))


def blocks(rng, pages):
    """Whole blocks in order, with holes between them."""
    at = start(rng, pages)
    length = rng.choice((PAGE, 2 * PAGE, 8 * PAGE, 32 * PAGE, 128 * PAGE))
    for _ in range(rng.randint(2, 8)):
        yield at, length
        at += length + rng.choice((0, 0, length, 9 * PAGE, 40 * PAGE, 400 * PAGE))


def even(rng, pages):
    """A stride of several pages each turn, read as one or one by one."""
    at, data, length = start(rng, pages), rng.randint(1, 20), rng.randint(10, 90)
    for _ in range(rng.randint(3, 9)):
        if rng.random() < 0.5:
            yield at, data * PAGE
        else:
            yield from ((at + page * PAGE, PAGE) for page in range(data))
        at += (data + length) * PAGE


def at_random(rng, pages):
    for _ in range(count(rng)):
        yield rng.randrange(pages * PAGE), record_length(rng)


def clustered(rng, pages):
    centre = start(rng, pages)
    for _ in range(count(rng)):
        yield centre + rng.randint(-16, 16) * PAGE, rng.choice((PAGE, 2 * PAGE, 5000))


def interleaved(rng, pages):
    streams = [start(rng, pages) for _ in range(rng.randint(2, 4))]
    length = rng.choice((PAGE, 2 * PAGE, 6000))
    for _ in range(count(rng)):
        for index in range(len(streams)):
            yield streams[index], length
            streams[index] += length


def strided(rng, pages):
    at, length = start(rng, pages), rng.choice((PAGE, 2 * PAGE, 9000))
    stride = rng.choice((2, 2, 3, 4, 8, 17, 40)) * PAGE
    for _ in range(count(rng)):
        yield at, length
        at += stride


def backward(rng, pages):
    length = rng.choice((PAGE, 4 * PAGE))
    at = start(rng, pages) + 20 * length
    for _ in range(count(rng)):
        yield at, length
        at = max(at - length, 0)


def retried(rng, pages):
    at, left = start(rng, pages), rng.randint(20, 400) * PAGE
    step = rng.randint(1, 60) * PAGE
    while left > 0:
        yield at, left
        at, left = at + step, left - step


def oversize(rng, pages):
    at = start(rng, pages)
    for _ in range(rng.randint(1, 3)):
        length = rng.randint(30, 600) * PAGE
        yield at, length
        at += length if rng.random() < 0.7 else rng.randint(-50, 900) * PAGE
        at = max(at, 0)


def reread(rng, pages):
    at, length = start(rng, pages), rng.randint(1, 60) * PAGE
    for _ in range(rng.randint(2, 4)):
        yield at, length
        length += rng.randint(0, 30) * PAGE


def cached_run(rng, pages):
    """Reads a stretch, then reads it again in smaller pieces and goes on past it."""
    at, stretch = start(rng, pages), rng.randint(200, 900) * PAGE
    yield at, stretch
    length = rng.choice((PAGE, 3 * PAGE, 10000, 16 * PAGE, 40 * PAGE))
    # At most a few hundred reads per trace.
    skip = max(stretch - rng.randint(20, 100) * length, 0) if rng.random() < 0.5 else 0
    end, at = at + stretch + rng.randint(-3, 40) * length, at + skip
    for _ in range(200):
        if at >= end:
            break
        yield at, length
        at += length


def far_away(rng, _pages):
    at = rng.choice((2**32, 2**44, 2**63 // PAGE)) * PAGE % 2**63
    for _ in range(count(rng)):
        yield at, 3 * PAGE
        at += 3 * PAGE


MAPPED_KINDS = (clusters, clusters, blocks, even, even)
KINDS = (sequential, sequential, unaligned, at_random, clustered, interleaved, strided, backward, retried, oversize,
         reread, cached_run, far_away)
