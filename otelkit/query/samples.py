"""Raw samples of counters and gauges, and what they say about each step of a time grid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from otelkit.errors import UsageError
from otelkit.query.panel import FloatArray
from otelkit.query.promql import IntArray

BoolArray = NDArray[np.bool_]

_MISSED: Final = 2.5
"""Scrapes further apart than this many usual intervals have a gap between them."""

Target = tuple[str, str, str]
"""Labels ``job``, ``instance`` and ``pid``: one process, as far as its page tells."""


@dataclass(frozen=True)
class RawSeries:
    """Samples of one series as they were scraped."""

    name: str
    labels: Mapping[str, str]
    times_ms: IntArray
    """Unix milliseconds, ascending, shape (N,)."""
    values: FloatArray

    @property
    def target(self) -> Target:
        return (self.labels.get("job", ""), self.labels.get("instance", ""), self.labels.get("pid", ""))


@dataclass(frozen=True)
class Grid:
    """Steps ``(t - step, t]`` for each t of ``times``."""

    times: FloatArray
    step: float
    times_ms: IntArray = field(init=False)
    step_ms: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "times_ms", np.round(self.times * 1000).astype(np.int64))
        object.__setattr__(self, "step_ms", round(self.step * 1000))

    @classmethod
    def between(cls, start: float, end: float, step: float) -> Grid:
        """The grid ``start, start + step, ... <= end``.

        Raises:
            UsageError: it would hold no point.
        """
        if not step >= 0.001:
            raise UsageError(f"a step of {step:g} s makes no grid", hint="Use a step of 1 s or more.")
        if not end >= start:
            raise UsageError(f"the end ({end:.3f}) lies before the start ({start:.3f})", hint="Swap them.")
        count = int((end - start) / step + 1e-9) + 1
        return cls(times=np.round(start + step * np.arange(count), 3), step=step)


@dataclass(frozen=True)
class Scrapes:
    """When one target was scraped, as far as its samples tell."""

    times_ms: IntArray

    @cached_property
    def interval_ms(self) -> float:
        """The usual time between two scrapes."""
        return float(np.median(np.diff(self.times_ms))) if len(self.times_ms) > 1 else np.inf

    @cached_property
    def gaps_ms(self) -> list[tuple[int, int]]:
        """Last scrape before and first scrape after each gap."""
        wide = np.flatnonzero(np.diff(self.times_ms) > _MISSED * self.interval_ms)
        return [(int(self.times_ms[i]), int(self.times_ms[i + 1])) for i in wide]

    def covered(self, grid: Grid) -> BoolArray:
        """Steps between the first and the last scrape, shape (T,), whatever lies between.

        None where steps are shorter than the time between scrapes: most hold no scrape, which is no zero.
        """
        if len(self.times_ms) < 2 or grid.step_ms < 0.9 * self.interval_ms:
            return np.zeros(len(grid.times_ms), dtype=bool)
        begun = grid.times_ms - grid.step_ms >= self.times_ms[0]
        return np.asarray(begun & (grid.times_ms <= self.times_ms[-1] + 1.1 * self.interval_ms))

    def torn(self, grid: Grid) -> BoolArray:
        """Steps that a gap touches, shape (T,): what happened in them can't be told apart."""
        torn = np.zeros(len(grid.times_ms), dtype=bool)
        for before, after in self.gaps_ms:
            torn |= (grid.times_ms > before) & (grid.times_ms - grid.step_ms < after)
        return torn


class RawData:
    """All series of one service that were read, and the scrapes of its targets."""

    def __init__(self, series: Sequence[RawSeries]) -> None:
        self._by_name: dict[str, list[RawSeries]] = {}
        times: dict[Target, list[IntArray]] = {}
        for one in series:
            self._by_name.setdefault(one.name, []).append(one)
            times.setdefault(one.target, []).append(one.times_ms)
        self.scrapes = {target: Scrapes(np.unique(np.concatenate(parts))) for target, parts in times.items()}

    def named(self, name: str) -> list[RawSeries]:
        return self._by_name.get(name, [])

    def known(self, grid: Grid) -> BoolArray:
        """Steps in which every target that was up was scraped without a gap, shape (T,)."""
        covered = np.zeros(len(grid.times), dtype=bool)
        torn = np.zeros(len(grid.times), dtype=bool)
        for scrapes in self.scrapes.values():
            covered |= scrapes.covered(grid)
            torn |= scrapes.torn(grid)
        return covered & ~torn

    def increments(self, series: RawSeries, grid: Grid) -> FloatArray:
        """What one counter gained in each step, shape (T,).

        Unlike ``increase`` this does not extrapolate: counts stay whole. A decrease is a reset. A series that
        appears on a target which was being scraped before began at zero, so its first value counts in full.
        """
        scrapes = self.scrapes[series.target].times_ms
        position = np.searchsorted(scrapes, series.times_ms)
        gained = np.empty(len(series.values))
        gained[1:] = np.diff(series.values)
        born = np.diff(position, prepend=-1) > 1
        born[0] = position[0] > 0
        gained[0] = 0.0
        fresh = born.copy()
        fresh[1:] |= gained[1:] < 0
        gained[fresh] = series.values[fresh]
        total = np.concatenate(([0.0], np.cumsum(gained)))
        at_end = np.searchsorted(series.times_ms, grid.times_ms, side="right")
        at_start = np.searchsorted(series.times_ms, grid.times_ms - grid.step_ms, side="right")
        return np.asarray(total[at_end] - total[at_start])

    def total_increments(self, series: Iterable[RawSeries], grid: Grid) -> FloatArray:
        """Sum of what several counters gained in each step; NaN in steps that are not known."""
        total = np.zeros(len(grid.times))
        for one in series:
            total += self.increments(one, grid)
        return np.where(self.known(grid), total, np.nan)

    def gauge(self, series: Iterable[RawSeries], grid: Grid) -> FloatArray:
        """Sum of the last values of several gauges at each step's end; NaN in steps that are not known."""
        total = np.zeros(len(grid.times))
        for one in series:
            index = np.searchsorted(one.times_ms, grid.times_ms, side="right") - 1
            fresh = self.scrapes[one.target].interval_ms * _MISSED
            alive = (index >= 0) & (grid.times_ms - one.times_ms[np.maximum(index, 0)] <= fresh)
            total += np.where(alive, one.values[np.maximum(index, 0)], 0.0)
        return np.where(self.known(grid), total, np.nan)
