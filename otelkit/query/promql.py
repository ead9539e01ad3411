"""Prometheus' arithmetic on arrays: ``rate`` and ``histogram_quantile`` as Prometheus 3 computes them.

Range selectors of Prometheus 3 are open on the left; those of 2.x were closed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from otelkit.query.panel import FloatArray

IntArray = NDArray[np.int64]

_THRESHOLD: Final = 1.1
"""A range is not extrapolated to an end that is more than this many average intervals from its samples."""


def rate(times_ms: IntArray, values: FloatArray, at_ms: IntArray, window_ms: int) -> FloatArray:
    """Per-second rate of one counter over ``(t - window, t]`` for each t of ``at_ms``.

    Args:
        times_ms: Sample times, Unix milliseconds, ascending, shape (N,).
        values: Samples, shape (N,); a decrease is a reset.
        at_ms: Evaluation times, shape (T,).

    Returns:
        Shape (T,); NaN where fewer than two samples lie in the window.
    """
    result = np.full(len(at_ms), np.nan)
    if len(times_ms) < 2:
        return result
    first = np.searchsorted(times_ms, at_ms - window_ms, side="right")
    last = np.searchsorted(times_ms, at_ms, side="right") - 1
    rows = np.flatnonzero(last > first)
    if not len(rows):
        return result
    first, last, at = first[rows], last[rows], at_ms[rows]
    lost = np.concatenate(([0.0], np.cumsum(np.where(values[1:] < values[:-1], values[:-1], 0.0))))
    increase = values[last] - values[first] + (lost[last] - lost[first])
    sampled = (times_ms[last] - times_ms[first]) / 1000
    average = sampled / (last - first)
    to_start = (times_ms[first] - (at - window_ms)) / 1000
    to_end = (at - times_ms[last]) / 1000
    to_start = np.where(to_start >= _THRESHOLD * average, average / 2, to_start)
    rising = (increase > 0) & (values[first] >= 0)
    to_zero = np.where(rising, sampled * (values[first] / np.where(rising, increase, 1.0)), to_start)
    to_start = np.minimum(to_start, to_zero)
    to_end = np.where(to_end >= _THRESHOLD * average, average / 2, to_end)
    result[rows] = increase * ((sampled + to_start + to_end) / sampled) / (window_ms / 1000)
    return result


def histogram_quantile(quantile: float, bounds: FloatArray, cumulative: FloatArray) -> FloatArray:
    """Quantile of classic histograms by linear interpolation within a bucket.

    Args:
        quantile: Between 0 and 1.
        bounds: Upper bounds, ascending, shape (B,).
        cumulative: Cumulative counts or rates, shape (T, B); NaN where that bucket has no series then.

    Returns:
        Shape (T,); NaN where nothing was observed or the infinite bucket is missing.
    """
    known = ~np.isnan(cumulative)
    result = np.full(len(cumulative), np.nan)
    # Rows that have the same buckets are computed together; nearly always that is all of them.
    for pattern in np.unique(known, axis=0):
        rows = np.flatnonzero((known == pattern).all(axis=1))
        if pattern.sum() >= 2 and np.isinf(bounds[pattern][-1]):
            result[rows] = _interpolate(quantile, bounds[pattern], cumulative[np.ix_(rows, pattern)])
    return result


def _interpolate(quantile: float, bounds: FloatArray, cumulative: FloatArray) -> FloatArray:
    counts = np.maximum.accumulate(cumulative, axis=1)
    total = counts[:, -1]
    rank = quantile * total
    bucket = np.minimum((counts[:, :-1] < rank[:, None]).sum(axis=1), len(bounds) - 1)
    rows = np.arange(len(counts))
    inside = np.minimum(bucket, len(bounds) - 2)
    below = np.where(inside > 0, counts[rows, inside - 1], 0.0)
    lower = np.where(inside > 0, bounds[inside - 1], 0.0)
    upper = bounds[inside]
    within = counts[rows, inside] - below
    with np.errstate(invalid="ignore", divide="ignore"):
        value = lower + (upper - lower) * ((rank - below) / within)
    value = np.where((inside == 0) & (upper <= 0), upper, value)
    # Beyond the last finite bound nothing is known but that bound.
    value = np.where(bucket == len(bounds) - 1, bounds[-2], value)
    return np.where(total > 0, value, np.nan)
