"""Files of a listed directory, opened ahead of a program that opens them one after another."""

import gc
import itertools
import os
import random
import threading
import time

import bowwave.fsspec
import numpy as np
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from conftest import Shaped, status_of

FILES, SIZE, LARGE = 60, 40_000, 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("objects")
    for kind, size in (("small", SIZE), ("large", LARGE)):
        (directory / kind).mkdir()
        for at in range(FILES):
            (directory / kind / f"{at}.bin").write_bytes(contents(at, size))
    for at in range(FILES):
        (directory / "parts" / f"day={at}").mkdir(parents=True)
        (directory / "parts" / f"day={at}" / "part-0.bin").write_bytes(contents(at, SIZE))
    for at in range(FILES):
        (directory / "table" / f"day={at % 4}").mkdir(parents=True, exist_ok=True)
        path = directory / "table" / f"day={at % 4}" / f"part-{at}.parquet"
        table = pyarrow.table({f"c{column}": np.arange(8000) + at for column in range(10)})
        pyarrow.parquet.write_table(table, path, row_group_size=4000, compression="none", use_dictionary=False)
    server = Shaped(5, 0, table=f"@{directory}/table", small=f"@{directory}/small", large=f"@{directory}/large", parts=f"@{directory}/parts")
    yield server
    server.end()


def contents(at, size):
    return random.Random(at).randbytes(size)


@pytest.fixture(autouse=True)
def threads_end_with_their_file_system():
    yield
    until = time.monotonic() + 10
    while (alive := [thread for thread in threading.enumerate() if thread.name.startswith("bowwave-siblings")]):
        assert time.monotonic() < until, alive
        gc.collect()
        time.sleep(0.01)


#: Each file system of a test has another cache.
caches = itertools.count(200)


def system(server, **settings):
    # On a busy machine, a second is short.
    settings = {"cache": f"{next(caches)}MiB", "attribute_timeout": 10} | settings
    return bowwave.fsspec.BowwaveFileSystem("s3", server.target, skip_instance_cache=True, **settings)


def number(name):
    return int("".join(filter(str.isdigit, name.split("/")[-1].split(".")[0])) or 0)


