"""Token-step spans as OTLP bytes, written by column instead of by span.

All token-step spans of a generation share trace id, parent, name and attribute keys; only span id, start, end
and a few numbers differ, and those have a fixed width in protobuf as long as the varints among them do. So
one span is encoded by the official protobuf classes, repeated n times, and each byte that differs is filled
in for all n spans by one strided slice assignment. That is about forty such assignments for a generation,
whatever its length, and the result is byte for byte what the official classes would have written.
"""

from __future__ import annotations

import array
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span, SpanFlags

from otelkit import semconv
from otelkit.model import Generation, SpanIdentity

SpanIds = Callable[[int], bytes]
"""Makes n span ids: 8 * n bytes, none of the ids all zero."""

DEFAULT_ATTRIBUTE_LIMIT: Final = 128
_TABLED_INDEX_BYTES: Final = 2
"""Indices below 16,384 come from a table of 33 kB."""
_CACHED_LAYOUTS: Final = 256


def random_span_ids(count: int) -> bytes:
    """Span ids from the operating system: the user's own random stream is left alone, and a fork needs no
    care."""
    ids = os.urandom(8 * count)
    if b"\0\0\0\0\0\0\0\0" in ids and any(not any(ids[i : i + 8]) for i in range(0, len(ids), 8)):
        return random_span_ids(count)
    return ids


class _Layout(NamedTuple):
    """What fixes the width of a span: the bytes taken by its varints, and which numbers it has."""

    index_bytes: int
    tokens_bytes: int
    """0: the number of tokens is unknown."""
    logprob: bool
    entropy: bool


class _Template(NamedTuple):
    """One encoded span with the offsets of what differs; a negative offset: not there."""

    encoded: bytes
    span_id: int
    start: int
    end: int
    step_index: int
    tokens: int
    logprob: int
    entropy: int


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


def encode(
    generation: Generation,
    steps: Iterable[range],
    *,
    span_ids: SpanIds = random_span_ids,
    attribute_limit: int = DEFAULT_ATTRIBUTE_LIMIT,
) -> bytes:
    """Token-step spans of one generation, as the repeated field ``spans`` of an OTLP ``ScopeSpans``.

    Args:
        generation: must have a span, and times after the epoch.
        steps: which of its steps, as ranges of indices.
        attribute_limit: at most this many attributes on a span; the others are counted as dropped.
    """
    span = generation.span
    if span is None:
        raise ValueError("a generation without a span has no token-step spans: check `generation.span` first")
    written = bytearray()
    for chosen in steps:
        for layout, indices in _by_layout(generation, chosen):
            template = _template(span, layout, attribute_limit)
            written += _fill(template, layout, generation, indices, span_ids(len(indices)))
    return bytes(written)


def _by_layout(generation: Generation, chosen: range) -> Iterable[tuple[_Layout, Sequence[int]]]:
    """Group steps by layout; their order within a request means nothing."""
    tokens, logprobs, entropies = generation.step_tokens, generation.step_logprobs, generation.step_entropies
    start = chosen.start
    while start < chosen.stop:
        index_bytes = _varint_bytes(start)
        stop = min(chosen.stop, 1 << (7 * index_bytes))
        part = range(start, stop)
        uniform = _uniform(generation, index_bytes, part)
        if uniform is not None:
            yield uniform, part
        else:
            groups: dict[_Layout, list[int]] = {}
            for i in part:
                count = _at(tokens, i)
                layout = _Layout(
                    index_bytes,
                    _varint_bytes(int(count)) if count is not None and count >= 0 else 0,
                    _at(logprobs, i) is not None,
                    _at(entropies, i) is not None,
                )
                groups.setdefault(layout, []).append(i)
            yield from groups.items()
        start = stop


def _uniform(generation: Generation, index_bytes: int, part: range) -> _Layout | None:
    """The layout of all steps of ``part`` where they share one, found without looking at each in Python."""
    present = []
    tokens_bytes = 0
    for values in (generation.step_tokens, generation.step_logprobs, generation.step_entropies):
        if values is None:
            present.append(False)
            continue
        piece = values[part.start : part.stop]
        if len(piece) < len(part) or None in piece:
            return None
        present.append(True)
    if generation.step_tokens is not None:
        counts = [count or 0 for count in generation.step_tokens[part.start : part.stop]]
        tokens_bytes = _varint_bytes(max(counts))
        if min(counts) < 0 or _varint_bytes(min(counts)) != tokens_bytes:
            return None
    return _Layout(index_bytes, tokens_bytes, present[1], present[2])


def _at(values: Sequence[float | None] | None, i: int) -> float | None:
    return values[i] if values is not None and i < len(values) else None


