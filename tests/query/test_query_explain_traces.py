"""Which calls are taken from Tempo to stand before and after a change: those near P99, on the right side."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from promql_stand_in import Question, Reply, stand_in

from otelkit.causal import Explanation, Finding, Interval, Verdict
from otelkit.cli.explain_traces import ExemplarsOf, from_tempo
from otelkit.model import CallSite, Generation, ParameterChange, SpanIdentity
from otelkit.query.prometheus import Exemplar
from otelkit.query.tempo import Tempo
from otelkit.query.traces import otlp_json

AT = 1_790_000_000.0
CHANGE = ParameterChange("chat", "max_tokens", 4, 16, AT, AT)
EXPLAINED = Explanation(
    "chat",
    AT - 100,
    AT + 100,
    (Finding(CHANGE, Verdict.CAUSAL, "", effect=Interval(0.5, 0.4, 0.6)),),
    p99_before=0.4,
    p99_after=0.9,
)


def call(number: int, at: float, seconds: float, service: str = "chat") -> Generation:
    start = round((AT + at) * 1e9)
    span = SpanIdentity(trace_id=number, span_id=number, sampled=True)
    site = CallSite(service, "openai", "chat", "small")
    return Generation(site, start, start + round(seconds * 1e9), span=span)


CALLS = {
    f"{one.span.trace_id:032x}": one
    for one in (call(1, -50, 0.41), call(2, 50, 0.88), call(3, 60, 0.2), call(4, -40, 0.4, "search"))
    if one.span
}


def tempo(found: list[str]) -> Callable[[Question], Reply]:
    """A Tempo that finds some ids whatever is searched for, and has all calls."""

    def answer(question: Question) -> Reply:
        if question["path"].endswith("/search"):
            return Reply(body={"traces": [{"traceID": trace_id} for trace_id in found]})
        one = CALLS.get(question["path"].rpartition("/")[2])
        return Reply(body=json.loads(json.dumps(otlp_json(one)))) if one else Reply(404, "not found")

    return answer


def exemplars(service: str, start: float, end: float) -> list[Exemplar]:
    """As Prometheus has them; the nearest to P99 is gone from Tempo, one is of another service."""
    every = [(1, -50, 0.41), (2, 50, 0.88), (3, 60, 0.2), (4, -40, 0.4), (9, -30, 0.4), (8, 40, 0.9)]
    return [
        Exemplar(f"{number:032x}", AT + at, seconds)
        for number, at, seconds in every
        if start <= AT + at < end
    ]


@pytest.mark.parametrize("exemplars_of", [exemplars, None], ids=["exemplars", "search"])
def test_one_call_on_each_side_is_taken(exemplars_of: ExemplarsOf | None) -> None:
    """Broken if a call far from P99, from the wrong side, or of another service stood for the change."""
    with stand_in(tempo([*CALLS][::-1])) as server, Tempo(server.url) as source:
        before, after = from_tempo(source, EXPLAINED, exemplars_of)
        searched = any(question["path"].endswith("/search") for question in server.asked)
    assert before.duration_seconds == pytest.approx(0.41) and before.start_ns < AT * 1e9
    assert after.start_ns > AT * 1e9
    assert exemplars_of is None or after.duration_seconds == pytest.approx(0.88)
    assert searched == (exemplars_of is None)


def test_what_tempo_has_nothing_of_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Broken if a page lacked its calls without a word, or an unmoved service were searched for at all."""
    with stand_in(tempo([])) as server, Tempo(server.url) as source:
        assert from_tempo(source, EXPLAINED, None) == ()
        asked = len(server.asked)
        assert from_tempo(source, Explanation("chat", 0, 1, ()), None) == ()
        assert len(server.asked) == asked
    said = capsys.readouterr().err
    assert "no call of chat near P99 before the change" in said and "after the change" in said
