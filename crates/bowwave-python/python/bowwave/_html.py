"""What notebooks show: counters, and the offset-time picture of a file's reads."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._files import File

#: Colours that colour-blind readers can tell apart (Okabe and Ito).
HIT, WAITED = "#0072b2", "#d55e00"
WIDTH, HEIGHT = 480, 120
#: A read that took longer waited for the store.
WAIT_S = 1e-3


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


def counted(stats: dict[str, int]) -> dict[str, str]:
    """The counters of a cache as rows."""
    rows = {"hits": f"{stats['hits']} pages", "late": f"{stats['late']} pages", "misses": f"{stats['misses']} pages",
            "read ahead": f"{stats['pages_readahead']} pages, {stats['pages_used']} of them used"}
    if "requests" in stats:
        rows["requests"] = f"{stats['requests']}, {stats['requests_failed']} of them failed"
        rows["fetched"] = size_text(stats["bytes_fetched"])
    return rows


def picture(reads: list[tuple[float, float, int, int]], size: int) -> str:
    """Reads as marks: time to the right, offset upwards. `reads` are begin, end, offset and length."""
    if not reads or size == 0:
        return ""
    first, last = min(read[0] for read in reads), max(read[1] for read in reads)
    span = max(last - first, 1e-9)
    marks = []
    for begin, end, offset, length in reads:
        x, width = (begin - first) / span * WIDTH, max((end - begin) / span * WIDTH, 1.5)
        height = max(length / size * HEIGHT, 1.5)
        y = HEIGHT - offset / size * HEIGHT - height
        colour = WAITED if end - begin > WAIT_S else HIT
        marks.append(f"<rect x='{x:.1f}' y='{max(y, 0):.1f}' width='{width:.1f}' height='{height:.1f}' fill='{colour}'/>")
    caption = f"the last {len(reads)} reads, {span:.3g} s; offset 0 to {size_text(size)} upwards"
    return (f"<svg width='{WIDTH}' height='{HEIGHT}' style='border:1px solid #ccc' role='img'>{''.join(marks)}</svg>"
            f"<div><span style='color:{HIT}'>■</span> from the cache "
            f"<span style='color:{WAITED}'>■</span> waited for the store; {caption}</div>")


def of_file(file: File) -> str:
    """A file."""
    rows = {"file": file.name, "size": size_text(file.size)}
    if file.closed:
        return table({**rows, "state": "closed"})
    return table({**rows, **counted(file.stats())}) + picture(file.reads(), file.size)


def of_system(system: Any) -> str:
    """A file system."""
    rows = {"file system": f"bowwave::{system.target_protocol}",
            "read by": "bowwave" if system._scheme else "the target, through bowwave's cache"}
    return table({**rows, **counted(system.stats())})
