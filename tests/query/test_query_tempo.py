"""Traces as Tempo answers with them, over real HTTP."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from promql_stand_in import Question, Reply, StandIn, stand_in

from otelkit import semconv
from otelkit.errors import BackendUnreachable
from otelkit.query.tempo import Tempo

TRACE, ROOT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

NAMELESS = {"name": "chat", "attributes": [{"key": semconv.OPERATION_NAME, "value": {"stringValue": "chat"}}]}


def base64_of(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def span(name: str, span_id: str, start: int, end: int, **more: Any) -> dict[str, Any]:
    """A span as protobuf's own JSON has it: ids in base64."""
    return {
        "traceId": base64_of(TRACE),
        "spanId": base64_of(span_id),
        "name": name,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(end),
        **more,
    }


def trace() -> dict[str, Any]:
    """A trace of two services: `web` calls `chat`, whose generation has two token steps."""
    attributes = [
        {"key": semconv.OPERATION_NAME, "value": {"stringValue": "chat"}},
        {"key": semconv.REQUEST_MAX_TOKENS, "value": {"intValue": "256"}},
    ]

    def batch(service: str, *spans: dict[str, Any]) -> dict[str, Any]:
        resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
        return {"resource": resource, "scopeSpans": [{"spans": list(spans)}]}

    parent = {"parentSpanId": base64_of(ROOT)}
    return {
        "batches": [
            batch("web", span("GET /", "00f067aa0ba90200", 900, 6000)),
            batch(
                "chat",
                span("tokenize", "00f067aa0ba90201", 1000, 1100),
                span("chat small", ROOT, 1000, 5000, attributes=attributes),
                span(semconv.TOKEN_STEP_SPAN, "00f067aa0ba90203", 3000, 5000, **parent),
                span(semconv.TOKEN_STEP_SPAN, "00f067aa0ba90202", 1000, 3000, **parent),
            ),
        ]
    }


@pytest.mark.parametrize("form", ["v1", "v2"])
def test_a_generation_and_its_token_steps_are_found_in_a_trace(form: str) -> None:
    """Broken if ids in base64 kept steps from their call, or another span passed for a generation."""
    document = trace() if form == "v1" else {"trace": {"resourceSpans": trace()["batches"]}}
    with stand_in(lambda question: Reply(body=document)) as server:
        with Tempo(server.url + "/tempo/", headers={"X-Scope-OrgID": "team-a"}) as tempo:
            (call,) = tempo.generations(TRACE, "chat")
            assert tempo.generations(TRACE, "search") == ()
        assert server.asked[0]["path"] == f"/tempo/api/traces/{TRACE}"
        assert server.headers[0]["x-scope-orgid"] == "team-a"
    assert call.span is not None and f"{call.span.trace_id:032x}" == TRACE
    assert (call.start_ns, list(call.step_ns), call.parameters) == (1000, [3000, 5000], {"max_tokens": 256})


def test_calls_of_a_length_are_searched_for() -> None:
    """Broken if Tempo were asked for calls of any length, or of another service, to stand for P99."""
    found = {"traces": [{"traceID": "f067aa0ba902b7"}, {"traceID": TRACE}]}
    with stand_in(lambda question: Reply(body=found)) as server, Tempo(server.url) as tempo:
        ids = tempo.search('a "service"', 100.5, 200.5, 0.7, 1.3)
        asked = server.asked[0]
    assert ids == ("000000000000000000f067aa0ba902b7", TRACE)
    assert r'resource.service.name = "a \"service\""' in asked["q"]
    assert "duration >= 700ms && duration <= 1300ms" in asked["q"]
    assert (asked["start"], asked["end"]) == ("100", "201")


def test_what_tempo_no_longer_has_is_no_error() -> None:
    """Broken if a trace past its retention ended the explanation."""
    with stand_in(lambda question: Reply(404, "trace not found")) as server, Tempo(server.url) as tempo:
        assert tempo.generations(TRACE, "chat") == () and tempo.search("chat", 0, 1, 0, 1) == ()


@pytest.mark.parametrize(
    "reply",
    [
        Reply(500, "boom"),
        Reply(200, "<html>Grafana</html>"),
        Reply(200, {"batches": [{"scopeSpans": [{"spans": [NAMELESS]}]}]}),
        Reply(200, {"batches": 7}),
        Reply(200, [1]),
    ],
    ids=["500", "html", "no ids", "no list", "a list"],
)
def test_what_is_no_tempo_is_told_with_its_address(reply: Reply) -> None:
    """Broken if a wrong address ended in a traceback."""

    def answer(question: Question) -> Reply:
        return reply

    with stand_in(answer) as server, Tempo(server.url.replace("://", "://ann:pw@")) as tempo:
        check(tempo, server)


def check(tempo: Tempo, server: StandIn) -> None:
    with pytest.raises(BackendUnreachable) as caught:
        tempo.generations(TRACE, "chat")
    assert server.url in str(caught.value) and "pw" not in str(caught.value)
