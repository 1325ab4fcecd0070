"""Traces: rows, Arrow tables and Parquet in and out, and samples of their blocks."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._bowwave import Region
from ._command import ran
from ._files import File
from ._progress import bar

if TYPE_CHECKING:
    from ._lab import Results

#: Columns of a trace, and what a row without them has.
COLUMNS = ("time_ns", "pid", "op", "file", "offset", "length")
DEFAULTS: dict[str, Any] = {"time_ns": 0, "pid": 1, "op": "read", "file": "file"}
#: The place of a row in a trace that is sharded by volume.
ROW = "row"
#: Smallest cache of a sample, in pages: a smaller one says nothing of a cache that is larger by a factor.
PAGES_MIN = 64
PAGE = 4096
_WORD = 0xFFFF_FFFF_FFFF_FFFF


def csv_of(trace: Any) -> bytes:
    """A trace as the command reads it from standard input: a path, rows, an Arrow table, or the last reads of a
    `bowwave.File` or a lazy map."""
    if isinstance(trace, str | os.PathLike):
        if is_parquet(trace):
            return _csv_of_table(_parquet(trace, None))
        with open(trace, "rb") as file:
            return file.read()
    if isinstance(trace, File | Region):
        reads = trace.reads()
        begun = min((read[0] for read in reads), default=0.0)
        trace = [{"time_ns": round((begin - begun) * 1e9), "offset": offset, "length": length}
                 for begin, _, offset, length in reads if length]
    elif hasattr(trace, "to_pylist"):
        return _csv_of_table(trace)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in trace:
        _check(row)
        writer.writerow([row[name] if name in row else DEFAULTS[name] for name in COLUMNS])
    return out.getvalue().encode()


def _check(names: Iterable[str]) -> None:
    for name in ("offset", "length"):
        if name not in names:
            raise ValueError(f"a row of the trace lacks {name!r}; it has {', '.join(names)}")


def _csv_of_table(table: Any) -> bytes:
    import pyarrow.csv

    out = io.BytesIO()
    options = pyarrow.csv.WriteOptions(quoting_style="needed", quoting_header="none")
    pyarrow.csv.write_csv(_complete(table), out, options)
    return out.getvalue()


def _complete(table: Any) -> Any:
    """The table with all columns, in their order."""
    import pyarrow

    _check(table.column_names)
    columns = [table[name] if name in table.column_names else pyarrow.repeat(DEFAULTS[name], len(table)) for name in COLUMNS]
    return pyarrow.Table.from_arrays(columns, names=list(COLUMNS))


def is_parquet(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a table in Parquet, or a directory of such tables."""
    return os.fspath(path).endswith((".parquet", ".parq")) or os.path.isdir(path)


def _parquet(path: str | os.PathLike[str], files: Sequence[str] | None) -> Any:
    import pyarrow
    import pyarrow.dataset

    names = pyarrow.dataset.partitioning(pyarrow.schema([("file", pyarrow.string())]), flavor="hive")
    dataset = pyarrow.dataset.dataset(path, format="parquet", partitioning=names)
    chosen = None if files is None else pyarrow.dataset.field("file").isin(list(files))
    table = dataset.to_table(filter=chosen)
    if ROW in table.column_names:
        table = table.sort_by(ROW)
    return _complete(table)


def read_trace(trace: Any, files: Sequence[str] | None = None) -> Any:
    """A trace as a `pyarrow.Table` with the columns time_ns, pid, op, file, offset and length.

    `trace` is all that `replay` accepts: a path of any format that `bowwave import` knows, a Parquet file, a directory of
    `write_trace`, rows, a table, or a `bowwave.File`. `files` chooses files (volumes); of a directory, only their shards
    are read.
    """
    import pyarrow
    import pyarrow.csv

    if isinstance(trace, str | os.PathLike) and is_parquet(trace):
        return _parquet(trace, files)
    data = ran(["import", "-"], csv_of(trace))
    types = {"time_ns": pyarrow.uint64(), "pid": pyarrow.uint64(), "op": pyarrow.string(), "file": pyarrow.string(),
             "offset": pyarrow.uint64(), "length": pyarrow.uint64()}
    table = pyarrow.csv.read_csv(io.BytesIO(data), convert_options=pyarrow.csv.ConvertOptions(column_types=types))
    if files is not None:
        table = table.filter(pyarrow.compute.field("file").isin(list(files)))
    return table


def write_trace(trace: Any, path: str | os.PathLike[str], sharded: bool = False) -> str:
    """Writes a trace as a Parquet file; with `sharded`, as a directory with a file for each volume of the trace, which
    any tool reads as a partitioned data set. Returns the path. `read_trace` and `replay` have its rows in their order."""
    import pyarrow
    import pyarrow.dataset
    import pyarrow.parquet

    table, path = read_trace(trace), os.fspath(path)
    if not sharded:
        pyarrow.parquet.write_table(table, path, compression="zstd")
        return path
    table = table.append_column(ROW, pyarrow.array(range(len(table)), pyarrow.uint64()))
    names = pyarrow.dataset.partitioning(pyarrow.schema([("file", pyarrow.string())]), flavor="hive")
    pyarrow.dataset.write_dataset(table, path, format="parquet", partitioning=names, max_partitions=1 << 20,
                                  existing_data_behavior="delete_matching")
    return path


