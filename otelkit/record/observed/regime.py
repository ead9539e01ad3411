"""The values that one parameter had at one call site while nothing changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otelkit.record.observed.evidence import Scatter
from otelkit.record.observed.keys import Key

_REMEMBERED: Final = 512
"""Requests after which the weight of the older ones is halved."""
_MANY: Final = 12
"""Distinct values of requests that are taken together, from which those that come once are not remembered."""
_DISTINCT: Final = 64
"""Distinct values remembered."""


class Regime:
    """How often each value was seen, in bounded memory."""

    __slots__ = ("counts", "forgotten", "scatter", "total")

    def __init__(self, forgotten: int = 0) -> None:
        self.forgotten = forgotten
        """Distinct values that there was no room for, least frequent ones first."""
        self.counts: dict[Key, int] = {}
        self.total = 0
        self.scatter = Scatter()

    def add(self, counts: Mapping[Key, int], size: int, hits: int) -> None:
        """Take further requests, of which ``hits`` have the settled value."""
        own = self.counts
        if len(counts) < _MANY:
            for key, number in counts.items():
                own[key] = own.get(key, 0) + number
        elif len(counts) == size and own.keys().isdisjoint(counts):
            self.forgotten += size
        else:
            # What comes once, among so many, would be forgotten soon.
            once = 0
            for key, number in counts.items():
                if key in own:
                    own[key] += number
                elif number > 1:
                    own[key] = number
                else:
                    once += 1
            self.forgotten += once
        self.total += size
        self.scatter.add(size, hits)
        if self.total > _REMEMBERED or len(own) > _DISTINCT:
            self._forget()

    def _forget(self) -> None:
        counts = self.counts
        while len(counts) > _DISTINCT // 2 or self.total > _REMEMBERED:
            counts = {key: number // 2 for key, number in counts.items() if number > 1}
            # What falls out stays in the total: it was neither the old nor the new value.
            self.total = max(self.total // 2, sum(counts.values()))
        self.forgotten += len(self.counts) - len(counts)
        self.counts = counts

    def share(self, key: Key) -> float:
        """Of the requests so far, 0 to 1."""
        return self.counts.get(key, 0) / self.total if self.total else 0.0

    def second(self, settled: Key) -> Key:
        """The most frequent of the values that are not ``settled``."""
        rest = {key: number for key, number in self.counts.items() if key != settled}
        return max(rest, key=rest.__getitem__, default=settled)
