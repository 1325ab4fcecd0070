"""safetensors: tensors by name, all wanted ones in flight at once.

>>> import bowwave.safetensors
>>> weights = bowwave.safetensors.load_file("s3://bucket/model.safetensors")           # numpy arrays by name
>>> weights["embed.weight"].shape
(20, 4)
>>> with bowwave.safetensors.safe_open("s3://bucket/model.safetensors") as file:       # some of them, in any order
...     file.plan(["head.weight", "embed.weight"])
...     head = file.get_tensor("head.weight")

With `framework="torch"` they are tensors of torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from math import prod
from typing import Any, NamedTuple

from ._files import File
from ._files import open as _open
from ._map import Map, _copied
from ._progress import bar

#: Bytes that are read first. The header of most models is smaller.
HEAD = 256 << 10
#: Longest header, as in the format's own library.
HEADER_MAX = 100_000_000

#: Bits, and the names of numpy and torch.
DTYPES: dict[str, tuple[int, str | None, str | None]] = {
    "BOOL": (8, "bool", "bool"), "U8": (8, "uint8", "uint8"), "I8": (8, "int8", "int8"),
    "U16": (16, "uint16", "uint16"), "I16": (16, "int16", "int16"), "F16": (16, "float16", "float16"),
    "BF16": (16, None, "bfloat16"), "U32": (32, "uint32", "uint32"), "I32": (32, "int32", "int32"),
    "F32": (32, "float32", "float32"), "U64": (64, "uint64", "uint64"), "I64": (64, "int64", "int64"),
    "F64": (64, "float64", "float64"), "C64": (64, "complex64", "complex64"), "F8_E4M3": (8, None, "float8_e4m3fn"),
    "F8_E5M2": (8, None, "float8_e5m2"), "F8_E4M3FNUZ": (8, None, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, None, "float8_e5m2fnuz"), "F8_E8M0": (8, None, "float8_e8m0fnu"),
}


class Tensor(NamedTuple):
    """A tensor: bytes of the file from `start` to `end`."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def header_of(file: File) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file by name, in the order of their bytes, and its metadata.

    Raises `ValueError` if it is no safetensors file."""
    head = file.pread(0, HEAD)
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > min(HEADER_MAX, file.size - 8):
        raise ValueError(f"{file.name}: no safetensors file: a header of {length} bytes in a file of {file.size}")
    if length + 8 > len(head):
        head = file.pread(0, length + 8)
    try:
        entries = json.loads(head[8:8 + length])
        metadata = entries.pop("__metadata__", {})
        tensors = {}
        for name, entry in entries.items():
            start, end = entry["data_offsets"]
            tensor = Tensor(entry["dtype"], tuple(entry["shape"]), 8 + length + start, 8 + length + end)
            _check(file, name, tensor)
            tensors[name] = tensor
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{file.name}: the header of the safetensors file is damaged: {error!r}") from None
    return dict(sorted(tensors.items(), key=lambda item: item[1].start)), metadata


def _check(file: File, name: str, tensor: Tensor) -> None:
    bits = DTYPES.get(tensor.dtype, (None,))[0]
    inside = 0 <= tensor.start <= tensor.end <= file.size
    if not inside or (bits is not None and prod(tensor.shape) * bits != 8 * (tensor.end - tensor.start)):
        raise ValueError(f"{file.name}: tensor {name!r} has {tensor.end - tensor.start} bytes at {tensor.start}, and "
                         f"shape {tensor.shape} of {tensor.dtype} in a file of {file.size} bytes")


def _array(buffer: Any, tensor: Tensor, name: str, framework: str, offset: int) -> Any:
    bits, numpy_name, torch_name = DTYPES.get(tensor.dtype, (0, None, None))
    count = prod(tensor.shape)
    if framework == "torch":
        import torch

        if torch_name is None or not hasattr(torch, torch_name):
            raise ValueError(f"tensor {name!r} is of {tensor.dtype}, which this torch does not have")
        dtype = getattr(torch, torch_name)
        if count == 0:
            return torch.empty(tensor.shape, dtype=dtype)
        return torch.frombuffer(buffer, dtype=dtype, count=count, offset=offset).reshape(tensor.shape)
    if framework not in ("numpy", "np"):
        raise ValueError(f"framework is {framework!r}, but must be 'numpy' or 'torch'")
    import numpy

    if numpy_name is None:
        raise ValueError(f"tensor {name!r} is of {tensor.dtype}, which numpy does not have: use framework='torch'")
    return numpy.frombuffer(buffer, dtype=numpy_name, count=count, offset=offset).reshape(tensor.shape)


class safe_open:  # noqa: N801
    """As `safetensors.safe_open`, for a URL."""

    def __init__(self, url: str | os.PathLike[str], framework: str = "numpy", **options: Any) -> None:
        self.framework = framework
        self.file = _open(url, **options)
        self.tensors, self._metadata = header_of(self.file)

    def keys(self) -> list[str]:
        """The names, in alphabetical order."""
        return sorted(self.tensors)

    def offset_keys(self) -> list[str]:
        """The names, in the order of their bytes."""
        return list(self.tensors)

    def metadata(self) -> dict[str, str]:
        """The file's own text."""
        return self._metadata

    def plan(self, names: Iterable[str] | None = None) -> None:
        """Announces tensors in the order of their use, by default all in the order of their bytes."""
        spans = [self._tensor(name) for name in (self.tensors if names is None else names)]
        self.file.plan([(tensor.start, tensor.end) for tensor in spans])

    def get_tensor(self, name: str) -> Any:
        """A tensor, in memory of its own."""
        tensor = self._tensor(name)
        data = bytearray(tensor.end - tensor.start)
        if len(data) > 1 << 20:
            self.file.plan([(tensor.start, tensor.end)])
        self.file.preadinto(tensor.start, data)
        return _array(data, tensor, name, self.framework, 0)

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise ValueError(f"{self.file.name}: no tensor {name!r}; it has {', '.join(self.keys()[:20])}")
        return self.tensors[name]

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


def load_file(url: str | os.PathLike[str], framework: str = "numpy", names: Iterable[str] | None = None, *,
              progress: bool = False, **options: Any) -> dict[str, Any]:
    """Tensors by name: of the whole file, in one piece of memory that they share; or only those of `names`.

    `progress` shows a bar, if tqdm is installed."""
    with safe_open(url, framework, **options) as file:
        if names is not None:
            names = list(names)
            file.plan(names)
            lengths = {name: file._tensor(name).end - file._tensor(name).start for name in names}
            tensors = {}
            with bar(sum(lengths.values()), "B", progress) as shown:
                for name, length in lengths.items():
                    tensors[name] = file.get_tensor(name)
                    shown.update(length)
            return tensors
        memory: Map = _copied(file.file._source, progress=progress)
        return {name: _array(memory, tensor, name, framework, tensor.start) for name, tensor in file.tensors.items()}
