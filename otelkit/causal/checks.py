"""What is wrong with a panel or a list of changes so that no answer could be right: all of it at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from otelkit.causal import histogram
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray, Panel, ServiceSeries

UNITS: Final = {1e3: "milliseconds", 1e6: "microseconds", 1e9: "nanoseconds"}
FAR: Final = 300.0
"""Factor between P99 of the buckets and the quantile series from which on they have not the same unit."""
ENOUGH_ROWS: Final = 30
"""Rows in which counts must grow from bucket to bucket, or from step to step, before they count as sums."""
MANY_BUCKETS: Final = 5
"""Buckets that usually have calls, from which on growing from each to the next is no chance."""


def problems(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[str]:
    """One sentence for each problem; the service must be in the panel."""
    found = []
    if not (np.isfinite(panel.step_seconds) and panel.step_seconds > 0):
        found.append(f"the panel's step is {panel.step_seconds} s: give the seconds between two rows")
    for name, series in panel.services.items():
        found += [f"{name}: {problem}" for problem in _series_problems(series, len(panel.times))]
    own = panel.services[service]
    if not has_latency(own):
        found.append(f"{service}: it has neither quantiles nor buckets of latency: give one of them")
    if not found and own.bucket_counts is not None and own.bucket_bounds is not None:
        # Reading all counts takes time, so they are not read again for each service beside.
        found += [f"{service}: {problem}" for problem in _content_problems(own)]
    return found + [f"change of {c.parameter}: {p}" for c in changes for p in _change_problems(c, panel)]


def has_latency(series: ServiceSeries) -> bool:
    """Whether anything is there of which a latency quantile could be made."""
    return bool(series.quantiles) or series.bucket_counts is not None


def _series_problems(series: ServiceSeries, rows: int) -> Iterator[str]:
    columns: dict[str, FloatArray] = {f"the {level:g} quantile": v for level, v in series.quantiles.items()}
    columns |= series.covariates
    if series.bucket_counts is not None:
        columns["bucket_counts"] = series.bucket_counts
    for name, values in columns.items():
        if len(values) != rows:
            yield f"{name} has {len(values)} rows where the panel has {rows} times"
    if (series.bucket_counts is None) != (series.bucket_bounds is None):
        yield "bucket_counts and bucket_bounds go together: give both or none"
    elif series.bucket_counts is not None and series.bucket_bounds is not None:
        yield from _bucket_problems(np.asarray(series.bucket_bounds, float), series.bucket_counts)


def _bucket_problems(bounds: FloatArray, counts: FloatArray) -> Iterator[str]:
    if counts.ndim != 2 or counts.shape[1] != len(bounds):
        yield f"bucket_counts has shape {counts.shape} where bucket_bounds has {len(bounds)} bounds"
    if not len(bounds) or np.isfinite(bounds[-1]):
        yield "bucket_bounds must end with infinity: without that bucket the slowest calls are missing"
    if np.isnan(bounds).any() or (np.diff(bounds) <= 0).any():
        yield "bucket_bounds must ascend: sort the buckets by their bound"


def _content_problems(series: ServiceSeries) -> Iterator[str]:
    bounds, counts = np.asarray(series.bucket_bounds, float), np.asarray(series.bucket_counts, float)
    p99 = series.quantiles.get(0.99)
    known = counts[np.isfinite(counts).all(axis=1)]
    busy = known[known.sum(axis=1) > 0]
    if len(busy) >= ENOUGH_ROWS and len(bounds) > 2:
        # Calls that all end in the last few buckets look like a sum in each row by themselves.
        if (np.diff(busy, axis=1) >= 0).all() and np.median((busy > 0).sum(axis=1)) >= MANY_BUCKETS:
            yield "bucket_counts are summed over buckets: take each bucket less the one before"
        elif (np.diff(busy, axis=0) >= 0).all() and (busy[-1] > busy[0]).any():
            yield "bucket_counts are summed over time: take each step's increase"
    if p99 is None or not len(busy) or not np.isfinite(p99).any():
        return
    # The median of both: of all calls together, P99 is that of an overload, were it ever so short.
    counted = float(np.median(histogram.quantiles(bounds, np.maximum(busy, 0), (0.99,))[:, 0]))
    usual = float(np.nanmedian(p99))
    if counted > 0 and usual > 0 and not 1 / FAR < usual / counted < FAR:
        yield f"P99 is {usual:g} by its quantile and {counted:g} by its buckets: give both in seconds"


def _change_problems(change: ParameterChange, panel: Panel) -> Iterator[str]:
    if not np.isfinite([change.first_seen, change.last_seen]).all():
        yield f"its time is {change.first_seen}, {change.last_seen}: give Unix seconds"
        return
    times = panel.times[np.isfinite(panel.times)]
    if len(times) and not times.min() <= change.first_seen <= times.max():
        for factor, unit in UNITS.items():
            if times.min() <= change.first_seen / factor <= times.max():
                yield f"its time {change.first_seen:g} is in {unit}: give Unix seconds"
