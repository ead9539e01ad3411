"""The generation's span: a normal span of the user's tracer, with the GenAI attributes. Uses the
OpenTelemetry API only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, StatusCode, TraceFlags, TraceState

from otelkit import semconv
from otelkit.model import SpanIdentity
from otelkit.record import propagation, redaction
from otelkit.record.attributes import Shared, request_attributes
from otelkit.record.response import ResponseFacts
from otelkit.record.unmade import UnmadeSpan

if TYPE_CHECKING:
    from otelkit.record.request import Request

RANDOM_TRACE_ID: Final[int] = getattr(TraceFlags, "RANDOM_TRACE_ID", 0)
"""W3C's flag of trace ids that are random; older releases of OpenTelemetry neither know nor keep it."""
_INFERENCE: Final = frozenset({"chat", "generate_content", "text_completion"})
_MAX_SHARED: Final = 1024
_shared: Final[dict[tuple[Any, ...], tuple[Mapping[str, Any], Shared]]] = {}
"""Attributes of requests seen before, with those of their parameters, which are kept since their identity is
part of the key."""


def inference_span_of_another(span: Span) -> bool:
    """Whether the current span is a generation span that another GenAI instrumentation has just made.

    Agent, tool and workflow spans carry the same family of attributes but are parents of generations, not
    generations.
    """
    if isinstance(span, UnmadeSpan) or not span.is_recording():
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
        bool(context.trace_flags & RANDOM_TRACE_ID),
    )


def ended(identity: SpanIdentity) -> Span:
    """Stands for a span that has ended, as the parent of others."""
    state = TraceState.from_header([identity.trace_state]) if identity.trace_state else None
    flags = (TraceFlags.SAMPLED if identity.sampled else 0) | (RANDOM_TRACE_ID if identity.random else 0)
    return NonRecordingSpan(SpanContext(identity.trace_id, identity.span_id, False, TraceFlags(flags), state))


def add_attributes(span: Span, attributes: Mapping[str, Any]) -> None:
    """Write what the instrumentation that made the span has not written."""
    written = getattr(span, "attributes", None) or {}
    span.set_attributes({name: value for name, value in attributes.items() if name not in written})


def before_end(span: Span, act: Callable[[], None]) -> None:
    """Have ``act`` called before the instrumentation that made the span ends it, which may be before the
    stream's end is known here. A span that takes no attributes of its own can't be helped."""
    end = span.end

    def act_and_end(*args: Any, **kwargs: Any) -> None:
        end_as_made(span)
        act()
        end(*args, **kwargs)

    with suppress(AttributeError):
        span.end = act_and_end  # type: ignore[method-assign]


def end_as_made(span: Span) -> None:
    """Undo ``before_end``."""
    getattr(span, "__dict__", {}).pop("end", None)


def ended_with_error(span: Span) -> bool:
    """Whether the instrumentation that made the span has said that the call failed."""
    return getattr(getattr(span, "status", None), "status_code", None) is StatusCode.ERROR


def name(request: Request) -> str:
    """The span's name, by the convention."""
    return f"{request.operation} {request.model}" if request.model else request.operation


def request_id(request: Request, surrounding: Context) -> str:
    """The request id that goes with a call; empty when there is none."""
    return request.request_id or (propagation.current_request_id(surrounding) if surrounding else "")


def sent_attributes(request: Request) -> Mapping[str, Any]:
    """What a request says, ``Shared`` by all that say the same where that can be told quickly."""
    rules = redaction.rules()
    sent = request.sent
    if sent is None or sent[0] is not rules:
        sent = request.sent = rules, _shared_attributes(request)
    return sent[1]


def _shared_attributes(request: Request) -> Mapping[str, Any]:
    of_parameters = request_attributes(request.parameters, request.originals)
    if type(of_parameters) is not Shared:
        return _sent(request, of_parameters)
    key = (
        id(of_parameters),
        request.operation,
        request.provider,
        request.model,
        request.streamed,
        request.server_address,
        request.server_port,
    )
    known = _shared.get(key)
    if known is None or known[0] is not of_parameters:
        if len(_shared) >= _MAX_SHARED:
            _shared.clear()
        known = _shared[key] = of_parameters, Shared(_sent(request, of_parameters))
    return known[1]


def _sent(request: Request, of_parameters: Mapping[str, Any]) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        semconv.OPERATION_NAME: request.operation,
        semconv.PROVIDER_NAME: request.provider,
        semconv.REQUEST_MODEL: request.model,
        **of_parameters,
    }
    if request.streamed:
        attributes[semconv.REQUEST_STREAM] = True
    if request.server_address:
        attributes[semconv.SERVER_ADDRESS] = request.server_address
        if request.server_port is not None:
            attributes[semconv.SERVER_PORT] = request.server_port
    return attributes


def surrounding_attributes(
    session_id: str, request_id: str, surrounding: Context, baggage_keys: Sequence[str]
) -> dict[str, Any]:
    """What is known of a call before it is sent from where it is made."""
    attributes: dict[str, Any] = {}
    if session_id:
        attributes[semconv.SESSION_ID] = session_id
    if surrounding:
        attributes |= propagation.baggage_attributes(baggage_keys, surrounding)
    if request_id:
        attributes[semconv.REQUEST_ID] = request_id
    return attributes


def closing_attributes(facts: ResponseFacts, steps: Sequence[int], start: int) -> dict[str, Any]:
    """What the answer said, and when its steps came (monotonic ns, in a call begun at ``start``).

    Only what is known: each attribute costs the request's thread about a microsecond.
    """
    attributes: dict[str, Any] = {}
    if steps:
        attributes[semconv.STEP_COUNT] = count = len(steps)
        attributes[semconv.RESPONSE_TIME_TO_FIRST_CHUNK] = (steps[0] - start) / 1e9
        if count > 1:
            told = facts.step_tokens
            later = count - 1 if told is None else _tokens_after_first(told, count)
            attributes[semconv.TIME_PER_OUTPUT_TOKEN] = (steps[-1] - steps[0]) / 1e9 / later
    if facts.response_id:
        attributes[semconv.RESPONSE_ID] = facts.response_id
    if facts.response_model:
        attributes[semconv.RESPONSE_MODEL] = facts.response_model
    if facts.finish_reasons:
        attributes[semconv.RESPONSE_FINISH_REASONS] = tuple(facts.finish_reasons)
    if facts.input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = facts.input_tokens
    if facts.output_tokens is not None:
        attributes[semconv.USAGE_OUTPUT_TOKENS] = facts.output_tokens
    known = facts.step_entropies
    if known is not None and (entropies := [entropy for entropy in known if entropy is not None]):
        mean = sum(entropies) / len(entropies)
        attributes[semconv.OUTPUT_ENTROPY_MEAN] = mean
        attributes[semconv.OUTPUT_ENTROPY_DEVIATION] = math.sqrt(
            sum((entropy - mean) ** 2 for entropy in entropies) / len(entropies)
        )
    return attributes


def _tokens_after_first(step_tokens: Sequence[int | None], steps: int) -> int:
    """Tokens that came after the first step; one in each step where the provider does not tell."""
    told = [tokens for tokens in step_tokens[1:] if tokens]
    return sum(told) if len(told) == steps - 1 else steps - 1
