"""Metrics that are read at each scrape, in prometheus multiprocess mode: there, a page sees only what each
process has written to its files."""

from __future__ import annotations

import time
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric

WRITE_SECONDS: Final = 5.0
MAX_SERIES: Final = 256
"""Series of one gauge that a process writes: they stay in its file as long as it lives."""


class FileMirror:
    """Writes the counters and gauges of one registry as ordinary ones of another.

    A gauge's series have a label ``pid``, and 0 once they are no longer there.

    Args:
        source: of collectors that are asked at each scrape.
        target: where the metrics are registered.
    """

    def __init__(self, source: CollectorRegistry, target: CollectorRegistry) -> None:
        self._source = source
        self._target = target
        self._metrics: dict[str, Any] = {}
        self._written: dict[tuple[str, tuple[str, ...]], float] = {}
        self._due = 0.0

    def write(self) -> float:
        """Bring the files up to date, if it is time; seconds until it is, 0 where they are."""
        now = time.monotonic()
        if now < self._due:
            return self._due - now
        self._due = now + WRITE_SECONDS
        present = set()
        for family in self._source.collect():
            samples = [one for one in family.samples if one.name.removesuffix("_total") == family.name]
            for sample in samples[:MAX_SERIES]:
                labels = tuple(sample.labels.values())
                place = family.name, labels
                present.add(place)
                metric = self._metric(family, tuple(sample.labels)).labels(*labels)
                if isinstance(metric, Counter):
                    before = self._written.get(place, 0.0)
                    metric.inc(sample.value - before if sample.value >= before else sample.value)
                else:
                    metric.set(sample.value)
                self._written[place] = sample.value
        for name, labels in self._written.keys() - present:
            if isinstance(self._metrics[name], Gauge) and self._written[name, labels]:
                self._metrics[name].labels(*labels).set(0)
                self._written[name, labels] = 0.0
        return 0.0

    def unregister(self) -> None:
        """Take the metrics off the registry, so that they can be registered again."""
        for metric in self._metrics.values():
            self._target.unregister(metric)
        self._metrics.clear()

    def _metric(self, family: Metric, labels: tuple[str, ...]) -> Any:
        metric = self._metrics.get(family.name)
        if metric is None:
            if family.type == "counter":
                metric = Counter(family.name, family.documentation, labels, registry=self._target)
            else:
                metric = Gauge(
                    family.name,
                    family.documentation,
                    labels,
                    registry=self._target,
                    multiprocess_mode="liveall",
                )
            self._metrics[family.name] = metric
        return metric
