"""The span of one call: made by the tracer at the beginning, or when somebody asks for it, or late, when the
call has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind

from otelkit.model import SpanIdentity
from otelkit.record import propagation, span
from otelkit.record.active import SPAN_KEY, ActiveSpan
from otelkit.record.guard import fault
from otelkit.record.request import Request
from otelkit.record.runtime import Runtime
from otelkit.record.unmade import UnmadeSpan, making, wait_until_made


class CallSpan:
    """What a recording knows of its span while the call runs. It has no constructor of its own, which would
    cost the request's path a microsecond: its attributes are set by the recording's."""

    __slots__ = (
        "_anchor_ns",
        "_describe",
        "_endable",
        "_identity",
        "_joined",
        "_request",
        "_session_id",
        "_span",
        "_start",
        "_unmade",
        "runtime",
    )

    runtime: Runtime
    _start: int
    """Monotonic ns."""
    _anchor_ns: int
    """What to add to a monotonic reading to get wall-clock time."""
    _describe: Callable[[], Request]
    _request: Request | None
    _session_id: str
    _span: trace.Span | None
    _joined: bool
    """Whether it is another instrumentation's."""
    _identity: SpanIdentity | None
    """Of a span that was made late, and of which there is nothing else left."""
    _unmade: list[Context]
    """The context that the span is to be made in, until it is. Popped by whoever makes it, as are the entries
    of ``_endable`` by whoever ends it: so two threads, or a collection in the middle, can't do it twice."""
    _endable: list[bool]

    def _described(self) -> Request:
        request = self._request
        if request is None:
            request = self._request = self._describe()
        return request

    def _make_span(self) -> None:
        """Have the tracer make the span, unless that is done."""
        try:
            surrounding = self._unmade.pop()
        except IndexError:
            return
        request = self._described()
        request_id = span.request_id(request, surrounding)
        self._span = self.runtime.tracer.start_span(
            span.name(request),
            context=surrounding,
            kind=SpanKind.CLIENT,
            attributes={
                **span.sent_attributes(request),
                **self._surrounding_attributes(request_id, surrounding),
            },
            links=(propagation.request_link(request_id),) if request_id else None,
            start_time=self._start + self._anchor_ns,
        )
        self._endable = [True]

    def _surrounding_attributes(self, request_id: str, surrounding: Context) -> dict[str, Any]:
        keys = self.runtime.baggage_keys
        return span.surrounding_attributes(self._session_id, request_id, surrounding, keys)

    def active(self) -> ActiveSpan:
        """``with recording:``, where somebody else sees to errors."""
        return ActiveSpan(self._active_context())

    def _active_context(self) -> Context | None:
        for surrounding in self._unmade:
            return Context({**surrounding, SPAN_KEY: UnmadeSpan(self._made_span)})
        made = self._span
        if made is None or self._joined or not made.get_span_context().is_valid:
            return None
        return trace.set_span_in_context(made)

    def _make_once(self) -> None:
        """Have the tracer make the span, or wait for the thread that is at it, which may have to leave it."""
        for _ in range(2):
            if self._span is not None or self._identity is not None:
                return
            entry = self, threading.get_ident()
            making.append(entry)
            try:
                self._make_span()
            finally:
                making.remove(entry)
            wait_until_made(self)

    def _made_span(self) -> trace.Span:
        """The span, which somebody has asked for while it was the current one, or later."""
        try:
            self._make_once()
        except Exception:
            fault("begin a span")
        if self._span is None and self._identity is not None:
            self._span = span.ended(self._identity)
        return trace.INVALID_SPAN if self._span is None else self._span
