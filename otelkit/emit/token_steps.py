"""Token-step spans as OTLP bytes, written by column instead of by span.

All token-step spans of a generation share trace id, parent, name and attribute keys; only span id, start, end
and a few numbers differ, and those have a fixed width in protobuf as long as the varints among them do. So
one span is encoded by the official protobuf classes, repeated n times, and each byte that differs is filled
in for all n spans by one strided slice assignment. That is about twenty such assignments for a generation,
whatever its length, and the result is byte for byte what the official classes would have written.
"""

from __future__ import annotations

import os
import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otelkit.emit.step_template import (
    PLAIN_LAYOUTS,
    Layout,
    Template,
    smallest,
    template,
    varint_bytes,
    width,
)
from otelkit.model import Generation
from otelkit.record.times import Times, little_endian

DEFAULT_ATTRIBUTE_LIMIT: Final = 128
_SHORT: Final = 512
"""Steps of outputs whose columns of indices are kept: at most half a megabyte of them."""
_TABLED_INDEX_BYTES: Final = 2
"""Indices below 16,384 come from a table of 33 kB."""
_RANDOM_ID_BYTES: Final = 6
_NUMBERED_IDS: Final = 1 << 16


class Columns(NamedTuple):
    """Eight-byte values by column: what they have in common, and the bytes in which they differ."""

    common: bytes
    differing: Sequence[tuple[int, bytes]]
    """Offset in the value, and that byte of each value."""

    def picked(self, positions: Sequence[int]) -> list[tuple[int, bytes]]:
        """What differs, of the values at these positions."""
        return [(k, bytes([column[i] for i in positions])) for k, column in self.differing]


SpanIds = Callable[[int], Columns]
"""Makes n span ids, none of them all zero."""
_Groups = Sequence[tuple[Layout, Sequence[int]]]
"""Indices of steps by layout."""


_random: Final = random.Random()
"""Our own, so that a user's seeded stream is left alone, and quicker than to ask the operating system each
time."""
os.register_at_fork(after_in_child=_random.seed)


def numbered_span_ids(count: int) -> Columns:
    """Span ids of 48 random bits and a number: unique within a trace, and only two bytes of them differ."""
    if count > _NUMBERED_IDS:
        return columns_of(_random.randbytes(8 * count))
    random_part = _random.getrandbits(8 * _RANDOM_ID_BYTES) or 1
    prefix = random_part.to_bytes(_RANDOM_ID_BYTES)
    high, low = _number_table()
    differing = [(7, low[:count])] if count <= 256 else [(6, high[:count]), (7, low[:count])]
    return Columns(prefix + bytes(2), differing)


def columns_of(raw: bytes, surely: int = 0) -> Columns:
    """Columns of eight-byte values that stand one after the other.

    Args:
        surely: so many of the first columns are taken to differ, which spares the look.
    """
    common, count = raw[:8], len(raw) // 8
    differing = [(k, raw[k::8]) for k in range(surely)]
    for k in range(surely, 8):
        column = raw[k::8]
        if column.count(common[k]) < count:
            differing.append((k, column))
    return Columns(common, differing)


@lru_cache(maxsize=1)
def _number_table() -> tuple[bytes, bytes]:
    """High and low bytes of the numbers below 65,536."""
    return bytes(n >> 8 for n in range(_NUMBERED_IDS)), bytes(range(256)) * 256


def encode(
    generation: Generation,
    steps: Iterable[range],
    *,
    span_ids: SpanIds = numbered_span_ids,
    attribute_limit: int = DEFAULT_ATTRIBUTE_LIMIT,
) -> bytes:
    """``StepSpans`` for several ranges of steps, written into memory of their own."""
    written, end = bytearray(), 0
    for chosen in steps:
        spans = StepSpans(generation, chosen, span_ids=span_ids, attribute_limit=attribute_limit)
        end = spans.write(written, end)
    return bytes(written)


