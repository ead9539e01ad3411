"""Chunks and answers as OpenAI's API sends them."""

from __future__ import annotations

from typing import Any

from wire_server import Answer, Exchange

ID = "chatcmpl-1"
MODEL = "gpt-test-2026"


def chunk(
    content: str | None = None,
    *,
    role: str | None = None,
    finish: str | None = None,
    index: int = 0,
    **extra: Any,
) -> dict[str, Any]:
    delta: dict[str, Any] = {}
    if role:
        delta["role"] = role
    if content is not None:
        delta["content"] = content
    delta |= extra.pop("delta", {})
    choice = {"index": index, "delta": delta, "finish_reason": finish, **extra}
    return {
        "id": ID,
        "object": "chat.completion.chunk",
        "created": 1,
        "model": MODEL,
        "choices": [choice],
    }


def usage_chunk(prompt: int, completion: int) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {**chunk(), "choices": [], "usage": usage}


def completion(text: str = "hello", prompt: int = 5, tokens: int = 2) -> dict[str, Any]:
    return {
        "id": ID,
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
    }


def stream(*pieces: str, usage: tuple[int, int] | None = None, pause: float = 0.0) -> Answer:
    """An answer of a role chunk, one chunk per piece, a finish chunk, and usage if given."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(chunk("", role="assistant"))
        for piece in pieces:
            if pause:
                exchange.stall(pause)
            exchange.event(chunk(piece))
        exchange.event(chunk(finish="stop"))
        if usage:
            exchange.event(usage_chunk(*usage))
        exchange.done()

    return answer
