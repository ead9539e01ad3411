"""The values that one parameter had at one call site while nothing changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from typing import Final

from otelkit.record.observed.evidence import Scatter
from otelkit.record.observed.keys import Key

_REMEMBERED: Final = 512
"""Requests after which the weight of the older ones is halved."""
_MANY: Final = 12
"""Distinct values of requests that are taken together, from which those that come once are not remembered."""
_FEW: Final = 6
"""Distinct values up to which counting each costs less than one by one."""
_DISTINCT: Final = 64
"""Distinct values remembered."""
_AGAIN: Final = 16
"""Of requests that are taken together: one in so many has a value that another of them has had, where they
are not to be counted."""


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
        elif is_sparse(counts, size):
            known = own.keys() & counts.keys()
            for key in known:
                own[key] += counts[key]
            self.forgotten += len(counts) - len(known)
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


def counted(keys: Sequence[Key], settled: Key) -> dict[Key, int]:
    """How often each key is among some; where hardly any comes again, once, but for the settled value's."""
    counts: dict[Key, int] = dict.fromkeys(keys, 1)
    if len(counts) <= _FEW:
        for key in counts:
            counts[key] = keys.count(key)
    elif is_sparse(counts, len(keys)):
        if settled in counts:
            counts[settled] = keys.count(settled)
    elif len(counts) < len(keys):
        counts = Counter(keys)
    return counts


def is_sparse(distinct: Sized, size: int) -> bool:
    """Whether hardly any of some requests' values comes again among them."""
    return len(distinct) >= _MANY and size - len(distinct) <= size // _AGAIN
