"""One parameter at one call site: the regime in force, and the newest requests while any departs from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf, log, sqrt
from types import MappingProxyType
from typing import Final, NamedTuple

from otelkit.model import ParameterValue, almost_equal
from otelkit.record.observed.evidence import Scatter, bound
from otelkit.record.observed.keys import Key, key_of, keys_of, lasting, needs_key, value_of
from otelkit.record.observed.regime import Regime
from otelkit.record.observed.splits import GAIN, MIN_NEW, SHORT, Chunk, Search, Split, Stamp

WINDOW: Final = 96
"""Newest requests that are searched for a split; also the longest delay of a report."""
_ALIKE: Final = 3
"""How many times longer than the regime after it one may be, where both were but sessions."""
_FEW: Final = 6
"""Distinct values up to which counting each costs less than one by one."""
_PAUSE: Final = 8
"""After a search that found no split, requests are awaited in number of the window's divided by this: the
search is the only costly step."""


class Moved(NamedTuple):
    """A change that was proven."""

    old: ParameterValue
    new: ParameterValue
    first_seen: float
    shares: tuple[float, float] | None
    """Share of requests with the new value before and after, where only the shares shifted."""


class Series:
    """One parameter at one call site."""

    __slots__ = (
        "_chunks", "_departed", "_distrust", "_judge_again_at", "_longest", "_previous", "_regime", "_run",
        "_running", "_seen", "_sessions", "_short", "_told_clear", "_width", "by_key", "doubted", "latest",
        "quiet", "settled", "settled_value", "since", "unapplied",
    )  # fmt: skip

    by_key: bool

    def __init__(
        self,
        value: ParameterValue,
        weight: int,
        at: float,
        sessions: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._settle(key_of(value), value)
        self.since = at
        """Unix seconds from which the settled value was in force, or from which none was clear."""
        self.latest = at
        """Unix seconds of the newest request that departed from the settled value, or stood beside one."""
        self._told_clear = True
        """Whether the value was clear when ``since`` was set."""
        self._previous: tuple[float, float] = (at, 0)
        """The regime before this one: from when requests have varied, should both prove to be no more than
        sessions, and its length (requests)."""
        self._short: list[int] = []
        """Lengths (requests) of the newest regimes before this one, as far as each was short."""
        self.quiet = True
        """Every request in the window has the settled value; the window is empty then."""
        self.doubted = 0
        """Requests since the first that departed, without a pause as long as the window."""
        self.unapplied = 0
        """Requests with the settled value that are not counted yet; only while quiet."""
        self._regime = Regime()
        if weight:
            self._regime.add({self.settled: weight}, weight, self.settled)
        self._seen = weight
        self._sessions = sessions
        """Sessions of the call site, and the number of the request that each began with."""
        self._judge_again_at = 0
        self._chunks: deque[Chunk] = deque()
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
        if not self.by_key:
            try:
                return bool(value == self.settled_value)
            except Exception:  # an array has no single answer
                self.by_key = True
        return bool(key_of(value) == self.settled)

    @property
    def forgotten(self) -> int:
        """Distinct values that there was no room for."""
        return self._regime.forgotten

    def is_ripe(self) -> bool:
        """Whether enough requests were seen to say anything."""
        return self._regime.total + self.unapplied + self._width >= MIN_NEW

    def tell(self) -> tuple[bool, float]:
        """Whether one value prevails for certain, so that it may be told to others, and since when (Unix
        seconds) that is so. While a single run of another value goes on, what was told stays: that may be a
        change."""
        total = self._regime.total + self.unapplied + self._width
        settled = self._frequency(self.settled) + self.unapplied
        clear = settled - sqrt(total) >= total / 2
        if not clear and self._told_clear and self._run >= self._departed:
            clear = True
        # One short regime may have been a change that was taken back; several in a row are sessions.
        one_more = len(self._short) > 1 and total < _ALIKE * max(self._short)
        if (clear and not one_more) != self._told_clear:
            self._told_clear = clear and not one_more
            if self._told_clear:
                self.since = self.latest
            else:
                self.since = self._previous[0] if one_more else self._varied_since(total - self.doubted)
        return self._told_clear, self.since

    def _varied_since(self, length: int) -> float:
        """From when requests have varied the parameter, if this regime, which was undisturbed for ``length``
        requests, was no more than a session: if the one before it was as short, since then."""
        if length >= WINDOW:
            return self.latest
        before, size = self._previous
        return before if size < max(SHORT, _ALIKE * length) else self.since

    def observe_settled(self, stamps: Sequence[Stamp]) -> None:
        """Take some requests that have the settled value, while others are in the window."""
        size = len(stamps)
        self._take({self.settled: size}, [self.settled] * size, stamps)

    def observe(self, values: Sequence[ParameterValue], stamps: Sequence[Stamp]) -> Moved | None:
        """Take some requests in order; what they prove, if anything.

        Args:
            values: of this parameter, one a request.
        """
        if self.unapplied:
            self._seen += self.unapplied
            self._regime.add({self.settled: self.unapplied}, self.unapplied, self.settled)
            self._end_run(self.settled)
            self.unapplied = 0
        keys = keys_of(values)
        counts: dict[Key, int] = dict.fromkeys(keys, 1)
        size = len(keys)
        if len(counts) <= _FEW:
            counts = {key: keys.count(key) for key in counts}
        elif len(counts) < size:
            counts = dict.fromkeys(counts, 0)
            for key in keys:
                counts[key] += 1
        if not self._take(counts, keys, stamps) or self._seen < self._judge_again_at:
            return None
        candidate = keys[-1] if size == 1 else max(counts, key=counts.__getitem__)
        if size > 1 and counts[candidate] < (self._regime.share(candidate) + GAIN / 2) * size:
            return None
        return self._judge(candidate, values[keys.index(candidate)])

    def _take(self, counts: Mapping[Key, int], keys: Sequence[Key], stamps: Sequence[Stamp]) -> bool:
        """Whether any request in the window departs from the settled value."""
        size = len(keys)
        self._seen += size
        self.latest = stamps[-1][0]
        if len(counts) == 1 and keys[-1] == self._running:
            self._run += size
        else:
            self._end_run(keys[-1])
            self._run = size if len(counts) == 1 else 1
        if not (len(counts) == 1 and self._chunks and self._chunks[-1].extend(counts, keys, stamps)):
            self._chunks.append(Chunk(counts, size, keys, stamps))
        self._width += size
        self._departed += size - counts.get(self.settled, 0)
        while self._width > WINDOW:
            self._retire()
        if not self._departed:
            self._regime.add({self.settled: self._width}, self._width, self.settled)
            self._clear_window()
            return False
        self.quiet = False
        self.doubted += size
        return True

    def _end_run(self, following: Key) -> None:
        if following != self._running:
            if self._running != self.settled and self._run > self._longest:
                self._longest = self._run
            self._running, self._run = following, 0

    def _retire(self) -> None:
        oldest = self._chunks.popleft()
        self._width -= oldest.size
        self._departed -= oldest.size - oldest.counts.get(self.settled, 0)
        self._regime.add(oldest.counts, oldest.size, self.settled)

    def _clear_window(self) -> None:
        self._chunks.clear()
        self._width = self._departed = 0
        self.quiet = True
        self.doubted = 0

    def _frequency(self, key: Key) -> int:
        return self._regime.counts.get(key, 0) + self._newest(key)

    def _newest(self, key: Key) -> int:
        """How often a value is in the window."""
        return sum(chunk.counts[key] for chunk in self._chunks if key in chunk.counts)

    def _judge(self, new: Key, value: ParameterValue) -> Moved | None:
        """Whether ``new``, just seen, has become the settled value, or has gained in share."""
        regime = self._regime
        everything = regime.total + self._width
        newest = self._newest(new)
        # The most that any split could show.
        most = newest * log((everything + 1.5) / (regime.counts.get(new, 0) + 0.5))
        if newest < MIN_NEW or most < bound(self._seen) * regime.scatter.inflation(
            1 - regime.share(self.settled)
        ):
            return None
        old = self.settled if new != self.settled else regime.second(self.settled)
        outlast = max(self._longest, self._distrust)
        search = Search(list(self._chunks), regime, self.settled, self._seen, outlast, self._sessions)
        split = search.best(new, old)
        if split is None:
            self._judge_again_at = self._seen + 1 + self._width // _PAUSE
            if 2 * self._frequency(self.settled) < self._frequency(new):
                self._settle(new, value)  # the first requests were not the rule
                self._departed = self._width - newest
                regime.scatter = Scatter()
                self.since = self.latest
                self._told_clear = True
            return None
        before = (self._frequency(new) - split.new) / (everything - split.size)
        moved = Moved(
            self.settled_value if old == self.settled else value_of(old),
            lasting(value, new),
            search.first_seen(new, old, split),
            (round(before, 2), round(split.new / split.size, 2)) if split.shift else None,
        )
        self._begin_regime(split, moved.first_seen)
        top = max(self._regime.counts, key=self._regime.counts.__getitem__)
        if top != self.settled:
            self._settle(top, value if top == new else value_of(top))
        return None if almost_equal(moved.old, moved.new) else moved

    def _settle(self, key: Key, value: ParameterValue) -> None:
        self.settled = key
        """Key of the most frequent value of the regime in force."""
        self.settled_value = lasting(value, key)
        self.by_key = needs_key(value)
        """Whether only its key tells the settled value from others."""

    def _begin_regime(self, split: Split, at: float) -> None:
        after = list(self._chunks)[split.index :]
        ended = self._regime.total + self._width - split.size
        varied_since = self._varied_since(ended) if ended < WINDOW else self.since
        # After a shift several values are in use: those are no sessions of a single one each.
        self._previous = varied_since, inf if split.shift else ended
        self._short = [*self._short[-3:], ended] if ended < WINDOW and not split.shift else []
        self._distrust = max(self._distrust, ended) if ended < SHORT else self._distrust // 2
        regime = self._regime = Regime(self._regime.forgotten)
        for chunk in after:
            for key, number in chunk.counts.items():
                regime.counts[key] = regime.counts.get(key, 0) + number
            regime.total += chunk.size
        self._clear_window()
        self._longest = 0
        self.since = at
        self._told_clear = True
