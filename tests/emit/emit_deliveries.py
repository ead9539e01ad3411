"""Deliveries to where an exporter of the SDK's sends, and what they tell."""

from __future__ import annotations

from collections import Counter
from typing import Any

from emit_generations import generation
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otelkit.emit import token_steps
from otelkit.emit.otlp.batch import Memory, Unwritten
from otelkit.emit.otlp.delivery import Delivery
from otelkit.emit.otlp.discover import sender_like, timeout_of
from otelkit.emit.otlp.envelope import Envelope

ENVELOPE = Envelope({"service.name": "chat"}, "", "otelkit", "1")


class Tally:
    """Counts what a delivery tells."""

    def __init__(self) -> None:
        self.numbers: Counter[str] = Counter()

    def written(self, spans: int) -> None:
        self.numbers["written"] += spans

    def delivered(self, spans: int) -> None:
        self.numbers["delivered"] += spans

    def dropped(self, spans: int, reason: str) -> None:
        self.numbers[reason] += spans

    def export_failed(self) -> None:
        self.numbers["failures"] += 1

    def overhead(self, stage: str, seconds: float) -> None:
        self.numbers["cpu seconds"] += 1

    def balanced(self) -> bool:
        lost = sum(
            self.numbers[r] for r in ("buffer_full", "export_failed", "rejected_by_collector", "shut_down")
        )
        return self.numbers["written"] == self.numbers["delivered"] + lost


def written(body: bytes | Unwritten) -> bytes:
    """A request as it is sent."""
    if isinstance(body, bytes):
        return body
    content, lost = body.write(Memory())
    assert len(content) == len(body)
    assert not lost
    return bytes(content)


def body(spans: int = 5) -> bytes:
    return ENVELOPE.wrap([token_steps.encode(generation(spans), (range(spans),))])


def deliver_to(exporter: Any, tally: Tally, **limits: Any) -> Delivery:
    """A delivery to where an exporter of the SDK's sends."""
    sender = sender_like(exporter)
    assert sender is not None
    timeout = timeout_of(exporter, 10.0)
    exporter.shutdown()
    return Delivery(
        sender, tally, timeout=timeout, **{"buffer_bytes": 1 << 20, "retry_seconds": 30.0, **limits}
    )


def partial(rejected: int) -> bytes:
    success = ExportTracePartialSuccess(rejected_spans=rejected, error_message="too old")
    encoded: bytes = ExportTraceServiceResponse(partial_success=success).SerializeToString()
    return encoded
