"""A sampling rate that follows the load, and the rule by which a trace is in or out at a rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

SMOOTHING: Final = 0.3
"""Weight of the last second in the load that is assumed for the next one."""
RANDOM_BITS: Final = 56
"""W3C: the lowest 56 bits of a trace id are random."""


def in_share(trace_id: int, share: float) -> bool:
    """Whether a trace belongs to a share (0 to 1) of all; services that share a trace agree."""
    return (trace_id & ((1 << RANDOM_BITS) - 1)) < share * (1 << RANDOM_BITS)


class AdaptiveRate:
    """The share of offered items that keeps the chosen ones within a budget per second.

    Some items may be chosen whatever the rate (priority); what they take is left out of the budget of the
    others. Threads may call it at once: an offer that is lost in a race moves the rate by next to nothing.

    Args:
        budget: items per second, ``inf`` for no limit.
        clock: monotonic seconds.
    """

    def __init__(self, budget: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._second_began = clock()
        self._offered = self._priority = 0
        """In this second."""
        self._offered_rate = self._priority_rate = 0.0
        """Smoothed, per second."""
        self.share = 1.0 if budget > 0 else 0.0
        """Of items without priority, the share to choose now."""

    def offer(self, items: int, *, priority: bool = False, now: float | None = None) -> None:
        """Count items that could be chosen.

        Args:
            now: by the clock, for who has just asked it.
        """
        if now is None:
            now = self._clock()
        if now - self._second_began >= 1.0:
            self._follow(now)
        if priority:
            self._priority += items
        else:
            self._offered += items

    def _follow(self, now: float) -> None:
        elapsed = now - self._second_began
        # A long pause counts as that many quiet seconds.
        weight = 1.0 - (1.0 - SMOOTHING) ** elapsed
        self._offered_rate += weight * (self._offered / elapsed - self._offered_rate)
        self._priority_rate += weight * (self._priority / elapsed - self._priority_rate)
        self._offered = self._priority = 0
        self._second_began = now
        left = max(0.0, self._budget - self._priority_rate)
        self.share = 1.0 if self._offered_rate <= left else left / self._offered_rate
