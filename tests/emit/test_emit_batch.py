"""A request is written when it is sent, wholly, into memory that is used again."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otelkit.emit.otlp.batch import Batch, Encoded, Memory
from otelkit.emit.otlp.envelope import Envelope
from otelkit.record import guard


def envelope(attribute: str = "chat") -> Envelope:
    return Envelope(
        {"service.name": attribute}, "https://example.com/r", "otelkit", "1", scope_schema_url="https://s"
    )


def spans(name: str, size: int) -> Encoded:
    """Spans of this name, at least ``size`` bytes of them."""
    one = ScopeSpans(spans=[Span(trace_id=bytes(16), span_id=bytes(8), name=name)]).SerializeToString()
    count = -(-size // len(one))
    return Encoded(one * count, count)


class Faulty(Encoded):
    """Fails when it is half written."""

    def write(self, into: bytearray, begin: int) -> int:
        super().write(into, begin)
        raise OverflowError("a time before the epoch")


def names(body: bytes | memoryview) -> list[str]:
    request = ExportTraceServiceRequest.FromString(bytes(body))
    assert request.SerializeToString(deterministic=True) == bytes(body)
    return [span.name for r in request.resource_spans for s in r.scope_spans for span in s.spans]


def test_requests_of_all_sizes_are_canonical() -> None:
    """Broken: lengths are off by one where they take another byte, or a long resource finds no room, or a
    buffer for a slow collector takes more, or less, than it may."""
    batch, memory = Batch(), Memory()
    for size in (1, 100, 130, 16_000, 16_500, 50_000, 100_000, 200_000, 1):
        for resource in ("chat", "x" * 10_000):
            part = spans("name", size)
            batch.add(part)
            assert (batch.size, batch.spans) == (part.size, part.spans)
            waiting = batch.take(envelope(resource))
            assert (batch.size, batch.spans) == (0, 0)
            body, lost = waiting.write(memory)
            assert names(body) == ["name"] * part.spans
            assert len(body) == len(waiting)
            assert lost == 0


def test_memory_is_used_again() -> None:
    """Broken: every request takes fresh memory, which costs more than all that is written into it."""
    batch, memory = Batch(), Memory()
    buffers = set()
    for size in (200_000, 100, 200_000, 150_000):
        batch.add(spans("name", size))
        body, _ = batch.take(envelope()).write(memory)
        assert isinstance(body, memoryview)
        buffers.add(id(body.obj))
    assert len(buffers) == 1


def test_a_request_is_the_same_each_time_it_is_written() -> None:
    """Broken: two collectors get different spans for the same steps."""
    batch = Batch()
    batch.add(spans("one", 50))
    waiting = batch.take(envelope())
    first, _ = waiting.write(Memory())
    assert waiting.write(Memory())[0] == first


def test_what_is_put_first() -> None:
    """Broken: spans of generations come after their steps, or twice."""
    steps, generations = Batch(), Batch()
    steps.add(spans("step", 1))
    generations.add(spans("generation", 1))
    steps.put_first(generations)
    assert (generations.size, generations.spans, steps.spans) == (0, 0, 2)
    body, _ = steps.take(envelope()).write(Memory())
    assert names(body) == ["generation", "step"]


@pytest.fixture
def guard_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "is_testing", lambda: False)


def test_spans_that_can_not_be_written_are_lost_alone(guard_quiet: None) -> None:
    """Broken: one generation with a time before the epoch loses the spans of all others in its request."""
    batch = Batch()
    for part in (spans("one", 1), Faulty(*spans("faulty", 90)), spans("two", 1)):
        batch.add(part)
    body, lost = batch.take(envelope()).write(Memory())
    assert names(body) == ["one", "two"]
    assert lost == spans("faulty", 90).spans
    assert guard.faults.pop("write spans: OverflowError") == 1
