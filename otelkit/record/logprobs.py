"""Numbers from the scores that a provider returned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log
from typing import Any

from otelkit.record.response import ResponseFacts


def entropy(logprobs: Sequence[float]) -> float:
    """Entropy (nats) over alternatives with these log probabilities (nats), scaled so that they sum to
    one."""
    weights = [exp(logprob) for logprob in logprobs]
    total = sum(weights)
    if total <= 0:
        return 0.0
    return max(0.0, -sum(weight / total * log(weight / total) for weight in weights if weight > 0))


def _numbers(values: Iterable[Any]) -> list[float]:
    return [value for value in values if isinstance(value, int | float)]


def note_token_scores(scores: Sequence[Any], facts: ResponseFacts) -> None:
    """Note one step whose tokens have ``logprob`` and ``top_logprobs`` (openai's chat and responses)."""
    tops = (getattr(score, "top_logprobs", None) or () for score in scores)
    alternatives = [_numbers(getattr(top, "logprob", None) for top in step) for step in tops]
    _note(_numbers(getattr(score, "logprob", None) for score in scores), alternatives, facts)


def note_completion_scores(scores: Any, facts: ResponseFacts) -> None:
    """Note one step of openai's older completions: parallel lists."""
    tops = getattr(scores, "top_logprobs", None) or ()
    alternatives = [_numbers(top.values()) for top in tops if isinstance(top, Mapping)]
    _note(_numbers(getattr(scores, "token_logprobs", None) or ()), alternatives, facts)


def note_gemini_scores(result: Any, facts: ResponseFacts) -> None:
    """Note one step of google's ``logprobs_result``; it says nothing of tokens that the usage does not."""
    tops = getattr(result, "top_candidates", None) or ()
    alternatives = [
        _numbers(getattr(top, "log_probability", None) for top in getattr(step, "candidates", None) or ())
        for step in tops
    ]
    chosen = getattr(result, "chosen_candidates", None) or ()
    _note(_numbers(getattr(score, "log_probability", None) for score in chosen), alternatives, facts)


def note_position_scores(
    tokens: Sequence[Sequence[int]], positions: Sequence[Sequence[Any]], facts: ResponseFacts
) -> None:
    """Note one step of vLLM's, of which each output has token ids and, per token, a mapping of token id ->
    score that holds the token chosen and its alternatives."""
    chosen, alternatives = [], []
    for ids, scores in zip(tokens, positions, strict=True):
        for token, position in zip(ids, scores, strict=False):
            known = position if isinstance(position, Mapping) else {}
            chosen += _numbers([getattr(known.get(token), "logprob", None)])
            others = _numbers(getattr(score, "logprob", None) for score in known.values())
            alternatives.append(others if len(others) > 1 else [])
    _note(chosen, alternatives, facts)


def _note(chosen: list[float], alternatives: list[list[float]], facts: ResponseFacts) -> None:
    if chosen:
        facts.count(len(chosen))
        facts.score(chosen, [entropy(logprobs) for logprobs in alternatives if logprobs])
