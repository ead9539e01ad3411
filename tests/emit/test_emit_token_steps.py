"""Token-step spans are canonical OTLP: official decoders read exactly what was recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from emit_generations import START, generation, identity
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otelkit.emit import token_steps
from otelkit.emit.otlp.envelope import Envelope
from otelkit.model import Generation, SpanIdentity
from otelkit.record.times import gaps, shifted

UINT64 = (1 << 64) - 1


def decode(encoded: bytes) -> Sequence[Span]:
    return ScopeSpans.FromString(encoded).spans


def numbers_of(span: Span) -> dict[str, Any]:
    return {
        item.key.removeprefix("otelkit.step."): getattr(item.value, item.value.WhichOneof("value"))
        for item in span.attributes
    }


def optional(values: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[Any]:
    """A column that is missing, complete, or has holes."""
    return st.one_of(
        st.none(),
        st.lists(values, min_size=size, max_size=size),
        st.lists(st.one_of(st.none(), values), min_size=size, max_size=size),
    )


@st.composite
def generations(draw: st.DrawFn) -> Generation:
    size = draw(st.one_of(st.integers(1, 40), st.integers(120, 140)))
    start = draw(st.integers(1, 1 << 62))
    times, now = [], start
    for gap in draw(st.lists(st.integers(0, 1 << 40), min_size=size, max_size=size)):
        now += gap
        times.append(now)
    tokens = draw(optional(st.integers(0, 1 << 40), size))
    logprobs = draw(optional(st.floats(width=64), size))
    entropies = draw(optional(st.floats(width=64), size))
    state = draw(st.sampled_from(["", "vendor=värde", "a=1,b=" + "x" * 200]))
    return generation(
        start_ns=start,
        step_ns=times,
        step_tokens=tokens,
        step_logprobs=logprobs,
        step_entropies=entropies,
        span=SpanIdentity(draw(st.integers(1, (1 << 128) - 1)), draw(st.integers(1, UINT64)), True, state),
    )


def same(one: object, other: object) -> bool:
    return one == other or (isinstance(one, float) and math.isnan(one) and isinstance(other, float))


@settings(deadline=None, max_examples=60)
@given(generations())
def test_every_field_reads_back(recorded: Generation) -> None:
    """Otherwise a receiver sees other times, parents or numbers than those that were recorded."""
    count = len(recorded.step_ns)
    encoded = token_steps.encode(recorded, (range(count),))
    # Canonical: the official classes write the very same bytes.
    assert ScopeSpans.FromString(encoded).SerializeToString(deterministic=True) == encoded
    spans = sorted(decode(encoded), key=lambda span: numbers_of(span)["index"])
    assert len(spans) == count
    assert len({span.span_id for span in spans}) == count
    assert recorded.span is not None
    previous = recorded.start_ns
    for i, span in enumerate(spans):
        assert span.name == "token_step"
        assert span.kind == Span.SPAN_KIND_INTERNAL
        assert int.from_bytes(span.trace_id, "big") == recorded.span.trace_id
        assert int.from_bytes(span.parent_span_id, "big") == recorded.span.span_id
        assert span.trace_state == recorded.span.trace_state
        assert (span.start_time_unix_nano, span.end_time_unix_nano) == (previous, recorded.step_ns[i])
        previous = recorded.step_ns[i]
        expected = {"index": i}
        for name, column in (
            ("tokens", recorded.step_tokens),
            ("logprob", recorded.step_logprobs),
            ("entropy", recorded.step_entropies),
        ):
            if column is not None and column[i] is not None:
                expected[name] = column[i]
        actual = numbers_of(span)
        assert actual.keys() == expected.keys()
        assert all(same(actual[name], expected[name]) for name in expected)


def test_long_generations_read_back() -> None:
    """Otherwise the indices of a 50,000-token stream, which take up to three bytes, would be wrong."""
    recorded = generation(50_000, gap_ns=20_000_000)
    encoded = token_steps.encode(recorded, (range(50_000),))
    assert ScopeSpans.FromString(encoded).SerializeToString(deterministic=True) == encoded
    spans = decode(encoded)
    assert [span.attributes[0].value.int_value for span in spans] == list(range(50_000))
    assert [span.end_time_unix_nano for span in spans] == recorded.step_ns
    assert len({span.span_id for span in spans}) == 50_000


ATTRIBUTES = st.dictionaries(
    st.text(min_size=1, max_size=20),
    st.one_of(
        st.text(max_size=40),
        st.booleans(),
        st.integers(-(1 << 63), (1 << 63) - 1),
        st.floats(allow_nan=False),
        st.lists(st.text(max_size=5), max_size=3),
    ),
    max_size=5,
)


def text() -> st.SearchStrategy[str]:
    """Any text that UTF-8 can carry: protobuf has no other."""
    return st.text(st.characters(codec="utf-8"), max_size=30)


@settings(deadline=None, max_examples=60)
@given(ATTRIBUTES, text(), text(), text(), st.lists(st.integers(1, 300), max_size=4))
def test_requests_are_what_the_official_classes_would_write(
    resource: dict[str, Any], schema: str, scope: str, version: str, sizes: list[int]
) -> None:
    """Otherwise a strict receiver refuses the request, or resource and scope are lost."""
    resource = {
        key.encode("utf-8", "replace").decode(): value.encode("utf-8", "replace").decode()
        if isinstance(value, str)
        else value
        for key, value in resource.items()
    }
    pieces = [token_steps.encode(generation(size), (range(size),)) for size in sizes]
    body = Envelope(resource, schema, scope, version).wrap(pieces)
    request = ExportTraceServiceRequest.FromString(body)
    assert request.SerializeToString(deterministic=True) == body
    (spans_of_resource,) = request.resource_spans
    assert [item.key for item in spans_of_resource.resource.attributes] == list(resource)
    assert spans_of_resource.schema_url == schema
    (spans_of_scope,) = spans_of_resource.scope_spans
    assert (spans_of_scope.scope.name, spans_of_scope.scope.version) == (scope, version)
    assert len(spans_of_scope.spans) == sum(sizes)


def test_only_the_chosen_steps_are_written() -> None:
    """Otherwise limits per generation would not limit, or would shift times and indices."""
    recorded = generation(1000)
    spans = decode(token_steps.encode(recorded, (range(2), range(998, 1000))))
    assert [numbers_of(span)["index"] for span in spans] == [0, 1, 998, 999]
    assert [span.end_time_unix_nano for span in spans] == [recorded.step_ns[i] for i in (0, 1, 998, 999)]
    assert spans[2].start_time_unix_nano == recorded.step_ns[997]


def test_span_limits_cut_attributes_and_say_so() -> None:
    """Otherwise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT would hold for all spans but ours."""
    recorded = generation(3, step_tokens=[1, 2, 3], step_logprobs=[-0.1, -0.2, -0.3])
    spans = decode(token_steps.encode(recorded, (range(3),), attribute_limit=2))
    assert [numbers_of(span) for span in spans] == [{"index": i, "tokens": i + 1} for i in range(3)]
    assert {span.dropped_attributes_count for span in spans} == {1}
    bare = decode(token_steps.encode(recorded, (range(3),), attribute_limit=0))
    assert [numbers_of(span) for span in bare] == [{}] * 3
    assert {span.dropped_attributes_count for span in bare} == {3}


def test_times_that_run_backwards_are_written_as_they_are() -> None:
    """Otherwise a clock that was set back would give spans at times nobody recorded."""
    times = [START + 5_000_000_000, START + 1, START + (1 << 45)]
    spans = decode(token_steps.encode(generation(3, step_ns=times), (range(3),)))
    assert [span.end_time_unix_nano for span in spans] == times


@pytest.mark.parametrize("times", [(10, 20, 300), (300, 20, 1 << 40), (20, 20, 20), (1, 10, 20)])
def test_times_are_the_same_whatever_is_known_of_them(times: tuple[int, ...]) -> None:
    """Broken: steps whose times run backwards, or begin before their generation, are exported at others."""
    start = 1_700_000_000_000_000_005
    packed = shifted(times, 1_700_000_000_000_000_000)
    gaps(packed)
    ids, span = token_steps.numbered_span_ids(3), identity()
    known, unknown = (
        token_steps.encode(
            generation(3, start_ns=start, step_ns=steps, span=span), (range(3),), span_ids=lambda count: ids
        )
        for steps in (packed, tuple(packed))
    )
    assert known == unknown
    assert [span.end_time_unix_nano for span in decode(known)] == list(packed)


def test_odd_columns_do_no_harm() -> None:
    """Otherwise a provider's bug (short or negative columns) would cost all spans of the generation."""
    recorded = generation(3, step_tokens=[-1, 5], step_logprobs=[])
    spans = sorted(
        decode(token_steps.encode(recorded, (range(3),))), key=lambda span: span.end_time_unix_nano
    )
    assert [numbers_of(span) for span in spans] == [{"index": 0}, {"index": 1, "tokens": 5}, {"index": 2}]


def test_span_ids_come_from_the_given_generator() -> None:
    """Otherwise users with an id generator of their own, or tests with fixed ids, would see random ones."""

    def ids(count: int) -> token_steps.Columns:
        return token_steps.columns_of(bytes(range(1, 8 * count + 1)))

    spans = decode(token_steps.encode(generation(3), (range(3),), span_ids=ids))
    assert [span.span_id for span in spans] == [bytes(range(8 * i + 1, 8 * i + 9)) for i in range(3)]


def test_a_generation_without_a_span_is_refused() -> None:
    """Otherwise steps would be sent with a trace id of zeros, which receivers reject."""
    with pytest.raises(ValueError, match="without a span"):
        token_steps.encode(generation(3, span=None), (range(3),))


def test_templates_do_not_leak_between_generations() -> None:
    """Otherwise a cached template would give one generation the trace of another."""
    one, other = identity(), identity()
    for span in (one, other, one):
        (written, *_) = decode(token_steps.encode(generation(2, span=span), (range(2),)))
        assert int.from_bytes(written.trace_id, "big") == span.trace_id
