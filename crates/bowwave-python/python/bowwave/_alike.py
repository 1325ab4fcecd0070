"""Predicts the reads of a file from those of other files.

`Trails` of the extension decides. This module has the files by their numbers.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple
from weakref import ref

from . import _stores
from ._bowwave import Trails

#: Offset and length of bytes.
Range = tuple[int, int]


class Opened(NamedTuple):
    """A file that was opened ahead of the program, by its number."""

    alike: Alike
    number: int

    def dropped(self) -> None:
        """The program has not opened it."""
        self.alike.trails.dropped(self.number)


class Alike:
    """The reads of the last files. Any number of threads may use it."""

    def __init__(self) -> None:
        self.trails = Trails()
        self._numbers = count()
        #: By number: the open file, the generation of the process that has opened it, and the number of the open.
        self._files: dict[int, tuple[ref[Any], int, int]] = {}

    def opened(self, file: Any, size: int, ahead: object = None) -> int:
        """A program opens a file; returns its number."""
        number = ahead.number if isinstance(ahead, Opened) else next(self._numbers)
        self._files[number] = ref(file), _stores.generation(), self.trails.opened(number, size)
        return number

    def closed(self, number: int) -> None:
        """A program closes a file."""
        closed = self._files.pop(number, None)
        if closed is not None:
            self.trails.closed(number, closed[2])

    def ahead(self, size: int, most: int) -> tuple[Opened, list[Range]]:
        """A file is opened ahead of the program. Returns what to fetch of it: at most this many bytes."""
        opened = Opened(self, next(self._numbers))
        return opened, self.trails.ahead(opened.number, size, most)

    def follows(self, number: int) -> bool:
        """Whether a file is read as others were, so that its next reads are known without its contents."""
        return self.trails.follows(number)

    def read(self, number: int, file: Any, offset: int, length: int) -> list[tuple[Any, Range]]:
        """A program reads a file. Returns what to fetch, of it and of others."""
        found = []
        for of, start, size in self.trails.read(number, offset, length):
            other: Any = file
            if of != number:
                opened = self._files.get(of)
                # In a child of fork, files of the parent are opened again when they are read.
                other = opened[0]() if opened is not None and opened[1] == _stores.generation() else None
            if other is not None:
                found.append((other, (start, size)))
        return found
