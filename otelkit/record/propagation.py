"""What a request brings with it: baggage that the user wants on spans, and its ``x-request-id``."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry import baggage
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace import Link, SpanContext, TraceFlags

from otelkit import semconv

HEADER: Final = "x-request-id"
BAGGAGE_VARIABLE: Final = "OTELKIT_BAGGAGE_KEYS"
"""Names of baggage entries that are copied to spans, separated by commas."""
_CONTEXT_KEY: Final = otel_context.create_key("otelkit-request-id")
_MAX_LENGTH: Final = 128


def baggage_keys() -> tuple[str, ...]:
    """Names that the environment variable asks for."""
    return tuple(key.strip() for key in os.environ.get(BAGGAGE_VARIABLE, "").split(",") if key.strip())


def baggage_attributes(keys: Sequence[str], context: Context) -> dict[str, str]:
    """Span attributes of these baggage entries, under their own names; those that are not there are left
    out."""
    carried = baggage.get_all(context) if keys else {}
    return {key: str(carried[key])[:_MAX_LENGTH] for key in keys if key in carried}


def clean_request_id(value: Any) -> str:
    """A request id as far as it can be trusted: printable ASCII of bounded length, else empty."""
    text = str(value or "").strip()
    return text if text.isascii() and text.isprintable() and len(text) <= _MAX_LENGTH else ""


def current_request_id(context: Context) -> str:
    """The request id that came with the request being served; empty when there is none."""
    found = context.get(_CONTEXT_KEY)
    return clean_request_id(found) if found else ""


def with_request_id(request_id: str, context: Context | None = None) -> Context:
    """A context in which ``current_request_id`` is this."""
    return otel_context.set_value(_CONTEXT_KEY, request_id, context)


def request_id_in(headers: Mapping[str, Any] | None) -> str:
    """``x-request-id`` among headers, in any spelling."""
    for name, value in (headers or {}).items():
        if isinstance(name, str) and name.lower() == HEADER:
            return clean_request_id(value)
    return ""


def request_link(request_id: str) -> Link:
    """A link that is the same in every process which serves this request, so that their traces can be joined
    by it."""
    digest = hashlib.sha256(request_id.encode()).digest()
    target = SpanContext(
        trace_id=int.from_bytes(digest[:16]),
        span_id=int.from_bytes(digest[16:24]),
        is_remote=True,
        trace_flags=TraceFlags(0),
    )
    return Link(target, {semconv.REQUEST_ID: request_id})


class RequestIdPropagator(TextMapPropagator):
    """Takes ``x-request-id`` from incoming headers and hands it on:
    ``OTEL_PROPAGATORS=tracecontext,baggage,x-request-id``."""

    def extract(
        self,
        carrier: CarrierT,
        context: Context | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> Context:
        found = getter.get(carrier, HEADER) or getter.get(carrier, "X-Request-ID")
        request_id = clean_request_id(found[0]) if found else ""
        return with_request_id(request_id, context) if request_id else context or otel_context.get_current()

    def inject(
        self, carrier: CarrierT, context: Context | None = None, setter: Setter[CarrierT] = default_setter
    ) -> None:
        request_id = clean_request_id(otel_context.get_value(_CONTEXT_KEY, context))
        if request_id:
            setter.set(carrier, HEADER, request_id)

    @property
    def fields(self) -> set[str]:
        return {HEADER}
