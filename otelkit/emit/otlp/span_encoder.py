"""The SDK's spans as OTLP bytes, at a sixth of the official encoder's cost for spans as ours are.

A span without events and links is written directly, byte for byte as the official classes would write it; any
other goes through them.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceState

from otelkit.emit.otlp.envelope import Envelope, varint

MAX_KNOWN: Final = 2_048
"""Texts (names of attributes, values that come again) whose encoding is kept."""
MAX_KNOWN_TEXT: Final = 64
"""Characters; longer ones seldom come again."""
_MAX_KNOWN_ATTRIBUTE: Final = 160
"""Bytes of a whole attribute that is kept, its name included."""
_MAX_GROUPS: Final = 64

_KINDS: Final = {
    SpanKind.INTERNAL: b"\x30\x01",
    SpanKind.SERVER: b"\x30\x02",
    SpanKind.CLIENT: b"\x30\x03",
    SpanKind.PRODUCER: b"\x30\x04",
    SpanKind.CONSUMER: b"\x30\x05",
}
_CLIENT: Final = _KINDS[SpanKind.CLIENT]
_TIMES: Final = struct.Struct("<BQBQ")
_DOUBLE: Final = struct.Struct("<Bd")
_FLAGS: Final = struct.Struct("<BBI")
_REMOTE: Final = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_LOCAL_FLAGS: Final = _FLAGS.pack(0x85, 0x01, SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
_REMOTE_FLAGS: Final = _FLAGS.pack(0x85, 0x01, _REMOTE)

# Tags: field number and wire type, as the protocol's files have them.
_TRACE_ID, _SPAN_ID, _TRACE_STATE, _PARENT, _NAME = b"\x0a\x10", b"\x12\x08", b"\x1a", b"\x22\x08", b"\x2a"
_START, _END, _ATTRIBUTE, _DROPPED_ATTRIBUTES, _STATUS = 0x39, 0x41, b"\x4a", b"\x50", b"\x7a"
_NO_STATUS: Final = b"\x7a\x00"
UNSET: Final = Status(StatusCode.UNSET)
"""The status of nearly all spans: known by its identity, it is written without a look."""
_KEY, _VALUE, _MESSAGE, _CODE = b"\x0a", b"\x12", b"\x12", b"\x18"
_STRING, _INT, _DOUBLE_VALUE, _ARRAY, _ITEM = b"\x0a", b"\x18", 0x21, b"\x2a", b"\x0a"
_TRUE, _FALSE = b"\x10\x01", b"\x10\x00"
_SPANS: Final = b"\x12"


class _Group(NamedTuple):
    """What spans of one resource and scope have around them. Compared by identity: the hash of a resource
    costs more than to encode a span."""

    resource: Resource
    scope: InstrumentationScope
    envelope: Envelope


class SpanEncoder:
    """Encodes batches of spans; for one thread at a time."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._attributes: dict[tuple[str, object], bytes] = {}
        """Whole attributes, of texts and tuples of them: 1, 1.0 and True are one key."""
        self._integers: dict[tuple[str, int], bytes] = {}
        """Whole attributes, of integers only."""
        self._prefixes: dict[tuple[str, int], bytes] = {}
        self._groups: list[_Group] = []

    def encode(self, spans: Sequence[ReadableSpan]) -> bytes:
        """An ``ExportTraceServiceRequest`` of these spans, those of one resource and scope together."""
        # Kept nowhere else: a process may be forked in the middle of this, and is not to send its parent's.
        groups: dict[int, tuple[Envelope, list[bytes]]] = {}
        others: list[ReadableSpan] = []
        for span in spans:
            written = self._plain(span)
            if written is None:
                others.append(span)
                continue
            envelope = self._envelope(span)
            if id(envelope) not in groups:
                groups[id(envelope)] = envelope, []
            groups[id(envelope)][1].append(written)
        bodies = [envelope.wrap(written) for envelope, written in groups.values()]
        del self._groups[_MAX_GROUPS:]
        if others:
            bodies.append(encode_spans(others).SerializeToString())
        # Requests one after the other are one request with the spans of all.
        return b"".join(bodies)

    def _envelope(self, span: ReadableSpan) -> Envelope:
        resource, scope = span.resource, span.instrumentation_scope
        for group in self._groups:
            if group.scope is scope and group.resource is resource:
                return group.envelope
        assert scope is not None
        envelope = Envelope(
            resource.attributes,
            resource.schema_url,
            scope.name,
            scope.version or "",
            scope_schema_url=scope.schema_url or "",
        )
        self._groups.insert(0, _Group(resource, scope, envelope))
        return envelope

    def _plain(self, span: ReadableSpan) -> bytes | None:
        """The span as a repeated field; None for one that the official encoder should write."""
        context, start, end = span.get_span_context(), span.start_time, span.end_time
        scope = span.instrumentation_scope
        if span.events or span.links or span.dropped_events or span.dropped_links:
            return None
        if scope is None or scope.attributes or context is None or not start or not end:
            return None
        attributes = self.attributes(_attributes(span))
        if attributes is None:
            return None
        return self.span(
            context.trace_id,
            context.span_id,
            context.trace_state,
            span.parent,
            span.name,
            start,
            end,
            attributes,
            span.dropped_attributes,
            span.status,
            span.kind,
        )

    def span(
        self,
        trace_id: int,
        span_id: int,
        trace_state: TraceState | None,
        parent: SpanContext | None,
        name: str,
        start: int,
        end: int,
        attributes: bytes,
        dropped_attributes: int,
        status: Status,
        kind: SpanKind = SpanKind.CLIENT,
    ) -> bytes | None:
        """A span without events and links, as the repeated field ``spans`` of a ``ScopeSpans``; None for what
        the official encoder should write, or refuse.

        Args:
            attributes: encoded.
        """
        parts = [_TRACE_ID, trace_id.to_bytes(16), _SPAN_ID, span_id.to_bytes(8)]
        try:
            if trace_state:
                state = ",".join(f"{key}={value}" for key, value in trace_state.items())
                parts += (_TRACE_STATE, self._text(state))
            if parent is not None:
                parts += (_PARENT, parent.span_id.to_bytes(8))
            if name:
                parts += (_NAME, self._texts.get(name) or self._text(name))
            written = _CLIENT if kind is SpanKind.CLIENT else _KINDS[kind]  # a kind's hash is no C code
            parts += (written, _TIMES.pack(_START, start, _END, end), attributes)
            if dropped_attributes:
                parts += (_DROPPED_ATTRIBUTES, varint(dropped_attributes))
            parts.append(_NO_STATUS if status is UNSET else self._status(status))
        except (UnicodeEncodeError, OverflowError, struct.error):
            return None
        parts.append(_REMOTE_FLAGS if parent is not None and parent.is_remote else _LOCAL_FLAGS)
        body = b"".join(parts)
        return _SPANS + varint(len(body)) + body

    def _status(self, status: Status) -> bytes:
        message, code = status.description, status.status_code.value
        if not code and not message:
            return _NO_STATUS
        written = (_MESSAGE + self._text(message) if message else b"") + (
            _CODE + varint(code) if code else b""
        )
        return _STATUS + varint(len(written)) + written

    def attributes(self, attributes: Mapping[str, object]) -> bytes | None:
        """Attributes as a repeated field of a span; None for what the official encoder should write, or
        refuse."""
        known, integers, prefixes = self._attributes, self._integers, self._prefixes
        parts: list[bytes] = []
        try:
            for key, value in attributes.items():
                kind = type(value)
                if kind is float:
                    prefix = prefixes.get((key, _DOUBLE.size)) or self._prefix(key, _DOUBLE.size)
                    parts.append(prefix + _DOUBLE.pack(_DOUBLE_VALUE, value))
                    continue
                if kind is int:
                    attribute = integers.get((key, value))  # type: ignore[arg-type]
                else:
                    attribute = known.get((key, value)) if kind is str or kind is tuple else None
                if attribute is None:
                    attribute = self._attribute(key, value)
                    if attribute is None:
                        return None
                parts.append(attribute)
        except (UnicodeEncodeError, OverflowError, TypeError, struct.error):  # or a tuple without a hash
            return None
        return b"".join(parts)

    def _attribute(self, key: str, value: object) -> bytes | None:
        """An attribute of which ``_attributes`` doesn't know, as a repeated field; None for what the official
        encoder should write."""
        encoded = self._value(value)
        if encoded is None:
            return None
        written = (self._prefixes.get((key, len(encoded))) or self._prefix(key, len(encoded))) + encoded
        if len(written) > _MAX_KNOWN_ATTRIBUTE:
            return written
        if type(value) is int:
            if len(self._integers) >= MAX_KNOWN:
                self._integers.clear()
            self._integers[key, value] = written
        elif type(value) is str or (type(value) is tuple and all(type(item) is str for item in value)):
            if len(self._attributes) >= MAX_KNOWN:
                self._attributes.clear()
            self._attributes[key, value] = written
        return written

    def _prefix(self, key: str, length: int) -> bytes:
        """What comes before ``length`` bytes of an attribute's value."""
        name, of_value = self._text(key), varint(length)
        size = len(_KEY) + len(name) + len(_VALUE) + len(of_value) + length
        prefix = b"".join((_ATTRIBUTE, varint(size), _KEY, name, _VALUE, of_value))
        if len(key) <= MAX_KNOWN_TEXT:
            if len(self._prefixes) >= MAX_KNOWN:
                self._prefixes.clear()
            self._prefixes[key, length] = prefix
        return prefix

    def _value(self, value: object) -> bytes | None:
        """An ``AnyValue``'s content; None for what the official encoder should write."""
        kind = type(value)
        if kind is str:
            return _STRING + self._text(value)  # type: ignore[arg-type]
        if kind is int:
            return _INT + varint(value & 0xFFFFFFFFFFFFFFFF) if -(1 << 63) <= value < 1 << 63 else None  # type: ignore[operator]
        if kind is float:
            return _DOUBLE.pack(_DOUBLE_VALUE, value)
        if kind is bool:
            return _TRUE if value else _FALSE
        if kind is not tuple:
            return None
        written = b""
        for item in value:  # type: ignore[attr-defined]
            encoded = self._value(item)
            if encoded is None:
                return None
            written += _ITEM + varint(len(encoded)) + encoded
        return _ARRAY + varint(len(written)) + written

    def _text(self, text: str) -> bytes:
        """Length and bytes of a text."""
        known = self._texts.get(text)
        if known is None:
            encoded = text.encode()
            known = varint(len(encoded)) + encoded
            if len(text) <= MAX_KNOWN_TEXT:
                if len(self._texts) >= MAX_KNOWN:
                    self._texts.clear()
                self._texts[text] = known
        return known


def _attributes(span: ReadableSpan) -> Mapping[str, Any]:
    """The SDK's mapping takes a lock for each of its items; the dictionary inside, of a span that has ended,
    needs none."""
    inside: Mapping[str, Any] | None = getattr(getattr(span, "_attributes", None), "_dict", None)
    return (span.attributes or {}) if inside is None else inside
