"""What ``/debug/trace`` says: the token steps of the last generations, by session or by trace."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from otelkit.model import Generation
from otelkit.record.redaction import exported_parameters
from otelkit.record.traces import TraceRing

MAX_FOUND: Final = 20
"""Generations with their steps in one answer, the newest ones."""


class WrongQueryError(Exception):
    """The query asks for nothing that can be answered.

    Args:
        status: HTTP status of the answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def find(ring: TraceRing, query: Mapping[str, str]) -> dict[str, Any]:
    """Timelines of the generations with a ``session_id`` or ``trace_id``; with neither, a list of all kept.

    Raises:
        WrongQueryError: unknown keys, no such generation.
    """
    if unknown := sorted(query.keys() - {"session_id", "trace_id"}):
        raise WrongQueryError(400, f"unknown {unknown[0][:50]!r}; ask by session_id or trace_id")
    if not query:
        return {"generations": [_summary(generation) for generation in ring.find(lambda one: True)]}
    session_id = query.get("session_id")
    trace_id = _trace_number(query["trace_id"]) if "trace_id" in query else None

    def fits(generation: Generation) -> bool:
        return (session_id is None or generation.session_id == session_id) and (
            trace_id is None or (generation.span is not None and generation.span.trace_id == trace_id)
        )

    found = ring.find(fits)
    if not found:
        raise WrongQueryError(404, f"no such generation among the last {ring.capacity}")
    return {
        "generations": [_timeline(generation) for generation in found[:MAX_FOUND]],
        "left_out": max(0, len(found) - MAX_FOUND),
    }


def _trace_number(text: str) -> int:
    try:
        if not text.isalnum() or len(text) > 32:
            raise ValueError
        return int(text, 16)
    except ValueError:
        raise WrongQueryError(400, "trace_id is no number of up to 32 hexadecimal digits") from None


def _summary(generation: Generation) -> dict[str, Any]:
    site, span = generation.call_site, generation.span
    return {
        "trace_id": f"{span.trace_id:032x}" if span else "",
        "span_id": f"{span.span_id:016x}" if span else "",
        "session_id": generation.session_id,
        "service": site.service,
        "provider": site.provider,
        "operation": site.operation,
        "model": site.model,
        "route": site.location,
        "started_at": generation.start_ns / 1e9,
        "duration_seconds": generation.duration_seconds,
        "outcome": generation.outcome.value,
        "steps": len(generation.step_ns),
    }


def _timeline(generation: Generation) -> dict[str, Any]:
    """All of a generation; numbers that JSON does not know (a log probability of minus infinity) are null."""
    start = generation.start_ns
    steps: dict[str, Any] = {
        "end_seconds": [round((step - start) / 1e9, 6) for step in generation.step_ns],
    }
    for name, values in (
        ("tokens", generation.step_tokens),
        ("logprob", generation.step_logprobs),
        ("entropy", generation.step_entropies),
    ):
        if values is not None:
            steps[name] = [None if value is None or not math.isfinite(value) else value for value in values]
    return {
        **_summary(generation),
        "error_type": generation.error_type,
        "response_model": generation.response_model,
        "response_id": generation.response_id,
        "finish_reasons": list(generation.finish_reasons),
        "input_tokens": generation.input_tokens,
        "output_tokens": generation.output_tokens,
        "time_to_first_chunk_seconds": generation.time_to_first_chunk_seconds,
        "parameters": exported_parameters(generation.parameters),
        "phase_seconds": dict(generation.phase_seconds),
        "timeline": steps,
    }
