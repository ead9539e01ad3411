"""What call sites use for each parameter, on the /metrics page: shows changes that come with a new process,
of which none of the processes saw both the old and the new value. And what there was no room to remember."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from otelkit import semconv
from otelkit.model import label_text
from otelkit.record import instrumentation
from otelkit.record.observed import Evictions, SettledValue
from otelkit.record.redaction import exported

MAX_SERIES: Final = 512

_LABELS: Final = (
    semconv.LABEL_SERVICE,
    semconv.LABEL_SCOPE,
    semconv.LABEL_PARAMETER,
    semconv.LABEL_VALUE,
)


def settled_values() -> list[SettledValue]:
    """Of this process; none before anything is instrumented."""
    running = instrumentation.runtime()
    return [] if running is None else running.detector.settled_values()


def evictions() -> tuple[str, Evictions] | None:
    """``service.name``, and what this process had to forget; None before anything is instrumented."""
    running = instrumentation.runtime()
    return None if running is None else (running.service, running.detector.evictions())


class SettledMetrics(Collector):
    """A gauge that is read at each scrape, one series a call site and parameter; and a counter of evictions.

    Args:
        settled: least recently used call sites first; they are left out beyond ``MAX_SERIES``.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        settled: Callable[[], list[SettledValue]] = settled_values,
        forgotten: Callable[[], tuple[str, Evictions] | None] = evictions,
    ) -> None:
        self._registry = registry
        self._settled = settled
        self._forgotten = forgotten
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Its names, so that a registry needn't collect to know them."""
        return [self._family(), self._counter()]

    def collect(self) -> Iterable[Metric]:
        """The settled values now."""
        series: dict[tuple[str, str, str], tuple[str, float]] = {}
        for one in self._settled()[-MAX_SERIES:]:
            key = (one.service, one.scope, one.parameter)
            text = label_text(exported(one.parameter, one.value)) if one.is_clear else semconv.VARIES
            known = series.get(key)
            if known is None:
                series[key] = text, one.since
            elif known[0] == text:
                series[key] = text, min(known[1], one.since)
            else:  # two models at one location
                series[key] = semconv.VARIES, max(known[1], one.since)
        family = self._family()
        for key, (text, since) in sorted(series.items()):
            family.add_metric((*key, text), since)
        return [family, self._evictions()]

    def _evictions(self) -> CounterMetricFamily:
        counter = self._counter()
        known = self._forgotten()
        if known is not None:
            service, (call_sites, parameters, values) = known
            for kind, count in (("call_site", call_sites), ("parameter", parameters), ("value", values)):
                counter.add_metric((service, kind), count)
        return counter

    def unregister(self) -> None:
        """Take the metric off the registry, so that it can be registered again."""
        self._registry.unregister(self)

    def _family(self) -> GaugeMetricFamily:
        text = "Unix seconds since which a call site's requests have a parameter's value."
        return GaugeMetricFamily(semconv.METRIC_PARAMETER_SETTLED, text, labels=_LABELS)

    def _counter(self) -> CounterMetricFamily:
        text = "Call sites, parameters and values that there was no room to remember."
        labels = (semconv.LABEL_SERVICE, semconv.LABEL_KIND)
        return CounterMetricFamily(semconv.METRIC_PARAMETER_EVICTIONS, text, labels=labels)
