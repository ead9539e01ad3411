"""otelkit's own metrics: what became of spans, and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from otelkit import semconv

# Reasons for which a written span is not delivered.
BUFFER_FULL: Final = "buffer_full"
EXPORT_FAILED: Final = "export_failed"
REJECTED: Final = "rejected_by_collector"
SHUT_DOWN: Final = "shut_down"
_DROPPED: Final = (BUFFER_FULL, EXPORT_FAILED, REJECTED, SHUT_DOWN)

# Reasons for which, on purpose, a step has no span.
NOT_SAMPLED: Final = "parent_not_sampled"
RATE: Final = "over_rate"
GENERATION_LIMIT: Final = "over_generation_limit"
_NOT_SELECTED: Final = (NOT_SAMPLED, RATE, GENERATION_LIMIT)

# Reasons for which a finished generation reaches no metric.
QUEUE_FULL: Final = "queue_full"
FAULT: Final = "fault"
_LOST: Final = (QUEUE_FULL, FAULT)

# Stages whose CPU time is counted.
STAGE_BUILD: Final = "build"
STAGE_EXPORT: Final = "export"


class SelfMetrics:
    """Counters with label ``service``; once nothing is pending, written = delivered + dropped.

    Args:
        service: ``service.name`` of this process.
        pending: how many finished generations wait, asked at each scrape; None in prometheus multiprocess
            mode, where a gauge can't ask.
    """

    def __init__(
        self,
        service: str,
        registry: CollectorRegistry = REGISTRY,
        *,
        pending: Callable[[], float] | None = None,
    ) -> None:
        self._service = service
        self._registry = registry
        service_only = (semconv.LABEL_SERVICE,)
        by_reason = (semconv.LABEL_SERVICE, semconv.LABEL_REASON)
        self._written = Counter(
            semconv.METRIC_SPANS_WRITTEN, "Spans encoded for export.", service_only, registry=registry
        )
        self._delivered = Counter(
            semconv.METRIC_SPANS_DELIVERED,
            "Spans that a collector accepted.",
            service_only,
            registry=registry,
        )
        self._dropped = Counter(
            semconv.METRIC_SPANS_DROPPED,
            "Spans written that will not be delivered.",
            by_reason,
            registry=registry,
        )
        self._not_selected = Counter(
            semconv.METRIC_STEPS_NOT_SELECTED,
            "Token steps without a span, on purpose; metrics include them.",
            by_reason,
            registry=registry,
        )
        self._lost = Counter(
            semconv.METRIC_GENERATIONS_LOST,
            "Finished calls that reached no metric.",
            by_reason,
            registry=registry,
        )
        self._failures = Counter(
            semconv.METRIC_EXPORT_FAILURES,
            "Attempts to send a request that failed.",
            service_only,
            registry=registry,
        )
        self._overhead = Counter(
            semconv.METRIC_OVERHEAD,
            "CPU seconds of otelkit's own threads.",
            (semconv.LABEL_SERVICE, semconv.LABEL_STAGE),
            registry=registry,
        )
        self._depth = Gauge(
            semconv.METRIC_QUEUE_DEPTH,
            "Finished calls that wait for the background thread.",
            service_only,
            registry=registry,
            multiprocess_mode="livesum",
        )
        # Present from the start at zero: a rate needs two points, and would not see a series' first increase.
        for counter in (self._written, self._delivered, self._failures):
            counter.labels(service)
        for counter, reasons in (
            (self._dropped, _DROPPED),
            (self._not_selected, _NOT_SELECTED),
            (self._lost, _LOST),
        ):
            for reason in reasons:
                counter.labels(service, reason)
        if pending is not None:
            self._depth.labels(service).set_function(pending)

    def written(self, spans: int) -> None:
        self._written.labels(self._service).inc(spans)

    def delivered(self, spans: int) -> None:
        self._delivered.labels(self._service).inc(spans)

    def dropped(self, spans: int, reason: str) -> None:
        if spans:
            self._dropped.labels(self._service, reason).inc(spans)

    def not_selected(self, steps: int, reason: str) -> None:
        if steps:
            self._not_selected.labels(self._service, reason).inc(steps)

    def lost(self, generations: int, reason: str) -> None:
        if generations:
            self._lost.labels(self._service, reason).inc(generations)

    def export_failed(self) -> None:
        self._failures.labels(self._service).inc()

    def overhead(self, stage: str, seconds: float) -> None:
        """Add CPU time that a thread of otelkit's spent."""
        self._overhead.labels(self._service, stage).inc(max(0.0, seconds))

    def unregister(self) -> None:
        """Take the metrics off the registry, so that they can be registered again."""
        for collector in (
            self._written,
            self._delivered,
            self._dropped,
            self._not_selected,
            self._lost,
            self._failures,
            self._overhead,
            self._depth,
        ):
            self._registry.unregister(collector)