class StepSpans:
    """Token-step spans of one generation, as the repeated field ``spans`` of an OTLP ``ScopeSpans``. They are
    written when they are sent: until then they take a fifth of the memory, and memory that is written is
    then still in the processor's caches. Nothing else of the generation is held.

    Args:
        generation: must have a span, and times after the epoch.
        chosen: indices of the steps to write.
        attribute_limit: at most this many attributes on a span; the others are counted as dropped.
    """

    __slots__ = (
        "_attribute_limit",
        "_chosen",
        "_groups",
        "_ids",
        "_span",
        "size",
        "spans",
        "start_ns",
        "step_entropies",
        "step_logprobs",
        "step_ns",
        "step_tokens",
    )

    def __init__(
        self,
        generation: Generation,
        chosen: range,
        *,
        span_ids: SpanIds = numbered_span_ids,
        attribute_limit: int = DEFAULT_ATTRIBUTE_LIMIT,
    ) -> None:
        span = generation.span
        if span is None:
            raise ValueError(
                "a generation without a span has no token-step spans: check `generation.span` first"
            )
        self._span = span
        self.start_ns, self.step_ns = generation.start_ns, generation.step_ns
        self.step_tokens = generation.step_tokens
        self.step_logprobs, self.step_entropies = generation.step_logprobs, generation.step_entropies
        self._chosen, self._attribute_limit = chosen, attribute_limit
        self.spans = len(chosen)
        """How many they are."""
        self._ids = span_ids(len(chosen))
        if self.step_tokens is self.step_logprobs is self.step_entropies is None:
            groups, size = _plain(chosen.start, chosen.stop, span.trace_state, attribute_limit)
        else:
            groups = _by_layout(self, chosen)
            size = _size(groups, span.trace_state, attribute_limit)
        self._groups = groups
        self.size = size
        """Bytes that they take."""

    def write(self, into: bytearray, begin: int) -> int:
        """Write them over ``into`` from ``begin`` on, which is made longer where they don't fit.

        Returns:
            Where they end.
        """
        chosen = self._chosen
        if not chosen:
            return begin
        ids, times = self._ids, _times(self, chosen)
        for layout, indices in self._groups:
            one, at = template(self._span, layout, self._attribute_limit)
            for offset, columns in ((at.span_id, ids), (at.start, times), (at.end, times)):
                one[offset : offset + 8] = columns.common
            numbers = _numbers(one, at, layout, self, indices)
            step, count = len(one), len(indices)
            end = begin + step * count
            into[begin:end] = one * count
            id_at, start_at, end_at = begin + at.span_id, begin + at.start, begin + at.end
            if isinstance(indices, range):
                first = indices.start - chosen.start
                here, next_to_it = slice(first, first + count), slice(first + 1, first + count + 1)
                for k, column in ids.differing:
                    into[id_at + k : end : step] = column[here]
                for k, column in times.differing:
                    into[start_at + k : end : step] = column[here]
                    into[end_at + k : end : step] = column[next_to_it]
            else:
                positions = [i - chosen.start for i in indices]
                for k, column in ids.picked(positions):
                    into[id_at + k : end : step] = column
                for k, column in times.picked(positions):
                    into[start_at + k : end : step] = column
                for k, column in times.picked([i + 1 for i in positions]):
                    into[end_at + k : end : step] = column
            for offset, column in numbers:
                into[begin + offset : end : step] = column
            begin = end
        return begin


def _times(of: StepSpans, chosen: range) -> Columns:
    """Start of the first chosen step, then the end of each: a step begins where the one before it ended."""
    steps, first, stop = of.step_ns, chosen.start, chosen.stop
    start, last = steps[first - 1] if first else of.start_ns, steps[stop - 1]
    ends = steps if not first and stop == len(steps) else steps[first:stop]
    if not isinstance(ends, array):
        ends = array("Q", ends)
    raw = start.to_bytes(8, "little") + little_endian(ends)
    # Where times ascend, these are all bytes that differ.
    differing = ((start ^ last).bit_length() + 7) // 8
    if isinstance(steps, Times) and steps.ascending and start <= steps[first]:
        return Columns(raw[:8], [(k, raw[k::8]) for k in range(differing)])
    return columns_of(raw, differing)


def _numbers(
    one: bytearray, at: Template, layout: Layout, of: StepSpans, indices: Sequence[int]
) -> list[tuple[int, bytes]]:
    """Bytes of the attributes that are there and did not fall to the limit, each with its offset in a span.
    Those that all spans have in common go into ``one``."""
    numbers: list[tuple[int, bytes]] = []
    if at.step_index >= 0:
        numbers += enumerate(_index_columns(indices, layout.index_bytes), at.step_index)
    if at.tokens >= 0 and of.step_tokens is not None:
        tokens = [of.step_tokens[i] or 0 for i in indices]
        numbers += enumerate(_varint_columns(tokens, layout.tokens_bytes), at.tokens)
    if at.logprob < 0 and at.entropy < 0:
        return numbers
    for offset, values in ((at.logprob, of.step_logprobs), (at.entropy, of.step_entropies)):
        if offset >= 0 and values is not None:
            doubles = array("d", [values[i] or 0.0 for i in indices])
            common, differing = columns_of(little_endian(doubles))
            one[offset : offset + 8] = common
            numbers += [(offset + k, column) for k, column in differing]
    return numbers


