"""One parameter at one call site: the regime in force, and the newest requests while any departs from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from types import MappingProxyType
from typing import Final, NamedTuple

from otelkit.model import ParameterValue
from otelkit.record.observed.evidence import VARIED, Scatter, bound, log_marginal
from otelkit.record.observed.keys import Key, is_ambiguous, key_of, value_of

MIN_OLD: Final = 5
"""Requests that the old value must have been seen in."""
MIN_NEW: Final = 6
"""Requests that the new value must have been seen in."""
WINDOW: Final = 96
"""Newest requests that are searched for a split; also the longest delay of a report."""
SHORT: Final = 48
"""Requests up to which a regime may have been a long session: the new value must then be seen in most of as
many requests, from ``_YOUNG`` to ``LASTING``."""
LASTING: Final = 16
_YOUNG: Final = 8
_OF_YOUNG: Final = 0.75
_ALIKE: Final = 3
"""How many times longer than the regime after it one may be, where both were but sessions."""
_PAUSE: Final = 8
"""After a search that found no split, requests are awaited in number of the window's divided by this: the
search is the only costly step."""
_REGIME: Final = 512
"""Requests after which the weight of a regime's older ones is halved."""
_DISTINCT: Final = 64
"""Distinct values remembered per parameter."""
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
_GAIN: Final = 0.3
"""Share that a value must gain, and another must lose half of, for a shift."""
_SHIFT: Final = 40
"""Requests that new shares must have held for."""
_STEADY: Final = 0.25
"""Most difference of a share between the halves of the new regime; beyond it a rollout is under way."""
_WITNESSES: Final = 3
"""Sessions that must have the new value, where calls tell their session."""
_SESSIONS: Final = 12
"""Sessions that there must have been with the old or the new value."""
_MAX_OUTLAST: Final = 80
"""Requests with the new value that are proof however long earlier runs were."""


class Moved(NamedTuple):
    """A change that was proven."""

    old: ParameterValue
    new: ParameterValue
    first_seen: float
    shares: tuple[float, float] | None
    """Share of requests with the new value before and after, where only the shares shifted."""


@dataclass(slots=True)
class _Chunk:
    """One request of a young series, several of an old one."""

    counts: Mapping[Key, int]
    size: int
    keys: Sequence[Key]
    times: Sequence[float]
    """Unix seconds."""
    sessions: Sequence[str]


@dataclass(slots=True)
class _Split:
    index: int
    score: float
    new: int
    size: int
    shift: bool


def _is_gone(old: int, size: int, *, seen_before: bool) -> bool:
    """Whether the old value is gone from the newest ``size`` requests, and not missing by chance: where both
    values are in use, it may well be for some in a row."""
    if old:
        return size >= _SURELY_GONE and old <= _GONE * size
    return size >= LASTING or not seen_before