def _varint_bytes(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _fill(
    template: _Template, layout: _Layout, generation: Generation, indices: Sequence[int], ids: bytes
) -> bytearray:
    width = len(template.encoded)
    times = generation.step_ns
    if isinstance(indices, range):
        ends = times[indices.start : indices.stop]
        first = indices.start
        starts = [times[first - 1] if first else generation.start_ns, *ends[:-1]]
    else:
        ends = [times[i] for i in indices]
        starts = [times[i - 1] if i else generation.start_ns for i in indices]

    one = bytearray(template.encoded)
    # Bytes in which no two times differ go into the span that is repeated.
    low, high = min(starts[0], min(ends)), max(starts[0], max(ends))
    varying = ((low ^ high).bit_length() + 7) // 8
    for offset in (template.start, template.end):
        one[offset : offset + 8] = low.to_bytes(8, "little")
    buffer = one * len(indices)

    def fill(offset: int, raw: bytes, size: int = 8) -> None:
        for k in range(size):
            buffer[offset + k :: width] = raw[k::8]

    def fill_varints(offset: int, columns: Sequence[bytes]) -> None:
        for k, column in enumerate(columns):
            buffer[offset + k :: width] = column

    fill(template.span_id, ids)
    fill(template.start, _little_endian("Q", starts), varying)
    fill(template.end, _little_endian("Q", ends), varying)
    if template.step_index >= 0:
        fill_varints(template.step_index, _index_columns(indices, layout.index_bytes))
    if template.tokens >= 0 and generation.step_tokens is not None:
        tokens = [generation.step_tokens[i] or 0 for i in indices]
        fill_varints(template.tokens, _varint_columns(tokens, layout.tokens_bytes))
    if template.logprob >= 0 and generation.step_logprobs is not None:
        fill(template.logprob, _little_endian("d", [generation.step_logprobs[i] or 0.0 for i in indices]))
    if template.entropy >= 0 and generation.step_entropies is not None:
        fill(template.entropy, _little_endian("d", [generation.step_entropies[i] or 0.0 for i in indices]))
    return buffer


def _varint_columns(values: Sequence[int], size: int) -> list[bytes]:
    """The k-th byte of each value's varint, for each k; all values have varints of ``size`` bytes."""
    return [
        bytes([(value >> 7 * k) & 0x7F | (0x80 if k + 1 < size else 0) for value in values])
        for k in range(size)
    ]


def _index_columns(indices: Sequence[int], size: int) -> Sequence[bytes]:
    if isinstance(indices, range) and size <= _TABLED_INDEX_BYTES:
        first = _smallest(size)
        return [c[indices.start - first : indices.stop - first] for c in _index_table(size)]
    return _varint_columns(indices, size)


@lru_cache(maxsize=_TABLED_INDEX_BYTES)
def _index_table(size: int) -> Sequence[bytes]:
    """Columns of all indices whose varints take ``size`` bytes: most generations are written from it."""
    return _varint_columns(range(_smallest(size), 1 << 7 * size), size)


def _little_endian(code: str, values: Sequence[float]) -> bytes:
    column = array.array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _template(span: SpanIdentity, layout: _Layout, attribute_limit: int) -> _Template:
    """The template of a layout, with this generation's trace and parent put in."""
    trace_id, parent = span.trace_id.to_bytes(16, "big"), span.span_id.to_bytes(8, "big")
    if span.trace_state:
        return _build(layout, trace_id, parent, span.trace_state, attribute_limit)
    template, trace_at, parent_at = _generic(layout, attribute_limit)
    encoded = bytearray(template.encoded)
    encoded[trace_at : trace_at + 16] = trace_id
    encoded[parent_at : parent_at + 8] = parent
    return template._replace(encoded=bytes(encoded))


@lru_cache(maxsize=_CACHED_LAYOUTS)
def _generic(layout: _Layout, attribute_limit: int) -> tuple[_Template, int, int]:
    """The template without trace and parent, and where those go: the same for nearly all generations."""
    zero = _build(layout, bytes(16), bytes(8), "", attribute_limit)
    trace_at = _difference(zero.encoded, _build(layout, b"\xff" * 16, bytes(8), "", attribute_limit).encoded)
    parent_at = _difference(zero.encoded, _build(layout, bytes(16), b"\xff" * 8, "", attribute_limit).encoded)
    return zero, trace_at, parent_at


def _build(
    layout: _Layout, trace_id: bytes, parent: bytes, trace_state: str, attribute_limit: int
) -> _Template:
    """Encode one span twice for each number that differs: where the bytes differ is where the number goes."""

    def encoded(numbers: _Numbers) -> bytes:
        return _encode_one(trace_id, parent, trace_state, numbers, attribute_limit)

    # Values of which every byte changes when they are replaced, and whose varints have the layout's width.
    low = _Numbers(
        span_id=bytes(8),
        start=0x0101010101010101,
        end=0x0101010101010101,
        index=_smallest(layout.index_bytes),
        tokens=_smallest(layout.tokens_bytes) if layout.tokens_bytes else None,
        logprob=1.0 if layout.logprob else None,
        entropy=1.0 if layout.entropy else None,
    )
    base = encoded(low)

    def offset(**changed: object) -> int:
        values = {name: getattr(low, name) for name in _Numbers.__dataclass_fields__} | changed
        return _difference(base, encoded(_Numbers(**values)))

    # 1.0 is 3ff0000000000000: the offset of a double is found by its lowest byte, which comes first.
    return _Template(
        encoded=base,
        span_id=offset(span_id=b"\xff" * 8),
        start=offset(start=0x0202020202020202),
        end=offset(end=0x0202020202020202),
        step_index=offset(index=low.index + 1),
        tokens=offset(tokens=low.tokens + 1) if low.tokens is not None else -1,
        logprob=offset(logprob=_NEXT_DOUBLE) if layout.logprob else -1,
        entropy=offset(entropy=_NEXT_DOUBLE) if layout.entropy else -1,
    )


_NEXT_DOUBLE: Final = 1.0 + sys.float_info.epsilon


def _smallest(varint_bytes: int) -> int:
    return 0 if varint_bytes == 1 else 1 << (7 * (varint_bytes - 1))


def _difference(one: bytes, other: bytes) -> int:
    """Offset of the first byte that differs; -1 when none does (the attribute fell to the limit)."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), -1)


def _encode_one(
    trace_id: bytes, parent: bytes, trace_state: str, numbers: _Numbers, attribute_limit: int
) -> bytes:
    """One span as the official classes write it, with the tag and length it has inside ``ScopeSpans``."""
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
