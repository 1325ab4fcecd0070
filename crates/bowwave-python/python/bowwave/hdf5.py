"""HDF5 and NetCDF4: metadata by blocks.

The metadata of such a file lie scattered in small pieces, each of which names the place of the next. Blocks around them are
fetched at once. Arrays are read ahead as any file. A file whose name ends in `.h5`, `.hdf5`, `.nc` or `.nc4` does so by
itself; otherwise `bowwave.hdf5.open(url)`, for `h5py.File` and `xarray.open_dataset`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._files import File, source_of

if TYPE_CHECKING:
    from .parquet import Readable

#: Bytes of a block. Smaller: more requests; larger: more unused bytes between pieces of metadata.
BLOCK = 64 << 10
#: A longer read is no metadata.
SMALL = 16 << 10


class Watcher:
    """Fetches a block around each small read elsewhere."""

    #: Windows of 128 KiB: variables are often smaller than what is read ahead of a long file. Larger ones read more behind
    #: the end of each variable, and are no faster; smaller ones take more requests.
    SETTINGS = {"ra_pages": 32}
    #: The superblock and what lies beside it.
    FIRST = (0, BLOCK)

    def __init__(self) -> None:
        self.known: set[int] = set()

    def opened(self, file: Readable) -> None:
        pass

    def before(self, file: Readable, offset: int, length: int) -> None:
        if length > SMALL:
            return
        block = offset // BLOCK
        if block in self.known:
            return
        self.known.add(block)
        start = block * BLOCK
        file.advise("willneed", start, min(BLOCK, file.size - start))  # type: ignore[attr-defined]


def open(url: str | os.PathLike[str], **options: Any) -> File:  # noqa: A001
    """As `bowwave.open`, for a file in this format whatever its name is."""
    return File(source_of(url, {**Watcher.SETTINGS, **options}), watcher=Watcher())
