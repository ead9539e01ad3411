"""Parameters that came from outside the code, on the /metrics page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from otelkit import semconv

_LABELS = (semconv.LABEL_SERVICE, semconv.LABEL_INPUT, semconv.LABEL_OUTCOME)


class InputMetrics(Collector):
    """A counter that is read from ``counts`` at each scrape.

    Args:
        counts: counts by (input, outcome), which only grow.
    """

    def __init__(
        self, service: str, counts: Callable[[], Mapping[tuple[str, str], int]], registry: CollectorRegistry
    ) -> None:
        self._service = service
        self._counts = counts
        self._registry = registry
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Its name, so that a registry needn't collect to know it."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """The counts now."""
        family = self._family()
        for (source, outcome), count in sorted(self._counts().items()):
            family.add_metric((self._service, source, outcome), count)
        return [family]

    def unregister(self) -> None:
        """Take the metric off the registry, so that it can be registered again."""
        self._registry.unregister(self)

    def _family(self) -> CounterMetricFamily:
        text = "Parameters from files, the environment, headers and flags, by what became of them."
        return CounterMetricFamily(semconv.METRIC_PARAMETER_INPUTS, text, labels=_LABELS)
