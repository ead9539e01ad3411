"""otelkit's place in a tracer provider: flushes include what it holds, and it sees spans that were not
chosen."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeGuard

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from otelkit.emit.otlp.exporters import BufferedSpanExporter
from otelkit.emit.promotion import Promotion

ADAPTED: Final = frozenset({"on_start", "on_end", "_on_ending"})
"""Methods that a program may replace on one processor, to label spans or to take something out of them."""


class ProviderHook(SpanProcessor):
    """Makes ``provider.force_flush()`` and ``provider.shutdown()`` include what otelkit still holds.

    One serves a provider for good, as processors can't be taken off again: its attributes are set anew by
    each instrumentation.
    """

    def __init__(self, provider: object) -> None:
        self.flush: Callable[[float], bool] = lambda timeout: True
        self.shutdown_seconds = 0.0
        self.promotion: Promotion | None = None
        self._provider = weakref.proxy(provider)
        if isinstance(provider, TracerProvider):
            self.promotion = Promotion(provider, lambda span: _pass_on(provider, span))

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: what matters is how a span ends."""

    def on_end(self, span: ReadableSpan) -> None:
        if self.promotion is not None:
            self.promotion.ended(span)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        end = time.monotonic() + timeout_millis / 1e3
        if not self.flush(timeout_millis / 1e3):
            return False
        # Spans that ended just now, while their generations were built, are with processors that may have had
        # their turn; and what those hand on is still to be delivered.
        for processor in processors_of(self._provider):
            processor.force_flush(max(0, int((end - time.monotonic()) * 1e3)))
        return self.flush(max(0.0, end - time.monotonic()))

    def shutdown(self) -> None:
        self.flush(self.shutdown_seconds)


_hooks: Final[weakref.WeakKeyDictionary[trace.TracerProvider, ProviderHook]] = weakref.WeakKeyDictionary()


def hook_into(provider: trace.TracerProvider) -> ProviderHook | None:
    """The provider's hook, added to it if it has none yet; None for a provider that takes no processors."""
    add = getattr(provider, "add_span_processor", None)
    if add is None:
        return None
    hook = _hooks.get(provider)
    if hook is None:
        hook = _hooks[provider] = ProviderHook(provider)
        add(hook)
    return hook


def only_batches(processors: tuple[Any, ...]) -> bool:
    """Whether a span may end a moment late without anybody noticing: the processors do nothing but keep it
    for a later batch, and a flush or shutdown asks otelkit before them.

    That holds for processors that otelkit has made itself. A program may flush its own past the provider, or
    all of a provider's at once in several threads.
    """
    return (
        len(processors) > 1
        and isinstance(processors[0], ProviderHook)
        and all(
            type(processor) is BatchSpanProcessor
            and not ADAPTED & vars(processor).keys()
            and is_own(processor.span_exporter)
            for processor in processors[1:]
        )
    )


def is_own(exporter: object) -> TypeGuard[BufferedSpanExporter]:
    """Whether an exporter does nothing but leave spans with its delivery."""
    return type(exporter) is BufferedSpanExporter and "export" not in vars(exporter)


def processors_of(provider: object) -> tuple[Any, ...]:
    """The user's span processors; an empty tuple when they can't be seen."""
    return tuple(p for p in all_processors(provider) if not isinstance(p, ProviderHook))


def all_processors(provider: object) -> tuple[Any, ...]:
    """The provider's own tuple of processors: another one as soon as one is added."""
    multi = getattr(provider, "_active_span_processor", None)
    return getattr(multi, "_span_processors", ())


def _pass_on(provider: TracerProvider, span: ReadableSpan) -> None:
    for processor in processors_of(provider):
        processor.on_end(span)
