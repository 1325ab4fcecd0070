"""Training: the sampler tells which files come next, and the workers fetch them meanwhile.

>>> import random, bowwave.torch
>>> files = bowwave.torch.Files(f"s3://bucket/{n}.jpg" for n in range(3))      # `files[index]` is the bytes of a URL
>>> order = random.Random(1).sample(range(3), 3)                               # or a RandomSampler of torch
>>> sampler = bowwave.torch.PlannedSampler(order, batch_size=2, workers=8)
>>> [[len(files[index]) for index in batch] for batch in sampler]
[[1000, 1000], [1000]]

`DataLoader(files, batch_sampler=sampler, num_workers=8)` reads the same batches in its workers, which may be forked or
spawned. To decode, give the loader a data set of your own whose `__getitem__(index)` decodes `files[index]`. Torch itself
is not imported.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any
from urllib.parse import quote

from . import _stores
from ._ahead import LOOKUPS, Ahead, Opener
from ._files import WHOLE
from ._threads import Threads

#: Batches of one worker that are announced.
DEPTH = 2


class PlannedIndex(int):
    """An index that knows which ones the same worker gets next."""

    ahead: tuple[int, ...]

    def __new__(cls, value: int, ahead: Iterable[int] = ()) -> PlannedIndex:
        index = super().__new__(cls, value)
        index.ahead = tuple(ahead)
        return index

    def __reduce__(self) -> tuple[type[PlannedIndex], tuple[int, tuple[int, ...]]]:
        return PlannedIndex, (int(self), self.ahead)


class PlannedSampler:
    """A batch sampler whose indices name those that follow.

    `sampler` gives indices; `workers` is the loader's `num_workers`. A loader gives batches to its workers in turns, so
    that the batches of one worker are `workers` apart. `depth` of them are announced.
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, workers: int = 0, drop_last: bool = False,
                 depth: int = DEPTH) -> None:
        for name, value, least in [("batch_size", batch_size, 1), ("workers", workers, 0), ("depth", depth, 0)]:
            if value < least:
                raise ValueError(f"{name} is {value}, but must be at least {least}")
        self.sampler, self.batch_size, self.drop_last, self.depth = sampler, batch_size, drop_last, depth
        self.step = max(1, workers)

    def __iter__(self) -> Iterator[list[PlannedIndex]]:
        batches: deque[list[int]] = deque()
        rest = self._batches()
        exhausted = False
        while True:
            while not exhausted and len(batches) <= self.depth * self.step:
                batch = next(rest, None)
                exhausted = batch is None
                if batch is not None:
                    batches.append(batch)
            if not batches:
                return
            ahead = [index for at in range(self.step, len(batches), self.step) for index in batches[at]]
            batch = batches.popleft()
            # The rest of the batch is next of all.
            yield [PlannedIndex(index, [*batch[1:], *ahead] if at == 0 else ()) for at, index in enumerate(batch)]

    def _batches(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(int(index))
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        if not isinstance(self.sampler, Sized):
            raise TypeError("the sampler has no length")
        count = len(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class Files(Sequence[bytes]):
    """Small files by index: images, samples. Those that an index announces are fetched meanwhile.

    `urls` names them, or one directory: all files below it, in the order of their names. The attribute `urls` has the
    URL of each. Options are the settings of `bowwave.open`.

    Raises `FileNotFoundError` for a directory without files.
    """

    def __init__(self, urls: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], **options: Any) -> None:
        named = _below(os.fspath(urls), options) if isinstance(urls, str | os.PathLike) else urls
        self.urls = [os.fspath(url) for url in named]
        self._ahead = Ahead(Opener(options), first=WHOLE)

    def __len__(self) -> int:
        return len(self.urls)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]
        ahead = getattr(index, "ahead", ())
        url = self.urls[index]
        self._ahead.announce(self.urls[other] for other in ahead)
        source = self._ahead.source(url, WHOLE)
        handle = source.handle()
        data = handle.pread(0, handle.size)
        self._ahead.forget(url)
        return data


def _below(url: str, options: dict[str, Any]) -> list[str]:
    """The URLs of all files below a directory, sorted."""
    url = url.rstrip("/") + "/"
    access, threads = _stores.access_of(options), Threads(LOOKUPS, "bowwave-list")
    place = _stores.place_of(url)
    store, root = _stores.store_of(place.store, access), place.path.rstrip("/")
    # Keys of buckets and paths are names as they are.
    is_quoted = "://" in url and url.partition(":")[0] not in _stores.BUCKETS
    files, directories = [], [""]
    while directories:
        listed = [threads.submit(store.list, f"{root}/{directory}".strip("/")) for directory in directories]
        entries = [(directory + name, kind) for directory, names in zip(directories, listed, strict=True)
                   for name, kind, *_ in names.result()]
        directories = [f"{name}/" for name, kind in entries if kind == "directory"]
        files += [url + (quote(name) if is_quoted else name) for name, kind in entries if kind != "directory"]
    if not files:
        raise FileNotFoundError(f"{url}: no files below this directory")
    return sorted(files)
