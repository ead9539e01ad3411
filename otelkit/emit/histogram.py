"""A Prometheus histogram that takes all the values of one generation in one update."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import Histogram
from prometheus_client.samples import Exemplar

from otelkit import semconv

NANOSECONDS: Final = 1_000_000_000
"""In a second."""


class BulkHistogram(Histogram):
    """Equal to calling ``observe`` for every value, at a fraction of its cost.

    ``observe`` takes two locks and a linear search for each value; here a generation's values are sorted and
    each bucket is incremented at most once. The class is prometheus_client's own, so multiprocess mode works
    as well.
    """

    def _metric_init(self) -> None:
        super()._metric_init()
        self._bounds_in: dict[int, list[int | float]] = {}

    def add(self, values: Sequence[float], per_unit: int = 1, exemplar: dict[str, str] | None = None) -> None:
        """Count ``values``, in any order; whole numbers are quickest.

        Args:
            per_unit: how many of the values' units make one of the histogram's: 10**9 for nanoseconds in a
                histogram of seconds.
            exemplar: labels to put on the bucket of the largest value; None for no exemplar.
        """
        if not values:
            return
        ordered = values if len(values) == 1 else sorted(values)
        counts = self._counts(ordered, per_unit)
        self._take(counts, sum(ordered) / per_unit)
        if exemplar is not None:
            self._point(counts[-1][0], ordered[-1] / per_unit, exemplar)

    def add_parts(
        self,
        parts: Iterable[tuple[BulkHistogram, Sequence[int]]],
        per_unit: int = 1,
        exemplar: dict[str, str] | None = None,
    ) -> None:
        """Count values both here and, part by part, in other histograms with the same bounds.

        Costs little more than ``add`` here alone: values are sorted and counted once. The exemplar is for
        this histogram.
        """
        together: dict[int, int] = {}
        total, largest = 0.0, 0
        for histogram, values in parts:
            if not values:
                continue
            ordered = sorted(values)
            counts = self._counts(ordered, per_unit)
            part = sum(ordered) / per_unit
            histogram._take(counts, part)
            for bucket, count in counts:
                together[bucket] = together.get(bucket, 0) + count
            total += part
            largest = max(largest, ordered[-1])
        if not together:
            return
        self._take(together.items(), total)
        if exemplar is not None:
            self._point(max(together), largest / per_unit, exemplar)

    def _counts(self, ordered: Sequence[float], per_unit: int) -> list[tuple[int, int]]:
        """(bucket, how many of the values) for each bucket that has any, ascending."""
        bounds = self._bounds_in.get(per_unit) or self._scale(per_unit)
        counts = []
        last, counted = bisect_left(bounds, ordered[-1]), 0
        for bucket in range(bisect_left(bounds, ordered[0]), last):
            below = bisect_right(ordered, bounds[bucket], counted)
            if below > counted:
                counts.append((bucket, below - counted))
            counted = below
        counts.append((last, len(ordered) - counted))
        return counts

    def _take(self, counts: Iterable[tuple[int, int]], total: float) -> None:
        self._sum.inc(total)
        buckets = self._buckets
        for bucket, count in counts:
            buckets[bucket].inc(count)

    def _point(self, bucket: int, value: float, exemplar: dict[str, str]) -> None:
        self._buckets[bucket].set_exemplar(Exemplar(exemplar, value, time.time()))

    def _scale(self, per_unit: int) -> list[int | float]:
        """Bounds in the values' unit, whole where they can be: comparing a float to an integer is slow."""
        bounds = self._bounds_in[per_unit] = [_whole(bound * per_unit) for bound in self._upper_bounds]
        return bounds


def _whole(bound: float) -> int | float:
    """Rounded, so that a value equal to a bound falls below it as in ``observe``."""
    if math.isinf(bound):
        return bound
    rounded = round(bound, 3)
    return int(rounded) if rounded.is_integer() else rounded


def duration_bounds(slo_seconds: Sequence[float]) -> tuple[float, ...]:
    """The convention's bounds (seconds), with finer ones around each latency objective.

    Bounds that double can't show a shift of 85 ms at two seconds; around an objective they lie about 10 %
    apart.
    """
    sharpened = {round(slo * factor, 6) for slo in slo_seconds for factor in semconv.SLO_FACTORS}
    return tuple(sorted(sharpened.union(semconv.DURATION_BUCKETS)))
