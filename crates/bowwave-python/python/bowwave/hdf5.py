"""HDF5 and NetCDF4: metadata and chunks ahead of their reader.

It is automatic for names that end in `.h5`, `.hdf5`, `.nc` or `.nc4`. For other names, give `bowwave.hdf5.open(url)` to
`h5py.File` or `xarray.open_dataset`.

The metadata of such a file are many small pieces. Each piece names further pieces, and libraries read one after
another. The package parses each piece that a program reads, and fetches the pieces that it names together: members of a
group, nodes of a tree. If a program reads the chunks of an array in a loop, the next chunks of the loop are fetched. If
it reads arrays that follow each other in the file, the next array is fetched, too. Contiguous arrays are read ahead as
any file. Damaged metadata mean less readahead, never an error of the package.
"""

from __future__ import annotations

import heapq
import os
from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ._files import File, source_of
from ._hdf5 import DAMAGE, Array, Chunk, Piece, superblock

if TYPE_CHECKING:
    from .parquet import Readable

#: Bytes around a small read of unknown kind. Smaller: more requests; larger: more unused bytes between metadata.
BLOCK = 64 << 10
#: A longer read of unknown kind is no metadata.
SMALL = 16 << 10
#: The unit in which bytes are counted as fetched.
PAGE = 4 << 10
#: Bytes between two pieces that are fetched with them. Larger: more unused bytes; smaller: more requests.
GAP = 32 << 10
#: Waste budget of metadata: fetched bytes exceed twice the used ones by about this at most. Smaller: more waits before
#: a walk through the file is at full speed.
FREE = 256 << 10
#: Waste budget of chunks: a loop is read ahead by these bytes more than it has read, up to `AHEAD_MAX`.
AHEAD = 512 << 10
AHEAD_MAX = 16 << 20
#: Most pieces and chunks that are parsed of a file, about 50 MB; and the longest piece.
PIECES_MAX = 1 << 17
LENGTH_MAX = 256 << 10


class Loop:
    """A loop over chunks in the order of C: from `low` by `step` to `high` in each dimension."""

    def __init__(self, place: tuple[int, ...], grid: tuple[int, ...], like: Loop | None) -> None:
        #: The last chunk that was read, and the last one that was fetched ahead.
        self.grid, self.low, self.at, self.edge = grid, place, place, place
        self.step, self.high = [1] * len(grid), [side - 1 for side in grid]
        #: Moves; bytes read, fetched ahead, and fetched beyond the array.
        self.count = self.read = self.ahead = self.beyond = 0
        self.goes_on = False
        if like is not None and like.grid == grid and like.low == place:
            # Programs do with an array what they did with the one before.
            self.step, self.high, self.count, self.read = [*like.step], [*like.high], like.count, like.read // 2

    def follows(self, place: tuple[int, ...]) -> bool:
        """Moves to a chunk, if it can belong to this loop. Learns step and bounds, which may move `edge` back."""
        was = self.at
        if len(place) != len(was) or place <= was:
            return False
        axis = next(axis for axis, pair in enumerate(zip(was, place, strict=True)) if pair[0] != pair[1])
        if place[axis + 1:] != self.low[axis + 1:]:
            return False
        expected = self.next(was)
        self.high[axis + 1:] = was[axis + 1:]
        if expected != place:
            self.step[axis] = place[axis] - was[axis]
        self.at = place
        self.count += 1
        if expected != place or self.edge < place:
            self.edge, self.ahead = place, 0
        return True

    def next(self, place: tuple[int, ...]) -> tuple[int, ...] | None:
        """The chunk after `place`; `None` at the end of the loop."""
        after = list(place)
        for axis in reversed(range(len(after))):
            after[axis] += self.step[axis]
            if after[axis] <= self.high[axis]:
                return tuple(after)
            after[axis] = self.low[axis]
        return None


