"""HDF5 and NetCDF4: metadata and chunks ahead of their reader.

It is automatic for names that end in `.h5`, `.hdf5`, `.nc` or `.nc4`. For other names, give `bowwave.hdf5.open(url)` to
`h5py.File` or `xarray.open_dataset`.

The metadata of such a file are many small pieces. Each piece names further pieces, and libraries read one after
another. The package parses each piece that a program reads, and fetches the pieces that it names together: members of a
group, nodes of a tree. If a program reads the chunks of an array in a loop, the next chunks of the loop are fetched. If
it reads arrays that follow each other in the file, the next array is fetched, too. Of files that are read at the same
offsets, such as those of a model run, the pieces that were read of one are fetched of the next ones. Contiguous arrays are read ahead as
any file. Damaged metadata mean less readahead, never an error of the package.
"""

from __future__ import annotations

import heapq
import os
from bisect import bisect_right, insort
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ._files import File, joined, source_of, taken
from ._alike import Alike
from ._hdf5 import DAMAGE, SIGNATURE, USER_BLOCK_MIN, superblock
from ._hdf5_index import ELEMENTS_MAX, Array, Chunk, Piece
from ._loop import Loop

if TYPE_CHECKING:
    from .parquet import Readable

#: Bytes around a small read of unknown kind. Smaller: more requests; larger: more unused bytes between metadata.
BLOCK = 64 << 10
#: A longer read of unknown kind is no metadata.
SMALL = 16 << 10
#: Bytes between two pieces that are fetched with them. Larger: more unused bytes; smaller: more requests.
GAP = 32 << 10
#: Waste budget of metadata: fetched bytes exceed twice the used ones by about this at most. Smaller: more waits before
#: a walk through the file is at full speed.
FREE = 256 << 10
#: Waste budget of chunks: a loop is read ahead by as many chunks as it has read, at first by these bytes, and by these
#: bytes and chunks at most.
AHEAD = 512 << 10
AHEAD_MAX = 16 << 20
CHUNKS_MAX = 1024
#: Chunks read in a row, none of which was expected, after which an array counts as read in no order. Smaller: more waste
#: where a loop begins.
APART = 8
#: Short reads in the order of another file that are parsed once the order ends. Larger: that takes longer.
ALIKE_MAX = 256
#: Most pieces and chunks that are parsed of a file, about 50 MB; and the longest piece.
PIECES_MAX = ELEMENTS_MAX
LENGTH_MAX = 256 << 10


#: The unit in which fetched bytes are counted.
PAGE = 4 << 10

#: The reads of the last files.
ALIKE = Alike()


