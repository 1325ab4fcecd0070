"""Shards of a data set, as of WebDataset: the next ones are in flight while one is read.

>>> import tarfile, bowwave.tar
>>> for shard in bowwave.tar.shards(f"s3://bucket/train-{n:05}.tar" for n in range(3)):
...     for member in tarfile.open(fileobj=shard, mode="r|"):
...         print(member.name, member.size)
0.jpg 1000
1.jpg 1000
2.jpg 1000

WebDataset reads them with this stage in place of its own that opens URLs:

>>> import webdataset
>>> def opened(shards):
...     for shard in bowwave.tar.shards(shard["url"] for shard in shards):
...         yield {"url": shard.name, "stream": shard}
>>> urls = [f"s3://bucket/train-{n:05}.tar" for n in range(3)]
>>> dataset = webdataset.DataPipeline(
...     webdataset.SimpleShardList(urls), webdataset.split_by_worker, opened,
...     webdataset.tariterators.tar_file_expander, webdataset.tariterators.group_by_keys)
>>> [sample["__key__"] for sample in dataset]
['0', '1', '2']
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ._ahead import Ahead, Opener
from ._files import File

#: Shards in flight behind the one that is read.
AHEAD = 2


def shards(urls: Iterable[str | os.PathLike[str]], ahead: int = AHEAD, **options: Any) -> Iterator[File]:
    """Opens files one after another, and `ahead` of them before their turn; each is closed when the next one is asked for."""
    if ahead < 0:
        raise ValueError(f"ahead is {ahead}, but must be at least 0")
    opener = Ahead(Opener(options))
    rest = iter(urls)
    waiting: deque[str] = deque()

    def more() -> None:
        while len(waiting) < ahead + 1:
            url = next(rest, None)
            if url is None:
                return
            waiting.append(os.fspath(url))
            if len(waiting) > 1:
                opener.announce([waiting[-1]])

    more()
    while waiting:
        url = waiting.popleft()
        with opener.open(url) as file:
            file.plan([(0, file.size)])
            more()
            yield file
            file.end_plan()
        opener.forget(url)
