"""Where, among the newest requests, the values became others than those of the regime before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otelkit.record.observed.evidence import VARIED, bound, log_marginal
from otelkit.record.observed.keys import Key
from otelkit.record.observed.regime import Regime

MIN_NEW: Final = 6
"""Requests that the new value must have been seen in; ``_MIXED_NEW`` where the old was not the only one."""
_MIXED_NEW: Final = 8
MIN_OLD: Final = 5
"""Requests that the old value must have been seen in."""
SHORT: Final = 48
"""Requests up to which a regime may have been a long session, where calls do not tell theirs: the new value
must then be seen in most of as many requests, up to ``_LASTING``."""
_LASTING: Final = 16
_OF_YOUNG: Final = 0.75
_RULE: Final = 0.35
"""Least share of requests that a settled value has. Not one half: where a cap is settled, requests that ask
for less stay below it."""
_HOLD: Final = 0.3
"""Least share of requests that a new value must have."""
_GONE: Final = 0.15
"""Most share that the old value keeps where the settled value has moved; it is a shift of shares beyond."""
_SURELY_GONE: Final = 32
"""Requests from which the share that is left of the old value is known well enough."""
_RARE: Final = 0.2
"""Most share that the new value had where the settled value has moved."""
_ANY_GAIN: Final = 0.09
"""Less than the share that a new value gains in any case: ``_HOLD`` without ``_RARE``."""
GAIN: Final = 0.3
"""Share that a value must gain, and another must lose half of, for a shift."""
_SHIFT: Final = 40
"""Requests that new shares must have held for."""
_STEADY: Final = 0.25
"""Most difference of a share between the halves of the new regime; beyond it a rollout is under way."""
_WITNESSES: Final = 3
"""Sessions that must have the new value, where calls tell their session."""
_SESSIONS: Final = 12
"""Sessions that there must have been with the old or the new value."""
PIECE: Final = 16
"""Most requests that a split is not looked for between: of a run, and of those taken together once a
parameter may have changed."""
_MAX_OUTLAST: Final = 80
"""Requests with the new value that are proof however long earlier runs were."""


@dataclass(slots=True)
class Chunk:
    """One request of a young series, or a run of one value; several requests of an old one. Their parameters
    are not kept: they may be large."""

    counts: Mapping[Key, int]
    size: int
    keys: Sequence[Key]
    ats: Sequence[float]
    """Unix seconds at which the requests began."""
    sessions: Sequence[str]

    def extend(
        self, counts: Mapping[Key, int], keys: Sequence[Key], ats: Sequence[float], sessions: Sequence[str]
    ) -> bool:
        """Take further requests if all, these and those, have one value: a split within a run proves less
        than one at its beginning. Returns whether they were taken."""
        size = self.size + len(keys)
        if size > PIECE or len(self.counts) > 1 or self.counts.keys() != counts.keys():
            return False
        self.counts, self.size = dict.fromkeys(counts, size), size
        self.keys, self.ats = [*self.keys, *keys], [*self.ats, *ats]
        self.sessions = [*self.sessions, *sessions]
        return True

    def pieces(self) -> Iterator[Chunk]:
        """The same requests in chunks that are not longer than ``PIECE``."""
        if self.size <= PIECE:
            yield self
            return
        for start in range(0, self.size, PIECE):
            keys = self.keys[start : start + PIECE]
            ats, sessions = self.ats[start : start + PIECE], self.sessions[start : start + PIECE]
            yield Chunk(Counter(keys), len(keys), keys, ats, sessions)


@dataclass(slots=True)
class Split:
    """The requests from the chunk ``index`` on."""

    index: int
    score: float
    """Log Bayes factor."""
    new: int
    """How many of them have the new value."""
    size: int
    shift: bool
    """Whether only shares have shifted."""


@dataclass(slots=True)
class Search:
    """Looks for a proof that a value has become settled, or has gained in share."""

    chunks: Sequence[Chunk]
    """The newest requests."""
    regime: Regime
    """What came before them."""
    settled: Key
    seen: int
    """Requests so far, the newest included."""
    outlast: int
    """Requests up to which runs of other values were no change."""
    sessions: Mapping[str, int]
    """Sessions of the call site, and the number of the request that each began with."""

    def best(self, new: Key, old: Key) -> Split | None:
        """The split that is best proven, if one is."""
        best: dict[bool, Split] = {}
        suffixes = []
        after_new = after_old = size = 0
        index = len(self.chunks)
        for chunk in reversed(self.chunks):
            index -= 1
            here = chunk.counts
            size += chunk.size
            if old in here:
                after_old += here[old]
            if new in here:
                after_new += here[new]
                suffixes.append((index, after_new, after_old, size))
        counts, everything = self.regime.counts, self.regime.total + size
        all_new, all_old = counts.get(new, 0) + after_new, counts.get(old, 0) + after_old
        for index, after_new, after_old, size in suffixes:
            left = everything - size
            if after_new < MIN_NEW or left < MIN_OLD:
                continue
            before_new = all_new - after_new
            gain = after_new / size - before_new / left
            if gain < _ANY_GAIN or after_new < _HOLD * size:
                continue
            before_old = all_old - after_old
            moved = (
                before_old >= _RULE * left
                and before_new <= _RARE * left
                and _is_gone(after_old, size, seen_before=before_new > 0)
            )
            if moved:
                if after_new < self.required(left):
                    continue
            elif size < _SHIFT or gain < GAIN or before_old / left - after_old / size < GAIN / 2:
                continue
            score = log_marginal(after_new, after_old, size - after_new - after_old) + log_marginal(
                before_new, before_old, left - before_new - before_old
            )
            known = best.get(not moved)
            if known is None or score > known.score:
                best[not moved] = Split(index, score, after_new, size, not moved)
        if not best:
            return None
        one_regime = log_marginal(all_new, all_old, everything - all_new - all_old)
        for shift in (False, True):
            split = best.get(shift)
            if split is not None:
                split.score -= one_regime
                if self._is_proven(split, new):
                    return split
        return None

    def first_seen(self, new: Key, old: Key, split: Split) -> float:
        """When the new value was first used: also before the split, as far back as the old value was not."""
        first = split.index
        if not split.shift:
            unseen = new not in self.regime.counts
            while first > 0 and (
                old not in (counts := self.chunks[first - 1].counts) or (unseen and new in counts)
            ):
                first -= 1
        return min(
            at
            for chunk in self.chunks[first:]
            for key, at in zip(chunk.keys, chunk.ats, strict=True)
            if key == new
        )

    def required(self, left: int) -> int:
        """Requests that a new value must have been seen in: more than runs that were no change have
        lasted, and for a young regime, unless calls tell their session, nearly as many as that had."""
        only_value = left >= SHORT and self.regime.counts.get(self.settled) == self.regime.total
        required = max(MIN_NEW if only_value else _MIXED_NEW, 2 * self.outlast + 1)
        if left < SHORT and not self.chunks[-1].sessions[-1]:
            required = max(required, min(_LASTING, int(_OF_YOUNG * left)))
        return min(required, _MAX_OUTLAST)

    def _is_proven(self, split: Split, new: Key) -> bool:
        regime, settled = self.regime, self.settled
        scatter = regime.scatter.copy()
        total, hits = regime.total, regime.counts.get(settled, 0)
        known_before = regime.counts.get(new, 0)
        for chunk in self.chunks[: split.index]:
            here = chunk.counts.get(settled, 0)
            scatter.add(chunk.size, here)
            total += chunk.size
            hits += here
            known_before += chunk.counts.get(new, 0)
        others = max(1.0 - hits / total, VARIED if known_before or split.shift else 0.0)
        return (
            split.score >= bound(self.seen) * scatter.inflation(others)
            and self._is_witnessed(split, new, total)
            and (not split.shift or self._is_steady(split, new))
        )

    def _is_witnessed(self, split: Split, new: Key, before: int) -> bool:
        """Whether enough sessions have the new value, where calls tell their session: one user's settings are
        no change.

        Args:
            before: requests of the regime before the split.
        """
        witnesses = {
            session
            for chunk in self.chunks[split.index :]
            for key, session in zip(chunk.keys, chunk.sessions, strict=True)
            if key == new
        }
        if "" in witnesses or split.new >= _MAX_OUTLAST:
            return True
        start = self.seen - split.size
        if any(self.sessions.get(session, start) < start for session in witnesses):
            # A session itself has moved.
            return len(witnesses) >= _WITNESSES or split.new >= _LASTING
        others = sum(start - before <= number < start for number in self.sessions.values())
        return len(witnesses) >= max(_WITNESSES, _SESSIONS - others)

    def _is_steady(self, split: Split, new: Key) -> bool:
        """Whether the new share is the same in both halves of the new regime."""
        sizes, hits = [0, 0], [0, 0]
        for chunk in self.chunks[split.index :]:
            half = int(sizes[0] >= split.size // 2)
            sizes[half] += chunk.size
            hits[half] += chunk.counts.get(new, 0)
        return sizes[1] > 0 and abs(hits[0] / sizes[0] - hits[1] / sizes[1]) <= _STEADY


def _is_gone(old: int, size: int, *, seen_before: bool) -> bool:
    """Whether the old value is gone from the newest ``size`` requests, and not missing by chance: where both
    values are in use, it may well be for some in a row."""
    if old:
        return size >= _SURELY_GONE and old <= _GONE * size
    return size >= _LASTING or not seen_before
