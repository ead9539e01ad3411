"""Numbers from the scores that a provider returned."""

from __future__ import annotations

from collections.abc import Sequence
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


def note_token_scores(scores: Sequence[Any], facts: ResponseFacts) -> None:
    """Note one step whose tokens have ``logprob`` and ``top_logprobs`` (openai's form, in all its APIs)."""
    alternatives = [[top.logprob for top in score.top_logprobs] for score in scores if score.top_logprobs]
    facts.score(
        len(scores), [score.logprob for score in scores], [entropy(logprobs) for logprobs in alternatives]
    )
