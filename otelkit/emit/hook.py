"""otelkit's place in a tracer provider: flushes include what it holds, and it sees spans that were not
chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from otelkit.emit.promotion import Promotion


class ProviderHook(SpanProcessor):
    """Makes ``provider.force_flush()`` and ``provider.shutdown()`` include what otelkit still holds.

    One serves a provider for good, as processors can't be taken off again: its attributes are set anew by
    each instrumentation.
    """

    def __init__(self, provider: object) -> None:
        self.flush: Callable[[float], bool] = lambda timeout: True
        self.shutdown_seconds = 0.0
        self.promotion: Promotion | None = None
        if isinstance(provider, TracerProvider):
            self.promotion = Promotion(provider, lambda span: _pass_on(provider, span))

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: what matters is how a span ends."""

    def on_end(self, span: ReadableSpan) -> None:
        if self.promotion is not None:
            self.promotion.ended(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.flush(timeout_millis / 1e3)

    def shutdown(self) -> None:
        self.flush(self.shutdown_seconds)


def processors_of(provider: TracerProvider) -> tuple[Any, ...]:
    """The user's span processors; an empty tuple when they can't be seen."""
    return tuple(p for p in all_processors(provider) if not isinstance(p, ProviderHook))


def all_processors(provider: object) -> tuple[Any, ...]:
    """The provider's own tuple of processors: another one as soon as one is added."""
    multi = getattr(provider, "_active_span_processor", None)
    return getattr(multi, "_span_processors", ())


def _pass_on(provider: TracerProvider, span: ReadableSpan) -> None:
    for processor in processors_of(provider):
        processor.on_end(span)
