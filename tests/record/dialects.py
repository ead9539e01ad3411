"""Providers' clients and wire formats behind one interface, so that every exit path is tested with each of
them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any

import pytest
from wire_server import Answer, Exchange

from otelkit.model import Outcome

PIECES = ("one", " two", " three", " four")
INPUT_TOKENS, OUTPUT_TOKENS = 11, 8
"""What each dialect's whole stream reports at its end."""


@dataclass(frozen=True)
class Dialect:
    """How to speak with one provider. Streams are of ``PIECES``, with role, usage and finish events around
    them."""

    module: str
    span_name: str
    finish_reasons: tuple[str, ...]
    client: Callable[[str], AbstractContextManager[Any]]
    async_client: Callable[[str], AbstractAsyncContextManager[Any]]
    ask: Callable[[Any], Any]
    """Client -> stream."""
    ask_async: Callable[[Any], Any]
    """Client -> awaitable of a stream."""
    text: Callable[[Any], str]
    """Chunk -> its text, empty for chunks that are no token step."""
    piece: Callable[[str], tuple[str, dict[str, Any]]]
    """Text -> (event name, document) of a token step."""
    opening: tuple[tuple[str, dict[str, Any]], ...]
    closing: tuple[tuple[str, dict[str, Any]], ...]
    error_event: tuple[str, dict[str, Any]]
    error_types: frozenset[str]
    """Names of the client's errors for an error event."""

    def __str__(self) -> str:
        return self.span_name

    def stream(self, *, pause: float = 0.0, spoil: Callable[[Exchange], None] | None = None) -> Answer:
        """The whole stream; with ``spoil``, that is called after the first token step instead of the rest."""

        def answer(exchange: Exchange) -> None:
            exchange.begin_events()
            for name, document in self.opening:
                exchange.event(document, name)
            for text in PIECES:
                if pause:
                    exchange.stall(pause)
                name, document = self.piece(text)
                exchange.event(document, name)
                if spoil is not None:
                    spoil(exchange)
                    return
            for name, document in self.closing:
                exchange.event(document, name)
            exchange.done(marker="")

        return answer


# --- openai responses ---------------------------------------------------------------------------------------


def _response(status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-test-2026", "status": status,
        "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, **more,
    }  # fmt: skip


