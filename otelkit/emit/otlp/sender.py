"""What a transport does: send one request, and say what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one attempt to send a request."""

    delivered: bool
    retryable: bool = False
    """Not delivered, and the OTLP specification allows to send it again."""
    retry_after: float | None = None
    """Seconds that the collector asks to wait before that."""
    rejected: int = 0
    """Delivered, but the collector refused this many items (partial success); they must not be sent again."""
    message: str = ""
    """Why, for a reader."""


class Sender(Protocol):
    """One endpoint of a collector, for one signal. Used by one thread at a time."""

    @property
    def address(self) -> str:
        """The endpoint, for messages."""

    def send(self, body: bytes | memoryview, timeout: float) -> Reply:
        """Send one encoded request, and keep no view of it; takes at most ``timeout`` seconds and doesn't
        raise."""

    def close(self) -> None:
        """Close the connection; the next ``send`` opens another."""

    def after_fork(self) -> None:
        """In the child: forget the connection, which is the parent's, without closing it for the parent."""


def accepted(content: bytes) -> Reply:
    """A reply that accepts a request; its body may say that some of it was refused.

    The replies for spans and for log records have the same form on the wire. A body that can't be read says
    nothing.
    """
    try:
        partial = ExportTraceServiceResponse.FromString(content).partial_success
    except DecodeError:
        return Reply(delivered=True)
    return Reply(delivered=True, rejected=partial.rejected_spans, message=partial.error_message)
