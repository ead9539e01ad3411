"""The statistics: how well two parts of a stream of values are told apart from one.

Requests are no independent draws: those of a session share its user's settings. So evidence that assumes
independence is divided by how much more the shares of past blocks of requests scattered than independent
draws would (overdispersion), with a cautious prior until there were enough blocks.
"""

from __future__ import annotations

from math import lgamma, log1p
from typing import Final

BLOCK: Final = 24
"""Requests whose share of the settled value is one sample of the scatter."""
_PRIOR_INFLATION: Final = 8.0
"""Scatter assumed for a mixture of values that nothing is known of: sessions of about a dozen requests."""
_PRIOR_BLOCKS: Final = 4.0
"""How many blocks that assumption is worth."""
_MIXED: Final = 0.3
"""Share of other values from which a regime counts as a mixture in full."""
VARIED: Final = 0.15
"""Least share of other values to reckon with once the very value that may have become settled was seen."""
_MAX_BLOCKS: Final = 48.0
_LGAMMA_HALF: Final = lgamma(0.5)


def log_marginal(new: int, old: int, rest: int) -> float:
    """Log marginal likelihood of the counts under a symmetric Dirichlet prior (1/2 each)."""
    return (
        lgamma(1.5) - lgamma(new + old + rest + 1.5)
        + lgamma(new + 0.5) + lgamma(old + 0.5) + lgamma(rest + 0.5) - 3 * _LGAMMA_HALF
    )  # fmt: skip


def bound(seen: int) -> float:
    """Log Bayes factor that proves a change, after ``seen`` requests: each of them was a chance to err."""
    return 7.0 + log1p(seen / 50)


class Scatter:
    """How much the share of one value varies from block to block."""

    __slots__ = ("_blocks", "_filled", "_hits", "_squares", "_sum", "_weight")

    def __init__(self) -> None:
        self._blocks = self._weight = self._sum = self._squares = 0.0
        self._filled = self._hits = 0

    def copy(self) -> Scatter:
        other = Scatter()
        other._blocks, other._weight = self._blocks, self._weight
        other._sum, other._squares = self._sum, self._squares
        other._filled, other._hits = self._filled, self._hits
        return other

    def add(self, requests: int, hits: int) -> None:
        """Take further requests, of which ``hits`` had the value."""
        self._filled += requests
        self._hits += hits
        if self._filled < BLOCK:
            return
        weight, share = self._filled / BLOCK, self._hits / self._filled
        # Of several blocks' requests that are not all alike, only the sum is known.
        self._blocks += 1 if 0.0 < share < 1.0 else self._filled // BLOCK
        self._weight += weight
        self._sum += weight * share
        self._squares += weight * share * share
        self._filled = self._hits = 0
        if self._blocks > _MAX_BLOCKS:
            factor = _MAX_BLOCKS / 2 / self._blocks
            self._blocks *= factor
            self._weight *= factor
            self._sum *= factor
            self._squares *= factor

    def inflation(self, others: float) -> float:
        """Factor (>= 1) by which independent draws would scatter less.

        Args:
            others: share of requests, so far, that did not have the value.
        """
        prior = 1.0 + (_PRIOR_INFLATION - 1.0) * min(1.0, others / _MIXED)
        weighed = _PRIOR_BLOCKS * prior
        blocks = self._blocks
        if blocks <= 1.0:
            return prior
        mean = self._sum / self._weight
        spread = mean * (1.0 - mean)
        deviation = max(0.0, self._squares - self._weight * mean * mean)
        if spread > 0.005:
            weighed += deviation * BLOCK / spread
        else:
            weighed += blocks - 1.0
        return max(1.0, weighed / (_PRIOR_BLOCKS + blocks - 1.0))
