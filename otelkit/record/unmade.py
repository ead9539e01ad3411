"""A span that is made only if somebody asks for it, to be the current one while a request is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import Span, SpanContext, Status, StatusCode
from opentelemetry.util.types import Attributes, AttributeValue


class UnmadeSpan(Span):
    """Stands for a span until its first use: by a child that is made, a context that is sent along, a log
    record, or whoever else asks for the current span.

    Where none of these is set up, nobody asks; the span can then be made off the request's path.

    Args:
        made: gives the span, and makes it when it is asked for the first time.
    """

    def __init__(self, made: Callable[[], Span]) -> None:
        self._made = made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def end(self, end_time: int | None = None) -> None:
        self._made().end(end_time)

    def get_span_context(self) -> SpanContext:
        return self._made().get_span_context()

    def set_attributes(self, attributes: Mapping[str, AttributeValue]) -> None:
        self._made().set_attributes(attributes)

    def set_attribute(self, key: str, value: AttributeValue) -> None:
        self._made().set_attribute(key, value)

    def add_event(self, name: str, attributes: Attributes = None, timestamp: int | None = None) -> None:
        self._made().add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Attributes = None) -> None:
        self._made().add_link(context, attributes)

    def update_name(self, name: str) -> None:
        self._made().update_name(name)

    def is_recording(self) -> bool:
        return self._made().is_recording()

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        self._made().set_status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Attributes = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        self._made().record_exception(exception, attributes, timestamp, escaped)
