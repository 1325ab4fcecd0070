"""HDF5 and NetCDF4 files of h5py, in the layouts that programs write."""

import io
import itertools
import os
import random
import time

import bowwave
import bowwave.fsspec
import bowwave.hdf5
import fsspec
import numpy as np
import pytest
import xarray
from conftest import Shaped

try:
    import h5py
except ImportError:
    if os.environ.get("CI") == "true":
        raise
    pytest.skip("h5py is not installed", allow_module_level=True)

VARIABLES = 24
SIDE, CHUNK = 320, 64
BYTES = SIDE * SIDE * 8
STEPS = 300
#: Sizes of caches: files with equal settings share one.
CACHES = itertools.count(300)
#: A NetCDF4 file has creation order, version 1.8 headers and dimension scales.
LAYOUTS = {"page": {"fs_strategy": "page", "fs_page_size": 1 << 20}, "default": {}, "latest": {"libver": "latest"},
           "netcdf": {"libver": ("v108", "v108"), "track_order": True}}


def name_of(layout, at):
    return f"v{at}" if layout == "netcdf" else f"g{at % 2}/v{at}"


def write(path, layout, side=SIDE, steps=STEPS):
    chance = np.random.default_rng(5)
    with h5py.File(path, "w", **LAYOUTS[layout]) as file:
        if layout == "netcdf":
            for axis in "yx":
                file.create_dataset(axis, data=np.arange(float(side))).make_scale(axis)
        for at in range(VARIABLES):
            data = chance.random((side, side))
            variable = file.create_dataset(name_of(layout, at), data=data, chunks=(CHUNK, CHUNK))
            variable.attrs["units"], variable.attrs["scale_factor"] = f"u{at}", 0.5
            if layout == "netcdf":
                for axis, scale in enumerate("yx"):
                    variable.dims[axis].attach_scale(file[scale])
        # Compressed chunks have no order by their offsets alone.
        steps = chance.random((steps, 128, 128), "f4")
        file.create_dataset("steps", data=steps, chunks=(1, 64, 64), compression="gzip", compression_opts=1)
        file.create_dataset("rows", data=chance.random((256, 1024)))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("hdf5")
    for layout in LAYOUTS:
        write(directory / f"{layout}.h5", layout)
    return directory


@pytest.fixture(scope="module")
def server(files):
    server = Shaped(40, 0, **{f"{layout}.h5": f"@{files}/{layout}.h5" for layout in LAYOUTS})
    yield server
    server.end()


@pytest.fixture
def measured(server, files):
    """Runs a program on a file of the server; returns its seconds, requests and bytes, and compares what it returns."""

    def run(layout, program):
        url, before = f"s3://data/{layout}.h5", server.counters()
        begun = time.monotonic()
        # A cache of its own: nothing is left of other tests.
        with bowwave.open(url, cache=f"{next(CACHES)}MiB", **server.options) as source:
            with h5py.File(source, "r") as file:
                found = program(layout, file)
        seconds, after = time.monotonic() - begun, server.counters()
        with h5py.File(files / f"{layout}.h5", "r") as file:
            expected = program(layout, file)
        assert len(found) == len(expected) and all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
        return seconds, after["requests"] - before["requests"], after["bytes"] - before["bytes"]

    return run


