"""Reads openai's responses API: typed events instead of chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otelkit.record.logprobs import note_token_scores
from otelkit.record.response import ResponseFacts

_ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class ResponsesReader:
    """Reads stream events, and ``response`` objects. Every delta (text, reasoning, tool arguments) is a token
    step."""

    says_end = True

    def __init__(self, body: Mapping[str, Any]) -> None:
        scored = "message.output_text.logprobs" in (body.get("include") or ()) or body.get("top_logprobs")
        self.quick = "" if scored else "chunk.delta"

    def chunk(self, event: Any, facts: ResponseFacts) -> bool:
        kind = getattr(event, "type", None)
        delta = getattr(event, "delta", None)
        facts.piece = delta if isinstance(delta, str) else None
        if delta:
            scores = getattr(event, "logprobs", None)
            if scores:
                note_token_scores(scores, facts)
            return True
        if kind == "error":
            facts.error_type = str(getattr(event, "code", None) or "error")
        elif kind in _ENDS or kind == "response.created":
            self.response(getattr(event, "response", None), facts)
        return False

    def response(self, response: Any, facts: ResponseFacts) -> None:
        facts.names(getattr(response, "id", None), getattr(response, "model", None))
        usage = getattr(response, "usage", None)
        facts.usage(getattr(usage, "input_tokens", None), getattr(usage, "output_tokens", None))
        status = getattr(response, "status", None)
        if status == "failed":
            facts.error_type = str(getattr(getattr(response, "error", None), "code", None) or "failed")
        if status in ("completed", "incomplete"):
            facts.finished(getattr(getattr(response, "incomplete_details", None), "reason", None) or status)
