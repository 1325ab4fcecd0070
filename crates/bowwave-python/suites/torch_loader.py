"""`DataLoader` of torch over `bowwave.torch`: right bytes from 8 workers that are forked and spawned, and no hang.

In each round the workers read all files. Workers that are forked, by this process or by a fork server, run one round. A
spawned worker, which imports torch, runs ten.

    python3 torch_loader.py [ROUNDS]      with PYTHONPATH at the package, by tools/python_suites.sh

It is a program and no test of pytest, since it runs in the interpreter that has torch, such as Debian's.
"""

import faulthandler
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import weakref
from pathlib import Path

import bowwave
import bowwave.torch
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

WORKERS = 8
#: Seconds for a batch, before a loader counts as stuck. On a busy machine, 8 workers that only import torch have taken
#: more than 40 s, and the first batch of spawned ones has taken longer than this.
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


class Slowest:
    """The longest waits for a batch, in seconds: the first one, for which workers start, and the others."""

    def __init__(self):
        self.first = self.other = 0.0

    def over(self, loader):
        """The batches of a loader."""
        begun = time.monotonic()
        iterator = iter(loader)
        started = iterator not in Slowest.known
        Slowest.known.add(iterator)
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                return
            except RuntimeError:
                # A loader that is stuck: the stacks of its workers, by PYTHONFAULTHANDLER.
                for worker in iterator._workers:
                    os.kill(worker.pid, signal.SIGABRT)
                    worker.join(10)
                raise
            waited = time.monotonic() - begun
            if started:
                self.first = max(self.first, waited)
            else:
                self.other = max(self.other, waited)
            started = False
            yield batch
            begun = time.monotonic()


Slowest.known = weakref.WeakSet()


def check(urls, method, rounds, starts):
    """Reads all files in each round. The workers of a start run `rounds / starts` rounds."""
    files = bowwave.torch.Files(urls)
    assert files[3][0] == 3
    slowest, begun = Slowest(), time.monotonic()
    # Threads of the parent are in the middle of reads when it forks.
    with bowwave.open(urls[5]) as opened:
        for start in range(starts):
            sampler = bowwave.torch.PlannedSampler(RandomSampler(files), batch_size=7, workers=WORKERS)
            loader = DataLoader(Numbers(files), batch_sampler=sampler, num_workers=WORKERS, timeout=SECONDS,
                                multiprocessing_context=method, persistent_workers=rounds > starts)
            for number in range(start * rounds // starts, (start + 1) * rounds // starts):
                opened.advise("dontneed")
                seen = []
                for indices, first, lengths in slowest.over(loader):
                    assert torch.equal(indices % 251, first), f"{method}, round {number}"
                    assert torch.equal(lengths, 1000 + indices), f"{method}, round {number}"
                    seen += indices.tolist()
                assert sorted(seen) == list(range(len(urls))), f"{method}, round {number}: {len(seen)} files"
                assert opened.pread(0, 1) == b"\5"
            del loader
    print(f"{method}: {rounds} rounds, {WORKERS} workers started {starts} times, {time.monotonic() - begun:.0f} s; "
          f"slowest first batch {slowest.first:.1f} s, slowest other {slowest.other:.1f} s", flush=True)


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    starts = -(-rounds // 10)
    # The server imports once what its workers need, such as torch; a spawned worker imports all by itself.
    multiprocessing.set_forkserver_preload(["torch", "bowwave.torch"])
    with tempfile.TemporaryDirectory() as directory:
        urls = []
        for number in range(100):
            path = Path(directory) / str(number)
            path.write_bytes(bytes([number % 251]) * (1000 + number))
            urls.append(f"emulate:s3,latency=1ms:file://{path}")
        for method, count in [("fork", rounds), ("forkserver", rounds), ("spawn", starts)]:
            check(urls, method, rounds, count)
        guide = Path(__file__).parents[3] / "docs/guide-python.md"
        blocks = re.findall(r"```python\n(.*?)```", guide.read_text(), re.S)
        block, = (block for block in blocks if "torch" in block)
        names = {"urls": urls}
        exec(compile(block.replace("workers=8", "workers=2"), guide.name, "exec"), names)  # noqa: S102
        batch = next(iter(names["loader"]))
        assert len(batch) == 32 and set(batch) <= {names["files"][index] for index in range(100)}
        print("the block of the guide runs")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # For this process and forked workers, and for the others.
    faulthandler.enable()
    os.environ.setdefault("PYTHONFAULTHANDLER", "1")
    main()
