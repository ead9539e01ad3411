"""Generations read back from OTLP JSON, as files and Tempo hold it, and written as such."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otelkit import semconv
from otelkit.errors import DataError
from otelkit.model import CallSite, Generation, Outcome, ParameterValue, SpanIdentity

_REQUEST_PREFIX: Final = "gen_ai.request."
_NOT_PARAMETERS: Final = frozenset({semconv.REQUEST_MODEL, semconv.REQUEST_STREAM})
_OURS: Final = ("gen_ai.", "otelkit.")
"""Attributes by which the span of a generation is known among those of a trace."""
_SERVICE_NAME: Final = "service.name"
_MOST_PROBLEMS: Final = 20


def read_generations(path: Path, service: str | None = None) -> tuple[Generation, ...]:
    """Generations of a file of OTLP JSON lines, in order of their start; empty without a file.

    Args:
        service: only of this one; spans whose resource names no service are taken for it.

    Raises:
        DataError: lines are no OTLP JSON; names each.
    """
    return generations(read_spans(path), service) if path.is_file() else ()


def read_spans(path: Path) -> list[dict[str, Any]]:
    """All spans of a file of OTLP JSON lines, with ``service`` as their resource names it.

    Raises:
        DataError: the file can't be read, or lines are no OTLP JSON; names each.
    """
    spans: list[dict[str, Any]] = []
    problems = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    spans += spans_of(json.loads(line))
                except (ValueError, TypeError, AttributeError, KeyError) as error:
                    problems.append(f"{path}:{number}: is no OTLP JSON: {error}")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: can't be read: {error}", hint="Name a file of OTLP JSON lines.") from error
    if problems:
        raise DataError(
            "\n".join(problems[:_MOST_PROBLEMS]),
            hint="Each line is one export request, as the Collector's file exporter writes it.",
        )
    return spans


def spans_of(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Spans of an export request or of Tempo's answer, ids in hex, with ``service`` of their resource.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: the document has another shape.
    """
    document = document.get("trace", document)
    for resource in document.get("resourceSpans") or document.get("batches") or ():
        attributes = _attributes(resource.get("resource", {}))
        groups = resource.get("scopeSpans") or resource.get("instrumentationLibrarySpans") or ()
        for group in groups:
            for span in group.get("spans", ()):
                ids = {key: _hex(span[key]) for key in ("traceId", "spanId", "parentSpanId") if span.get(key)}
                yield {**span, **ids, "service": str(attributes.get(_SERVICE_NAME, ""))}


def generations(spans: Iterable[Mapping[str, Any]], service: str | None = None) -> tuple[Generation, ...]:
    """The generations among spans with their token steps, in order of their start."""
    steps: dict[str, list[int]] = {}
    roots = []
    for span in spans:
        if span["name"] == semconv.TOKEN_STEP_SPAN:
            steps.setdefault(span.get("parentSpanId", ""), []).append(int(span["endTimeUnixNano"]))
        elif service in (None, span.get("service") or service):
            attributes = _attributes(span)
            if any(key.startswith(_OURS) for key in attributes):
                roots.append((span, attributes))
    found = [
        _generation(
            span, attributes, span.get("service") or service or "", sorted(steps.get(span["spanId"], ()))
        )
        for span, attributes in roots
    ]
    return tuple(sorted(found, key=lambda one: one.start_ns))


def write_generations(path: Path, found: Sequence[Generation]) -> None:
    """Write generations that have a span as OTLP JSON lines, one a line, so that they are read back the same.

    Raises:
        OSError: the file can't be written.
    """
    lines = [json.dumps(otlp_json(one), ensure_ascii=False) + "\n" for one in found if one.span is not None]
    path.write_text("".join(lines), encoding="utf-8", newline="\n")


def _generation(
    span: Mapping[str, Any], attributes: Mapping[str, Any], service: str, step_ns: Sequence[int]
) -> Generation:
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
        outcome=_outcome(attributes.get(semconv.OUTCOME)),
        streamed=bool(attributes.get(semconv.REQUEST_STREAM, False)),
        parameters={
            key.removeprefix(_REQUEST_PREFIX): value
            for key, value in attributes.items()
            if key.startswith(_REQUEST_PREFIX) and key not in _NOT_PARAMETERS
        },
        output_tokens=attributes.get(semconv.USAGE_OUTPUT_TOKENS),
        span=SpanIdentity(trace_id=int(span["traceId"], 16), span_id=int(span["spanId"], 16), sampled=True),
    )


def _outcome(text: Any) -> Outcome:
    try:
        return Outcome(text)
    except ValueError:
        return Outcome.COMPLETED


def otlp_json(generation: Generation) -> dict[str, Any]:
    """A generation that has a span as an export request in OTLP's JSON form, a span for each token step."""
    assert generation.span is not None
    site = generation.call_site
    trace_id, span_id = f"{generation.span.trace_id:032x}", f"{generation.span.span_id:016x}"
    attributes: dict[str, ParameterValue] = {
        semconv.PROVIDER_NAME: site.provider,
        semconv.OPERATION_NAME: site.operation,
        semconv.REQUEST_MODEL: site.model,
        semconv.REQUEST_STREAM: generation.streamed,
        semconv.OUTCOME: generation.outcome.value,
        semconv.USAGE_OUTPUT_TOKENS: generation.output_tokens,
        **{_REQUEST_PREFIX + name: value for name, value in generation.parameters.items()},
    }
    root = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": f"{site.operation} {site.model}".strip(),
        "startTimeUnixNano": str(generation.start_ns),
        "endTimeUnixNano": str(generation.end_ns),
        "attributes": [
            {"key": key, "value": _any_value(value)} for key, value in attributes.items() if value is not None
        ],
    }
    begins = [generation.start_ns, *generation.step_ns]
    steps = [
        {
            "traceId": trace_id,
            # Ids of the steps are not kept; these are as good, since nothing refers to them.
            "spanId": f"{(generation.span.span_id + number) % 2**64:016x}",
            "parentSpanId": span_id,
            "name": semconv.TOKEN_STEP_SPAN,
            "startTimeUnixNano": str(begin),
            "endTimeUnixNano": str(end),
        }
        for number, (begin, end) in enumerate(zip(begins, generation.step_ns, strict=False), 1)
    ]
    resource = {"attributes": [{"key": _SERVICE_NAME, "value": {"stringValue": site.service}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [root, *steps]}]}]}


def _attributes(holder: Mapping[str, Any]) -> dict[str, Any]:
    return {one["key"]: _value(one.get("value", {})) for one in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> ParameterValue:
    """The value of an OTLP ``AnyValue``; 64-bit integers are strings in JSON."""
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", ())]
    return next(iter(value.values()), None)


def _any_value(value: ParameterValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_any_value(one) for one in value]}}
    return {"stringValue": value if isinstance(value, str) else json.dumps(value, default=repr)}


def _hex(text: str) -> str:
    """An id in hex: OTLP's JSON has it so, protobuf's own, which Tempo answers with, in base64."""
    if len(text) in (16, 32):
        return text.lower()
    return base64.b64decode(text).hex()
