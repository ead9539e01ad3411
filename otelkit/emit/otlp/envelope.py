"""Puts encoded spans into an OTLP request: resource and scope around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans
from opentelemetry.util.types import AttributeValue

_LENGTH_DELIMITED: Final = 2
_RESOURCE_SPANS: Final = 1
"""Field number in ExportTraceServiceRequest."""
_SCOPE_SPANS: Final = 2
"""Field number in ResourceSpans."""


class Envelope:
    """The parts of a request that are the same for all token-step spans of a process.

    Args:
        resource: attributes of the user's resource.
        resource_schema_url, scope_name, scope_version: as in the user's provider and otelkit's tracer.
    """

    def __init__(
        self,
        resource: Mapping[str, AttributeValue],
        resource_schema_url: str,
        scope_name: str,
        scope_version: str,
        *,
        scope_schema_url: str = "",
    ) -> None:
        attributes = [KeyValue(key=key, value=_value(value)) for key, value in resource.items()]
        self._resource: bytes = ResourceSpans(resource=Resource(attributes=attributes)).SerializeToString()
        self._schema_url: bytes = ResourceSpans(schema_url=resource_schema_url).SerializeToString()
        scope = InstrumentationScope(name=scope_name, version=scope_version)
        self._scope: bytes = ScopeSpans(scope=scope).SerializeToString()
        self._scope_schema_url: bytes = ScopeSpans(schema_url=scope_schema_url).SerializeToString()

    def wrap(self, spans: Sequence[bytes]) -> bytes:
        """An ``ExportTraceServiceRequest`` of encoded spans, each with its tag in ``ScopeSpans``."""
        return b"".join((self.head(sum(map(len, spans))), *spans, self.tail))

    def head(self, size: int) -> bytes:
        """What goes before ``size`` bytes of encoded spans; ``tail`` goes after them."""
        scope_length = len(self._scope) + size + len(self._scope_schema_url)
        scope_head = _head(_SCOPE_SPANS, scope_length)
        length = len(self._resource) + len(scope_head) + scope_length + len(self._schema_url)
        return _head(_RESOURCE_SPANS, length) + self._resource + scope_head + self._scope

    @property
    def tail(self) -> bytes:
        return self._scope_schema_url + self._schema_url


def _head(field: int, length: int) -> bytes:
    """Tag and length of a length-delimited field."""
    return bytes((field << 3 | _LENGTH_DELIMITED,)) + varint(length)


_SMALL: Final = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A number of at least 0 as protobuf writes it."""
    if number < 0x80:
        return _SMALL[number]
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def _value(value: object) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case Sequence():
            return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
        case _:
            return AnyValue(string_value=str(value))
