"""From a service's series to evenly spaced cells that hold enough calls to be compared.

A cell is one or more steps of the panel. Every later module works on cells and on the logarithm of latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from otelkit.causal import ceiling, histogram, units
from otelkit.query.panel import BoolArray, FloatArray, Panel, ServiceSeries

LEVELS: Final = (0.5, 0.75, 0.9, 0.95, 0.99)
"""Quantiles that are followed jointly; the last one is the one explained."""
COMPONENTS: Final = ("time_per_output_chunk", "output_tokens", "time_to_first_chunk")
"""Covariates that latency is made of: a change may act through them, so they are followed, never adjusted
for."""
LATENCY_PER_TOKEN: Final = "latency_per_token"
"""Mean latency over mean output tokens, which says how fast tokens come where no series does (calls that are
not streamed): how long answers happen to be moves both alike and cancels out."""
CALLS_PER_CELL: Final = 8.0
MAX_CELLS: Final = 600
MIN_CELLS: Final = 24

IntArray = NDArray[np.int_]


@dataclass(frozen=True)
class Cells:
    """One service on N cells. NaN where nothing is known."""

    times: FloatArray
    """Unix seconds at which each cell ends, shape (N,)."""
    seconds: float
    """Width of a cell."""
    channels: Mapping[str, FloatArray]
    """Log latency quantiles by name (``p99``), log means of what latency is made of (``COMPONENTS``) and
    ``LATENCY_PER_TOKEN``, each (N,)."""
    levels: Mapping[str, float]
    """Quantile level of each channel that is one, ascending; the last is the one explained."""
    calls: FloatArray
    """Calls that ended in each cell, shape (N,); ones where unknown."""
    arrivals: FloatArray
    """Calls begun per second (offered load), shape (N,); NaN where unknown."""
    covariates: Mapping[str, FloatArray]
    """The panel's other covariates, averaged over each cell."""
    bounds: FloatArray | None
    counts: FloatArray | None
    """Calls by latency bucket in each cell, shape (N, B); None when the source has none."""
    hidden: Mapping[str, BoolArray]
    """For each quantile channel, whether it lies beyond the last bound in each cell, shape (N,)."""
    misread: tuple[str, ...]
    """A sentence for each covariate that was given in another unit."""

    @property
    def target(self) -> str:
        """The quantile channel that is explained."""
        return list(self.levels)[-1]

    @cached_property
    def usual(self) -> Mapping[str, float]:
        """Median of each channel of which anything is known, where latency is within its buckets."""
        values = np.array(list(self.channels.values()))
        values = values[:, _calm(np.ones(len(self.times), dtype=bool), self.hidden[self.target])]
        number = np.isfinite(values).sum(axis=1)
        ordered = np.sort(np.where(np.isfinite(values), values, np.inf), axis=1)
        rows = np.flatnonzero(number)
        middle = (ordered[rows, (number[rows] - 1) // 2] + ordered[rows, number[rows] // 2]) / 2
        names = list(self.channels)
        return {names[row]: float(value) for row, value in zip(rows, middle, strict=True)}

    def time_of(self, place: float) -> float:
        """Unix seconds of a place on the grid."""
        return float(self.times[0]) + (place - 1) * self.seconds


def regular(panel: Panel) -> tuple[FloatArray, IntArray, int]:
    """Put time stamps that may be unsorted, doubled or missing on a full grid.

    Returns:
        The grid (Unix seconds), for each given row its place on the grid (-1: drop it), and the grid's
        length. Of rows with one time stamp the last wins.
    """
    times = np.asarray(panel.times, dtype=float)
    finite = np.isfinite(times)
    if not finite.any():
        return np.empty(0), np.full(len(times), -1), 0
    first = float(times[finite].min())
    places = np.where(
        finite, np.round((np.where(finite, times, first) - first) / panel.step_seconds), -1
    ).astype(int)
    length = int(places.max()) + 1
    grid: FloatArray = first + panel.step_seconds * np.arange(length, dtype=float)
    return grid, places, length


def spread(values: FloatArray, places: IntArray, length: int) -> FloatArray:
    """Rows of ``values`` at their places on a grid of ``length`` rows; NaN elsewhere."""
    if np.array_equal(places, np.arange(length)):
        return np.asarray(values, dtype=float)
    result = np.full((length, *values.shape[1:]), np.nan)
    keep = places >= 0
    result[places[keep]] = np.asarray(values, dtype=float)[keep]
    return result


def cell_steps(series: ServiceSeries, length: int, step_seconds: float) -> int:
    """How many steps make a cell: enough calls in it, few enough cells to compute with, enough cells to
    compare."""
    wanted = 1
    counts = series.bucket_counts
    if counts is not None and len(counts):
        per_step = (
            float(np.nanmean(np.where(counts < 0, np.nan, counts).sum(axis=1)))
            if np.isfinite(counts).any()
            else 0.0
        )
        if per_step > 0:
            wanted = max(1, int(np.ceil(CALLS_PER_CELL / per_step)))
    else:
        # A quantile over a trailing window says nothing new before the window has passed.
        wanted = max(1, int(series.window_seconds / step_seconds / 2))
    return max(1, min(wanted, length // MIN_CELLS or 1))


def build(panel: Panel, series: ServiceSeries, *, steps: int | None = None) -> Cells:
    """Cells of one service.

    Args:
        panel: gives the time grid.
        series: the service's series on that grid.
        steps: panel steps in a cell; chosen from the traffic when None.
    """
    grid, places, length = regular(panel)
    steps = steps or cell_steps(series, length, panel.step_seconds)
    number = length // steps
    skipped = length - number * steps
    """Steps at the start that do not fill a cell are left out: the end of the data matters more."""

    def blocks(values: FloatArray) -> FloatArray:
        full = spread(values, places, length)[skipped:]
        return full.reshape(number, steps, *full.shape[1:])

    bounds, counts = None, None
    calls = np.ones(number)
    if series.bucket_counts is not None and series.bucket_bounds is not None:
        bounds = np.asarray(series.bucket_bounds, dtype=float)
        counts = _sum_known(blocks(np.asarray(series.bucket_counts, dtype=float)))
        calls = counts.sum(axis=1)
        levels: tuple[float, ...] = LEVELS
        seconds = histogram.quantiles(bounds, counts, levels)
    else:
        levels = tuple(sorted(series.quantiles))
        seconds = np.column_stack([_mean_known(blocks(series.quantiles[level])) for level in levels])
    names = {f"p{100 * level:g}": level for level in levels}
    channels = {name: _log(seconds[:, number]) for number, name in enumerate(names)}
    covariates = {name: _mean_known(blocks(values)) for name, values in series.covariates.items()}
    ended = calls / steps if counts is not None else covariates.get("completions", calls)
    covariates, misread = units.as_meant(covariates, ended, units.usual(seconds[:, -1]))
    hidden = {
        name: ceiling.flat(channels[name]) if counts is None else ceiling.beyond(counts, level)
        for name, level in names.items()
    }
    middle = channels.get("p50", next(iter(channels.values())))
    calm = _calm(np.isfinite(middle), hidden[list(names)[-1]])
    usual = float(np.exp(np.median(middle[calm]))) if calm.any() else 1.0
    for name in COMPONENTS:
        if name in covariates and np.isfinite(covariates[name]).any():
            # Waiting grows without bound from almost nothing: it counts by what it adds to a usual call.
            waits = name == "time_to_first_chunk"
            channels[name] = np.log1p(covariates[name] / usual) if waits else _log(covariates[name])
    if bounds is not None and counts is not None and "output_tokens" in channels:
        per_token = _log(histogram.means(bounds, counts)) - channels["output_tokens"]
        if np.isfinite(per_token).any():
            channels[LATENCY_PER_TOKEN] = per_token
    arrivals = covariates.get("arrivals")
    if arrivals is None or not np.isfinite(arrivals).any():
        known = covariates.get("completions")
        arrivals = known if known is not None else calls / (steps * panel.step_seconds)
        if counts is None and known is None:
            arrivals = np.full(number, np.nan)
    return Cells(
        times=grid[skipped + steps - 1 :: steps][:number],
        seconds=steps * panel.step_seconds,
        channels=channels,
        levels=names,
        calls=calls,
        arrivals=arrivals,
        covariates=covariates,
        bounds=bounds,
        counts=counts,
        hidden=hidden,
        misread=misread,
    )


def _calm(known: BoolArray, hidden: BoolArray) -> BoolArray:
    """Those of the known cells that say what is usual: where enough are not hidden, these."""
    calm: BoolArray = known & ~hidden
    return calm if calm.sum() >= MIN_CELLS else known


def within_bounds(cells: Cells) -> Cells:
    """The cells, with nothing known where P99 has long been beyond the last bound: there is nothing to learn
    there, and what little moves would pass for noise."""
    late = ceiling.long_after(cells.hidden[cells.target], cells.seconds)
    if not late.any():
        return cells
    return replace(cells, channels={name: np.where(late, np.nan, v) for name, v in cells.channels.items()})


def _log(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        result: FloatArray = np.where(values > 0, np.log(values), np.nan)
    return result


def _mean_known(blocks: FloatArray) -> FloatArray:
    """Mean over axis 1 of what is known; NaN where nothing is."""
    total = blocks.sum(axis=1)
    if np.isfinite(total).all():
        return np.asarray(total / blocks.shape[1])
    known = np.isfinite(blocks)
    number = known.sum(axis=1)
    total = np.where(known, blocks, 0.0).sum(axis=1)
    result: FloatArray = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return result


def _sum_known(blocks: FloatArray) -> FloatArray:
    """Sum of counts over axis 1. A negative count is a reset: unknown. A cell half unknown is unknown, not
    small."""
    total: FloatArray = blocks.sum(axis=1)
    if np.isfinite(total).all() and (blocks >= 0).all():
        return total
    blocks = np.where(blocks < 0, np.nan, blocks)
    known: BoolArray = np.asarray(np.isfinite(blocks).all(axis=2))
    number = known.sum(axis=1)
    total = np.where(known[:, :, None], blocks, 0.0).sum(axis=1)
    enough = number * 2 > blocks.shape[1]
    result: FloatArray = np.where(enough[:, None], total, np.nan)
    return result
