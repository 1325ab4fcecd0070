"""Bars of calls that last long."""

from __future__ import annotations

from typing import Any


class bar:  # noqa: N801
    """A bar of tqdm while the context lasts; nothing unless `shown`, or if tqdm is not installed."""

    def __init__(self, total: int, unit: str, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            scaled = {"unit_scale": True, "unit_divisor": 1024} if unit == "B" else {}
            self._bar = tqdm(total=total, unit=unit, **scaled)

    def update(self, count: int) -> None:
        """Moves the bar on."""
        if self._bar is not None:
            self._bar.update(count)

    def __enter__(self) -> bar:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
