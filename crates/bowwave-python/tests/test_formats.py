"""Formats ahead of their readers."""

import json
import pickle
import random
import struct
import tarfile
import threading
import time

import bowwave
import bowwave.arrow
import bowwave.gguf
import bowwave.parquet
import bowwave.safetensors
import bowwave.tar
import bowwave.torch
import bowwave.zarr
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import zarr
from conftest import CachedFiles, Shaped

COLUMNS = 6
GROUPS = 5


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    rows = 20_000
    columns = {f"c{number}": np.arange(rows) * (number + 1.5) for number in range(COLUMNS)}
    columns["nested"] = [{"x": at, "y": [at, at]} for at in range(rows)]
    table = pa.table(columns)
    pq.write_table(table, path, row_group_size=rows // GROUPS, compression="snappy")
    return path, table


@pytest.fixture(autouse=True)
def other_files_are_forgotten():
    bowwave._columns._known.clear()
    yield
    bowwave._columns._known.clear()


def test_columns_of_the_last_files_are_planned_together(parquet, monkeypatch):
    path, _ = parquet
    planned = []
    plan = bowwave.File.plan
    monkeypatch.setattr(bowwave.File, "plan", lambda self, ranges: planned.append(list(ranges)) or plan(self, planned[-1]))

    def read(*columns):
        with bowwave.open(path) as file:
            chunks = {(chunk.row_group, chunk.column): chunk for chunk in bowwave.parquet.read_chunks(file)}
            names = {(chunk.start, chunk.end): chunk.column for chunk in chunks.values()}
            planned.clear()
            for group in range(GROUPS):
                for column in columns:
                    chunk = chunks[group, column]
                    file.pread(chunk.start, chunk.end - chunk.start)
            return [{names[place] for place in places} for places in planned]

    assert read("c0", "c4") == [{"c0"}, {"c4"}]
    assert read("c0", "c4") == [{"c0", "c4"}]
    assert read("c1") == [{"c1"}], "other columns"
    assert read("c0") == [{"c0", "c4"}], "as the last file with c0"
    assert read("c0", "c1") == [{"c0"}, {"c1"}], "as the last file with c0, and none with both"


def test_columns_are_expected_if_most_of_them_and_of_what_was_fetched_was_used(parquet):
    chunks = bowwave.parquet.read_chunks(bowwave.open(parquet[0]))
    columns = bowwave._columns.Columns()

    def close(names, groups=GROUPS, fetched=()):
        use = bowwave._columns.Use(chunks)
        use.add([chunk for chunk in chunks if chunk.column in names and chunk.row_group < groups])
        columns.closed(use, {chunk for chunk in chunks if chunk.column in fetched})
        return columns.next()

    assert columns.next() == set()
    assert close({"c0", "c4"}) == {"c0", "c4"}
    assert close({"c0", "c1"}) == {"c0"}, "two files share it"
    assert close({"c1"}, 1) == set(), "row groups are chosen"
    close({"c0"})
    assert close({"c0"}) == {"c0"}
    columns.closed(None, {chunk for chunk in chunks if chunk.column == "c0"})
    assert columns.next() == set(), "what was fetched was not used"
    assert close({"c0"}, fetched={"c0"}) == {"c0"}, "and now half of it was"
    columns.closed(None, {chunk for chunk in chunks if chunk.column == "c0"})
    assert [close({"c0"}) for _ in range(3)][-1] == {"c0"}, "old waste is forgotten"


def test_chunks_are_those_that_pyarrow_finds(parquet):
    path, _ = parquet
    meta = pq.read_metadata(path)
    expected = []
    for group in range(meta.num_row_groups):
        for number in range(meta.num_columns):
            column = meta.row_group(group).column(number)
            start = column.data_page_offset
            if column.has_dictionary_page:
                start = min(start, column.dictionary_page_offset)
            expected.append((start, start + column.total_compressed_size, group, column.path_in_schema))
    assert [tuple(chunk) for chunk in bowwave.parquet.read_chunks(bowwave.open(path))] == expected


def test_a_plan_has_the_columns_and_row_groups_asked_for(parquet):
    path, table = parquet
    with bowwave.open(path) as file:
        chunks = bowwave.parquet.plan(file, ["c1", "nested"], [0, 3])
        assert {chunk.column for chunk in chunks} == {"c1", "nested.x", "nested.y.list.element"}
        assert {chunk.row_group for chunk in chunks} == {0, 3}
        assert pq.read_table(file, columns=["c1"])["c1"] == table["c1"]
        with pytest.raises(ValueError, match="no column 'c9'; the file has c0"):
            bowwave.parquet.plan(file, ["c9"])


def test_a_reader_of_columns_is_planned_without_a_word(parquet):
    path, table = parquet
    with bowwave.open(f"emulate:s3,latency=20ms:file://{path}", policy="none") as file:
        begun = file.stats()
        assert pq.read_table(file, columns=["c0", "c4"]).equals(table.select(["c0", "c4"]))
        stats = file.stats()
        planned = stats["pages_planned"] - begun["pages_planned"]
        assert planned > 0
        chunks = [chunk for chunk in bowwave.parquet.read_chunks(file) if chunk.column in ("c0", "c4")]
        wanted = sum(chunk.end - chunk.start for chunk in chunks)
        assert stats["pages_filled"] * 4096 < 1.3 * wanted + 2 * bowwave.parquet.TAIL


def test_a_plan_of_the_program_is_not_ended_by_the_one_of_the_format(parquet, monkeypatch):
    path, table = parquet
    ended = []
    # The file is small: what is planned would be in flight together.
    monkeypatch.setattr(bowwave.parquet, "IN_FLIGHT", 0)
    monkeypatch.setattr(bowwave.File, "end_plan", lambda self: ended.append(self._live().end_plan()))
    for is_planned in (True, False):
        ended.clear()
        with bowwave.open(path) as file:
            if is_planned:
                bowwave.parquet.plan(file, ["c0", "c4"])
            assert pq.read_table(file, columns=["c0", "c4"]).equals(table.select(["c0", "c4"]))
        assert bool(ended) is not is_planned, "the end of a plan cancels its requests in flight"


def test_row_groups_in_any_order_are_planned_and_nothing_in_flight_is_cancelled(parquet, monkeypatch):
    path, _ = parquet
    planned, ended = [], []
    plan = bowwave.File.plan
    monkeypatch.setattr(bowwave.File, "plan", lambda self, ranges: planned.append(list(ranges)) or plan(self, planned[-1]))
    monkeypatch.setattr(bowwave.File, "end_plan", lambda self: ended.append(self))
    with bowwave.open(path) as file:
        chunks = {(chunk.row_group, chunk.column): chunk for chunk in bowwave.parquet.read_chunks(file)}
        planned.clear()
        # As a scan with several threads: the second column is first read in a later row group.
        for place in [(1, "c0"), (3, "c4"), (1, "c4"), (0, "c0"), (2, "c4")]:
            chunk = chunks[place]
            file.pread(chunk.start, chunk.end - chunk.start)
    expected = [[(group, "c0") for group in range(1, GROUPS)], [(group, "c4") for group in range(1, GROUPS)],
                [(0, "c0"), (0, "c4")]]
    assert planned == [[(chunks[place].start, chunks[place].end) for place in places] for places in expected]
    assert not ended


def test_damaged_footers_are_value_errors(parquet, tmp_path):
    path, _ = parquet
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - length:-8]
    for at in range(0, len(footer), 97):
        damaged = bytearray(footer)
        damaged[at] ^= 0x55
        try:
            bowwave.parquet.chunks_of(bytes(damaged))
        except ValueError:
            pass
    for cut in (0, 1, 7, len(footer) // 2, len(footer) - 1):
        with pytest.raises(ValueError):
            bowwave.parquet.chunks_of(footer[:cut])
    for bad in (b"", b"x" * 100, data[:-1], data[:-8] + b"\xff\xff\xff\x7fPAR1"):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(ValueError):
            bowwave.parquet.plan(bowwave.open(tmp_path / "bad"))


def test_a_damaged_footer_fails_no_read_of_the_file(parquet, tmp_path):
    data = parquet[0].read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    for at in range(len(data) - 8 - length, len(data) - 8, 53):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        (tmp_path / "damaged.parquet").write_bytes(damaged)
        with bowwave.open(tmp_path / "damaged.parquet") as file:
            assert file.pread(4, 1000) == damaged[4:1004] and file.read() == damaged, at


TENSORS = {"b": np.arange(60_000, dtype="<f4").reshape(200, 300), "a": np.arange(7, dtype="<i8"),
           "empty": np.zeros((0, 4), "<f2"), "half": np.arange(50_000, dtype="<f2")}


def write_safetensors(path, tensors=TENSORS):
    header, data = {"__metadata__": {"format": "np"}}, b""
    names = {"float32": "F32", "int64": "I64", "float16": "F16"}
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_tensors_of_safetensors(tmp_path):
    path = tmp_path / "model.safetensors"
    write_safetensors(path)
    loaded = bowwave.safetensors.load_file(path)
    assert loaded.keys() == TENSORS.keys()
    for name, array in TENSORS.items():
        assert np.array_equal(loaded[name], array) and loaded[name].dtype == array.dtype
    assert loaded["b"].flags.writeable
    with bowwave.safetensors.safe_open(path) as file:
        assert file.keys() == ["a", "b", "empty", "half"] and file.metadata() == {"format": "np"}
        assert file.offset_keys() == list(TENSORS)
        file.plan(reversed(file.offset_keys()))
        assert np.array_equal(file.get_tensor("half"), TENSORS["half"])
        with pytest.raises(ValueError, match="no tensor 'c'; it has a, b"):
            file.get_tensor("c")
    some = bowwave.safetensors.load_file(path, names=["a"])
    assert list(some) == ["a"] and np.array_equal(some["a"], TENSORS["a"])


def test_partial_loads_fetch_only_their_tensors(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {f"t{at}": np.full(1 << 20, at, "<f4") for at in range(8)}
    write_safetensors(path, tensors)
    with bowwave.safetensors.safe_open(f"emulate:s3:file://{path}") as file:
        assert file.get_tensor("t5")[0] == 5
        assert file.file.stats()["pages_filled"] * 4096 < (4 << 20) + bowwave.safetensors.HEAD + (1 << 20)


@pytest.mark.parametrize("data", [
    b"", b"1234567", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 3) + b"{]}",
    *(struct.pack("<Q", len(text)) + text for text in (
        b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}}', b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[8,0]}}')),
])
def test_damaged_safetensors_are_value_errors(data, tmp_path):
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(ValueError):
        bowwave.safetensors.safe_open(tmp_path / "bad")


def gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    pairs = [("general.architecture", 8, text("llama")), ("general.alignment", 4, struct.pack("<I", 64)),
             ("tokens", 9, struct.pack("<IQ", 8, 3) + text("a") + text("bc") + text("")),
             ("scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<2f", 1, 2))]
    tensors = [("x", [32, 2], 8, 0), ("y", [5], 0, 128)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(text(name) + struct.pack("<I", kind) + value for name, kind, value in pairs)
    for name, shape, kind, offset in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        head += struct.pack("<IQ", kind, offset)
    head += bytes(-len(head) % 64)
    return head, head + bytes(range(68)) + bytes(60) + struct.pack("<5f", 1, 2, 3, 4, 5)


def test_tensors_of_gguf(tmp_path):
    _, data = gguf()
    (tmp_path / "m.gguf").write_bytes(data)
    with bowwave.gguf.Model(tmp_path / "m.gguf") as model:
        assert model.metadata["general.architecture"] == "llama" and model.metadata["tokens"] == ["a", "bc", ""]
        assert model.metadata["scores"] == [1.0, 2.0]
        assert model.tensors["x"].shape == (32, 2) and model.tensors["x"].kind == 8
        model.plan(reversed(model.tensors))
        assert model.read("x") == bytes(range(68))
        assert struct.unpack("<5f", model.read("y")) == (1, 2, 3, 4, 5)
        with pytest.raises(ValueError, match="it has x, y"):
            model.read("z")


def test_damaged_gguf_are_value_errors(tmp_path):
    head, data = gguf()
    for bad in (b"", b"GGUF", b"GGML" + data[4:], data[:100], data[:-1],
                data[:4] + struct.pack("<IQQ", 3, 1 << 60, 0), data[:4] + struct.pack("<I", 9) + data[8:]):
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(ValueError, match="no GGUF file"):
            bowwave.gguf.Model(tmp_path / "bad")
    for at in range(len(head)):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        (tmp_path / "bad").write_bytes(damaged)
        try:
            bowwave.gguf.Model(tmp_path / "bad")
        except ValueError:
            pass


def test_batches_of_arrow(tmp_path):
    path = tmp_path / "a.arrow"
    batches = [pa.record_batch({"x": np.arange(5000) + 5000 * at, "d": pa.array(["u", "v"] * 2500).dictionary_encode()})
               for at in range(6)]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    with bowwave.open(path) as file:
        dictionaries, blocks = bowwave.arrow.read_blocks(file)
        assert len(blocks) == 6 and len(dictionaries) == 1
        assert all(one.end <= two.start for one, two in zip(blocks, blocks[1:], strict=False))
        assert len(bowwave.arrow.plan(file, [3])) == 2
        assert pa.ipc.open_file(file).get_batch(3).equals(batches[3])
        with pytest.raises(ValueError, match="the file has 6"):
            bowwave.arrow.plan(file, [6])
    data = path.read_bytes()
    length = struct.unpack("<i", data[-10:-6])[0]
    footer = data[-10 - length:-10]
    for at in range(0, len(footer), 7):
        damaged = bytearray(footer)
        damaged[at] ^= 0xFF
        try:
            bowwave.arrow.blocks_of(bytes(damaged))
        except ValueError:
            pass
    (tmp_path / "bad").write_bytes(b"ARROW1" * 4)
    with pytest.raises(ValueError):
        bowwave.arrow.plan(bowwave.open(tmp_path / "bad"))


def test_shards_are_opened_before_their_turn(tmp_path):
    urls, bodies = [], []
    for number in range(5):
        path = tmp_path / f"{number}.tar"
        with tarfile.open(path, "w") as archive:
            for member in range(4):
                (tmp_path / "member").write_bytes(bytes([number, member]) * 50_000)
                archive.add(tmp_path / "member", f"{number}-{member}")
        urls.append(f"emulate:s3,latency=100ms:file://{path}")
        bodies.append(path.read_bytes())
    seen, waits = [], []
    shards = bowwave.tar.shards(urls)
    begun = time.monotonic()
    for shard in shards:
        waits.append(time.monotonic() - begun)
        for member in tarfile.open(fileobj=shard, mode="r|"):
            seen.append(member.name)
        time.sleep(0.15)
        begun = time.monotonic()
    assert seen == [f"{number}-{member}" for number in range(5) for member in range(4)]
    assert max(waits[2:]) < 0.1, waits
    assert [shard.read() for shard in bowwave.tar.shards(urls, ahead=0)] == bodies
    with pytest.raises(ValueError):
        next(bowwave.tar.shards(urls, ahead=-1))


def test_a_planned_sampler_names_what_its_worker_gets_next():
    order = [9, 3, 7, 1, 8, 2, 6, 0, 5, 4, 10]
    batches = list(bowwave.torch.PlannedSampler(order, batch_size=2, workers=2, depth=1))
    assert batches == [[9, 3], [7, 1], [8, 2], [6, 0], [5, 4], [10]]
    assert batches[0][0].ahead == (3, 8, 2) and batches[1][0].ahead == (1, 6, 0) and batches[0][1].ahead == ()
    assert batches[3][0].ahead == (0, 10) and batches[5][0].ahead == ()
    assert pickle.loads(pickle.dumps(batches[0][0])).ahead == (3, 8, 2)
    assert len(bowwave.torch.PlannedSampler(order, 2)) == 6
    assert len(bowwave.torch.PlannedSampler(order, 2, drop_last=True)) == 5
    with pytest.raises(ValueError, match="batch_size"):
        bowwave.torch.PlannedSampler(order, 0)


def test_announced_files_are_fetched_meanwhile(tmp_path):
    urls = []
    for number in range(40):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 10_000)
        urls.append(f"emulate:s3,latency=100ms:file://{tmp_path}/{number}")
    files = pickle.loads(pickle.dumps(bowwave.torch.Files(urls)))
    begun = time.monotonic()
    for batch in bowwave.torch.PlannedSampler(range(39, -1, -1), batch_size=8):
        for index in batch:
            assert files[index] == bytes([index]) * 10_000
    assert time.monotonic() - begun < 2, "forty waits one after another are 4 s"


