"""The generation's span: a normal span of the user's tracer, with the GenAI attributes. Uses the
OpenTelemetry API only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from otelkit import semconv
from otelkit.model import ParameterValue, SpanIdentity, canonical
from otelkit.record.response import ResponseFacts

_ATTRIBUTE_OF: Final[Mapping[str, str]] = {
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "top_k": semconv.REQUEST_TOP_K,
    "max_tokens": semconv.REQUEST_MAX_TOKENS,
    "stop_sequences": semconv.REQUEST_STOP_SEQUENCES,
    "seed": semconv.REQUEST_SEED,
    "frequency_penalty": semconv.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.REQUEST_PRESENCE_PENALTY,
    "choice.count": semconv.REQUEST_CHOICE_COUNT,
}
"""Parameters for which the convention has an attribute; the rest go under ``otelkit.request.``."""
_MAX_TEXT: Final = 1024
_INFERENCE: Final = frozenset({"chat", "generate_content", "text_completion"})


def _attribute_value(value: ParameterValue) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return [item[:_MAX_TEXT] for item in value]
    return canonical(value)[:_MAX_TEXT]


def request_attributes(parameters: Mapping[str, ParameterValue]) -> dict[str, Any]:
    """Span attributes of request parameters; ``None`` has no attribute, 0 and False have."""
    attributes: dict[str, Any] = {}
    for name, value in parameters.items():
        if value is None or (name == "choice.count" and value == 1):
            continue
        attributes[_ATTRIBUTE_OF.get(name) or semconv.PARAMETER_PREFIX + name] = _attribute_value(value)
    return attributes


def inference_span_of_another(span: Span) -> bool:
    """Whether the current span is a generation span that another GenAI instrumentation has just made.

    Agent, tool and workflow spans carry the same family of attributes but are parents of generations, not
    generations.
    """
    if not span.is_recording():
        return False
    attributes: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    if scope == semconv.SCOPE or semconv.REQUEST_MODEL not in attributes:
        return False
    operation = attributes.get(semconv.OPERATION_NAME)
    return operation in _INFERENCE if operation else "gen_ai.system" in attributes


def identity(span: Span) -> SpanIdentity | None:
    """What token steps need to know of the span; None when no tracer is set up."""
    context = span.get_span_context()
    if not context.is_valid:
        return None
    return SpanIdentity(
        context.trace_id,
        context.span_id,
        context.trace_flags.sampled,
        context.trace_state.to_header() if context.trace_state else "",
    )


def start(tracer: trace.Tracer, name: str, attributes: Mapping[str, Any], start_ns: int) -> Span:
    """Begin the span; everything a sampler may want is in ``attributes``. ``start_ns`` is wall-clock."""
    return tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, start_time=start_ns)


def timing_attributes(steps: Sequence[int], start: int) -> dict[str, Any]:
    """Of token steps (monotonic ns) in a call begun at ``start``; empty for calls without steps."""
    if not steps:
        return {}
    return {
        semconv.STEP_COUNT: len(steps),
        semconv.RESPONSE_TIME_TO_FIRST_CHUNK: (steps[0] - start) / 1e9,
        semconv.TIME_PER_OUTPUT_TOKEN: (steps[-1] - steps[0]) / 1e9 / (len(steps) - 1)
        if len(steps) > 1
        else None,
    }


def response_attributes(facts: ResponseFacts) -> dict[str, Any]:
    """Of what the provider answered."""
    attributes: dict[str, Any] = {
        semconv.RESPONSE_ID: facts.response_id,
        semconv.RESPONSE_MODEL: facts.response_model,
        semconv.RESPONSE_FINISH_REASONS: facts.finish_reasons,
        semconv.USAGE_INPUT_TOKENS: facts.input_tokens,
        semconv.USAGE_OUTPUT_TOKENS: facts.output_tokens,
    }
    entropies = [entropy for entropy in facts.step_entropies or () if entropy is not None]
    if entropies:
        mean = sum(entropies) / len(entropies)
        attributes[semconv.OUTPUT_ENTROPY_MEAN] = mean
        attributes[semconv.OUTPUT_ENTROPY_DEVIATION] = math.sqrt(
            sum((entropy - mean) ** 2 for entropy in entropies) / len(entropies)
        )
    return attributes


def describe_end(span: Span, attributes: Mapping[str, Any]) -> None:
    """Write what is known at the end; None, empty text and empty lists say nothing and are left out."""
    span.set_attributes({name: value for name, value in attributes.items() if value not in (None, "", [])})


def mark_error(span: Span, error_type: str) -> None:
    """The provider failed; what the consumer did is never an error."""
    span.set_status(Status(StatusCode.ERROR, error_type))
