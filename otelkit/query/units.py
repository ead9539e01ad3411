"""Seconds among milliseconds: what in a service's series can't be in one unit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.query.panel import FloatArray, ServiceSeries
from otelkit.query.promql import histogram_quantile

_THOUSAND: Final = (300.0, 3000.0)
"""A factor between these is taken for the one between seconds and milliseconds."""
_LONG_SECONDS: Final = 120.0
"""A P99 above this is rare, for seconds."""
_SAME_UNIT: Final = 30.0
"""Values of one unit seldom lie further from their median than this factor."""


@dataclass(frozen=True, slots=True)
class Contradiction:
    """Something that is in another unit than the rest."""

    sentence: str
    row: int | None = None
    """Index of the first value of which it is said; None where it is said of a whole series."""


def contradictions(series: ServiceSeries) -> list[Contradiction]:
    """What of one service's series is in another unit than the rest."""
    found = []
    for quantile, values in sorted(series.quantiles.items()):
        rows = odd_rows(values)
        if rows:
            number = f"{len(rows)} of {len(values)} values are about 1000 times the others"
            found.append(Contradiction(f"{_name(quantile)}: {number}: are they in milliseconds?", rows[0]))
    return found or [Contradiction(sentence) for sentence in _whole_series(series)]


def _whole_series(series: ServiceSeries) -> Iterator[str]:
    medians = {quantile: _median(values) for quantile, values in sorted(series.quantiles.items())}
    for quantile, told in _told_by_buckets(series, medians).items():
        name, median = _name(quantile), medians[quantile]
        if _is_thousand(median / told):
            yield f"{name} is about {median / told:.0f} times what the buckets say: is it in milliseconds?"
        elif _is_thousand(told / median):
            times = f"{told / median:.0f} times"
            yield f"the buckets lie about {times} above {name}: are their bounds in milliseconds?"
    known = [quantile for quantile, median in medians.items() if median > 0]
    for low, high in itertools.pairwise(known):
        factor = medians[low] / medians[high]
        if _is_thousand(factor):
            yield f"{_name(low)} is about {factor:.0f} times {_name(high)}: is one of them in milliseconds?"


def doubt(series: ServiceSeries) -> str:
    """A sentence where seconds are too many to be believed, and nothing else tells; else empty."""
    median = _median(series.quantiles.get(0.99, np.array([])))
    if series.bucket_counts is not None or median < _LONG_SECONDS:
        return ""
    return f"{_name(0.99)} lies about {median:.0f}, which are taken for seconds: is it in milliseconds?"


def odd_rows(values: FloatArray) -> list[int]:
    """Indices of values in a unit a thousand times smaller than the others'; empty where all fit together.

    An outage can multiply a latency by a thousand too, but passes through what lies between.
    """
    known = np.flatnonzero(np.isfinite(values) & (values > 0))
    logs = np.sort(np.log(values[known]))
    if len(logs) < 2:
        return []
    gap = int(np.argmax(np.diff(logs)))
    low, high = logs[: gap + 1], logs[gap + 1 :]
    factor = float(np.exp(np.median(high) - np.median(low)))
    spread = max(low[-1] - low[0], high[-1] - high[0])
    between = high[0] - low[-1]
    if not _is_thousand(factor) or spread > np.log(_SAME_UNIT) or between < np.log(_SAME_UNIT):
        return []
    return [int(place) for place in known if np.log(values[place]) >= high[0]]


def _told_by_buckets(series: ServiceSeries, medians: Mapping[float, float]) -> dict[float, float]:
    """Quantiles over the whole span that the counts tell, for those that there are series of."""
    if series.bucket_bounds is None or series.bucket_counts is None:
        return {}
    total = np.nansum(series.bucket_counts, axis=0)
    if total.sum() <= 0:
        return {}
    cumulative = np.cumsum(total)[None]
    told = {
        quantile: float(histogram_quantile(quantile, series.bucket_bounds, cumulative)[0])
        for quantile, median in medians.items()
        if median > 0
    }
    return {quantile: value for quantile, value in told.items() if value > 0}


def _is_thousand(factor: float) -> bool:
    return _THOUSAND[0] <= factor <= _THOUSAND[1]


def _median(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _name(quantile: float) -> str:
    return f"p{round(quantile * 100, 9):g}_seconds"
