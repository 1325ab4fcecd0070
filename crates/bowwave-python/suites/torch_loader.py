"""`DataLoader` of torch over `bowwave.torch`: right bytes from 8 workers that are forked and spawned, and no hang.

    python3 torch_loader.py [ROUNDS]      with PYTHONPATH at the package, by tools/python_suites.sh

It is a program and no test of pytest, since it runs in the interpreter that has torch, such as Debian's.
"""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

import bowwave
import bowwave.torch
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

WORKERS = 8
SECONDS = 60


class Numbers(Dataset):
    """The first byte of each file, and its length."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        data = self.files[index]
        return int(index), data[0], len(data)


def check(urls, method, rounds):
    files = bowwave.torch.Files(urls)
    # Threads of the parent are in the middle of reads when it forks.
    assert files[3][0] == 3
    with bowwave.open(urls[5]) as opened:
        for number in range(rounds):
            opened.advise("dontneed")
            sampler = bowwave.torch.PlannedSampler(RandomSampler(files), batch_size=7, workers=WORKERS)
            loader = DataLoader(Numbers(files), batch_sampler=sampler, num_workers=WORKERS, timeout=SECONDS,
                                multiprocessing_context=method)
            seen = []
            for indices, first, lengths in loader:
                assert torch.equal(indices % 251, first), f"{method}, round {number}"
                assert torch.equal(lengths, 1000 + indices), f"{method}, round {number}"
                seen += indices.tolist()
            assert sorted(seen) == list(range(len(urls))), f"{method}, round {number}: {len(seen)} files"
            assert opened.pread(0, 1) == b"\5"


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as directory:
        urls = []
        for number in range(100):
            path = Path(directory) / str(number)
            path.write_bytes(bytes([number % 251]) * (1000 + number))
            urls.append(f"emulate:s3,latency=1ms:file://{path}")
        # A spawned worker imports torch, which takes a second or more.
        for method, count in [("fork", rounds), ("spawn", -(-rounds // 100)), ("forkserver", -(-rounds // 100))]:
            begun = time.monotonic()
            check(urls, method, count)
            print(f"{method}: {count} rounds of {WORKERS} workers, {time.monotonic() - begun:.0f} s", flush=True)
        guide = Path(__file__).parents[3] / "docs/guide-python.md"
        blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.S)
        block, = (block for block in blocks if "torch" in block)
        names = {"urls": urls}
        exec(compile(block.replace("workers=8", "workers=2"), guide.name, "exec"), names)  # noqa: S102
        batch = next(iter(names["loader"]))
        assert len(batch) == 32 and all(data in {names["files"][index] for index in range(100)} for data in batch)
        print("the block of the guide runs")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