class Reading(Loop):
    """A loop over the chunks of an array."""

    def __init__(self, array: Array, length: int, like: Reading | None) -> None:
        known = array.chunks.__contains__
        first = max(1, AHEAD // max(1, length))
        super().__init__(array.grid(), first, CHUNKS_MAX, AHEAD_MAX, 1, known=known, like=like)
        #: Whether the array begins where the one before ended, so that the next one may begin at its end; bytes that
        #: were read, and that were fetched beyond the array.
        self.goes_on = False
        self.read = self.beyond = 0
        #: Chunks read in a row while none was in flight.
        self.apart = 0


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
        #: Where addresses begin.
        self.base = 0
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
        self.loop: Reading | None = None
        self.walks = False
        #: The end of the last read of data.
        self.end = 0
        self.advice = "normal"

        #: Its number among the files that are read alike.
        self.number: int | None = None
        #: Short reads while they were those of other files, offset and length: nothing was parsed for them.
        self.alike: list[tuple[int, int]] = []

    def opened(self, file: Readable) -> None:
        self.number = ALIKE.opened(file, file.size, taken(file))
        self._advise(file, "random")
        self._parse(file, (), Piece(0, 128, superblock))

    def closed(self) -> None:
        if self.number is not None:
            ALIKE.closed(self.number)

    def before(self, file: Readable, offset: int, length: int) -> None:
        if self.number is not None and offset >= 0 and length > 0:
            for other, (start, size) in ALIKE.read(self.number, file, offset, length):
                with suppress(Exception):
                    # It may be closed by now. Whatever is wrong with it, this read must not fail.
                    other.advise("willneed", start, size)
            if ALIKE.follows(self.number):
                if length <= SMALL and len(self.alike) < ALIKE_MAX:
                    self.alike.append((offset, length))
                return
            # It is not read like others any more: what it has read of its metadata names the rest.
            skipped, self.alike = self.alike, []
            for read in skipped:
                self._note(file, *read)
        self._note(file, offset, length)

    def _note(self, file: Readable, offset: int, length: int) -> None:
        if not self.seen and length == len(SIGNATURE) and offset >= USER_BLOCK_MIN and offset & (offset - 1) == 0:
            # The program looks for the end of a user block.
            self._advise(file, "random")
            self.base = offset
            self._parse(file, (), Piece(offset, 128, superblock))
            if not self.seen:
                return
        chunk = self.chunks.get(offset)
        if chunk is not None:
            self._read_chunk(file, chunk, length)
            self.end = offset + length
            # In no order, the file is read ahead as one of records: once a part of it was read, and nothing twice, the
            # rest is expected, too.
            loop = chunk.array.loop
            self._advise(file, "normal" if loop is not None and loop.apart >= APART else "random")
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
        self.spent += sum(self._fetch(file, start, end - start) for start, end in joined(new, GAP))

    def _parse(self, file: Readable, order: tuple[int, ...], piece: Piece) -> None:
        try:
            for found in piece.parse(file.pread(piece.start, piece.length)):
                self.seen += 1
                if self.seen > PIECES_MAX:
                    return
                if not found.start:
                    # There is the superblock: these bytes were never written.
                    continue
                if self.base:
                    found = found._replace(start=found.start + self.base)
                # The length of metadata may be a guess.
                if found.start + (found.length if isinstance(found, Chunk) else 1) > file.size:
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
        self.array = array = chunk.array
        if len(array.grid()) != len(chunk.place):
            return
        loop: Reading = array.loop or Reading(array, chunk.length, self.loop)
        # Before the request, which depends on it.
        loop.end(chunk.length)
        places = loop.request(chunk.place)
        if array.loop is None and loop.repeats:
            # Programs do with an array what they did with the one before.
            self.walks, loop.goes_on = True, 0 <= chunk.start - self.end <= BLOCK
        array.loop = self.loop = loop
        loop.read += length
        loop.apart = 0 if loop.ahead else loop.apart + 1
        ranges = [(found.start, found.start + found.length) for found in map(array.chunks.__getitem__, places)]
        if loop.goes_on and loop.ends():
            last = array.chunks[loop.ahead[-1] if loop.ahead else chunk.place]
            start = last.start + last.length + loop.beyond
            most = min(AHEAD + loop.read, AHEAD_MAX)
            left = most - loop.beyond - sum(array.chunks[place].length for place in loop.ahead)
            end = min(start + left, file.size)
            if left > most // 2 and end > start:
                loop.beyond += end - start
                ranges.append((start, end))
        for start, end in joined(ranges):
            file.advise("willneed", start, end - start)  # type: ignore[attr-defined]


def fetch(source: Any, most: int) -> int:
    """Fetches the parts of a source that were read of the files before it; returns how many bytes."""
    handle = source.handle()
    source.contents, ranges = ALIKE.ahead(handle.size, most)
    for start, length in ranges:
        handle.advise("willneed", start, length)
    return sum(length for _, length in ranges)


def open(url: str | os.PathLike[str], **options: Any) -> File:  # noqa: A001
    """As `bowwave.open`, for a file in this format whatever its name is."""
    return File(source_of(url, {**Watcher.SETTINGS, **options}, by_name=True), watcher=Watcher())
