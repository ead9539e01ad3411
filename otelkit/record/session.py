"""Which session (conversation) a call belongs to, where the service or its callers tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from opentelemetry import baggage
from opentelemetry.context import Context

from otelkit import semconv

MAX_LENGTH: Final = 256
of_block: Final[ContextVar[str]] = ContextVar("otelkit_session", default="")
"""The session that ``session`` has told; empty outside of it."""


@contextmanager
def session(session_id: str) -> Iterator[None]:
    """Calls within the block belong to this session; other threads and tasks are not concerned."""
    token = of_block.set(session_id[:MAX_LENGTH])
    try:
        yield
    finally:
        with suppress(ValueError):  # left in another context, which has its own value
            of_block.reset(token)


def keep_session(session_id: str) -> None:
    """``session`` until the end of the context that this is called in, which is one made for a request."""
    of_block.set(session_id[:MAX_LENGTH])


def in_baggage(context: Context) -> str:
    """What the baggage entry ``session.id`` or ``gen_ai.conversation.id`` tells where ``session`` does not;
    empty where there is none."""
    carried = baggage.get_all(context)
    for name in (semconv.SESSION_ID, semconv.CONVERSATION_ID):
        if carried.get(name):
            return str(carried[name])[:MAX_LENGTH]
    return ""
