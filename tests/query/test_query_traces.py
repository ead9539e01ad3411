"""Generations read back from OTLP JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from otelkit import semconv
from otelkit.causal import Explanation, Finding, Interval, Verdict
from otelkit.model import ParameterChange
from otelkit.query.traces import read_generations
from otelkit.report import choose_exemplars

SECOND = 1_000_000_000


def attribute(key: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "value": value}


def generation(number: int, *, start: float, seconds: float, max_tokens: int) -> list[dict[str, Any]]:
    """A generation's span and three token steps, the steps in no order."""
    begin, end = round(start * SECOND), round((start + seconds) * SECOND)
    ids = {"traceId": f"{number:032x}", "spanId": f"{number:016x}"}
    root = {
        **ids,
        "name": "chat small",
        "startTimeUnixNano": str(begin),
        "endTimeUnixNano": str(end),
        "attributes": [
            attribute(semconv.PROVIDER_NAME, {"stringValue": "openai"}),
            attribute(semconv.REQUEST_MODEL, {"stringValue": "small"}),
            attribute(semconv.REQUEST_MAX_TOKENS, {"intValue": str(max_tokens)}),
            attribute(semconv.REQUEST_TEMPERATURE, {"doubleValue": 0.0}),
            attribute(semconv.REQUEST_STOP_SEQUENCES, {"arrayValue": {"values": [{"stringValue": "."}]}}),
            attribute(semconv.REQUEST_STREAM, {"boolValue": True}),
            attribute(semconv.OUTCOME, {"stringValue": "completed"}),
        ],
    }
    steps = [
        {
            "traceId": ids["traceId"],
            "spanId": f"{1000 * number + step:016x}",
            "parentSpanId": ids["spanId"],
            "name": semconv.TOKEN_STEP_SPAN,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(begin + (end - begin) * step // 3),
        }
        for step in (3, 1, 2)
    ]
    return [*steps, root]


def write(path: Path, *groups: list[dict[str, Any]]) -> None:
    """One line for each group of spans."""
    lines = [json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": group}]}]}) for group in groups]
    path.write_text("\n".join(lines) + "\n")


def explained(verdict: Verdict) -> Explanation:
    """One change at 100 s, in data from 0 to 200 s."""
    change = ParameterChange("chat", "max_tokens", 4, 16, first_seen=100.0, last_seen=100.0)
    finding = Finding(change, verdict, "because", effect=Interval(0.3, 0.2, 0.4))
    return Explanation("chat", 0.0, 200.0, (finding,))


def test_generations_come_back_as_they_were(tmp_path: Path) -> None:
    """Broken if parameters, step times or ids were lost between the span and the page."""
    path = tmp_path / "traces.jsonl"
    first, second = (generation(n, start=50.0 + n, seconds=0.3, max_tokens=4) for n in (1, 2))
    # Steps may come in an earlier request than their parent, and generations in any order.
    write(path, second, first[:3], first[3:])
    one, _ = read_generations(path, "chat")
    assert one.duration_seconds == 0.3 and one.start_ns == 51 * SECOND
    assert [round((end - one.start_ns) / SECOND, 3) for end in one.step_ns] == [0.1, 0.2, 0.3]
    assert one.parameters == {"max_tokens": 4, "temperature": 0.0, "stop_sequences": ["."]}
    assert one.span is not None and (one.span.trace_id, one.span.span_id) == (1, 1)
    assert one.streamed and one.call_site.model == "small"


def test_exemplars_stand_for_p99_before_and_after(tmp_path: Path) -> None:
    """Broken if the page compared generations that do not show what the change did."""
    path = tmp_path / "traces.jsonl"
    groups = [generation(n, start=n, seconds=0.1 + n / 1000, max_tokens=4) for n in range(1, 100)]
    groups += [generation(n, start=n, seconds=0.5 + n / 1000, max_tokens=16) for n in range(100, 199)]
    write(path, *groups)
    chosen = choose_exemplars(explained(Verdict.CAUSAL), read_generations(path, "chat"))
    assert chosen is not None
    assert (chosen.before.parameters["max_tokens"], chosen.after.parameters["max_tokens"]) == (4, 16)
    assert chosen.before.start_ns == 99 * SECOND and chosen.after.start_ns == 198 * SECOND


def test_no_exemplars_where_nothing_moved_or_nothing_is_there(tmp_path: Path) -> None:
    """Broken if a page without a cause, or a run whose spans went elsewhere, could not be made."""
    assert read_generations(tmp_path / "missing.jsonl", "chat") == ()
    assert choose_exemplars(explained(Verdict.CAUSAL), ()) is None
    path = tmp_path / "traces.jsonl"
    write(path, *(generation(n, start=10.0 * n, seconds=0.2, max_tokens=4) for n in range(1, 19)))
    assert choose_exemplars(explained(Verdict.NO_EFFECT), read_generations(path, "chat")) is None
