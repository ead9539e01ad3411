"""Reads Gemini's answers. Usage is cumulative and comes with every chunk, so the tokens of each step are
known."""

from __future__ import annotations

from typing import Any

from otelkit.record.logprobs import note_gemini_scores
from otelkit.record.response import ResponseFacts


class GeminiReader:
    """Reads ``GenerateContentResponse`` objects, streamed or not."""

    quick = ""
    """A chunk holds many tokens here, so reading each wholly costs little per token."""
    says_end = True

    def __init__(self) -> None:
        self._tokens_before = 0

    def chunk(self, response: Any, facts: ResponseFacts) -> bool:
        facts.piece = None
        step = False
        for candidate in getattr(response, "candidates", None) or ():
            facts.finished(_name(getattr(candidate, "finish_reason", None)))
            for part in getattr(getattr(candidate, "content", None), "parts", None) or ():
                text = getattr(part, "text", None)
                if text or getattr(part, "function_call", None) or getattr(part, "inline_data", None):
                    step = True
                    facts.piece = text or facts.piece
            if step:
                note_gemini_scores(getattr(candidate, "logprobs_result", None), facts)
        self._note_response(response, facts, step)
        return step

    def response(self, response: Any, facts: ResponseFacts) -> None:
        for candidate in getattr(response, "candidates", None) or ():
            facts.finished(_name(getattr(candidate, "finish_reason", None)))
        self._note_response(response, facts, step=False)

    def _note_response(self, response: Any, facts: ResponseFacts, step: bool) -> None:
        facts.names(getattr(response, "response_id", None), getattr(response, "model_version", None))
        facts.finished(_name(getattr(getattr(response, "prompt_feedback", None), "block_reason", None)))
        usage = getattr(response, "usage_metadata", None)
        counts = [getattr(usage, name, None) for name in ("candidates_token_count", "thoughts_token_count")]
        written = sum(count for count in counts if count) if any(counts) else None
        facts.usage(getattr(usage, "prompt_token_count", None), written)
        if step and written is not None:
            facts.count(written - self._tokens_before)
        if written is not None:
            self._tokens_before = written


def _name(value: Any) -> Any:
    return getattr(value, "value", value)
