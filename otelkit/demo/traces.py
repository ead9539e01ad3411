"""Generations read back from the run's OTLP JSON lines, and two of them chosen to be compared."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otelkit import semconv
from otelkit.causal import Explanation, Verdict
from otelkit.model import CallSite, Generation, Outcome, ParameterValue, SpanIdentity
from otelkit.report import Exemplars

_REQUEST_PREFIX: Final = "gen_ai.request."
_NOT_PARAMETERS: Final = frozenset({semconv.REQUEST_MODEL, semconv.REQUEST_STREAM})


def read_generations(path: Path, service: str) -> tuple[Generation, ...]:
    """Generations of ``service`` with their token steps, in order of their start; empty without a file."""
    if not path.is_file():
        return ()
    spans = list(read_spans(path))
    steps: dict[str, list[int]] = {}
    for span in spans:
        if span["name"] == semconv.TOKEN_STEP_SPAN:
            steps.setdefault(span["parentSpanId"], []).append(int(span["endTimeUnixNano"]))
    found = [
        _generation(span, service, sorted(steps.get(span["spanId"], ())))
        for span in spans
        if span["name"] != semconv.TOKEN_STEP_SPAN
    ]
    return tuple(sorted(found, key=lambda one: one.start_ns))


def choose_exemplars(explanation: Explanation, generations: Sequence[Generation]) -> Exemplars | None:
    """The generation at P99 before the change that moved P99 most, and the one after it.

    None when no change moved it, or when there is nothing on one side.
    """
    moved = [one for one in explanation.findings if one.verdict is Verdict.CAUSAL and one.effect]
    if not moved:
        return None
    most = max(moved, key=lambda one: abs(one.effect.value) if one.effect else 0.0)
    at = most.change.first_seen
    times = [one.change.first_seen for one in explanation.findings]
    begin = max([explanation.start, *(time for time in times if time < at)])
    end = min([explanation.end, *(time for time in times if time > at)])
    before = _at_p99([one for one in generations if begin <= one.start_ns / 1e9 < at])
    after = _at_p99([one for one in generations if at <= one.start_ns / 1e9 < end])
    return Exemplars(before, after) if before and after else None


def _at_p99(generations: Iterable[Generation]) -> Generation | None:
    ascending = sorted(generations, key=lambda one: one.duration_seconds)
    return ascending[math.ceil(0.99 * len(ascending)) - 1] if ascending else None


def read_spans(path: Path) -> Iterator[dict[str, Any]]:
    """All spans of a file of OTLP JSON lines, as they stand there."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            for resource in json.loads(line).get("resourceSpans", ()):
                for scope in resource.get("scopeSpans", ()):
                    yield from scope.get("spans", ())


def _generation(span: Mapping[str, Any], service: str, step_ns: Sequence[int]) -> Generation:
    attributes = {one["key"]: _value(one["value"]) for one in span.get("attributes", ())}
    return Generation(
        call_site=CallSite(
            service=service,
            provider=attributes.get(semconv.PROVIDER_NAME, ""),
            operation=attributes.get(semconv.OPERATION_NAME, ""),
            model=attributes.get(semconv.REQUEST_MODEL, ""),
        ),
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        step_ns=step_ns,
        outcome=Outcome(attributes.get(semconv.OUTCOME, Outcome.COMPLETED.value)),
        streamed=bool(attributes.get(semconv.REQUEST_STREAM, False)),
        parameters={
            key.removeprefix(_REQUEST_PREFIX): value
            for key, value in attributes.items()
            if key.startswith(_REQUEST_PREFIX) and key not in _NOT_PARAMETERS
        },
        output_tokens=attributes.get(semconv.USAGE_OUTPUT_TOKENS),
        span=SpanIdentity(trace_id=int(span["traceId"], 16), span_id=int(span["spanId"], 16), sampled=True),
    )


def _value(value: Mapping[str, Any]) -> ParameterValue:
    """The value of an OTLP ``AnyValue``; 64-bit integers are strings in JSON."""
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", ())]
    return next(iter(value.values()), None)
