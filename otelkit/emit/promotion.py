"""Exports traces that were recorded but not chosen, once it turns out that they should have been."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

from otelkit.emit.sampler import AdaptiveSampler

MAX_SPANS: Final = 4_096
"""Ended spans that are held in the hope of a reason to export them, in all."""
MAX_PROMOTED: Final = 4_096


class Promotion:
    """Holds spans that ``AdaptiveSampler`` did not choose, and exports those of a trace once one is promoted.

    Spans end in the request's path, so work there is a dictionary update; the lock is never held across an
    export.

    Args:
        provider: whose sampler decides.
        export: takes promoted spans, marked as sampled.
    """

    def __init__(self, provider: TracerProvider, export: Callable[[ReadableSpan], None]) -> None:
        self._provider = provider
        self._export = export
        self._lock = threading.Lock()
        self._held: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._count = 0
        self._promoted: OrderedDict[int, None] = OrderedDict()

    @property
    def active(self) -> bool:
        """Whether spans that are recorded but not sampled are of our sampler's making; others are not
        ours."""
        return isinstance(self._provider.sampler, AdaptiveSampler)

    def ended(self, span: ReadableSpan) -> None:
        """A span has ended; called for every span of the provider."""
        context = span.get_span_context()
        if context is None or context.trace_flags.sampled or not self.active:
            return
        trace_id = context.trace_id
        with self._lock:
            promoted = trace_id in self._promoted
            if not promoted:
                self._hold(trace_id, span)
        if promoted:
            self._export(_sampled(span))
        elif span.status.status_code is StatusCode.ERROR:
            self.promote(trace_id)

    def promote(self, trace_id: int) -> None:
        """Export what was held of a trace, and whatever of it ends from now on."""
        with self._lock:
            self._promoted[trace_id] = None
            if len(self._promoted) > MAX_PROMOTED:
                self._promoted.popitem(last=False)
            spans = self._held.pop(trace_id, [])
            self._count -= len(spans)
        for span in spans:
            self._export(_sampled(span))

    def after_fork(self) -> None:
        """In the child: another thread may have held the lock, and what is held is the parent's."""
        self._lock = threading.Lock()
        self._held.clear()
        self._count = 0

    def is_promoted(self, trace_id: int) -> bool:
        return trace_id in self._promoted

    def _hold(self, trace_id: int, span: ReadableSpan) -> None:
        self._held.setdefault(trace_id, []).append(span)
        self._count += 1
        while self._count > MAX_SPANS:
            _, oldest = self._held.popitem(last=False)
            self._count -= len(oldest)


def _sampled(span: ReadableSpan) -> ReadableSpan:
    """The same span, marked as sampled: processors leave out any that is not."""
    return ReadableSpan(
        name=span.name,
        context=_marked(span.get_span_context()),
        parent=_marked(span.parent),
        resource=span.resource,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
        kind=span.kind,
        status=span.status,
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _marked(context: SpanContext | None) -> SpanContext | None:
    if context is None:
        return None
    flags = TraceFlags(context.trace_flags | TraceFlags.SAMPLED)
    return SpanContext(context.trace_id, context.span_id, context.is_remote, flags, context.trace_state)
