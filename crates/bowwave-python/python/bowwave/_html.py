"""What notebooks show: counters, and offset-time pictures of reads."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._history import History, recent

if TYPE_CHECKING:
    from ._bowwave import Region
    from ._files import File
    from ._lab import Report, Results
    from ._map import Map

HIT, LATE, MISS = "hit", "late", "miss"
#: Colours of outcomes, which colour-blind readers can tell apart; those of the pages of `bowwave.report`.
COLOURS = {HIT: "#4477aa", LATE: "#d59a00", MISS: "#b3354b"}
#: Counters of outcomes and their names: a reader waits for a late page less than for a miss.
COUNTERS = {HIT: "hits", LATE: "late", MISS: "misses"}
ANNOUNCED = "#dde3e9"
WIDTH, HEIGHT = 480, 120
#: Files of one picture, and the smallest height of each.
LANES, LANE_HEIGHT = 12, 40
#: Longest page of a report that a notebook embeds, in bytes. Larger: notebooks that are slow to open.
PAGE_MAX = 8 << 20


def size_text(count: float) -> str:
    """Bytes with a unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def table(rows: dict[str, str]) -> str:
    """Names and values."""
    cells = (f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
             for name, value in rows.items())
    return f"<table>{''.join(cells)}</table>"


def counted(stats: Mapping[str, int]) -> dict[str, str]:
    """The counters of a cache as rows."""
    rows = {name: f"{stats[name]} pages" for name in COUNTERS.values()}
    rows["read ahead"] = f"{stats['pages_readahead']} pages, {stats['pages_used']} of them used"
    rows["planned"] = f"{stats['pages_planned']} pages"
    if "requests" in stats:
        failed = f", {stats['requests_failed']} of them failed" if "requests_failed" in stats else ""
        rows["requests"] = f"{stats['requests']}{failed}"
    if "bytes_fetched" in stats:
        rows["fetched"] = size_text(stats["bytes_fetched"])
    return rows