def sample(trace: Any, share: float, seed: int = 0) -> Any:
    """The accesses to a share of the pages of a trace, as a `pyarrow.Table`.

    Each page of 4 KiB is in or out, with all its accesses: a cache of `share` times the size has about the misses of the
    whole. The order of reads is lost, so a sample says nothing of readahead. `miss_ratios` has the error.
    """
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}, but must be above 0 and at most 1")
    table, pages, chance = _pages(trace, seed)
    return _taken(table, pages, chance < int(share * _WORD))


def _pages(trace: Any, seed: int) -> tuple[Any, Any, Any]:
    """A table, for each of its accesses to a page the row and the page, and a number of the page by chance."""
    import numpy

    table = read_trace(trace)
    offset, length = (table[name].to_numpy().astype("u8") for name in ("offset", "length"))
    first, last = offset // PAGE, (offset + numpy.maximum(length, 1) - 1) // PAGE
    counts = (last - first + 1).astype("i8")
    row = numpy.repeat(numpy.arange(len(table)), counts)
    page = first[row] + (numpy.arange(len(row)) - numpy.repeat(numpy.cumsum(counts) - counts, counts)).astype("u8")
    names = table["file"].combine_chunks().dictionary_encode()
    file = names.indices.to_numpy(zero_copy_only=False).astype("u8")
    with numpy.errstate(over="ignore"):
        # SplitMix64, over the page, the file and the seed.
        chance = page + (file[row] << numpy.uint64(44)) + numpy.uint64((seed + 1) * 0x9E37_79B9_7F4A_7C15 & _WORD)
        for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB), (31, 1)):
            chance = (chance ^ (chance >> numpy.uint64(shift))) * numpy.uint64(factor)
    return table, (row, page), chance


def _taken(table: Any, pages: tuple[Any, Any], mask: Any) -> Any:
    import numpy
    import pyarrow

    row, page = (part[mask] for part in pages)
    taken = table.take(pyarrow.array(row))
    columns = {"offset": page * PAGE, "length": numpy.full(len(row), PAGE, "u8")}
    for name, values in columns.items():
        taken = taken.set_column(taken.column_names.index(name), name, pyarrow.array(values))
    return taken


def miss_ratios(trace: Any, caches: Sequence[int], share: float = 0.1, *, parts: int = 8, seed: int = 0,
                progress: bool = False, **options: Any) -> Results:
    """The miss ratios of caches without readahead, estimated from a share of the pages, with the error of the estimate.

    `caches` are bytes. The sample is `parts` disjoint ones: each is replayed with a cache that is smaller by its share. A
    row has `cache_bytes`, `miss_ratio`, and `error`, the standard error between the parts: the ratio of the whole trace is
    within twice of it in about 19 of 20 cases. `options` are those of `sweep`: `executor`, `keep`, `eviction`.
    `progress` shows a bar of the parts, if tqdm is installed.
    """
    from ._lab import Results, sweep

    if not 0 < share <= 1 or parts < 2:
        raise ValueError(f"share is {share} and parts {parts}, but must be above 0 and at most 1, and at least 2")
    sizes = {cache: round(cache * share / parts / PAGE) for cache in caches}
    for cache, size in sizes.items():
        if size < PAGES_MIN:
            least = math.ceil(PAGES_MIN * PAGE * parts / cache * 1000) / 1000
            raise ValueError(f"a sample of {share} in {parts} parts has {size} pages of a cache of {cache} bytes, but needs "
                             f"{PAGES_MIN}: give a share of {least} or more, or fewer parts")
    table, pages, chance = _pages(trace, seed)
    found: dict[int, list[tuple[int, int, int]]] = {cache: [] for cache in caches}
    width = share / parts
    with bar(parts, "part", progress) as shown:
        for part in range(parts):
            mask = (chance >= int(part * width * _WORD)) & (chance < int((part + 1) * width * _WORD))
            taken = _taken(table, pages, mask)
            if len(taken) == 0:
                raise ValueError(f"part {part} of the sample has no access: give a larger share, or fewer parts")
            rows = sweep(taken, "none", "instant", [size * PAGE for size in sizes.values()], **options)
            for cache, row in zip(sizes, rows, strict=True):
                found[cache].append((row["misses"], row["accesses"], len(taken)))
            shown.update(1)
    return Results(_estimate(cache, parts_of, len(chance) * width) for cache, parts_of in found.items())


def _estimate(cache: int, parts: Sequence[tuple[int, int, int]], expected: float) -> dict[str, Any]:
    """The ratio of a part is its misses over the accesses that its share of pages has on average: a few pages with many
    accesses, which mostly hit, would else decide. As in SHARDS, whose correction it is."""
    ratios = [min(1.0, misses / expected) for misses, _, _ in parts]
    mean = sum(ratios) / len(ratios)
    variance = sum((ratio - mean) ** 2 for ratio in ratios) / (len(ratios) - 1)
    return {"policy": "none", "device": "instant", "cache_bytes": cache, "miss_ratio": mean,
            "error": math.sqrt(variance / len(ratios)), "accesses": sum(accesses for _, accesses, _ in parts)}
