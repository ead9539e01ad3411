"""A request's memory is used again, and never while somebody still holds the request."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from otelkit.emit.otlp.batch import Batch
from otelkit.emit.otlp.envelope import Envelope

CAPACITY = 100_000


def envelope(attribute: str = "chat") -> Envelope:
    return Envelope(
        {"service.name": attribute}, "https://example.com/r", "otelkit", "1", scope_schema_url="https://s"
    )


def fill(batch: Batch, name: str, size: int) -> int:
    """Write spans of this name, at least ``size`` bytes of them; how many."""
    one = ScopeSpans(spans=[Span(trace_id=bytes(16), span_id=bytes(8), name=name)]).SerializeToString()
    count = -(-size // len(one))
    batch.prepare()
    end = batch.end + count * len(one)
    batch.buffer[batch.end : end] = one * count
    batch.added(end, count)
    return count


def names(body: bytes | memoryview) -> set[str]:
    request = ExportTraceServiceRequest.FromString(bytes(body))
    assert request.SerializeToString(deterministic=True) == bytes(body)
    return {span.name for r in request.resource_spans for s in r.scope_spans for span in s.spans}


def test_a_request_that_waits_is_not_written_over() -> None:
    """Broken: while a collector is slow, spans of one request appear in another and their own are lost."""
    batch, waiting = Batch(CAPACITY), []
    for number in range(12):
        fill(batch, f"name {number:02}", CAPACITY - 200)
        waiting.append(batch.take(envelope()))
    assert [names(body) for body in waiting] == [{f"name {number:02}"} for number in range(12)]


def test_memory_is_used_again_once_a_request_is_gone() -> None:
    """Broken: every request takes fresh memory, which costs more than all that is written into it."""
    batch = Batch(CAPACITY)
    buffers = set()
    for _ in range(5):
        fill(batch, "name", CAPACITY - 200)
        buffers.add(id(batch.buffer))
        body = batch.take(envelope())
        assert isinstance(body, memoryview)
        del body
    assert len(buffers) <= 2


def test_a_small_request_takes_little_memory() -> None:
    """Broken: a quiet service whose collector is down holds a megabyte for each hundred bytes that wait."""
    batch = Batch(CAPACITY)
    fill(batch, "name", 100)
    assert isinstance(batch.take(envelope()), bytes)


def test_requests_of_all_sizes_are_canonical() -> None:
    """Broken: lengths are off by one where they take another byte, or a long resource finds no room."""
    batch = Batch(CAPACITY)
    for size in (1, 100, 130, 16_000, 16_500, CAPACITY // 2, CAPACITY, 2 * CAPACITY):
        for resource in ("chat", "x" * 10_000):
            count = fill(batch, "name", size)
            assert batch.spans == count
            assert names(batch.take(envelope(resource))) == {"name"}
            assert (batch.size, batch.spans) == (0, 0)
