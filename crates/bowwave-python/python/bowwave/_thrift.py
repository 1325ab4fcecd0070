"""Thrift's compact protocol, as far as metadata of parquet needs it: structures as dictionaries by field number."""

from __future__ import annotations

import struct as _struct
from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
#: Nested structures; parquet has about ten.
DEPTH = 64


class Reader:
    """Reads one structure from bytes.

    `wanted` names the fields to keep, as nested dictionaries by field number; `None` keeps all. Others are skipped.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self.data, self.at = bytes(data), 0

    def varint(self) -> int:
        result = shift = 0
        data, at = self.data, self.at
        while True:
            byte = data[at]
            at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                self.at = at
                return result
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, wanted: dict[int, Any] | None = None, depth: int = DEPTH) -> dict[int, Any]:
        if depth == 0:
            raise ValueError("structures are nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self.data[self.at]
            self.at += 1
            if head == 0:
                return fields
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            kind = head & 15
            keep = wanted is None or number in wanted
            value = self.value(kind, None if wanted is None else wanted.get(number), depth, kind in (TRUE, FALSE))
            if keep:
                fields[number] = value

    def value(self, kind: int, wanted: dict[int, Any] | None, depth: int, in_head: bool = False) -> Any:
        if kind in (TRUE, FALSE):
            if in_head:
                return kind == TRUE
            self.at += 1
            return self.data[self.at - 1] == TRUE
        if kind == BYTE:
            self.at += 1
            return self.data[self.at - 1]
        if kind in (I16, I32, I64):
            return self.zigzag()
        if kind == DOUBLE:
            self.at += 8
            return _struct.unpack("<d", self.data[self.at - 8:self.at])[0]
        if kind == BINARY:
            length = self.varint()
            if length > len(self.data) - self.at:
                raise ValueError("a string beyond the end")
            self.at += length
            return self.data[self.at - length:self.at]
        if kind in (LIST, SET):
            head = self.data[self.at]
            self.at += 1
            count = head >> 4 if head >> 4 < 15 else self.varint()
            if count > len(self.data):
                raise ValueError("a list beyond the end")
            return [self.value(head & 15, wanted, depth - 1) for _ in range(count)]
        if kind == MAP:
            count = self.varint()
            if count == 0:
                return {}
            kinds = self.data[self.at]
            self.at += 1
            return {repr(self.value(kinds >> 4, None, depth - 1)): self.value(kinds & 15, None, depth - 1)
                    for _ in range(count)}
        if kind == STRUCT:
            return self.struct(wanted, depth - 1)
        raise ValueError(f"no type has number {kind}")