def test_files_of_the_safetensors_library_in_any_order(tmp_path):
    kinds = ("bool", "uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "uint64", "int64", "float64",
             "complex64")
    tensors = {f"t{at}": (np.arange(300_000) % 100).reshape(-1, 100).astype(kind) for at, kind in enumerate(kinds)}
    tensors["empty"] = np.zeros((0, 4), "f4")
    safetensors.numpy.save_file(tensors, tmp_path / "a.safetensors", metadata={"made": "by the library"})
    loaded = bowwave.safetensors.load_file(tmp_path / "a.safetensors")
    assert loaded.keys() == tensors.keys()
    assert all(loaded[name].dtype == tensor.dtype and (loaded[name] == tensor).all() for name, tensor in tensors.items())
    server = Shaped(model=f"@{tmp_path}/a.safetensors")
    try:
        for names in (list(reversed(tensors)), ["t9", "t2"]):
            before, options = server.counters_at_rest(), dict(server.options, cache=f"{64 + len(names)}MiB")
            with bowwave.safetensors.safe_open("s3://data/model", **options) as file:
                file.plan(names)
                for name in names:
                    assert (file.get_tensor(name) == tensors[name]).all()
            sent = server.counters_at_rest()["bytes"] - before["bytes"]
            wanted = sum(tensors[name].nbytes for name in names)
            # The header and the bytes that come with it.
            assert sent <= wanted + (1 << 20), names
    finally:
        server.end()