def _rect(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'/>"


def _svg(width: float, height: float, marks: Sequence[str]) -> str:
    return (f"<svg width='{width:.0f}' height='{height:.0f}' style='border:1px solid #ccc;background:#fff' role='img'>"
            f"{''.join(marks)}</svg>")


def _legend(colour: str, text: str) -> str:
    return f"<span style='color:{colour}'>■</span> {text} "


def bar(counters: Mapping[str, Any], width: float = WIDTH) -> str:
    """The shares of hits, late pages and misses."""
    counts = {outcome: counters.get(name) or 0 for outcome, name in COUNTERS.items()}
    total = sum(counts.values())
    if total == 0:
        return ""
    marks, x = [], 0.0
    for outcome, count in counts.items():
        share = count / total * width
        if count:
            marks.append(_rect(x, 0, share, 12, COLOURS[outcome]))
        x += share
    return _svg(width, 12, marks)


def picture(histories: Sequence[History]) -> str:
    """Reads as marks, a lane for each file: time to the right, offset upwards. Behind them, the announced ranges."""
    lanes = [(history, history.reads.all()) for history in histories]
    lanes = [(history, reads) for history, reads in lanes if reads and history.size][-LANES:]
    if not lanes:
        return ""
    every = [read for _, reads in lanes for read in reads]
    first, last = min(read[0] for read in every), max(read[1] for read in every)
    span = max(last - first, 1e-9)
    height: float = HEIGHT if len(lanes) == 1 else max(HEIGHT / len(lanes), LANE_HEIGHT)
    marks = []
    for number, (history, reads) in enumerate(lanes):
        bottom = (len(lanes) - number) * height

        def mark(begin: float, end: float, start: int, length: int, colour: str, size: int = history.size,
                 bottom: float = bottom) -> None:
            x = min(max(begin - first, 0) / span * WIDTH, WIDTH - 1.5)
            tall = min(max(length / size * height, 1.5), height)
            y = max(bottom - start / size * height - tall, bottom - height)
            marks.append(_rect(x, y, max((end - first) / span * WIDTH - x, 1.5), tall, colour))

        for time, start, stop in merged(history):
            if time <= last:
                mark(time, last, start, stop - start, ANNOUNCED)
        for outcome, colour in COLOURS.items():
            for begin, end, offset, length, found in reads:
                if found == outcome:
                    mark(begin, end, offset, length, colour)
        if number:
            marks.append(_rect(0, bottom, WIDTH, 0.5, "#ccc"))
    counts = {outcome: sum(read[4] == outcome for read in every) for outcome in COLOURS}
    text = "".join(_legend(COLOURS[outcome], f"{count} {COUNTERS[outcome]}") for outcome, count in counts.items())
    announced = sum(end - start for history, _ in lanes for _, start, end in merged(history))
    if announced:
        text += _legend(ANNOUNCED, f"{size_text(announced)} announced")
    sizes, names = f"offset 0 to {size_text(lanes[0][0].size)} upwards", ""
    if len(lanes) > 1:
        sizes = f"{len(lanes)} files, newest below"
        names = "".join(f"<div>{html.escape(history.url)}, {size_text(history.size)}</div>" for history, _ in lanes)
    return (f"{_svg(WIDTH, height * len(lanes), marks)}<div>The last {len(every)} reads, {span:.3g} s: {text}; {sizes}"
            f"</div>{names}")


def merged(history: History) -> list[tuple[float, int, int]]:
    """The announced ranges, adjacent ones of one time as one."""
    found: list[tuple[float, int, int]] = []
    for time, start, end in history.announced.copy():
        if start >= history.size:
            continue
        end = min(end, history.size)
        if found and found[-1][0] == time and found[-1][2] == start:
            found[-1] = (time, found[-1][1], end)
        else:
            found.append((time, start, end))
    return found


def of_file(file: File) -> str:
    """A file; of a closed one, what it had counted at its end."""
    rows = {"file": file.name, "size": size_text(file.size)}
    if file.closed:
        rows["state"] = "closed"
        if file._totals is None:
            # It was closed in another process.
            return table(rows)
    stats = file.stats()
    return table({**rows, **counted(stats)}) + bar(stats) + picture([file._history])


def of_system(system: Any) -> str:
    """A file system, with the files that it opened or read last."""
    rows = {"file system": f"bowwave::{system.target_protocol}",
            "read by": "bowwave" if system._scheme else "the target, through bowwave's cache"}
    stats = system.stats()
    sources = [known[2] for known in list(system._sources.values())]
    objects = {(source.url, getattr(source, "access", None)) for source in sources}
    files = [one for one in list(recent) if (one.url, one.access) in objects]
    return table({**rows, **counted(stats)}) + bar(stats) + picture(files)


def of_cache(cache: Any) -> str:
    """A cache of fsspec."""
    stats = cache.stats() if cache.size else {}
    file = getattr(cache.fetcher, "__self__", None)
    rows = {"cache": cache.name, "file": str(getattr(file, "path", "")), "size": size_text(cache.size)}
    return table({**rows, **(counted(stats) if stats else {})}) + bar(stats) + picture([cache._history])


def of_map(memory: Map) -> str:
    """A file in memory."""
    rows = {"map": memory.name}
    rows |= {"state": "closed"} if memory.closed else {"size": size_text(len(memory))}
    return table({**rows, **counted(memory.counters)}) + bar(memory.counters) + picture([memory._history])


def of_lazy_map(region: Region) -> str:
    """A lazy map, with the page faults that it served."""
    from ._map import lazy_source

    source = lazy_source(region)
    history = History(source.url if source else "", None, listed=False)
    history.size = len(region)
    history.reads.extend(region._faults())
    stats = region.stats()
    rows = {"lazy map": history.url, "size": size_text(history.size), "faults": str(stats["faults"]),
            "mapped": f"{stats['pages_mapped']} pages"}
    return table({**rows, **counted(stats)}) + bar(stats) + picture([history])


def of_results(results: Results) -> str:
    """Rows of replayed runs: their bars are as long as their time, in the shares of their pages."""
    known = ("policy", "device", "cache_bytes", "seconds", "hits", "late", "misses", "requests", "bytes_fetched",
             "amplification", "miss_ratio", "error")
    names = [name for name in known if any(name in row for row in results)]
    slowest = max((row["seconds"] for row in results if "seconds" in row), default=0)
    rows = []
    for row in results:
        cells = "".join(f"<td>{_cell(name, row.get(name))}</td>" for name in names)
        drawn = bar(row, max(WIDTH / 2 * row["seconds"] / slowest, 1)) if slowest else ""
        rows.append(f"<tr>{cells}<td style='text-align:left'>{drawn}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    text = "".join(_legend(COLOURS[outcome], name) for outcome, name in COUNTERS.items())
    return (f"<table><tr>{head}<th></th></tr>{''.join(rows)}</table>"
            + (f"<div>{text}of pages; bars as long as the seconds</div>" if slowest else ""))


def _cell(name: str, value: Any) -> str:
    if name in ("cache_bytes", "bytes_fetched") and isinstance(value, int):
        return size_text(value)
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))


def of_report(report: Report) -> str:
    """A report: its runs, and the page with its pictures."""
    shown = of_results(report.results)
    try:
        with open(report, encoding="utf-8") as file:
            page = file.read(PAGE_MAX + 1)
    except OSError:
        return f"<div>{html.escape(report)}: it is not there any more</div>{shown}"
    if len(page) > PAGE_MAX:
        return f"<div>{html.escape(report)}: too large to show here, open it in a browser</div>{shown}"
    # The scripts of the page run in it, and have no access to the notebook.
    return (f"<div>{html.escape(report)}</div>{shown}"
            "<iframe sandbox='allow-scripts' style='width:100%;height:640px;border:0' "
            f"srcdoc=\"{html.escape(page)}\"></iframe>")
