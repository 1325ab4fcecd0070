"""GGUF: the tensors of a model for llama.cpp, by name.

>>> import bowwave.gguf
>>> with bowwave.gguf.Model("s3://bucket/model.gguf") as model:
...     model.plan(reversed(model.tensors))             # or the names of some layers
...     data = model.read("blk.0.attn_q.weight")        # bytes, quantised as they are
>>> len(data), model.metadata["general.architecture"]
(4096, 'llama')
"""

from __future__ import annotations

import os
import struct as _struct
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

from ._files import open as _open

MAGIC = b"GGUF"
#: Bytes that are read at once while the header is parsed. A vocabulary takes some megabytes.
STEP = 1 << 20
#: Longest header.
HEADER_MAX = 1 << 30

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
#: Elements and bytes of a block, by type of tensor (ggml.h).
BLOCKS = {0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
          10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
          16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
          23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
          34: (256, 54), 35: (256, 66), 39: (32, 17)}


class Tensor(NamedTuple):
    """A tensor: bytes of the file from `start` to `end`, of a type of ggml."""

    kind: int
    shape: tuple[int, ...]
    start: int
    end: int


class Model:
    """A GGUF file: `metadata` and `tensors` by name, in the order of their bytes."""

    def __init__(self, url: str | os.PathLike[str], **options: Any) -> None:
        self.file = _open(url, **options)
        self._data, self._at = b"", 0
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        try:
            self._parse()
        except (ValueError, KeyError) as error:
            self.file.close()
            raise ValueError(f"{self.file.name}: no GGUF file, or a damaged one: {error}") from None
        self._data = b""

    # The header.

    def _take(self, count: int) -> bytes:
        while self._at + count > len(self._data):
            if len(self._data) == self.file.size:
                raise ValueError("it ends within its header")
            if self._at + count > HEADER_MAX:
                raise ValueError("its header is too long")
            wanted = max(STEP, self._at + count - len(self._data))
            self._data += self.file.pread(len(self._data), wanted)
        data = self._data[self._at:self._at + count]
        self._at += count
        return data

    def _scalar(self, letter: str) -> Any:
        return _struct.unpack("<" + letter, self._take(_struct.calcsize("<" + letter)))[0]

    def _text(self) -> str:
        return self._take(self._scalar("Q")).decode(errors="replace")

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._text()
        if kind == _ARRAY:
            kind, count = self._scalar("I"), self._scalar("Q")
            if depth > 8 or count > self.file.size:
                raise ValueError("an array is too long")
            if kind in _SCALARS:
                letter = _SCALARS[kind]
                return list(_struct.unpack(f"<{count}{letter}", self._take(count * _struct.calcsize("<" + letter))))
            return [self._value(kind, depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"no type has number {kind}")
        return self._scalar(_SCALARS[kind])

    def _parse(self) -> None:
        if self._take(4) != MAGIC:
            raise ValueError(f"it does not begin with {MAGIC!r}")
        version = self._scalar("I")
        if version not in (2, 3):
            raise ValueError(f"version {version}, but 2 and 3 are known")
        tensors, pairs = self._scalar("Q"), self._scalar("Q")
        for _ in range(pairs):
            name = self._text()
            self.metadata[name] = self._value(self._scalar("I"))
        found = []
        for _ in range(tensors):
            name = self._text()
            sides = self._scalar("I")
            if sides > 16:
                raise ValueError(f"tensor {name!r} has {sides} dimensions")
            shape = tuple(self._scalar("Q") for _ in range(sides))
            kind, offset = self._scalar("I"), self._scalar("Q")
            found.append((offset, name, kind, shape))
        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"alignment {alignment!r}")
        base = -(-self._at // alignment) * alignment
        for offset, name, kind, shape in sorted(found):
            if kind not in BLOCKS:
                raise ValueError(f"tensor {name!r} is of type {kind}, which is not known")
            elements, size = BLOCKS[kind]
            start = base + offset
            end = start + prod(shape) // elements * size
            if end > self.file.size:
                raise ValueError(f"tensor {name!r} ends at {end}, and the file at {self.file.size}")
            self.tensors[name] = Tensor(kind, shape, start, end)

    # Tensors.

    def plan(self, names: Iterable[str] | None = None) -> None:
        """Announces tensors in the order of their use, by default all in the order of their bytes."""
        spans = [self._tensor(name) for name in (self.tensors if names is None else names)]
        self.file.plan([(tensor.start, tensor.end) for tensor in spans])

    def read(self, name: str) -> bytes:
        """The bytes of a tensor."""
        tensor = self._tensor(name)
        return self.file.pread(tensor.start, tensor.end - tensor.start)

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ValueError(f"{self.file.name}: no tensor {name!r}; it has {', '.join(list(self.tensors)[:20])}")
        return self.tensors[name]

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()