def test_threads_share_a_file_of_each_format(tmp_path):
    """Watchers of formats plan from the reads of all threads; a race there must not raise, nor change a byte."""
    columns = {f"c{number}": np.arange(40_000) * (number + 1.5) for number in range(8)}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", row_group_size=4000)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number in range(20):
            file.create_dataset(f"v{number}", data=np.arange(20_000) * number, chunks=(1000,))
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name in ("a.parquet", "a.h5"):
            archive.add(tmp_path / name, name)
    array = zarr.create_array(str(tmp_path / "a.zarr"), shape=(64, 500), chunks=(1, 100), shards=(8, 500), dtype="f8")
    array[:] = np.arange(64)[:, None] * np.arange(500)
    files = [(bowwave.open(tmp_path / name), (tmp_path / name).read_bytes()) for name in ("a.parquet", "a.h5", "a.tar")]
    cached = CachedFiles().open(str(tmp_path / "a.parquet"), cache_type="bowwave")
    store = zarr.open_array(bowwave.zarr.Store(tmp_path.as_uri() + "/a.zarr"), mode="r")
    tables = bowwave.open(tmp_path / "a.parquet")
    failures, start = [], threading.Barrier(6)

    def read(seed):
        chance = random.Random(seed)
        start.wait()
        try:
            for _ in range(60):
                for file, data in files:
                    offset = chance.randrange(len(data))
                    assert file.pread(offset, 3000) == data[offset:offset + 3000]
                offset = chance.randrange(cached.size)
                assert cached.cache.pread(offset, 3000) == files[0][1][offset:offset + 3000]
                row = chance.randrange(64)
                assert (store[row] == row * np.arange(500)).all()
                if chance.randrange(10) == 0:
                    name = f"c{chance.randrange(8)}"
                    source = pa.BufferReader(tables.pread(0, tables.size))
                    assert pq.read_table(source, columns=[name])[name].to_numpy()[39_999] == columns[name][-1]
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for file, _ in [*files, (tables, None)]:
        file.close()
