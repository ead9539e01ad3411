"""Numbers from the scores that a provider returned."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log


def entropy(logprobs: Sequence[float]) -> float:
    """Entropy (nats) over alternatives with these log probabilities (nats), scaled so that they sum to
    one."""
    weights = [exp(logprob) for logprob in logprobs]
    total = sum(weights)
    if total <= 0:
        return 0.0
    return max(0.0, -sum(weight / total * log(weight / total) for weight in weights if weight > 0))
