"""Spans of generations that are made or ended in the background thread, where nobody can tell the difference.

To have the SDK make a span and end it takes 20 to 40 microseconds, nearly all of it for what may happen in
between: locks, processors that see it begin, attributes that come one by one. A span that is made when all of
it is known, and that nobody sees before it is exported, needs none of that: it is written as the bytes that
are exported. Where the official encoder is needed for it, it is a ``ReadableSpan``, as the SDK's own ``end``
makes one, handed to the processors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, Tracer, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    Decision,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    SamplingResult,
    StaticSampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otelkit import __version__, semconv
from otelkit.emit.hook import all_processors, only_batches
from otelkit.emit.otlp.span_encoder import UNSET, SpanEncoder
from otelkit.model import SpanIdentity
from otelkit.record import guard
from otelkit.record.attributes import Shared
from otelkit.record.span import RANDOM_TRACE_ID

_FLAGS: Final = [TraceFlags(flags) for flags in range(4)]
_MAX_SHARED: Final = 256
Take = Callable[[bytes], bool]
"""Takes an encoded span, to be exported with the token steps; False where it can't."""


@dataclass(frozen=True, slots=True)
class _Judgement:
    """What is known of a tracer provider, for as long as it has the same processors."""

    provider: trace.TracerProvider | None = None
    processors: tuple[Any, ...] = ()
    only_batches: bool = False
    maker: _Maker | None = None


class LateSpans:
    """``record.late.LateSpans`` for the global tracer provider.

    Args:
        has_room: whether a generation that is handed in now will surely be worked on.
        take: called in the thread that builds the generations' records.
        on_provider: called before anything is asked of a provider that was not in use before.
    """

    def __init__(
        self, has_room: Callable[[], bool], take: Take, on_provider: Callable[[], object] = lambda: None
    ) -> None:
        self._has_room = has_room
        self._take = take
        self._on_provider = on_provider
        self._last = _Judgement()

    # Both ask whether the last judgement still holds without the function for it: it would cost the request's
    # path a microsecond.
    def can_begin(self) -> bool:
        last, provider = self._last, getattr(trace, "_TRACER_PROVIDER", None)
        multi = getattr(provider, "_active_span_processor", None)
        if provider is not last.provider or getattr(multi, "_span_processors", None) is not last.processors:
            last = self._judgement()
        maker = last.maker
        return maker is not None and maker.tracer.sampler is maker.sampler and maker.is_enabled()

    def can_end(self) -> bool:
        last, provider = self._last, getattr(trace, "_TRACER_PROVIDER", None)
        multi = getattr(provider, "_active_span_processor", None)
        if provider is not last.provider or getattr(multi, "_span_processors", None) is not last.processors:
            last = self._judgement()
        return last.only_batches and self._has_room()

    def make(
        self,
        name: str,
        surrounding: Context,
        sent: Mapping[str, Any],
        others: Mapping[str, Any],
        *,
        start_ns: int,
        end_ns: int,
        error: str | None,
    ) -> SpanIdentity | None:
        maker = self._judgement().maker  # asked again: the program may have added a processor
        if maker is None or maker.tracer.sampler is not maker.sampler or not maker.is_enabled():
            return None
        status = UNSET if error is None else Status(StatusCode.ERROR, error)
        return maker.make(name, surrounding, sent, others, start_ns, end_ns, status)

    def _judgement(self) -> _Judgement:
        last = self._last
        # Without the functions that there are for both: they would cost a microsecond.
        provider = getattr(trace, "_TRACER_PROVIDER", None) or trace.get_tracer_provider()
        multi = getattr(provider, "_active_span_processor", None)
        if provider is last.provider and getattr(multi, "_span_processors", ()) is last.processors:
            return last
        if provider is not last.provider:
            self._on_provider()
        processors = all_processors(provider)
        last = self._last = _Judgement(provider, processors)
        try:
            last = self._last = _judge(provider, processors, self._take)
        except Exception:  # some of it is no public part of the SDK
            guard.fault("look at the tracer provider")
        return last


def _judge(provider: trace.TracerProvider, processors: tuple[Any, ...], take: Take) -> _Judgement:
    if not only_batches(processors) or not isinstance(provider, TracerProvider):
        return _Judgement(provider, processors)
    tracer = provider.get_tracer(semconv.SCOPE, __version__)
    if isinstance(tracer, Tracer) and _is_plain(tracer) and _decides_by_parent_and_id(tracer.sampler):
        return _Judgement(provider, processors, True, _Maker(tracer, take))
    return _Judgement(provider, processors, True)


def _is_plain(tracer: Tracer) -> bool:
    """Whether a tracer does nothing but make spans, with ids that don't tell when; X-Ray's begin with the
    time."""
    metrics = type(getattr(tracer, "_tracer_metrics", None)).__name__
    return metrics in ("NoneType", "NoOpTracerMetrics") and type(tracer.id_generator) is RandomIdGenerator