class Sent:
    """What the server sends in a context."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.before = self.server.counters_at_rest()
        return self

    def __exit__(self, *exception):
        after = self.server.counters()
        names = "heads", "lists", "gets", "bytes"
        self.heads, self.lists, self.gets, self.bytes = (after[name] - self.before[name] for name in names)


def loop(fs, names, length=-1):
    for name in names:
        with fs.open(name) as file:
            at = int(name.split("/")[-1].split(".")[0])
            expected = contents(at, file.size)
            assert file.read(length) == (expected if length < 0 else expected[:length]), name


@pytest.mark.parametrize("order", ["listing", "numbers", "backwards", "every third"])
def test_a_loop_over_a_listed_directory_finds_its_files_open(server, order):
    fs = system(server)
    names = fs.ls("data/small", detail=False)
    if order == "numbers":
        names.sort(key=number)
    names = {"backwards": names[::-1], "every third": names[::3]}.get(order, names)
    with Sent(server) as sent:
        loop(fs, names)
    # Files that are opened ahead come whole, with no lookup.
    assert sent.heads <= 6
    assert sent.bytes <= (len(names) + 4) * SIZE


def test_a_loop_of_cat_file_finds_its_files_open(server):
    fs = system(server)
    names = fs.ls("data/small", detail=False)
    with Sent(server) as sent:
        for name in names:
            assert fs.cat_file(name) == contents(number(name), SIZE)
    assert (sent.heads, sent.gets) == (0, FILES)
    assert sent.bytes == FILES * SIZE


def test_only_so_much_of_the_next_files_is_read_as_of_those_before(server):
    fs = system(server)
    names = fs.ls("data/large", detail=False)
    with Sent(server) as sent:
        loop(fs, names, 512)
    # A GET of 256 KiB comes with each open by the program; the others are of a page.
    assert sent.bytes < 0.1 * FILES * LARGE


def test_large_files_of_a_directory_that_is_not_listed_are_not_opened_ahead(server):
    fs = system(server)
    with Sent(server) as sent:
        loop(fs, [f"data/large/{at}.bin" for at in range(10)])
    assert sent.heads == 10
    assert sent.bytes == 10 * LARGE


def test_the_store_itself_lists_a_directory_of_small_files_that_are_opened_one_by_one(server):
    fs = system(server)
    with Sent(server) as sent:
        loop(fs, [f"data/small/{at}.bin" for at in range(40)])
    assert sent.heads < 20 and sent.lists <= 2
    assert sent.bytes <= FILES * SIZE


def test_files_are_looked_up_if_their_attributes_may_not_be_a_second_old(server):
    fs = system(server, attribute_timeout=0.9)
    with Sent(server) as sent:
        loop(fs, [f"data/small/{at}.bin" for at in range(10)])
    assert (sent.heads, sent.lists) == (10, 0)
    assert sent.bytes == 10 * SIZE


@pytest.mark.parametrize("settings", [{"attribute_timeout": 0}, {"policy": "none"}])
def test_no_file_is_opened_ahead_without_time_or_policy(server, settings):
    fs = system(server, **settings)
    names = fs.ls("data/small", detail=False)[:10]
    with Sent(server) as sent:
        loop(fs, names)
    assert sent.heads >= 10
    assert sent.bytes == 10 * SIZE


def test_files_in_no_order_are_not_opened_ahead_if_they_would_be_old(server):
    fs = system(server, attribute_timeout=0.02)
    names = fs.ls("data/small", detail=False)
    with Sent(server) as sent:
        loop(fs, random.Random(1).sample(names, FILES // 2))
    assert sent.bytes <= (FILES // 2 + 2) * SIZE


def test_a_shuffled_loop_finds_files_open_if_versions_last(server):
    fs = system(server, attribute_timeout=60)
    names = fs.ls("data/small", detail=False)
    with Sent(server) as sent:
        loop(fs, random.Random(1).sample(names, FILES))
    assert sent.heads < FILES * 0.8
    assert sent.bytes <= (FILES + 2) * SIZE


def test_partitions_of_one_file_each_are_one_directory(server):
    fs = system(server)
    names = fs.find("data/parts")
    with Sent(server) as sent:
        for name in names:
            at = int(name.split("/")[-2].removeprefix("day="))
            with fs.open(name) as file:
                assert file.read() == contents(at, SIZE)
    assert sent.heads <= 6
    assert sent.bytes <= (FILES + 4) * SIZE


def test_a_second_pass_within_the_time_of_a_version_sends_no_request(server):
    fs = system(server, attribute_timeout=60)
    names = fs.ls("data/small", detail=False)
    loop(fs, names)
    with Sent(server) as sent:
        loop(fs, names)
        time.sleep(0.1)
    assert (sent.heads, sent.gets) == (0, 0)


@pytest.mark.parametrize("listing", [
    ["data/small/0.bin", "data/small/1.bin"],
    [{"name": "data/small/0.bin"}],
    [{"name": "data/small/0.bin", "type": "file", "size": None}],
    [{"name": "data/small/0.bin", "type": "file", "size": -1}],
    [{"name": f"data/small/{at}.bin", "type": "file", "size": (1 << 64) - 1} for at in range(10)],
    [{"name": f"data/small/{at}.bin", "type": "file", "size": 1 << 70} for at in range(10)],
    [{"name": "data/small", "type": "directory", "size": 0}, {"name": "data/small/0.bin", "type": "file", "size": SIZE}],
])
def test_a_strange_listing_fails_no_open(server, listing):
    fs = system(server)
    fs.fs.dircache["data/small"] = listing
    fs.fs.dircache["data"] = [{"name": "data/small", "type": "directory", "size": 0}]
    loop(fs, [f"data/small/{at}.bin" for at in range(10)])
    assert fs.isfile("data/small/0.bin")


def test_a_child_of_fork_reads_on(server):
    fs = system(server)
    names = fs.ls("data/small", detail=False)
    loop(fs, names[:20])
    assert status_of(lambda: loop(fs, names[20:])) == 0
    loop(fs, names[20:])


@pytest.fixture
def bucket(served):
    files = {f"f{at:02}__bin": contents(at, SIZE) for at in range(20)}
    server = served(**files)
    options = {"anon": False, "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"},
               "key": server.options["key"], "secret": server.options["secret"]}
    name = server.bucket.removeprefix("s3://")

    def open_system(**settings):
        settings["cache"] = f"{next(caches)}MiB"
        return bowwave.fsspec.BowwaveFileSystem("s3", options, skip_instance_cache=True, **settings)

    return server, name, open_system


def read(fs, name):
    with fs.open(name) as file:
        return file.read()


def test_a_file_that_was_replaced_while_it_was_ahead_is_read_as_it_is_now(bucket):
    _, root, open_system = bucket
    fs = open_system(attribute_timeout=0.2)
    names = sorted(fs.ls(root, detail=False))
    for at, name in enumerate(names[:6]):
        assert read(fs, name) == contents(at, SIZE)
    other = open_system()
    for at in range(6, 20):
        other.pipe_file(names[at], contents(at + 100, SIZE))
    time.sleep(0.3)
    for at, name in enumerate(names[6:], 6):
        assert read(fs, name) == contents(at + 100, SIZE)


def test_a_file_that_the_program_writes_is_not_taken_from_those_ahead(bucket):
    _, root, open_system = bucket
    fs = open_system(attribute_timeout=60)
    names = sorted(fs.ls(root, detail=False))
    for name in names[:6]:
        read(fs, name)
    for at, name in enumerate(names[6:], 6):
        fs.pipe_file(name, contents(at + 100, SIZE))
        assert read(fs, name) == contents(at + 100, SIZE)


def test_a_file_is_read_as_it_was_written_whatever_was_read_during_the_write(bucket):
    _, root, open_system = bucket
    fs = open_system(attribute_timeout=60)
    names = sorted(fs.ls(root, detail=False))
    with fs.open(names[10], "wb") as file:
        file.write(contents(110, SIZE))
        # The tenth is opened ahead, and looked up, in its old version.
        for at, name in enumerate(names[:11]):
            assert read(fs, name) == contents(at, SIZE)
        assert fs.exists(names[10])
    assert read(fs, names[10]) == contents(110, SIZE)


def test_a_file_may_be_closed_by_the_garbage_collector_in_any_call(server):
    fs = system(server)
    names = fs.ls("data/small", detail=False)
    file, files_of = fs.open(names[0]), fs._siblings._files_of

    def collected(directory, deep):
        file.close()
        return files_of(directory, deep)

    fs._siblings._files_of = collected
    loop(fs, names[1:10])


def test_a_new_file_that_the_listing_lacks_does_not_end_the_run_of_the_others(server, monkeypatch):
    monkeypatch.setattr("bowwave._siblings.RELIST_S", 0.0)
    fs = system(server)
    names = fs.ls("data/small", detail=False)
    listing = fs.fs.dircache["data/small"]
    missing = listing.pop(next(at for at, info in enumerate(listing) if info["name"] == names[50]))["name"]
    with Sent(server) as sent:
        for name in names[:40]:
            loop(fs, [name, missing])
    assert sent.heads <= 8


def test_a_listed_file_that_is_gone_is_an_error_only_when_it_is_opened(bucket):
    server, root, open_system = bucket
    fs = open_system()
    names = sorted(fs.ls(root, detail=False))
    os.unlink(server.path / "f10.bin")
    for at, name in enumerate(names):
        if at == 10:
            with pytest.raises(FileNotFoundError, match="f10"):
                fs.open(name)
        else:
            assert read(fs, name) == contents(at, SIZE)


def test_names_that_other_libraries_are_given_begin_with_a_protocol_of_the_file_system(server):
    fs = system(server)
    name = fs.unstrip_protocol("data/small/0.bin")
    assert any(name.startswith(f"{protocol}://") for protocol in fs.protocol)


def test_columns_of_the_next_files_of_a_data_set_are_fetched_before_they_are_opened(server):
    fs = system(server)
    paths = fs.find("data/table")
    for path in paths[:6]:
        with fs.open(path) as file:
            table = pyarrow.parquet.ParquetFile(file).read(["c2", "c7"])
            assert table["c7"][5].as_py() == 5 + number(path)
    until = time.monotonic() + 20
    while True:
        ahead = [ahead.future.result() for ahead in list(fs._siblings._ahead.values())]
        fetched = [{chunk.column for chunk in source.contents.fetched} for source in ahead if source.contents]
        if {"c2", "c7"} in fetched:
            break
        assert time.monotonic() < until, fetched
        time.sleep(0.01)


def test_a_data_set_is_read_by_few_requests_and_right(server):
    fs = system(server)
    data = pyarrow.dataset.dataset("data/table", filesystem=fs, format="parquet", partitioning="hive")
    before = server.counters()
    table = data.to_table(columns=["c1", "c8", "day"])
    assert table.num_rows == FILES * 8000
    assert sorted(table["c8"].to_numpy()[::8000]) == list(range(FILES))
    sent = server.counters()
    # The lookup, the footer, and two columns of two row groups, of each file.
    assert sent["requests"] - before["requests"] <= FILES * 7, sent
