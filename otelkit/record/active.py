"""A generation's span as the current one, while its request is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.trace import INVALID_SPAN, set_span_in_context

SPAN_KEY: Final[str] = next(iter(set_span_in_context(INVALID_SPAN, Context())))
"""Under which a context keeps the current span: ``Context({**context, SPAN_KEY: span})`` is what
``set_span_in_context`` gives, which takes several times as long."""


def _variable() -> ContextVar[Context] | None:
    """What OpenTelemetry keeps the current context in; None where that is something else."""
    runtime = getattr(otel_context, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    return variable if type(runtime) is ContextVarsRuntimeContext and type(variable) is ContextVar else None


_known: Final = _variable()
current_context: Final[Callable[[], Context]] = otel_context.get_current if _known is None else _known.get
"""This and the next two pass by functions of OpenTelemetry's, two each, of which every one would cost the
request's path up to a microsecond."""
attach: Final[Callable[[Context], Token[Context]]] = otel_context.attach if _known is None else _known.set
_reset: Final[Callable[[Token[Context]], None]] = otel_context.detach if _known is None else _known.reset


def detach(token: Token[Context]) -> None:
    """Undo ``attach``. Where that can't be, OpenTelemetry says so in the log."""
    try:
        _reset(token)
    except Exception:
        otel_context.detach(token)


class ActiveSpan:
    """Makes a context current around a call, and never logs an error when it is left in another one."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context | None) -> None:
        self._context = context

    def __enter__(self) -> None:
        if self._context is not None:
            self._token = attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A coroutine that is thrown away gets GeneratorExit in whatever context collects it; its own context
        # dies with it.
        if self._context is not None and kind is not GeneratorExit:
            detach(self._token)
