"""Training: shards of WebDataset, and directories of small files."""

import io
import pickle
import tarfile
import threading
import time

import bowwave.tar
import bowwave.torch
import pytest
from conftest import Shaped


def opened(shards, **options):
    """In place of WebDataset's stage that opens URLs."""
    for shard in bowwave.tar.shards((shard["url"] for shard in shards), **options):
        yield {"url": shard.name, "stream": shard}


def test_the_next_shards_of_webdataset_are_in_flight(tmp_path):
    import webdataset

    shards = {}
    for number in range(4):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w") as archive:
            for sample in range(5):
                for kind, data in [("cls", b"%d" % sample), ("bin", bytes([number, sample]) * 200_000)]:
                    entry = tarfile.TarInfo(f"{number}-{sample}.{kind}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
        shards[path.name] = f"@{path}"
    server = Shaped(first_byte_ms=200, **shards)
    try:
        def samples(ahead):
            options = {**server.options, "cache": f"{64 + ahead}MiB", "ahead": ahead}
            stages = webdataset.tariterators
            dataset = webdataset.DataPipeline(
                webdataset.SimpleShardList([f"s3://data/{name}" for name in shards]), webdataset.split_by_worker,
                lambda urls: opened(urls, **options), stages.tar_file_expander, stages.group_by_keys,
                webdataset.decode())
            begun, before = time.monotonic(), server.counters()["bytes"]
            seen = [(sample["__key__"], sample["cls"], sample["bin"]) for sample in dataset]
            assert seen == [(f"{number}-{at}", at, bytes([number, at]) * 200_000)
                            for number in range(4) for at in range(5)]
            return time.monotonic() - begun, server.counters()["bytes"] - before

        alone, sent = samples(ahead=0)
        assert alone > 4 * 0.2, "a wait for each shard"
        together, others = samples(ahead=3)
        assert together < alone - 2 * 0.2, "the shards wait at the same time"
        whole = sum((tmp_path / name).stat().st_size for name in shards)
        assert sent == others == whole, "and no byte is requested twice"
    finally:
        server.end()


def test_a_directory_is_its_files(tmp_path, served):
    images = {"cats/1.jpg": b"cat", "cats/a b%20c.jpg": b"other", "dogs/2#.jpg": b"dog", "top.jpg": b"top"}
    server = served()
    for root in (tmp_path / "images", server.path / "images"):
        for name, data in images.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
    local = tmp_path / "images"
    for url, options in [(local, {}), (f"file://{local}/", {}), (f"emulate:s3,latency=1ms:file://{local}", {}),
                         (server.bucket + "images/", server.options)]:
        files = pickle.loads(pickle.dumps(bowwave.torch.Files(url, **options)))
        assert [files[at] for at in range(len(files))] == [images[name] for name in sorted(images)], url
        read = [index for batch in bowwave.torch.PlannedSampler([2, 0, 3, 1], 2) for index in batch]
        assert [files[index] for index in read] == [images[sorted(images)[index]] for index in (2, 0, 3, 1)]
    (tmp_path / "empty").mkdir()
    for url, options in [(tmp_path / "empty", {}), (tmp_path / "none", {}), (server.bucket + "none", server.options)]:
        with pytest.raises(FileNotFoundError):
            bowwave.torch.Files(url, **options)


def test_the_files_of_a_directory_are_fetched_in_the_order_of_the_sampler(tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.jpg").write_bytes(bytes([number]) * 10_000)
    files = bowwave.torch.Files(f"emulate:s3,latency=100ms:file://{tmp_path}")
    begun = time.monotonic()
    for batch in bowwave.torch.PlannedSampler(range(39, -1, -1), batch_size=8):
        for index in batch:
            assert files[index] == bytes([index]) * 10_000
    assert time.monotonic() - begun < 2, "forty waits one after another are 4 s"


def test_a_reader_waits_for_no_lookups_of_others():
    server = Shaped(first_byte_ms=300, **{str(number): 1000 for number in range(300)})
    try:
        files = bowwave.torch.Files([f"s3://data/{number}" for number in range(300)], **server.options)
        # Ten rounds of lookups.
        files._ahead.announce(files.urls[1:])
        begun = time.monotonic()
        assert len(files[0]) == 1000, "not announced"
        assert len(files[299]) == 1000, "announced last"
        assert time.monotonic() - begun < 2
        assert threading.active_count() < 80
    finally:
        server.end()
