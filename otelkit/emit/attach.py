"""Ties otelkit to the user's tracer provider, whenever that is set, and finds the way out for token-step
spans."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_BSP_SCHEDULE_DELAY
from opentelemetry.sdk.trace import TracerProvider

from otelkit.emit.hook import hook_into, is_own, processors_of
from otelkit.emit.otlp.delivery import DEFAULT_TIMEOUT, Delivery, shut_down
from otelkit.emit.otlp.discover import sender_like, timeout_of
from otelkit.emit.promotion import Promotion
from otelkit.emit.route import NoRoute, OtlpRoute, Route, TracerRoute, exporters_of
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.emit.settings import Settings

DEFAULT_DELAY_MILLIS: Final = 5_000


class Attachment:
    """The tracer provider in use and the route that goes with it.

    Args:
        settings: batch and buffer sizes.
        counts: told what becomes of spans.
        flush: delivers all that otelkit holds; called when the provider is flushed.
        on_attach: called when a provider is in use for the first time.
    """

    def __init__(
        self,
        settings: Settings,
        counts: SelfMetrics,
        flush: Callable[[float], bool],
        on_attach: Callable[[], None] = lambda: None,
    ) -> None:
        self._settings = settings
        self._counts = counts
        self._flush = flush
        self._on_attach = on_attach
        self._lock = threading.Lock()
        self._hooked: trace.TracerProvider | None = None
        self._provider: trace.TracerProvider | None = None
        self._processors: tuple[Any, ...] = ()
        self._route: Route = NoRoute()
        self._promotion: Promotion | None = None
        self._deliveries: dict[int, tuple[object, Delivery]] = {}
        """By identity of the exporter, which is kept beside it so that the identity stays taken."""

    def hook(self) -> None:
        """See that a flush of the provider now in use reaches otelkit. In the request's path: a quarter
        microsecond."""
        provider = trace.get_tracer_provider()
        if provider is self._hooked:
            return
        with self._lock:
            if provider is self._hooked:
                return
            self._hooked = provider
            hook = hook_into(provider)
            if hook is not None:
                self._promotion = hook.promotion
                hook.flush, hook.shutdown_seconds = self._flush, self._settings.shutdown_seconds
            self._on_attach()

    def route(self) -> Route:
        """The route for the provider now in use, and its processors: both may be set late. Background thread
        only."""
        # Without the functions that there are for both, as this is asked twice for every generation.
        provider = getattr(trace, "_TRACER_PROVIDER", None) or trace.get_tracer_provider()
        multi = getattr(provider, "_active_span_processor", None)
        processors = getattr(multi, "_span_processors", ())
        if provider is not self._provider or processors is not self._processors:
            self._route.ship()
            self._provider, self._processors = provider, processors
            self._route = self._find(provider)
        return self._route

    def promoted(self, trace_id: int, *, promote: bool) -> bool:
        """Whether a trace that was not sampled is exported all the same; with ``promote`` it will be, if it
        can."""
        promotion = self._promotion
        if promotion is None or not promotion.active:
            return False
        if promote:
            promotion.promote(trace_id)
        return promotion.is_promoted(trace_id)

    def _find(self, provider: trace.TracerProvider) -> Route:
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return NoRoute()
        if not isinstance(provider, TracerProvider):
            return TracerRoute(provider)
        processors = processors_of(provider)
        exporters = exporters_of(processors)
        if exporters == []:
            return NoRoute()
        deliveries = [self._delivery_to(exporter) for exporter in exporters or ()]
        if exporters is None or None in deliveries:
            return TracerRoute(provider, lambda timeout: _flush_all(processors, timeout))
        return OtlpRoute(
            provider,
            [delivery for delivery in deliveries if delivery is not None],
            batch_bytes=self._settings.batch_bytes,
            delay_seconds=_schedule_delay(),
        )

    def _delivery_to(self, exporter: object) -> Delivery | None:
        if is_own(exporter):
            return exporter.delivery
        known = self._deliveries.get(id(exporter))
        if known is not None:
            return known[1]
        sender = sender_like(exporter)
        if sender is None:
            return None
        delivery = Delivery(
            sender,
            self._counts,
            timeout=timeout_of(exporter, DEFAULT_TIMEOUT),
            buffer_bytes=self._settings.buffer_bytes,
            retry_seconds=self._settings.retry_seconds,
        )
        self._deliveries[id(exporter)] = exporter, delivery
        return delivery

    def shutdown(self, timeout: float) -> None:
        """Deliver within ``timeout`` seconds what was shipped, and stop the threads that do so."""
        shut_down([delivery for _, delivery in self._deliveries.values()], timeout)

    def after_fork(self) -> None:
        """In the child: nothing that waits is ours, connections and threads are gone."""
        self._lock = threading.Lock()
        if self._promotion is not None:
            self._promotion.after_fork()
        self._provider, self._processors, self._route = None, (), NoRoute()
        for _, delivery in self._deliveries.values():
            delivery.after_fork()


def _flush_all(processors: Sequence[Any], timeout: float) -> bool:
    # Processors that only look at spans inherit a flush that returns None.
    flushed = [processor.force_flush(int(timeout * 1e3)) is not False for processor in processors]
    return all(flushed)


def _schedule_delay() -> float:
    """Seconds that spans may wait for a batch to fill, by the standard variable."""
    try:
        return max(0.001, int(os.environ.get(OTEL_BSP_SCHEDULE_DELAY, DEFAULT_DELAY_MILLIS)) / 1e3)
    except ValueError:
        return DEFAULT_DELAY_MILLIS / 1e3
