"""openai: chat completions and completions, and every service that speaks its wire format through this
client."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from otelkit.record.logprobs import note_completion_scores, note_token_scores
from otelkit.record.patches import Patches
from otelkit.record.providers.base import GetRuntime
from otelkit.record.providers.openai_responses import ResponsesReader
from otelkit.record.providers.stainless import Endpoint, Stainless
from otelkit.record.response import ResponseFacts, given

_DELTA_PARTS: Final = (
    "content",
    "tool_calls",
    "refusal",
    "reasoning_content",
    "reasoning",
    "function_call",
    "audio",
)
"""Parts of a delta that carry tokens; the middle ones are extensions of servers that speak the same
format."""


_PHASES: Final = {"prompt_ms": "prefill", "predicted_ms": "decode"}


def _note_response(response: Any, facts: ResponseFacts) -> None:
    fields = given(response)
    facts.names(fields.get("id"), fields.get("model"))
    usage = fields.get("usage")
    if usage is not None:
        facts.usage(getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None))
    if fields.get("error"):
        facts.error_type = _error_type(fields["error"])
    timings = fields.get("timings")
    if isinstance(timings, dict):  # llama.cpp's server
        told = {_PHASES[name]: timings.get(name) for name in _PHASES}
        facts.phases({phase: ms / 1e3 for phase, ms in told.items() if isinstance(ms, int | float)})


def _error_type(error: Any) -> str:
    """What went wrong, where a server says so under status 200: in the middle of a stream whose lines the
    program reads itself, or in place of an answer."""
    parts = given(error)
    return str(parts.get("code") or parts.get("type") or "error")


class _ChoicesReader:
    """What both have in common: answers are lists of choices."""

    says_end = True

    def response(self, response: Any, facts: ResponseFacts) -> None:
        _note_response(response, facts)
        for choice in getattr(response, "choices", None) or ():
            facts.finished(getattr(choice, "finish_reason", None))


# A function for the rare chunk: variables of the loop would keep parts of each chunk alive until the next.
_CHAT_TEXT: Final = f"""(
    chunk.choices[0].delta.content
    or (
        lambda chunk, choice, delta: False
        if delta.role and not delta.__pydantic_extra__ and not any(map(delta.__dict__.get, {_DELTA_PARTS}))
        and choice.finish_reason is None and len(chunk.choices) == 1
        and chunk.usage is None and not chunk.__pydantic_extra__
        else None
    )(chunk, chunk.choices[0], chunk.choices[0].delta)
)"""
"""The text of a token step; False for a chunk that only tells the role, as most streams begin."""


def _note_plain_end(chunk: Any, facts: ResponseFacts) -> bool:
    """Read the chunk that most streams end with, which only says why, in half the time that the rest takes.

    Returns:
        False, having read nothing, where it may be another.
    """
    try:
        (choice,) = chunk.choices
        response_id, model, reason, delta = chunk.id, chunk.model, choice.finish_reason, choice.delta
        if (
            not (response_id and model and reason)
            or not (type(response_id) is type(model) is type(reason) is str)
            or chunk.usage is not None
            or chunk.__pydantic_extra__
            or delta.__pydantic_extra__
            or any(map(delta.__dict__.get, _DELTA_PARTS))
        ):
            return False
    except Exception:  # what a server may send instead
        return False
    if facts.finish_reasons:
        facts.finished(reason)
    else:
        facts.finish_reasons = (reason,)
    facts.response_id, facts.response_model = response_id, model
    return True


class ChatReader(_ChoicesReader):
    """Reads ``chat.completion.chunk`` and ``chat.completion`` objects."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        # Several choices finish in several chunks, and scores are in every chunk: all of them are read wholly
        # then.
        whole = body.get("logprobs") or (body.get("n") or 1) > 1
        self.quick = "" if whole else _CHAT_TEXT

    def chunk(self, chunk: Any, facts: ResponseFacts) -> bool:
        facts.piece = None
        if _note_plain_end(chunk, facts):
            return False
        _note_response(chunk, facts)
        step = False
        for choice in getattr(chunk, "choices", None) or ():
            facts.finished(getattr(choice, "finish_reason", None))
            delta = getattr(choice, "delta", None)
            parts = given(delta)
            if any(map(parts.get, _DELTA_PARTS)):
                step = True
                facts.piece = parts.get("content") or facts.piece
                scores = getattr(getattr(choice, "logprobs", None), "content", None)
                if scores:
                    note_token_scores(scores, facts)
        return step


class CompletionReader(_ChoicesReader):
    """Reads ``text_completion`` objects, streamed or not."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        whole = body.get("logprobs") is not None or (body.get("n") or 1) > 1
        self.quick = "" if whole else "chunk.choices[0].text"

    def chunk(self, chunk: Any, facts: ResponseFacts) -> bool:
        _note_response(chunk, facts)
        facts.piece = None
        step = False
        for choice in getattr(chunk, "choices", None) or ():
            facts.finished(getattr(choice, "finish_reason", None))
            text = getattr(choice, "text", None)
            if text:
                step, facts.piece = True, text
                note_completion_scores(getattr(choice, "logprobs", None), facts)
        return step


_NAMES: Final = {"max_completion_tokens": "max_tokens", "stop": "stop_sequences", "n": "choice.count"}
_RESPONSES_NAMES: Final = {"max_output_tokens": "max_tokens"}

_CLIENT: Final = Stainless(
    package="openai",
    endpoints={
        "/chat/completions": Endpoint("chat", _NAMES, ChatReader),
        "/completions": Endpoint("text_completion", _NAMES, CompletionReader),
        "/responses": Endpoint("chat", _RESPONSES_NAMES, ResponsesReader),
    },
    provider_of=lambda client: "azure.ai.openai" if "Azure" in type(client).__name__ else "openai",
)


class OpenAI:
    """The adapter."""

    module = "openai"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        _CLIENT.instrument(module.OpenAI, module.AsyncOpenAI, module._streaming, patches, runtime)