class Watcher:
    """Fetches the metadata that parsed metadata name, and the next chunks of a loop over an array."""

    #: Windows of 128 KiB: contiguous arrays are often smaller than what is read ahead of a long file. Larger ones read
    #: more behind the end of each array; smaller ones take more requests.
    SETTINGS = {"ra_pages": 32}
    #: The superblock and what lies beside it.
    FIRST = (0, BLOCK)
    #: A plan of the program ends the watcher.
    plans = True

    def __init__(self) -> None:
        #: Pages of the file that were fetched.
        self.pages: set[int] = set()
        #: Named pieces that were not parsed, by their start, with their place in the order of a walk through the file.
        self.pieces: dict[int, tuple[tuple[int, ...], Piece]] = {}
        self.seen = 0
        #: Pieces to fetch, and indexes of arrays that the program has not read.
        self.queue: list[tuple[tuple[int, ...], int]] = []
        self.held: list[tuple[tuple[int, ...], int]] = []
        #: Rounds in which pieces in flight were fetched, and bytes of the fetched pieces that were not used.
        self.rounds: dict[int, int] = {}
        self.round = 0
        self.costs: dict[int, int] = {}
        self.spent = self.used = 0
        self.chunks: dict[int, Chunk] = {}
        #: Ranges of arrays without chunks, in the order of the file.
        self.contiguous: list[tuple[int, int]] = []
        #: The array and the loop that were read last, and whether the program goes from array to array.
        self.array: Array | None = None
        self.loop: Loop | None = None
        self.walks = False
        #: The end of the last read of data.
        self.end = 0
        self.advice = "normal"

    def opened(self, file: Readable) -> None:
        self._advise(file, "random")
        self._parse(file, (), Piece(0, 128, superblock))

    def before(self, file: Readable, offset: int, length: int) -> None:
        chunk = self.chunks.get(offset)
        if chunk is not None:
            self._advise(file, "random")
            self._read_chunk(file, chunk, length)
            self.end = offset + length
        elif offset in self.pieces or offset in self.costs:
            self._advise(file, "random")
            self._read_piece(file, offset, length)
        elif length > SMALL or offset == self.end or self._is_contiguous(offset):
            self._advise(file, "normal")
            self.end = offset + length
        else:
            self._advise(file, "random" if self.seen else "normal")
            self._fetch(file, offset // BLOCK * BLOCK, BLOCK)
            self.end = offset + length

    def _is_contiguous(self, offset: int) -> bool:
        at = bisect_right(self.contiguous, (offset + 1,)) - 1
        return at >= 0 and offset < self.contiguous[at][1]

    def _advise(self, file: Readable, advice: str) -> None:
        """Readahead, only where the next read is not known."""
        if self.advice != advice:
            self.advice = advice
            file.advise(advice)  # type: ignore[attr-defined]

    def _fetch(self, file: Readable, start: int, length: int) -> int:
        """Fetches the pages of a range; returns how many bytes are new."""
        end = min(start + length, file.size)
        new = [page for page in range(start // PAGE, -(-end // PAGE)) if page not in self.pages]
        if new:
            if len(self.pages) > PIECES_MAX:
                self.pages.clear()
            self.pages.update(new)
            start = new[0] * PAGE
            file.advise("willneed", start, min((new[-1] + 1) * PAGE, end) - start)  # type: ignore[attr-defined]
        return len(new) * PAGE

    # Metadata.

    def _read_piece(self, file: Readable, offset: int, length: int) -> None:
        self.used += self.costs.pop(offset, 0)
        if offset in self.pieces:
            array = self.pieces[offset][1].array
            if array is not None and array is not self.array:
                # Two indexes and no chunk.
                self.walks = self.walks or (self.array is not None and self.array.loop is None)
                self.array = array
                if self.walks and self.held:
                    self.queue += self.held
                    heapq.heapify(self.queue)
                    self.held = []
            if offset not in self.rounds:
                cost = self._fetch(file, offset, length)
                self.spent, self.used = self.spent + cost, self.used + cost
            # What was fetched together arrives together.
            latest = self.rounds.get(offset, 0)
            for start in [offset, *(at for at, number in self.rounds.items() if number <= latest and at != offset)]:
                self.rounds.pop(start, None)
                self._parse(file, *self.pieces.pop(start))
        self.round += 1
        left = FREE + 2 * self.used - self.spent
        new: list[tuple[int, int]] = []
        while self.queue and left > 0:
            start = heapq.heappop(self.queue)[1]
            if start in self.pieces:
                end = start + self.pieces[start][1].length
                cost = PAGE * sum(page not in self.pages for page in range(start // PAGE, -(-end // PAGE)))
                self.costs[start], self.rounds[start] = cost, self.round
                left -= cost
                new.append((start, end))
        self.spent += sum(self._fetch(file, start, end - start) for start, end in _merged(new, GAP))

    def _parse(self, file: Readable, order: tuple[int, ...], piece: Piece) -> None:
        try:
            for found in piece.parse(file.pread(piece.start, piece.length)):
                self.seen += 1
                if self.seen > PIECES_MAX:
                    return
                if found.start + found.length > file.size:
                    continue
                if isinstance(found, Chunk) and not found.place:
                    insort(self.contiguous, (found.start, found.start + found.length))
                elif isinstance(found, Chunk):
                    self.chunks[found.start] = found.array.chunks[found.place] = found
                elif found.length <= LENGTH_MAX and found.start not in self.pieces and found.start not in self.costs:
                    key = (*order, self.seen)
                    self.pieces[found.start] = (key, found)
                    if found.array is None or found.array is self.array or self.walks:
                        heapq.heappush(self.queue, (key, found.start))
                    else:
                        self.held.append((key, found.start))
        except (OSError, *DAMAGE):
            # The reader reports it, if it reads this.
            pass

    # Chunks.

    def _read_chunk(self, file: Readable, chunk: Chunk, length: int) -> None:
        before, array = self.array, chunk.array
        self.array = array
        grid, loop = array.grid(), array.loop
        if len(grid) != len(chunk.place):
            return
        if loop is None or not loop.follows(chunk.place):
            array.loop = loop = Loop(chunk.place, grid, self.loop)
            # This array begins where the one before ended, so the next one may begin at its end.
            loop.goes_on = loop.count > 0 and 0 <= chunk.start - self.end <= BLOCK
            self.walks = self.walks or (loop.count > 0 and array is not before)
        self.loop = loop
        loop.read += length
        loop.ahead = max(0, loop.ahead - length)
        most = min(AHEAD + loop.read, AHEAD_MAX)
        if not loop.count or loop.ahead > most // 2:
            return
        ranges: list[tuple[int, int]] = []
        place = loop.next(loop.edge)
        while place is not None and (found := array.chunks.get(place)) and loop.ahead + found.length <= most:
            loop.edge, loop.ahead = place, loop.ahead + found.length
            ranges.append((found.start, found.start + found.length))
            place = loop.next(place)
        if place is None and loop.goes_on and (last := array.chunks.get(loop.edge)) is not None:
            start = last.start + last.length + loop.beyond
            end = min(start + most - loop.ahead, file.size)
            ranges.append((start, end))
            loop.beyond, loop.ahead = loop.beyond + max(0, end - start), loop.ahead + max(0, end - start)
        for start, end in _merged(ranges, 0):
            file.advise("willneed", start, end - start)  # type: ignore[attr-defined]


def _merged(ranges: list[tuple[int, int]], gap: int) -> Iterator[tuple[int, int]]:
    """Ranges in the order of the file, joined where no more than a gap is between them."""
    joined: list[list[int]] = []
    for start, end in sorted(pair for pair in ranges if pair[0] < pair[1]):
        if joined and start - joined[-1][1] <= gap:
            joined[-1][1] = max(end, joined[-1][1])
        else:
            joined.append([start, end])
    return ((start, end) for start, end in joined)


def open(url: str | os.PathLike[str], **options: Any) -> File:  # noqa: A001
    """As `bowwave.open`, for a file in this format whatever its name is."""
    return File(source_of(url, {**Watcher.SETTINGS, **options}), watcher=Watcher())