def _by_layout(of: StepSpans, chosen: range) -> _Groups:
    """Group steps by layout; their order within a request means nothing."""
    groups: list[tuple[Layout, Sequence[int]]] = []
    for index_bytes, part in _by_index_bytes(chosen):
        uniform = _uniform_layout(of, index_bytes, part)
        if uniform is not None:
            groups.append((uniform, part))
        else:
            groups += _sorted_out(of, index_bytes, part)
    return groups


@lru_cache(maxsize=1_024)
def _plain(start: int, stop: int, trace_state: str, attribute_limit: int) -> tuple[_Groups, int]:
    """Groups of steps that have nothing but an index, and the bytes that they take."""
    groups = [(PLAIN_LAYOUTS[index_bytes], part) for index_bytes, part in _by_index_bytes(range(start, stop))]
    return groups, _size(groups, trace_state, attribute_limit)


def _size(groups: _Groups, trace_state: str, attribute_limit: int) -> int:
    return sum(len(indices) * width(layout, trace_state, attribute_limit) for layout, indices in groups)


def _by_index_bytes(chosen: range) -> list[tuple[int, range]]:
    """Parts whose indices have varints of the same number of bytes."""
    parts, start = [], chosen.start
    while start < chosen.stop:
        index_bytes = varint_bytes(start)
        part = range(start, min(chosen.stop, 1 << (7 * index_bytes)))
        parts.append((index_bytes, part))
        start = part.stop
    return parts


def _uniform_layout(of: StepSpans, index_bytes: int, part: range) -> Layout | None:
    """The layout of all steps of ``part`` where they share one, found without looking at each in Python."""
    tokens, logprobs, entropies = (
        None if values is None else values[part.start : part.stop]
        for values in (of.step_tokens, of.step_logprobs, of.step_entropies)
    )
    for values in (tokens, logprobs, entropies):
        if values is not None and (len(values) < len(part) or None in values):
            return None
    tokens_bytes = 0
    if tokens is not None:
        counts = [int(count or 0) for count in tokens]
        tokens_bytes = varint_bytes(max(counts))
        if min(counts) < smallest(tokens_bytes):
            return None
    return Layout(index_bytes, tokens_bytes, logprobs is not None, entropies is not None)


def _sorted_out(of: StepSpans, index_bytes: int, part: range) -> Iterable[tuple[Layout, Sequence[int]]]:
    groups: dict[Layout, list[int]] = {}
    for i in part:
        count = _at(of.step_tokens, i)
        layout = Layout(
            index_bytes,
            varint_bytes(int(count)) if count is not None and count >= 0 else 0,
            _at(of.step_logprobs, i) is not None,
            _at(of.step_entropies, i) is not None,
        )
        groups.setdefault(layout, []).append(i)
    return groups.items()


def _at(values: Sequence[float | None] | None, i: int) -> float | None:
    return values[i] if values is not None and i < len(values) else None


def _index_columns(indices: Sequence[int], size: int) -> Sequence[bytes]:
    if not isinstance(indices, range) or size > _TABLED_INDEX_BYTES:
        return _varint_columns(indices, size)
    start, stop = indices.start, indices.stop
    if stop > _SHORT:
        return _from_table(start, stop, size)
    return _from_table_once(start, stop, size)


def _from_table(start: int, stop: int, size: int) -> Sequence[bytes]:
    first = smallest(size)
    return [column[start - first : stop - first] for column in _index_table(size)]


_from_table_once: Final = lru_cache(maxsize=512)(_from_table)


@lru_cache(maxsize=_TABLED_INDEX_BYTES)
def _index_table(size: int) -> Sequence[bytes]:
    """Columns of all indices whose varints take ``size`` bytes: most generations are written from it."""
    return _varint_columns(range(smallest(size), 1 << 7 * size), size)


def _varint_columns(values: Sequence[int], size: int) -> list[bytes]:
    """The k-th byte of each value's varint, for each k; all values have varints of ``size`` bytes."""
    return [
        bytes([(value >> 7 * k) & 0x7F | (0x80 if k + 1 < size else 0) for value in values])
        for k in range(size)
    ]
