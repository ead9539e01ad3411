"""Native histograms as Prometheus returns them, told as the classic series that everything else reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from otelkit.query.samples import RawSeries


def classic_series(labels: Mapping[str, str], samples: Sequence[Any]) -> list[RawSeries]:
    """``_bucket``, ``_count`` and ``_sum`` series with the samples of one native histogram.

    Buckets that hold nothing are not sent, and a histogram may halve its resolution while it is read. So the
    bounds are those at which some bucket of some sample ends and that lie inside no bucket of any: only there
    is the number of calls below the bound known throughout.

    Args:
        labels: With ``__name__``.
        samples: Pairs of Unix seconds and a histogram, in Prometheus' JSON form.
    """
    times = np.array([round(float(at) * 1000) for at, _ in samples], dtype=np.int64)
    edges = [
        np.array([[float(low), float(high)] for _, low, high, _ in histogram.get("buckets", ())]).reshape(
            -1, 2
        )
        for _, histogram in samples
    ]
    every = np.concatenate(edges) if edges else np.empty((0, 2))
    ends = np.unique(every[:, 1][np.isfinite(every[:, 1])])
    distinct = np.unique(every, axis=0)
    inside = (distinct[:, 0, None] < ends) & (ends < distinct[:, 1, None])
    bounds = ends[~inside.any(axis=0)]
    total = np.array([float(histogram["count"]) for _, histogram in samples])
    below = np.zeros((len(samples), len(bounds)))
    for row, (_, histogram) in enumerate(samples):
        counts = np.array([float(bucket[3]) for bucket in histogram.get("buckets", ())])
        highs = edges[row][:, 1]
        below[row] = [counts[highs <= bound].sum() for bound in bounds]
    name = labels["__name__"]

    def series(suffix: str, values: Any, **extra: str) -> RawSeries:
        return RawSeries(name + suffix, {**labels, **extra}, times, values)

    return [
        *(series("_bucket", below[:, column], le=repr(float(bound))) for column, bound in enumerate(bounds)),
        series("_bucket", total, le="+Inf"),
        series("_count", total),
        series("_sum", np.array([float(histogram["sum"]) for _, histogram in samples])),
    ]
