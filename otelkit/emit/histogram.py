"""A Prometheus histogram that takes all the values of one generation in one update."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from prometheus_client import Histogram
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.values import MutexValue

from otelkit import semconv
from otelkit.model import SpanIdentity
from otelkit.record.times import Buckets, Lanes

NANOSECONDS: Final = 1_000_000_000
"""In a second."""


class Example(NamedTuple):
    """What an exemplar says of a generation, whatever histogram it is in."""

    span: SpanIdentity
    at: float
    """Unix seconds."""

    def labels(self) -> dict[str, str]:
        return {
            semconv.EXEMPLAR_TRACE_ID: f"{self.span.trace_id:032x}",
            semconv.EXEMPLAR_SPAN_ID: f"{self.span.span_id:016x}",
        }


class BulkHistogram(Histogram):
    """Equal to calling ``observe`` for every value, at a fraction of its cost.

    ``observe`` takes two locks and a linear search for each value; here each bucket is incremented at most
    once for all values of a generation. The class is prometheus_client's own, so multiprocess mode works as
    well.
    """

    def _metric_init(self) -> None:
        super()._metric_init()
        self._values_are_plain = type(self._sum) is MutexValue
        """Numbers in memory that only one thread at a time adds to: they need no lock to be added to."""
        self._shown: dict[int, tuple[Example, float]] = {}
        """The latest exemplar of each bucket, with its value. Made whole when it is read: of a thousand, one
        is."""
        self._scaled: dict[int, tuple[list[int | float], Buckets]] = {}
        """Bounds by unit."""
        self._lowest = 0
        """Lowest bucket that the last values added by lanes were in: where the next are looked for."""
        self._only: int | None = 0
        """The only bucket that the last values of all parts were in: it takes less to tell that the next are,
        too, than to count them."""

    def add(self, value: float, per_unit: int = 1, exemplar: Example | None = None) -> None:
        """Count one value; whole numbers are quickest.

        Args:
            per_unit: how many of the value's unit make one of the histogram's: 10**9 for nanoseconds in a
                histogram of seconds.
            exemplar: to put on the bucket of the value.
        """
        bounds, _ = self._scaled.get(per_unit) or self._scale(per_unit)
        bucket, total = bisect_left(bounds, value), value / per_unit
        if self._values_are_plain:
            self._sum._value += total
            self._buckets[bucket]._value += 1
        else:
            self._sum.inc(total)
            self._buckets[bucket].inc(1)
        if exemplar is not None:
            self._shown[bucket] = exemplar, total

    def add_parts(
        self, values: Lanes, parts: Iterable[Part], per_unit: int = 1, exemplar: Example | None = None
    ) -> None:
        """Count values both here and, part by part, in other histograms with the same bounds.

        Args:
            values: at least one.
            parts: all of them.
            exemplar: to put, here, on the highest bucket that any of the values is in.
        """
        _, buckets = self._scaled.get(per_unit) or self._scale(per_unit)
        only = self._only
        if only is not None and buckets.all_in(only, values):
            highest, example = only, self._add_alike(only, values, parts, per_unit)
        else:
            highest, example = self._add_counted(buckets, values, parts, per_unit)
        if exemplar is not None and highest >= 0:
            self._shown[highest] = exemplar, example / per_unit

    def _add_alike(self, bucket: int, values: Lanes, parts: Iterable[Part], per_unit: int) -> int:
        """Count values of one bucket; the last of the first part."""
        first, together, plain = 0, 0.0, self._values_are_plain
        for histogram, begin, end, total in parts:
            if begin == end:
                continue
            first = first or end
            seconds = total / per_unit
            together += seconds
            if plain:  # as in ``_take``, one function less for each
                histogram._sum._value += seconds
                histogram._buckets[bucket]._value += end - begin
            else:
                histogram._take(((bucket, end - begin),), seconds)
        self._take(((bucket, values.length),), together)
        return values.at(first - 1)

    def _add_counted(
        self, buckets: Buckets, values: Lanes, parts: Iterable[Part], per_unit: int
    ) -> tuple[int, int]:
        """Count values; the highest bucket of any, -1 for none, and one that is in it."""
        lowest, highest, example = sys.maxsize, -1, 0
        for histogram, begin, end, total in parts:
            if begin == end:
                continue
            counts, value = buckets.count(values.part(begin, end), histogram._lowest)
            histogram._lowest = counts[0][0]
            seconds = total / per_unit
            histogram._take(counts, seconds)
            self._take(counts, seconds)
            lowest = min(lowest, counts[0][0])
            if counts[-1][0] > highest:
                highest, example = counts[-1][0], value
        self._only = highest if highest == lowest else None
        return highest, example

    def _child_samples(self) -> Iterable[Sample]:
        for bucket, (example, value) in self._shown.copy().items():  # others are shown meanwhile
            self._buckets[bucket].set_exemplar(Exemplar(example.labels(), value, example.at))
        return super()._child_samples()

    def _take(self, counts: Iterable[tuple[int, int]], total: float) -> None:
        buckets = self._buckets
        if self._values_are_plain:
            self._sum._value += total
            for bucket, count in counts:
                buckets[bucket]._value += count
            return
        self._sum.inc(total)
        for bucket, count in counts:
            buckets[bucket].inc(count)

    def _scale(self, per_unit: int) -> tuple[list[int | float], Buckets]:
        scaled = self._scaled[per_unit] = _scaled(tuple(self._upper_bounds), per_unit)
        return scaled


Part = tuple[BulkHistogram, int, int, int]
"""A histogram; where the values for it begin and end; and their sum."""


@lru_cache(maxsize=64)
def _scaled(bounds: tuple[float, ...], per_unit: int) -> tuple[list[int | float], Buckets]:
    """Bounds in the values' unit, whole where they can be: comparing a float to an integer is slow."""
    scaled = [_whole(bound * per_unit) for bound in bounds]
    return scaled, Buckets(scaled)


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
