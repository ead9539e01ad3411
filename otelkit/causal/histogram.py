"""Quantiles and moments of bucketed latencies, with Prometheus's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otelkit.query.panel import FloatArray


def quantiles(bounds: FloatArray, counts: FloatArray, levels: Sequence[float]) -> FloatArray:
    """``histogram_quantile`` over many histograms at once.

    Linear within a bucket, from zero in the first one; a rank in the last, infinite bucket gives the last
    finite bound.

    Args:
        bounds: upper bounds in seconds, shape (B,), ascending, the last one infinite.
        counts: calls by bucket, not cumulative, shape (N, B).
        levels: Q quantile levels between 0 and 1.

    Returns:
        Seconds, shape (N, Q); NaN where a histogram is empty or unknown.
    """
    # Buckets first: comparing and adding up over the long axis is several times faster.
    cumulative = np.cumsum(counts.T, axis=0)
    total = cumulative[-1]
    lower = np.concatenate([[0.0], bounds[:-1]])
    rows = np.arange(len(counts))
    result = np.full((len(counts), len(levels)), np.nan)
    known = np.isfinite(total) & (total > 0)
    for column, level in enumerate(levels):
        rank = level * total
        bucket = np.minimum((cumulative < rank).sum(axis=0), len(bounds) - 1)
        inside = counts[rows, bucket]
        below = cumulative[bucket, rows] - inside
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(inside > 0, (rank - below) / inside, 1.0)
        upper = np.where(np.isfinite(bounds[bucket]), bounds[bucket], lower[bucket])
        result[known, column] = (lower[bucket] + (upper - lower[bucket]) * share)[known]
    return result


def representative(bounds: FloatArray) -> FloatArray:
    """One latency (seconds) standing for each bucket: its geometric middle; shape (B,)."""
    lower = np.concatenate([[bounds[0] / 2], bounds[:-1]])
    upper = np.where(np.isfinite(bounds), bounds, bounds[-2] * 2 if len(bounds) > 1 else 1.0)
    middle: FloatArray = np.sqrt(np.maximum(lower, 1e-9) * np.maximum(upper, 1e-9))
    return middle


def means(bounds: FloatArray, counts: FloatArray) -> FloatArray:
    """Mean latency of each histogram as ``representative`` has it, in seconds, shape (N,); NaN where it is
    empty or unknown."""
    total = counts.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        result: FloatArray = np.where(total > 0, counts @ representative(bounds) / total, np.nan)
    return result