class Series:
    """One parameter at one call site."""

    __slots__ = (
        "_chunks", "_departed", "_distrust", "_judge_again_at", "_longest", "_previous", "_regime", "_run",
        "_running", "_scatter", "_seen", "_sessions", "_told_clear", "_total", "_width", "ambiguous", "doubted", "latest",
        "quiet", "settled", "settled_value", "since", "unapplied",
    )  # fmt: skip

    def __init__(
        self,
        value: ParameterValue,
        weight: int,
        at: float,
        sessions: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.settled = key_of(value)
        """Key of the most frequent value of the regime in force."""
        self.settled_value = value
        self.ambiguous = is_ambiguous(value)
        self.since = at
        """Unix seconds from which the settled value was in force, or from which none was clear."""
        self.latest = at
        """Unix seconds of the newest request that departed from the settled value, or stood beside one."""
        self._told_clear = True
        """Whether the value was clear when ``since`` was set."""
        self._previous: tuple[float, float] = (at, 0)
        """The regime before this one: from when requests have varied, should both prove to be no more than
        sessions, and its length (requests)."""
        self.quiet = True
        """Every request in the window has the settled value; the window is empty then."""
        self.doubted = 0
        """Requests since the first that departed, without a pause as long as the window."""
        self.unapplied = 0
        """Requests with the settled value that are not counted yet; only while quiet."""
        self._regime: dict[Key, int] = {self.settled: weight} if weight else {}
        self._total = weight
        self._scatter = Scatter()
        self._scatter.add(weight, weight)
        self._seen = weight
        self._sessions = sessions
        """Sessions of the call site, and the number of the request that each began with."""
        self._judge_again_at = 0
        self._chunks: deque[_Chunk] = deque()
        self._departed = 0
        """Requests in the window that do not have the settled value."""
        self._width = 0
        """Requests in the window."""
        self._running: Key = self.settled
        self._run = 0
        """How often ``_running`` has just come in a row."""
        self._longest = 0
        """Longest run of a value other than the settled one that has ended."""
        self._distrust = 0
        """Length (requests) of the longest regime before this one that was short: of such, one after the
        other, are variation."""

    def is_settled(self, value: ParameterValue) -> bool:
        """Whether a value is the settled one."""
        settled = self.settled_value
        if value is settled:
            return True
        return bool(key_of(value) == self.settled if self.ambiguous else value == settled)

    def is_ripe(self) -> bool:
        """Whether enough requests were seen to say anything."""
        return self._total + self.unapplied + self._width >= MIN_NEW

    def tell(self) -> tuple[bool, float]:
        """Whether one value prevails for certain, so that it may be told to others, and since when (Unix
        seconds) that is so. While a single run of another value goes on, what was told stays: that may be a
        change."""
        total = self._total + self.unapplied + self._width
        settled = self._frequency(self.settled) + self.unapplied
        clear = settled - sqrt(total) >= total / 2
        if not clear and self._told_clear and self._run >= self._departed:
            clear = True
        if clear != self._told_clear:
            self._told_clear = clear
            self.since = self.latest if clear else self._varied_since(total - self.doubted)
        return clear, self.since

    def _varied_since(self, length: int) -> float:
        """From when requests have varied the parameter, if this regime, which was undisturbed for ``length``
        requests, was no more than a session: if the one before it was as short, since then."""
        if length >= WINDOW:
            return self.latest
        before, size = self._previous
        return before if size < max(SHORT, _ALIKE * length) else self.since

    def observe(
        self, values: Sequence[ParameterValue], times: Sequence[float], sessions: Sequence[str]
    ) -> Moved | None:
        """Take some requests in order; what they prove, if anything."""
        if self.unapplied:
            self._seen += self.unapplied
            self._absorb({self.settled: self.unapplied}, self.unapplied)
            self._end_run(self.settled)
            self.unapplied = 0
        keys = list(map(key_of, values))
        size = len(keys)
        counts: dict[Key, int] = {}
        for key in keys:
            counts[key] = counts.get(key, 0) + 1
        self._seen += size
        self.latest = times[-1]
        self._follow(counts, size, keys[-1])
        self._chunks.append(_Chunk(counts, size, keys, times, sessions))
        self._width += size
        self._departed += size - counts.get(self.settled, 0)
        while self._width > WINDOW:
            self._retire()
        if not self._departed:
            self._absorb({self.settled: self._width}, self._width)
            self._clear_window()
            return None
        self.quiet = False
        self.doubted += size
        if self._seen < self._judge_again_at:
            return None
        candidate = keys[-1] if size == 1 else max(counts, key=counts.__getitem__)
        if size > 1 and counts[candidate] < (self._share(candidate) + _GAIN / 2) * size:
            return None
        return self._judge(candidate, values[keys.index(candidate)])

    def _share(self, key: Key) -> float:
        return self._regime.get(key, 0) / self._total if self._total else 0.0

    def _follow(self, counts: Mapping[Key, int], size: int, last: Key) -> None:
        if len(counts) == 1 and last == self._running:
            self._run += size
        else:
            self._end_run(last)
            self._run = size if len(counts) == 1 else 1

    def _end_run(self, following: Key) -> None:
        if following != self._running:
            if self._running != self.settled and self._run > self._longest:
                self._longest = self._run
            self._running, self._run = following, 0

    def _retire(self) -> None:
        oldest = self._chunks.popleft()
        self._width -= oldest.size
        self._departed -= oldest.size - oldest.counts.get(self.settled, 0)
        self._absorb(oldest.counts, oldest.size)

    def _absorb(self, counts: Mapping[Key, int], size: int) -> None:
        regime = self._regime
        for key, number in counts.items():
            regime[key] = regime.get(key, 0) + number
        self._total += size
        self._scatter.add(size, counts.get(self.settled, 0))
        if self._total > _REGIME or len(regime) > _DISTINCT:
            while len(regime) > _DISTINCT // 2 or self._total > _REGIME:
                regime = {key: number // 2 for key, number in regime.items() if number > 1}
                # What falls out stays in the total: it was neither the old nor the new value.
                self._total = max(self._total // 2, sum(regime.values()))
            self._regime = regime

    def _clear_window(self) -> None:
        self._chunks.clear()
        self._width = self._departed = 0
        self.quiet = True
        self.doubted = 0

    def _frequency(self, key: Key) -> int:
        return self._regime.get(key, 0) + self._newest(key)

    def _newest(self, key: Key) -> int:
        """How often a value is in the window."""
        return sum(chunk.counts[key] for chunk in self._chunks if key in chunk.counts)

    def _judge(self, new: Key, value: ParameterValue) -> Moved | None:
        """Whether ``new``, just seen, has become the settled value, or has gained in share."""
        everything = self._total + self._width
        newest = self._newest(new)
        # The most that any split could show.
        most = newest * log((everything + 1.5) / (self._regime.get(new, 0) + 0.5))
        if newest < MIN_NEW or most < bound(self._seen) * self._scatter.inflation(
            1 - self._share(self.settled)
        ):
            return None
        old = self.settled if new != self.settled else self._second()
        split = self._best_split(new, old)
        if split is None:
            self._judge_again_at = self._seen + 1 + self._width // _PAUSE
            if 2 * self._frequency(self.settled) < self._frequency(new):
                self._settle(new, value)  # the first requests were not the rule
                self._departed = self._width - newest
                self._scatter = Scatter()
                self.since = self.latest
                self._told_clear = True
            return None
        before = (self._frequency(new) - split.new) / (everything - split.size)
        old_value = self.settled_value if old == self.settled else value_of(old)
        moved = Moved(
            old_value,
            value,
            self._first_seen(new, old, split),
            (round(before, 2), round(split.new / split.size, 2)) if split.shift else None,
        )
        self._begin_regime(split, moved.first_seen)
        top = max(self._regime, key=self._regime.__getitem__)
        if top != self.settled:
            self._settle(top, value if top == new else value_of(top))
        return moved

    def _second(self) -> Key:
        """The most frequent of the values that are not settled."""
        rest = {key: number for key, number in self._regime.items() if key != self.settled}
        return max(rest, key=rest.__getitem__, default=self.settled)

    def _best_split(self, new: Key, old: Key) -> _Split | None:
        """The split that is best proven, if one is."""
        best: dict[bool, _Split] = {}
        all_new, all_old = self._frequency(new), self._frequency(old)
        everything = self._total + self._width
        one_regime = log_marginal(all_new, all_old, everything - all_new - all_old)
        after_new = after_old = size = 0
        index = len(self._chunks)
        for chunk in reversed(self._chunks):
            index -= 1
            size += chunk.size
            after_old += chunk.counts.get(old, 0)
            if new not in chunk.counts:
                continue
            after_new += chunk.counts[new]
            left = everything - size
            if after_new < MIN_NEW or left < MIN_OLD or after_new < _HOLD * size:
                continue
            before_new, before_old = all_new - after_new, all_old - after_old
            moved = (
                _is_gone(after_old, size, seen_before=before_new > 0)
                and before_old >= _RULE * left
                and before_new <= _RARE * left
            )
            if not moved and (
                size < _SHIFT
                or after_new / size - before_new / left < _GAIN
                or before_old / left - after_old / size < _GAIN / 2
            ):
                continue
            if moved and after_new < self._required(left):
                continue
            score = (
                log_marginal(after_new, after_old, size - after_new - after_old)
                + log_marginal(before_new, before_old, left - before_new - before_old)
                - one_regime
            )
            known = best.get(not moved)
            if known is None or score > known.score:
                best[not moved] = _Split(index, score, after_new, size, not moved)
        for shift in (False, True):
            split = best.get(shift)
            if split is not None and self._is_proven(split, new):
                return split
        return None

    def _is_proven(self, split: _Split, new: Key) -> bool:
        scatter = self._scatter.copy()
        before = 0
        hits = self._regime.get(self.settled, 0)
        known_before = self._regime.get(new, 0)
        for chunk in self._before(split.index):
            here = chunk.counts.get(self.settled, 0)
            scatter.add(chunk.size, here)
            before += chunk.size
            hits += here
            known_before += chunk.counts.get(new, 0)
        total = self._total + before
        others = max(1.0 - hits / total, VARIED if known_before or split.shift else 0.0)
        if split.score < bound(self._seen) * scatter.inflation(others):
            return False
        if not self._is_witnessed(split, new, total):
            return False
        return not split.shift or self._is_steady(split, new)

    def _is_witnessed(self, split: _Split, new: Key, before: int) -> bool:
        """Whether enough sessions have the new value, where calls tell their session: one user's settings are
        no change.

        Args:
            before: requests of the regime before the split.
        """
        witnesses = {
            session
            for chunk in list(self._chunks)[split.index :]
            for key, session in zip(chunk.keys, chunk.sessions, strict=True)
            if key == new
        }
        if "" in witnesses or split.new >= _MAX_OUTLAST:
            return True
        start = self._seen - split.size
        if any(self._sessions.get(session, start) < start for session in witnesses):
            # A session itself has moved.
            return len(witnesses) >= _WITNESSES or split.new >= LASTING
        others = sum(start - before <= number < start for number in self._sessions.values())
        return len(witnesses) >= max(_WITNESSES, _SESSIONS - others)

    def _before(self, index: int) -> Iterator[_Chunk]:
        for number, chunk in enumerate(self._chunks):
            if number >= index:
                return
            yield chunk

    def _is_steady(self, split: _Split, new: Key) -> bool:
        """Whether the new share is the same in both halves of the new regime."""
        sizes, hits = [0, 0], [0, 0]
        for number, chunk in enumerate(self._chunks):
            if number >= split.index:
                half = int(sizes[0] >= split.size // 2)
                sizes[half] += chunk.size
                hits[half] += chunk.counts.get(new, 0)
        return sizes[1] > 0 and abs(hits[0] / sizes[0] - hits[1] / sizes[1]) <= _STEADY

    def _required(self, left: int) -> int:
        """Requests that a new value must have been seen in: more than runs that were no change have
        lasted, and for a young regime nearly as many as that had."""
        required = max(MIN_NEW, 2 * self._longest, 2 * self._distrust)
        if left < SHORT:
            required = max(required, _YOUNG, min(LASTING, int(_OF_YOUNG * left)))
        return min(required, _MAX_OUTLAST)

    def _first_seen(self, new: Key, old: Key, split: _Split) -> float:
        """When the new value was first used: also before the split, as far back as the old value was not."""
        chunks = list(self._chunks)
        first = split.index
        if not split.shift:
            unseen = new not in self._regime
            while first > 0 and (
                old not in (counts := chunks[first - 1].counts) or (unseen and new in counts)
            ):
                first -= 1
        return min(
            at
            for chunk in chunks[first:]
            for key, at in zip(chunk.keys, chunk.times, strict=True)
            if key == new
        )

    def _settle(self, key: Key, value: ParameterValue) -> None:
        self.settled, self.settled_value = key, value
        self.ambiguous = is_ambiguous(value)

    def _begin_regime(self, split: _Split, at: float) -> None:
        after = list(self._chunks)[split.index :]
        ended = self._total + sum(chunk.size for chunk in self._before(split.index))
        # After a shift several values are in use: those are no sessions of a single one each.
        self._previous = (
            self._varied_since(ended) if ended < WINDOW else self.since,
            inf if split.shift else ended,
        )
        self._distrust = max(self._distrust, ended) if ended < SHORT else self._distrust // 2
        self._regime = {}
        self._total = 0
        self._scatter = Scatter()
        for chunk in after:
            for key, number in chunk.counts.items():
                self._regime[key] = self._regime.get(key, 0) + number
            self._total += chunk.size
        self._clear_window()
        self._longest = 0
        self.since = at
        self._told_clear = True
