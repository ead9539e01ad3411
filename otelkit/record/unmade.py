"""A span that is made only if somebody asks for it, to be the current one while a request is sent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.trace import Span, SpanContext, Status, StatusCode, get_current_span
from opentelemetry.util.types import Attributes, AttributeValue

_MAKING_SECONDS: Final = 1.0
"""Longest wait for a span that another thread is making, which takes microseconds."""
making: Final[list[tuple[object, int]]] = []
"""Whose spans are being made now, and in which threads: of several threads that are at the span of one owner,
only one finds what it takes. No lock: a finaliser may ask in the middle of it, and must not wait for its own
thread."""


def wait_until_made(owner: object) -> None:
    """Wait for another thread that is making the owner's span."""
    own, end = threading.get_ident(), time.monotonic() + _MAKING_SECONDS
    while any(whose is owner and thread != own for whose, thread in making.copy()):
        if time.monotonic() > end:
            return
        time.sleep(1e-4)


def _before_fork() -> None:
    """The child gets the current span as it is here, with its ids: made by both, it would be two."""
    get_current_span().get_span_context()


if hasattr(os, "register_at_fork"):
    # In the child, the threads that were at it are the parent's.
    os.register_at_fork(before=_before_fork, after_in_child=making.clear)


class UnmadeSpan(Span):
    """Stands for a span until its first use: by a child that is made, a context that is sent along, a log
    record, or whoever else asks for the current span.

    Where none of these is set up, nobody asks; the span can then be made off the request's path.

    Args:
        made: gives the span, and makes it when it is asked for the first time.
    """

    def __init__(self, made: Callable[[], Span]) -> None:
        self._made = made

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For code that asks whether the current span is one of the SDK's, as some instrumentations do."""
        return type(self._made())

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
