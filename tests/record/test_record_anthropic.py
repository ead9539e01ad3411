"""What is read of anthropic's requests and answers, and how its client's own spans are joined."""

from __future__ import annotations

from typing import Any

import pytest
from dialects import ANTHROPIC
from wire_server import Exchange, Wire

from otelkit import semconv, testing
from otelkit.testing import Recorded

MESSAGES: Any = [{"role": "user", "content": "secret"}]


def test_anthropic_whole_message(wire: Wire, recorded: Recorded) -> None:
    """Broken: parameters through extra_body, beta headers, cached input tokens, or a plain message."""
    message = dict(
        ANTHROPIC.opening[0][1]["message"], content=[{"type": "text", "text": "hi"}], stop_reason="max_tokens"
    )
    wire.answer = lambda exchange: exchange.json(message)
    with ANTHROPIC.client(wire.url) as client:
        client.messages.create(
            model="claude-test", max_tokens=5, messages=MESSAGES, system="secret", stop_sequences=["x"],
            thinking={"type": "enabled", "budget_tokens": 1024}, extra_body={"temperature": 0, "top_k": 3},
            extra_headers={"anthropic-beta": "context-1m"},
        )  # fmt: skip
    (generation,) = recorded.wait(1)
    assert generation.parameters == {
        "max_tokens": 5, "stop_sequences": ["x"], "thinking": {"type": "enabled", "budget_tokens": 1024},
        "temperature": 0, "top_k": 3, "anthropic_beta": "context-1m",
    }  # fmt: skip
    assert (generation.input_tokens, generation.output_tokens) == (11, 1)
    assert generation.finish_reasons == ("max_tokens",)


@pytest.mark.parametrize("streamed", [False, True])
def test_anthropic_client_that_traces_itself(streamed: bool, wire: Wire) -> None:
    """Broken: two spans for one call where the client makes its own: ours must join it."""
    wire.answer = (
        ANTHROPIC.stream() if streamed else lambda exchange: exchange.json(ANTHROPIC.opening[0][1]["message"])
    )
    with testing.recording() as recorded, ANTHROPIC.client(wire.url) as client:
        if not hasattr(client, "open_telemetry"):
            pytest.skip("this version of anthropic makes no spans")
        tracing = client.with_options(open_telemetry={"tracer_provider": recorded.tracer_provider})
        result = tracing.messages.create(
            model="claude-test",
            max_tokens=5,
            messages=MESSAGES,
            stream=streamed,
            extra_body={"temperature": 0.5},
        )
        if streamed:
            list(result)
        (generation,) = recorded.wait(1)
    (span,) = recorded.spans
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name != semconv.SCOPE
    assert generation.span is not None
    assert generation.span.span_id == span.context.span_id
    assert len(generation.step_ns) == (4 if streamed else 0)
    attributes = span.attributes or {}
    assert attributes[semconv.REQUEST_TEMPERATURE] == 0.5
    # The client ends its span before the end of the stream, or the answer, is seen here.
    assert attributes[semconv.OUTCOME] == "completed"
    assert attributes.get(semconv.STEP_COUNT) == (4 if streamed else None)
    assert (semconv.RESPONSE_TIME_TO_FIRST_CHUNK in attributes) == streamed


@pytest.mark.parametrize("end", ["error", "close"])
def test_anthropic_client_that_traces_itself_does_not_get_to_the_end(end: str, wire: Wire) -> None:
    """Broken: a stream that failed or was left is told as completed on the client's own span."""

    def fail(exchange: Exchange) -> None:
        exchange.begin_events()
        for name, event in ANTHROPIC.opening:
            exchange.event(event, name)
        exchange.stall(0.05)
        exchange.reset()

    wire.answer = fail if end == "error" else ANTHROPIC.stream()
    with testing.recording() as recorded, ANTHROPIC.client(wire.url) as client:
        if not hasattr(client, "open_telemetry"):
            pytest.skip("this version of anthropic makes no spans")
        tracing = client.with_options(open_telemetry={"tracer_provider": recorded.tracer_provider})
        stream = tracing.messages.create(model="claude-test", max_tokens=5, messages=MESSAGES, stream=True)
        if end == "error":
            with pytest.raises(Exception, match=r".*"):
                list(stream)
        else:
            next(iter(stream))
            stream.close()
        recorded.wait(1)
    (span,) = recorded.spans
    assert (span.attributes or {})[semconv.OUTCOME] == ("error" if end == "error" else "ended_early")