def _usage() -> dict[str, Any]:
    return {
        "input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS, "total_tokens": 19,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def _event(kind: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return kind, {"type": kind, "sequence_number": 1, **more}


def _openai_client(url: str) -> AbstractContextManager[Any]:
    openai = pytest.importorskip("openai")
    client: AbstractContextManager[Any] = openai.OpenAI(base_url=url, api_key="k", max_retries=0, timeout=0.5)
    return client


def _openai_async_client(url: str) -> AbstractAsyncContextManager[Any]:
    openai = pytest.importorskip("openai")
    client: AbstractAsyncContextManager[Any] = openai.AsyncOpenAI(
        base_url=url, api_key="k", max_retries=0, timeout=0.5
    )
    return client


OPENAI_RESPONSES = Dialect(
    module="openai",
    span_name="chat gpt-test",
    finish_reasons=("completed",),
    client=_openai_client,
    async_client=_openai_async_client,
    ask=lambda client: client.responses.create(model="gpt-test", input="secret", stream=True),
    ask_async=lambda client: client.responses.create(model="gpt-test", input="secret", stream=True),
    text=lambda event: event.delta if event.type == "response.output_text.delta" else "",
    piece=lambda text: _event(
        "response.output_text.delta", delta=text, item_id="i", output_index=0, content_index=0, logprobs=[]
    ),
    opening=(_event("response.created", response=_response("in_progress")),),
    closing=(
        _event(
            "response.output_text.done", text="".join(PIECES), item_id="i", output_index=0, content_index=0
        ),
        _event("response.completed", response=_response("completed", usage=_usage())),
    ),
    error_event=_event("error", code="server_error", message="overloaded", param=None),
    error_types=frozenset({"server_error"}),
)

# --- anthropic ----------------------------------------------------------------------------------------------


def _anthropic_client(url: str) -> AbstractContextManager[Any]:
    anthropic = pytest.importorskip("anthropic")
    client: AbstractContextManager[Any] = anthropic.Anthropic(
        base_url=url, api_key="k", max_retries=0, timeout=0.5
    )
    return client


def _anthropic_async_client(url: str) -> AbstractAsyncContextManager[Any]:
    anthropic = pytest.importorskip("anthropic")
    client: AbstractAsyncContextManager[Any] = anthropic.AsyncAnthropic(
        base_url=url, api_key="k", max_retries=0, timeout=0.5
    )
    return client


def _named(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return document["type"], document


def _ask_anthropic(client: Any) -> Any:
    return client.messages.create(
        model="claude-test", max_tokens=100, messages=[{"role": "user", "content": "secret"}], stream=True
    )


ANTHROPIC = Dialect(
    module="anthropic",
    span_name="chat claude-test",
    finish_reasons=("end_turn",),
    client=_anthropic_client,
    async_client=_anthropic_async_client,
    ask=_ask_anthropic,
    ask_async=_ask_anthropic,
    text=lambda event: event.delta.text if event.type == "content_block_delta" else "",
    piece=lambda text: _named(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
    ),
    opening=(
        _named(
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1", "type": "message", "role": "assistant", "content": [],
                    "model": "claude-test-2026", "stop_reason": None, "stop_sequence": None,
                    "usage": {
                        "input_tokens": INPUT_TOKENS - 3, "cache_read_input_tokens": 3, "output_tokens": 1
                    },
                },
            }
        ),
        _named({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        _named({"type": "ping"}),
    ),
    closing=(
        _named({"type": "content_block_stop", "index": 0}),
        _named({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 5}}),
        _named(
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT_TOKENS},
            }
        ),
        _named({"type": "message_stop"}),
    ),
    error_event=_named({"type": "error", "error": {"type": "overloaded_error", "message": "overloaded"}}),
    error_types=frozenset({"APIStatusError", "OverloadedError"}),
)  # fmt: skip

# --- google-genai -------------------------------------------------------------------------------------------


@contextmanager
def _google_client(url: str) -> Iterator[Any]:
    genai = pytest.importorskip("google.genai")
    yield genai.Client(api_key="k", http_options={"base_url": url, "timeout": 500})


@asynccontextmanager
async def _google_async_client(url: str) -> AsyncIterator[Any]:
    genai = pytest.importorskip("google.genai")
    client = genai.Client(api_key="k", http_options={"base_url": url, "timeout": 500})
    try:
        yield client.aio
    finally:
        await client.aio.aclose()


def _candidate(text: str, count: int, finish: str | None = None) -> tuple[str, dict[str, Any]]:
    candidate: dict[str, Any] = {
        "index": 0,
        "content": {"role": "model", "parts": [{"text": text}] if text else []},
    }
    if finish:
        candidate["finishReason"] = finish
    return "", {
        "candidates": [candidate],
        "responseId": "r1",
        "modelVersion": "gemini-test-2026",
        "usageMetadata": {"promptTokenCount": INPUT_TOKENS, "candidatesTokenCount": count},
    }


def _ask_google(client: Any) -> Any:
    return client.models.generate_content_stream(model="gemini-test", contents="secret")


GOOGLE = Dialect(
    module="google.genai",
    span_name="generate_content gemini-test",
    finish_reasons=("STOP",),
    client=_google_client,
    async_client=_google_async_client,
    ask=_ask_google,
    ask_async=_ask_google,
    text=lambda response: response.text or "",
    piece=lambda text: _candidate(text, 2 * PIECES.index(text) + 2),
    opening=(),
    closing=(_candidate("", OUTPUT_TOKENS, "STOP"),),
    error_event=("", {"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}}),
    error_types=frozenset({"ServerError", "APIError"}),
)

DIALECTS = [
    pytest.param(dialect, id=re.sub(r"\W", "-", dialect.span_name))
    for dialect in (OPENAI_RESPONSES, ANTHROPIC, GOOGLE)
]

COMPLETED, EARLY, CANCELLED, ERROR = Outcome.COMPLETED, Outcome.ENDED_EARLY, Outcome.CANCELLED, Outcome.ERROR
