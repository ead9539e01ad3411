"""One token-step span as the official protobuf classes write it, and where in it the numbers are.

All spans of one layout have the same length and differ in the same bytes. The offsets are found by encoding a
span twice with one number changed, so nothing here knows how protobuf lays out a message.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, SpanFlags

from otelkit import semconv
from otelkit.model import SpanIdentity

CACHED_LAYOUTS: Final = 256
_NEXT_DOUBLE: Final = 1.0 + sys.float_info.epsilon
"""Differs from 1.0 in its lowest byte, which comes first on the wire."""


class Layout(NamedTuple):
    """What fixes the width of a span: the bytes taken by its varints, and which numbers it has."""

    index_bytes: int
    tokens_bytes: int
    """0: the number of tokens is unknown."""
    logprob: bool
    entropy: bool


PLAIN_LAYOUTS: Final = [Layout(index_bytes, 0, False, False) for index_bytes in range(10)]
"""Those of spans that have nothing but an index, by the bytes that it takes."""


class Template(NamedTuple):
    """One encoded span with the offsets of what differs; -1: not there."""

    encoded: bytes
    span_id: int
    start: int
    end: int
    step_index: int
    tokens: int
    logprob: int
    entropy: int


def varint_bytes(value: int) -> int:
    """Bytes that a number of at least 0 takes as a varint."""
    return max(1, (value.bit_length() + 6) // 7)


def smallest(size: int) -> int:
    """The smallest number whose varint takes ``size`` bytes."""
    return 0 if size == 1 else 1 << (7 * (size - 1))


def template(span: SpanIdentity, layout: Layout, attribute_limit: int) -> tuple[bytearray, Template]:
    """One encoded span of a layout as a child of ``span``, for the caller to change, and its offsets.

    Args:
        attribute_limit: at most this many attributes; the others are counted as dropped.
    """
    generic, trace_at, parent_at = _generic(layout, span.trace_state, attribute_limit)
    encoded = bytearray(generic.encoded)
    encoded[trace_at : trace_at + 16] = span.trace_id.to_bytes(16, "big")
    encoded[parent_at : parent_at + 8] = span.span_id.to_bytes(8, "big")
    return encoded, generic


def width(layout: Layout, trace_state: str, attribute_limit: int) -> int:
    """Bytes of one encoded span of a layout."""
    return len(_generic(layout, trace_state, attribute_limit)[0].encoded)


@lru_cache(maxsize=CACHED_LAYOUTS)
def _generic(layout: Layout, trace_state: str, attribute_limit: int) -> tuple[Template, int, int]:
    """The template without trace and parent, and where those go: the same for nearly all generations."""

    def build(trace_id: bytes, parent: bytes) -> Template:
        return _build(layout, trace_id, parent, trace_state, attribute_limit)

    zero = build(bytes(16), bytes(8))
    trace_at = _difference(zero.encoded, build(b"\xff" * 16, bytes(8)).encoded)
    parent_at = _difference(zero.encoded, build(bytes(16), b"\xff" * 8).encoded)
    return zero, trace_at, parent_at


@dataclass(frozen=True, slots=True)
class _Numbers:
    """Values to put into one span."""

    span_id: bytes
    start: int
    end: int
    index: int
    tokens: int | None
    logprob: float | None
    entropy: float | None


def _build(
    layout: Layout, trace_id: bytes, parent: bytes, trace_state: str, attribute_limit: int
) -> Template:
    def encoded(numbers: _Numbers) -> bytes:
        return _encode_one(trace_id, parent, trace_state, numbers, attribute_limit)

    base = _Numbers(
        span_id=bytes(8),
        start=0x0101010101010101,
        end=0x0101010101010101,
        index=smallest(layout.index_bytes),
        tokens=smallest(layout.tokens_bytes) if layout.tokens_bytes else None,
        logprob=1.0 if layout.logprob else None,
        entropy=1.0 if layout.entropy else None,
    )
    written = encoded(base)

    def offset(**changed: Any) -> int:
        return _difference(written, encoded(replace(base, **changed)))

    # Each change alters the first byte of its number.
    return Template(
        encoded=written,
        span_id=offset(span_id=b"\xff" * 8),
        start=offset(start=0x0202020202020202),
        end=offset(end=0x0202020202020202),
        step_index=offset(index=base.index + 1),
        tokens=offset(tokens=base.tokens + 1) if base.tokens is not None else -1,
        logprob=offset(logprob=_NEXT_DOUBLE) if layout.logprob else -1,
        entropy=offset(entropy=_NEXT_DOUBLE) if layout.entropy else -1,
    )


def _difference(one: bytes, other: bytes) -> int:
    """Offset of the first byte that differs; -1 when none does (the attribute fell to the limit)."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), -1)


def _encode_one(
    trace_id: bytes, parent: bytes, trace_state: str, numbers: _Numbers, attribute_limit: int
) -> bytes:
    """One span with the tag and length it has inside ``ScopeSpans``."""
    attributes = [KeyValue(key=semconv.STEP_INDEX, value=AnyValue(int_value=numbers.index))]
    if numbers.tokens is not None:
        attributes.append(KeyValue(key=semconv.STEP_TOKENS, value=AnyValue(int_value=numbers.tokens)))
    if numbers.logprob is not None:
        attributes.append(KeyValue(key=semconv.STEP_LOGPROB, value=AnyValue(double_value=numbers.logprob)))
    if numbers.entropy is not None:
        attributes.append(KeyValue(key=semconv.STEP_ENTROPY, value=AnyValue(double_value=numbers.entropy)))
    span = Span(
        trace_id=trace_id,
        span_id=numbers.span_id,
        trace_state=trace_state,
        parent_span_id=parent,
        name=semconv.TOKEN_STEP_SPAN,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=numbers.start,
        end_time_unix_nano=numbers.end,
        attributes=attributes[:attribute_limit],
        dropped_attributes_count=len(attributes[attribute_limit:]),
        flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
    )
    encoded: bytes = ScopeSpans(spans=[span]).SerializeToString(deterministic=True)
    return encoded
