"""Predicts the next chunks of nested loops over an array, from the chunks that a program has read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product, zip_longest
from typing import TypeAlias

#: A chunk, by its number in each direction.
Place: TypeAlias = "tuple[int, ...]"

#: Chunks that a prediction passes over, mostly because they are not stored, before it ends. Larger: slower reads of
#: sparse arrays; smaller: no readahead behind a large hole.
ABSENT = 4096


def _sum(one: Place, other: Place) -> Place:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _difference(one: Place, other: Place) -> Place:
    return tuple(a - b for a, b in zip(one, other, strict=True))


class _Level:
    """One of the nested loops. The innermost has chunks as elements; each other loop has runs of the next inner one."""

    def __init__(self, start: Place, step: Place | None = None, count: int = 1, length: int | None = None) -> None:
        #: The first chunk of its current run, and the distance of two elements.
        self.start, self.step = start, step
        #: Elements of its current run, and of the last one that ended.
        self.count, self.length = count, length

    def copy(self) -> _Level:
        return _Level(self.start, self.step, self.count, self.length)

    def ends(self) -> bool:
        """Whether its current run is as long as the last one."""
        return self.length is not None and self.count >= self.length


class Order:
    """The order of nested loops: a step, the length of a run, the step between runs, and so on.

    One run teaches its step, and the first chunk of the next run its length. Until then, a run is expected to end at
    the edge of the array, and the next one to be its neighbor."""

    def __init__(self, grid: Place) -> None:
        self.grid = grid
        self.levels: list[_Level] = []
        self.last: Place | None = None
        #: Chunks in a row that were predicted.
        self.right = 0

    def copy(self) -> Order:
        copy = Order(self.grid)
        copy.levels, copy.last, copy.right = [level.copy() for level in self.levels], self.last, self.right
        return copy

    def again(self, place: Place) -> Order:
        """The same loops from another first chunk, with the lengths that they had."""
        again = Order(self.grid)
        again.last = place
        again.levels = [_Level(place, level.step, 1, level.count if level.length is None else level.length)
                        for level in self.levels]
        return again

    def _holds(self, place: Place) -> bool:
        return all(0 <= at < side for at, side in zip(place, self.grid, strict=True))

    def next(self) -> tuple[Place, bool] | None:
        """The next chunk, and whether its level is known."""
        if self.last is None:
            return None
        base, used = self.last, []
        for level, outer in zip_longest(self.levels, self.levels[1:]):
            if level.step is None:
                break
            # Runs that are read again and again are in the cache: nothing to predict before they have an end.
            if not any(level.step) and level.length is None:
                return None
            if self._holds(place := _sum(base, level.step)):
                if not level.ends():
                    return place, True
                if outer is None or outer.count < 3 and outer.length is None:
                    # One jump is no loop over runs.
                    return place, False
            if level is not self.levels[0] and level.count == 2 and level.length is None:
                # One jump that cannot repeat, such as that of a loop that began within a row.
                break
            base = level.start
            used.append(level.step)
        for axis in reversed(range(len(self.grid))):
            if self.grid[axis] > 1 and not any(step[axis] for step in used):
                sign = -1 if used and min(used[0]) < 0 else 1
                place = (*base[:axis], base[axis] + sign, *base[axis + 1:])
                return (place, False) if self._holds(place) else None
        return None

    def widen(self, absent: Callable[[Place], bool]) -> None:
        """Counts the chunks before a new run that are not stored as its own."""
        level = self.levels[0]
        if level.step is not None and level.count == 2 and any(level.step):
            while self._holds(before := _difference(level.start, level.step)) and absent(before):
                level.start, level.count = before, level.count + 1

    def feed(self, place: Place) -> bool:
        """Learns from a chunk that was read; returns whether it was predicted."""
        expected = self.next()
        predicted = expected is not None and expected[0] == place
        if self.last is None:
            self.levels = [_Level(place)]
        elif not self._advance(place):
            self.levels = [_Level(self.last, _difference(place, self.last), 2)]
        self.last = place
        self.right = self.right + 1 if predicted else 0
        return predicted

    def _advance(self, place: Place) -> bool:
        base = self.last
        assert base is not None
        same = True
        for at in range(len(self.grid) + 2):
            if at == len(self.levels):
                self.levels.append(_Level(self.levels[-1].start))
            level = self.levels[at]
            step = _difference(place, base)
            # A step that is known from one pair of unequal runs, such as that of a loop that began within a row.
            fresh = level.step is None or (at > 0 and not same and level.count == 2)
            if fresh or level.step == step:
                if fresh:
                    level.start, level.step, level.count, level.length = base, step, 1, None
                    del self.levels[at + 1:]
                level.count += 1
                if level.length is not None and level.count > level.length:
                    level.length = None
                for inner in self.levels[:at]:
                    inner.length, inner.count, inner.start = inner.count, 1, place
                return True
            if level.length is not None and level.count != level.length:
                return False
            same = level.length is not None
            base = level.start
        return False


class Loop:
    """What a loop over chunks reads next, and what of it is in flight. One thread at a time may use it."""

    def __init__(self, grid: Place, first: int, most: int, most_bytes: int, share: int,
                 absent: Callable[[Place], bool] | None = None, known: Callable[[Place], bool] | None = None,
                 like: Loop | None = None) -> None:
        #: Chunks in flight ahead: at first, and at most. Between these, `share` for each chunk that the loop has read.
        self._first, self._most, self._most_bytes, self._share = first, most, most_bytes, share
        #: Whether a chunk of a shard is not stored, where that is known: it is not requested.
        self._absent = absent
        #: Whether it is known where a chunk is stored, if that is not always so: readahead ends before others.
        self._known = known
        #: The loop over the array before, which this one repeats if it begins at the same chunk of an equal grid.
        self._like = like
        self.repeats = False
        self._begun: Place | None = None
        self._order = Order(grid)
        self._bytes = 1
        #: The chunks in flight, in their expected order; and those that were passed over.
        self.ahead: list[Place] = []
        self._passed: dict[Place, None] = {}
        #: The order after the last chunk in flight, and how many of them depend on a guess.
        self._frontier: Order | None = None
        self._guesses = 0
        #: Chunks read as expected, one after another; and unexpected ones since the last loop.
        self._count, self._wrong = 1, 0
        #: Whether a read has ended since the last request.
        self._ended = False
        #: If the reader announces its reads by `begin`: the chunks of the current read; the chunks that were fetched
        #: because they are between them; their bounding box; the order before this read; and whether the read is in the
        #: array's order.
        self._read: list[Place] | None = None
        self._between: set[Place] = set()
        self._filled: list[range] | None = None
        self._before = self._order
        self._sorted = True

    def begin(self) -> list[Place]:
        """A read begins, which may request its chunks in any order. Returns the chunks to fetch."""
        if self._read and not self._sorted:
            self._order = self._before
            for place in sorted(self._read):
                self._feed(self._order, place)
            self._count = max(self._count, self._order.right + 1)
            if not self.ahead:
                self._frontier = None
        self._read, self._before, self._sorted = [], self._order.copy(), True
        self._between.clear()
        self._filled = None
        return self._extend()

    def request(self, place: Place) -> list[Place]:
        """A chunk is read. Returns the chunks to fetch."""
        if place == self._order.last:
            return []
        ended, self._ended = self._ended, False
        read = self._read
        begins = ended if read is None else not read
        first = self._order.last is None
        if first and self._repeat(place):
            return self._extend()
        predicted = False
        if not read or self._sorted and place > read[-1]:
            predicted = self._feed(self._order, place)
        else:
            self._sorted = False
        if read is not None:
            read.append(place)
        if self._hit(place):
            self._count += 1
            return self._extend()
        if predicted:
            self._count += 1
            self.ahead, self._frontier = [], None
            return self._extend() if begins else []
        if read is not None and len(read) > 1:
            return self._fill(place, read)
        self._wrong = 0 if first else 1 if self._count >= 8 else self._wrong + 1
        self._count, self.ahead, self._frontier = 1, [], None
        self._passed.clear()
        return []

    def end(self, size: int = 0) -> None:
        """A chunk of `size` bytes was read; 0 if it is not stored."""
        self._ended = True
        self._bytes = size or self._bytes

    def _repeat(self, place: Place) -> bool:
        like, self._like, self._begun = self._like, None, place
        if like is not None and like._begun == place and like._order.grid == self._order.grid and like._count > 1:
            # Half of what that loop has earned.
            self._order, self._count, self.repeats = like._order.again(place), max(2, like._count // 2), True
        return self.repeats

    def ends(self) -> bool:
        """Whether all chunks that it will read are in flight, or were read."""
        return self._frontier is not None and self._frontier.next() is None

    def _feed(self, order: Order, place: Place) -> bool:
        """Teaches a chunk, and those before it that are not stored."""
        for _ in range(ABSENT if self._absent is not None else 0):
            expected = order.next()
            if expected is None or expected[0] == place or not (self._absent and self._absent(expected[0])):
                break
            order.feed(expected[0])
        predicted = order.feed(place)
        if self._absent is not None:
            order.widen(self._absent)
        return predicted

    def _hit(self, place: Place) -> bool:
        """Whether a chunk is in flight."""
        if place in self._passed:
            del self._passed[place]
            return True
        if place not in self.ahead:
            return False
        at = self.ahead.index(place)
        self._passed |= dict.fromkeys(self.ahead[:at])
        while len(self._passed) > self._most:
            del self._passed[next(iter(self._passed))]
        del self.ahead[:at + 1]
        if at and self._order.right >= 2:
            # They are hits of a loop with another step.
            self.ahead, self._frontier = [], None
        return True

    def _extend(self) -> list[Place]:
        # A chunk may follow another one by chance, where others did not.
        if max(self._order.right, self._count - 1) < (1 if self._wrong < 2 else 2):
            return []
        distance = max(1, min(max(self._first, self._share * self._count), self._most, self._most_bytes // self._bytes))
        # Neighbors in a shard or a file are one request if they are fetched together.
        if (self._absent or self._known) is not None and len(self.ahead) > distance // 2:
            return []
        if self._frontier is None or len(self.ahead) < self._guesses:
            if self._order.right == 0:
                return []
            self._frontier, self._guesses = self._order.copy(), 0
            for place in self.ahead:
                self._guess(self._frontier.next())
                self._feed(self._frontier, place)
        new: list[Place] = []
        skipped = 0
        while len(self.ahead) < distance and skipped < ABSENT and (found := self._frontier.next()) is not None:
            if (self._guesses or not found[1]) and self._guesses >= self._first:
                break
            if self._known is not None and not self._known(found[0]):
                break
            self._guess(found)
            self._frontier.feed(found[0])
            if self._absent is not None and self._absent(found[0]):
                skipped += 1
                continue
            self.ahead.append(found[0])
            new.append(found[0])
        return new

    def _guess(self, found: tuple[Place, bool] | None) -> None:
        if self._guesses or found is None or not found[1]:
            self._guesses += 1

    def _fill(self, place: Place, read: list[Place]) -> list[Place]:
        """The chunks between those of one read, at most as many as it has requested."""
        self._between.discard(place)
        if len(read) < 3 or len(self._between) > len(read) // 2:
            return []
        sides = [range(min(side), max(side) + 1) for side in zip(*read, strict=True)]
        if sides == self._filled:
            return []
        had = {*read, *self._between, *self.ahead, *self._passed}
        new: list[Place] = []
        for between in islice(product(*sides), ABSENT):
            if len(self._between) >= len(read):
                return new
            if between not in had and not (self._absent and self._absent(between)):
                self._between.add(between)
                new.append(between)
        self._filled = sides
        return new
