"""A generation's span as the current one, while its request is sent."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from opentelemetry import context as otel_context
from opentelemetry.context import Context


class Failable(Protocol):
    def failed(self, error: BaseException) -> None: ...


class ActiveSpan:
    """Makes a span current around a call, and never logs an error when it is left in another context."""

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


class SendingRequest(ActiveSpan):
    """Also tells the recording of an error, which goes on to the caller."""

    __slots__ = ("_recording",)

    def __init__(self, context: Context | None, recording: Failable) -> None:
        super().__init__(context)
        self._recording = recording

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:
            self._recording.failed(error)
