"""The generation's span: a normal span of the user's tracer, with the GenAI attributes. Uses the
OpenTelemetry API only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from otelkit import semconv
from otelkit.model import SpanIdentity
from otelkit.record.response import ResponseFacts

_INFERENCE: Final = frozenset({"chat", "generate_content", "text_completion"})


def inference_span_of_another(span: Span) -> bool:
    """Whether the current span is a generation span that another GenAI instrumentation has just made.

    Agent, tool and workflow spans carry the same family of attributes but are parents of generations, not
    generations.
    """
    if not span.is_recording():
        return False
    attributes: Mapping[str, Any] = getattr(span, "attributes", None) or {}
    scope = getattr(getattr(span, "instrumentation_scope", None), "name", "")
    if scope == semconv.SCOPE:
        return False
    if attributes.get(semconv.OPENINFERENCE_KIND) == semconv.OPENINFERENCE_LLM:
        return True
    if semconv.REQUEST_MODEL not in attributes:
        return False
    operation = attributes.get(semconv.OPERATION_NAME)
    return operation in _INFERENCE if operation else semconv.LEGACY_SYSTEM in attributes


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


def has_attribute(span: Span, name: str) -> bool:
    """Whether another instrumentation has set it already."""
    return name in (getattr(span, "attributes", None) or {})


def start(
    tracer: trace.Tracer, name: str, attributes: Mapping[str, Any], links: Sequence[Link], start_ns: int
) -> Span:
    """Begin the span; everything a sampler may want is in ``attributes``. ``start_ns`` is wall-clock."""
    return tracer.start_span(
        name, kind=SpanKind.CLIENT, attributes=attributes, links=links, start_time=start_ns
    )


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