def _decides_by_parent_and_id(sampler: Sampler) -> bool:
    """Whether it doesn't matter to a sampler when it is asked, and with which attributes."""
    if type(sampler) in (ParentBased, ParentBasedTraceIdRatio):
        return all(_decides_by_parent_and_id(part) for part in vars(sampler).values())
    return type(sampler) in (StaticSampler, TraceIdRatioBased)


class _Maker:
    """Makes whole spans of one tracer."""

    def __init__(self, tracer: Tracer, take: Take) -> None:
        self.tracer = tracer
        self._take = take
        self._encoder = SpanEncoder()
        self._shared: dict[int, tuple[Shared, bytes | None]] = {}
        """What attributes of requests are as bytes, by their identity; they are kept beside it, so that it
        stays taken."""
        self.sampler = tracer.sampler
        self._of_roots = _of_roots(tracer.sampler)
        self.is_enabled: Callable[[], bool] = getattr(tracer, "_is_enabled", lambda: True)
        self._scope = tracer._instrumentation_scope
        self._ids = tracer.id_generator
        is_random: Callable[[], bool] = getattr(self._ids, "is_trace_id_random", lambda: False)
        self._random = RANDOM_TRACE_ID if is_random() else 0
        limits: SpanLimits = tracer._span_limits
        self._most_attributes = limits.max_span_attributes
        self._longest_value = limits.max_span_attribute_length

    def make(
        self,
        name: str,
        surrounding: Context,
        sent: Mapping[str, Any],
        others: Mapping[str, Any],
        start_ns: int,
        end_ns: int,
        status: Status,
    ) -> SpanIdentity:
        """A span that has ended, on its way to the collector if it is sampled."""
        parent = trace.get_current_span(surrounding).get_span_context() if surrounding else None
        if parent is None or not parent.is_valid:
            parent = None
            trace_id = self._ids.generate_trace_id()
            random = self._random
        else:
            trace_id, random = parent.trace_id, parent.trace_flags & RANDOM_TRACE_ID
        decided = self._of_roots if parent is None else None
        if decided is None:
            attributes = {**sent, **others}
            kind = SpanKind.CLIENT
            decided = self.sampler.should_sample(surrounding, trace_id, name, kind, attributes, ())
        sampled, state = decided.decision is Decision.RECORD_AND_SAMPLE, decided.trace_state
        span_id = self._ids.generate_span_id()
        if sampled:
            encoded, dropped = self._encoded(sent, others)
            written = (
                None
                if encoded is None
                else self._encoder.span(
                    trace_id, span_id, state, parent, name, start_ns, end_ns, encoded, dropped, status
                )
            )
            if written is None or not self._take(written):
                context = SpanContext(trace_id, span_id, False, _FLAGS[1 | random], state)
                self._hand_on(name, context, parent, {**sent, **others}, start_ns, end_ns, status)
        return SpanIdentity(trace_id, span_id, sampled, state.to_header() if state else "", bool(random))

    def _encoded(self, sent: Mapping[str, Any], others: Mapping[str, Any]) -> tuple[bytes | None, int]:
        """Attributes as bytes, None where the official encoder should write them; and how many fell to the
        provider's limit."""
        most = self._most_attributes
        if (
            self._longest_value is not None
            or (most is not None and len(sent) + len(others) > most)
            or not sent.keys().isdisjoint(others)
        ):
            limited = self._limited({**sent, **others})
            return self._encoder.attributes(limited), limited.dropped
        known = self._shared.get(id(sent))
        first = known[1] if known is not None else self._sent(sent)
        then = self._encoder.attributes(others)
        return (None if first is None or then is None else first + then), 0

    def _sent(self, attributes: Mapping[str, Any]) -> bytes | None:
        encoded = self._encoder.attributes(attributes)
        if type(attributes) is Shared:
            if len(self._shared) >= _MAX_SHARED:
                self._shared.clear()
            self._shared[id(attributes)] = attributes, encoded
        return encoded

    def _hand_on(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: Mapping[str, Any],
        start_ns: int,
        end_ns: int,
        status: Status,
    ) -> None:
        span = ReadableSpan(
            name,
            context,
            parent,
            self.tracer.resource,
            self._limited(attributes),
            kind=SpanKind.CLIENT,
            status=status,
            start_time=start_ns,
            end_time=end_ns,
            instrumentation_scope=self._scope,
        )
        self.tracer.span_processor.on_end(span)

    def _limited(self, attributes: Mapping[str, Any]) -> BoundedAttributes:
        return BoundedAttributes(self._most_attributes, attributes, max_value_len=self._longest_value)


def _of_roots(sampler: Sampler) -> SamplingResult | None:
    """What a sampler decides for every span without a parent; None where it may decide otherwise for some."""
    root = getattr(sampler, "_root", None) if type(sampler) is ParentBased else sampler
    if type(root) is not StaticSampler:
        return None
    return root.should_sample(Context(), 0, "", SpanKind.CLIENT, {}, ())
