"""Spans that otelkit's exporter writes are, byte for byte, what the official encoder would write."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from otelkit.emit import self_metrics
from otelkit.emit.otlp.exporters import BufferedSpanExporter
from otelkit.emit.otlp.span_encoder import MAX_KNOWN, SpanEncoder

TEXT = st.text(st.characters(codec="utf-8"), max_size=200)
VALUES = st.one_of(
    TEXT,
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.lists(TEXT, max_size=3),
    st.lists(st.integers(0, 300), max_size=40),
    st.lists(st.floats(), max_size=20),
)
CONTEXTS = st.builds(
    SpanContext,
    st.integers(1, (1 << 128) - 1),
    st.integers(1, (1 << 64) - 1),
    st.booleans(),
    st.just(TraceFlags(1)),
    st.sampled_from([TraceState(), TraceState([("vendor", "a"), ("b", "c=d")])]),
)
STATUSES = st.one_of(
    st.just(Status()), st.just(Status(StatusCode.OK)), st.builds(Status, st.just(StatusCode.ERROR), TEXT)
)


class Numbered(IdGenerator):
    """Ids without chance, as hypothesis wants it."""

    numbers = itertools.count(1)

    def generate_span_id(self) -> int:
        return next(self.numbers)

    def generate_trace_id(self) -> int:
        return next(self.numbers)


PROVIDER = TracerProvider(
    resource=Resource({"service.name": "chät", "n": 1}, "https://example.com/resource"),
    id_generator=Numbered(),
)
TRACERS = (
    PROVIDER.get_tracer("otelkit", "1"),
    PROVIDER.get_tracer("another", schema_url="https://example.com/scope"),
    PROVIDER.get_tracer("described", attributes={"a": 1}),
)


@st.composite
def spans(draw: st.DrawFn) -> ReadableSpan:
    parent = draw(st.one_of(st.none(), CONTEXTS))
    links = draw(st.sampled_from([(), (), (Link(SpanContext(1, 2, True), {"x": "y"}),)]))
    span: Any = draw(st.sampled_from(TRACERS)).start_span(
        draw(TEXT),
        set_span_in_context(NonRecordingSpan(parent)) if parent else None,
        draw(st.sampled_from(list(SpanKind))),
        draw(
            st.dictionaries(
                st.text(st.characters(codec="utf-8"), min_size=1, max_size=150), VALUES, max_size=6
            )
        ),
        links,
        draw(st.integers(1, 1 << 62)),
    )
    span.set_status(draw(STATUSES))
    if draw(st.integers(0, 9)) == 0:
        span.add_event("event", {"a": 1})
    span.end(draw(st.integers(1, 1 << 62)))
    ended: ReadableSpan = span._readable_span()
    return ended


def by_id(body: bytes) -> dict[bytes, tuple[Any, ...]]:
    """Each span's own bytes with those of its resource and scope."""
    found = {}
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in resource.scope_spans:
            about = (resource.resource, resource.schema_url, scope.scope, scope.schema_url)
            for span in scope.spans:
                found[span.span_id] = (span.SerializeToString(deterministic=True), *map(str, about))
    return found


@settings(deadline=None, max_examples=80)
@given(st.lists(spans(), min_size=1, max_size=6))
def test_spans_are_what_the_official_encoder_writes(batch: list[ReadableSpan]) -> None:
    """Otherwise a collector gets other attributes, times or parents than those that were recorded."""
    encoder = SpanEncoder()
    expected = by_id(encode_spans(batch).SerializeToString())
    for _ in range(2):  # what is remembered of the first must not spoil the second
        assert by_id(encoder.encode(batch)) == expected


@settings(deadline=None, max_examples=40)
@given(spans())
def test_one_span_is_written_canonically(span: ReadableSpan) -> None:
    """Otherwise a strict receiver could refuse it: the bytes must be those of the official classes."""
    assert SpanEncoder().encode([span]) == encode_spans([span]).SerializeToString(deterministic=True)


def test_text_that_is_no_unicode_costs_one_attribute_only() -> None:
    """Otherwise half a surrogate pair in one attribute would lose a batch of spans."""
    span: Any = TRACERS[0].start_span("a", attributes={"good": 1})
    span._attributes._dict["bad"] = "\ud800"
    span.end()
    body = SpanEncoder().encode([span._readable_span()])
    ((written, *_),) = by_id(body).values()
    assert b"good" in written


class Told:
    """In the place of a delivery and of its counts."""

    def __init__(self) -> None:
        self.counts = self
        self.bodies: list[bytes] = []
        self.reasons: list[tuple[int, str]] = []

    def put(self, body: bytes, items: int) -> None:
        self.bodies.append(bytes(body))

    def written(self, spans: int) -> None: ...

    def dropped(self, spans: int, reason: str) -> None:
        self.reasons.append((spans, reason))


def test_a_name_that_is_no_unicode_costs_one_span_only() -> None:
    """Otherwise one request for a model of such a name loses the spans of all other requests in the batch."""
    told = Told()
    names = ["chat a", "chat b", "chat \ud800", "chat c", "chat d"]
    spans = [TRACERS[0].start_span(name) for name in names]
    for span in spans:
        span.end()
    BufferedSpanExporter(told, 1 << 20).export([span._readable_span() for span in spans])  # type: ignore
    exported = [written for body in told.bodies for written, *_ in by_id(body).values()]
    assert len(exported) == 4
    assert told.reasons == [(1, self_metrics.EXPORT_FAILED)]


def test_a_batch_that_was_broken_off_leaves_nothing_behind() -> None:
    """Otherwise a process that is forked in the middle of one sends its parent's spans once more."""

    class Breaking(ReadableSpan):
        @property
        def kind(self) -> SpanKind:
            raise InterruptedError

    first, second = (TRACERS[0].start_span(name) for name in ("first", "second"))
    for span in (first, second):
        span.end()
    encoder = SpanEncoder()
    broken = Breaking("broken", SpanContext(1, 1, False), start_time=1, end_time=2)
    broken._instrumentation_scope = first._instrumentation_scope
    with pytest.raises(InterruptedError):
        encoder.encode([first._readable_span(), broken])
    assert len(by_id(encoder.encode([second._readable_span()]))) == 1


def test_what_is_remembered_is_bounded() -> None:
    """Otherwise response ids would fill the memory of a service over weeks."""
    encoder = SpanEncoder()
    for number in range(2 * MAX_KNOWN):
        span: Any = TRACERS[0].start_span("a", attributes={"id": f"response-{number}"})
        span.end()
        encoder.encode([span._readable_span()])
    assert max(len(encoder._texts), len(encoder._attributes)) <= MAX_KNOWN
