"""A generation's span as the current one, while its request is sent."""

from __future__ import annotations

from types import TracebackType
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, set_span_in_context

SPAN_KEY: Final[str] = next(iter(set_span_in_context(INVALID_SPAN, Context())))
"""Under which a context keeps the current span: ``Context({**context, SPAN_KEY: span})`` is what
``set_span_in_context`` gives, which takes several times as long."""


class ActiveSpan:
    """Makes a context current around a call, and never logs an error when it is left in another one."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context | None) -> None:
        self._context = context

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = otel_context.attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A coroutine that is thrown away gets GeneratorExit in whatever context collects it; its own context
        # dies with it.
        if self._context is not None and kind is not GeneratorExit:
            otel_context.detach(self._token)