def listed(layout, file):
    found = []
    file.visititems(lambda name, item: found.append([name, *sorted(item.attrs), item.attrs.get("units")]))
    assert len(found) >= VARIABLES
    return [np.array(entry, object) for entry in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_listing_waits_for_levels_of_the_file_and_not_for_each_variable(layout, measured):
    seconds, requests, size = measured(layout, listed)
    # A wait for each piece of a variable is 2 s and more; a block around each is 1 to 8 MB.
    assert seconds < 1.5 and size < 800_000 and requests < 100, (seconds, requests, size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_variable_is_read_without_what_lies_behind_it(layout, measured):
    _, requests, size = measured(layout, lambda layout, file: [file[name_of(layout, 5)][:]])
    # Metadata of its group, and the chunks: more is what lies behind them.
    assert size < BYTES + 400_000 and requests < 60, (requests, size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_slice_fetches_the_chunks_of_its_loop(layout, measured):
    def series(layout, file):
        return [file["steps"][20:220, 3, 70]]

    seconds, requests, size = measured(layout, series)
    # 200 chunks of 15 KB, each a fourth of what lies around them; one wait for each is 8 s.
    assert seconds < 3 and size < 200 * 15_000 * 2.2, (seconds, requests, size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_variable_after_another_is_one_stream(layout, measured):
    def all_of(layout, file):
        return [file[name_of(layout, at)][:] for at in range(VARIABLES)]

    seconds, requests, size = measured(layout, all_of)
    # Four waits for each are 3.8 s.
    assert seconds < 3 and size < 1.2 * VARIABLES * BYTES, (seconds, requests, size)


def test_an_attribute_costs_no_more_than_the_budget(measured):
    for layout in LAYOUTS:
        _, requests, size = measured(layout, lambda layout, file: [file[name_of(layout, 7)].attrs["units"]])
        most = bowwave.hdf5.BLOCK + bowwave.hdf5.FREE + 300_000
        assert size < most, (layout, requests, size)


def test_rows_of_a_contiguous_array_are_read_ahead(measured):
    seconds, requests, size = measured("default", lambda layout, file: [file["rows"][at] for at in range(256)])
    # A block for each eight rows, one after another, is 1.5 s.
    assert requests < 60 and size < 2 * 256 * 8192 + 600_000 and seconds < 1.2, (seconds, requests, size)


def test_chunks_in_no_order_are_left_to_the_policy_and_those_of_a_loop_are_not(files):
    with bowwave.open(files / "default.h5") as source, h5py.File(source, "r") as file:
        steps = list(range(STEPS))
        random.Random(3).shuffle(steps)
        advice = []
        for step in [*range(20), *steps[:40], *range(100, 130)]:
            file["steps"][step, :64, :64]
            advice.append(source._watchers[0].advice)
    assert set(advice[4:20]) == {"random"}, "they are expected"
    assert set(advice[40:60]) == {"normal"}, "none is expected"
    assert set(advice[70:]) == {"random"}, "and again"


class Recorded(io.FileIO):
    def __init__(self, path):
        super().__init__(path)
        self.reads = []

    def readinto(self, buffer):
        self.reads.append((self.tell(), len(buffer)))
        return super().readinto(buffer)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_damaged_files_are_read_as_they_are(layout, tmp_path):
    path = tmp_path / "a.h5"
    write(path, layout, side=128, steps=20)
    with Recorded(path) as source:
        with h5py.File(source, "r") as file:
            listed(layout, file)
            for name in (name_of(layout, 3), name_of(layout, 4), "steps"):
                file[name][:]
        reads = source.reads
    data, chance = path.read_bytes(), random.Random(layout)
    small = [(offset, length) for offset, length in reads if length <= 4096 + 512]
    for number in range(60):
        damaged = bytearray(data)
        for _ in range(1 + number % 4):
            offset, length = chance.choice(small)
            at = offset + chance.randrange(min(length, 64 if number % 2 else length))
            if at < len(data):
                damaged[at] = chance.choice([0, 1, 255, damaged[at] ^ 1 << chance.randrange(8)])
        (tmp_path / "bad").write_bytes(damaged)
        with bowwave.hdf5.open(tmp_path / "bad") as file:
            for offset, length in reads:
                assert file.pread(offset, length) == damaged[offset:offset + length], (number, offset)
    for cut in (0, 7, 50, 100, 700, len(data) // 2):
        (tmp_path / "cut").write_bytes(data[:cut])
        with bowwave.hdf5.open(tmp_path / "cut") as file:
            for offset, length in reads:
                assert file.pread(offset, length) == data[offset:min(cut, offset + length)]


def test_files_of_another_kind_are_read_as_any_file(tmp_path):
    (tmp_path / "classic.nc").write_bytes(b"CDF\1" + bytes(range(256)) * 8192)
    with bowwave.open(f"emulate:s3:file://{tmp_path}/classic.nc") as file:
        for offset in range(4, 1 << 20, 8192):
            assert file.pread(offset, 8192) == (bytes(range(256)) * 8192)[offset - 4:offset + 8188]
        stats = file.stats()
        assert stats["misses"] + stats["late"] < 60, stats


def test_xarray_reads_netcdf_by_a_file_and_by_a_file_system(served):
    server = served()
    for at in range(3):
        data = xarray.Dataset({"t": (("time", "x"), np.arange(2000.0).reshape(20, 100) + at)},
                              {"time": np.arange(20) + 20 * at, "x": np.arange(100)}, {"title": "made by xarray"})
        data.to_netcdf(server.path / f"{at}.nc", engine="h5netcdf", encoding={"t": {"chunksizes": (5, 50)}})
    with bowwave.hdf5.open(server.bucket + "1.nc", **server.options) as source:
        with xarray.open_dataset(source, engine="h5netcdf") as found:
            assert found.attrs["title"] == "made by xarray"
            assert (found["t"].isel(time=7).values == np.arange(700.0, 800.0) + 1).all()
    options = {"key": server.options["key"], "secret": server.options["secret"],
               "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"}}
    fs = fsspec.filesystem("bowwave", target_protocol="s3", target_options=options)
    names = [server.bucket.removeprefix("s3://") + f"{at}.nc" for at in range(3)]
    with xarray.open_mfdataset([fs.open(name) for name in names], engine="h5netcdf", combine="by_coords") as found:
        assert found["t"].shape == (60, 100)
        assert float(found["t"].sel(time=45, x=3)) == 503 + 2
