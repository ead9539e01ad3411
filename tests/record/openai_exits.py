"""What the tests of openai's streams share: the check of the only record, and servers that fail half way."""

from __future__ import annotations

import openai_wire
from opentelemetry.trace import StatusCode
from wire_server import Exchange

from otelkit import semconv
from otelkit.model import Generation, Outcome
from otelkit.testing import Recorded

PIECES = ("one", " two", " three", " four")


def the_one(recorded: Recorded, outcome: Outcome, steps: int) -> Generation:
    """The only record, checked against its span; both must exist exactly once."""
    (generation,) = recorded.wait(1)
    (span,) = recorded.spans
    assert generation.outcome is outcome
    assert len(generation.step_ns) == steps
    assert span.name == "chat m"
    assert span.attributes is not None
    assert span.attributes[semconv.OUTCOME] == outcome.value
    assert (span.status.status_code is StatusCode.ERROR) == (outcome is Outcome.ERROR)
    assert span.attributes.get(semconv.ERROR_TYPE, "") == generation.error_type
    assert span.start_time == generation.start_ns
    assert span.end_time == generation.end_ns
    assert generation.span is not None
    assert generation.span.span_id == span.context.span_id
    assert len(recorded.started) == 1
    return generation


def error_in_the_middle(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event(openai_wire.chunk("one"))
    exchange.event({"error": {"message": "overloaded", "type": "server_error"}})
    exchange.done()


def reset_in_the_middle(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event(openai_wire.chunk("one"))
    exchange.stall(0.05)
    exchange.reset()


def cut_off(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event(openai_wire.chunk("one"))
    exchange.close_connection = True


def malformed(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event(openai_wire.chunk("one"))
    exchange.raw(b"data: {not json\n\n")
    exchange.done()


def stall(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event(openai_wire.chunk("one"))
    exchange.stall(5)


FAULTS = {
    "error event": (error_in_the_middle, "APIError"),
    "reset": (reset_in_the_middle, "APIConnectionError"),
    "cut off": (cut_off, "APIConnectionError"),
    "malformed chunk": (malformed, "JSONDecodeError"),
    "stall": (stall, "APITimeoutError"),
}
