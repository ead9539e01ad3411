"""One parameter at one call site: the regime in force, and the newest requests while any departs from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import ceil, inf, log, sqrt
from types import MappingProxyType
from typing import Final, NamedTuple

from otelkit.model import ParameterValue, almost_equal
from otelkit.record.observed.evidence import Scatter, bound
from otelkit.record.observed.keys import Key, Known, key_of, keys_of, lasting, needs_key, value_of
from otelkit.record.observed.regime import Regime, counted, is_sparse
from otelkit.record.observed.splits import GAIN, MIN_NEW, PIECE, SHORT, Chunk, Search, Split

WINDOW: Final = 96
"""Newest requests that are searched for a split; also the longest delay of a report."""
_ALIKE: Final = 3
"""How many times longer than the regime after it one may be, where both were but sessions."""
_AHEAD: Final = 16
"""Further requests that are reckoned with when it is asked how many prove nothing."""
_PAUSE: Final = 8
"""After a search that found no split, requests are awaited in number of the window's divided by this: the
search is the only costly step."""
_SOON: Final = 7
"""Longest pause (requests) where a value came so often among the newest that it looks like a change."""
_LONG_PAUSE: Final = 32
"""So many requests longer where nothing points to a change but that some value came more often lately."""


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
        "_chunks", "_departed", "_distrust", "_judge_again_at", "_known", "_longest", "_previous", "_regime",
        "_run", "_running", "_seen", "_sessions", "_short", "_told_clear", "_window", "by_key", "doubted",
        "idle", "in_doubt", "is_large", "latest", "quiet", "settled", "settled_value", "since", "unapplied",
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
        self.in_doubt = False
        """Whether a value came so much more often among the newest that the parameter may have changed."""
        self.is_large = False
        """Whether the newest value is so large that only a digest of it is kept."""
        self.idle = 0
        """How many more requests with the newest value prove nothing, for certain."""
        self._regime = Regime()
        if weight:
            self._regime.add({self.settled: weight}, weight, weight)
        self._seen = weight
        self._sessions = sessions
        """Sessions of the call site, and the number of the request that each began with."""
        self._judge_again_at = 0
        self._chunks: deque[Chunk] = deque()
        self._departed = 0
        """Requests in the window that do not have the settled value."""
        self._window: list[Key] = []
        """Keys of the requests in the window."""
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

    def rises(self, values: Sequence[ParameterValue]) -> bool:
        """Whether the last of some values comes so much more often among them than it did, that the parameter
        may have changed, if it ``outlasts``."""
        last, size = values[-1], len(values)
        often = values.count(last)
        if often < GAIN * size:
            return False
        key = self.settled if self.is_settled(last) else key_of(last)
        return often >= (self._regime.share(key) + GAIN) * size

    def outlasts(self, values: Sequence[ParameterValue]) -> bool:
        """Whether the last of some values comes more often among them than in runs that were no change."""
        return values.count(values[-1]) > self._outlast()

    @property
    def forgotten(self) -> int:
        """Distinct values that there was no room for."""
        return self._regime.forgotten

    def is_ripe(self) -> bool:
        """Whether enough requests were seen to say anything."""
        return self._regime.total + self.unapplied + len(self._window) >= MIN_NEW

    def tell(self) -> tuple[bool, float]:
        """Whether one value prevails for certain, so that it may be told to others, and since when (Unix
        seconds) that is so. While a single run of another value goes on, what was told stays: that may be a
        change."""
        total = self._regime.total + self.unapplied + len(self._window)
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

    def observe_apart(
        self, values: Sequence[ParameterValue], ats: Sequence[float], sessions: Sequence[str]
    ) -> Moved | None:
        """Take some requests as ``observe`` does, each run of one value by itself; of a parameter that is not
        known to vary, whose changes can be dated that much better."""
        if self.unapplied:
            self._apply()
        if len(values) == 1:
            keys: Sequence[Key] = (key_of(values[0]),)
            is_mixed = self._take({keys[0]: 1}, keys, ats, sessions)
        else:
            keys = keys_of(values, self._known)
            start = 0
            for key, run in groupby(keys):
                end = start + len(list(run))
                is_mixed = self._take(
                    {key: end - start}, keys[start:end], ats[start:end], sessions[start:end]
                )
                start = end
        self.idle = 0
        moved = None
        if is_mixed and self._seen >= self._judge_again_at:
            moved = self._judge(keys[-1], values[-1])
        if keys[-1] == self.settled:
            self.idle = _AHEAD
        elif self.idle and needs_key(values[-1]):
            self.idle = 0  # those that follow can't be told to be like it
        return moved

    def observe(
        self, values: Sequence[ParameterValue], ats: Sequence[float], sessions: Sequence[str]
    ) -> Moved | None:
        """Take some requests in order; what they prove, if anything.

        Args:
            values: of this parameter, one a request.
            ats: Unix seconds at which the requests began.
            sessions: that they belong to, empty where that is not known.
        """
        if self.unapplied:
            self._apply()
        keys = keys_of(values, self._known)
        counts = counted(keys, self.settled)
        size = len(keys)
        self.is_large = type(keys[-1]) is str and keys[-1] is not values[-1]
        self.in_doubt = False
        candidate, gain = keys[-1], 0.0
        if not is_sparse(counts, size):  # else none came often enough
            candidate = max(counts, key=counts.__getitem__)
            gain = counts[candidate] / size - self._regime.share(candidate)
            if size > PIECE and gain < GAIN:
                # One that began to come lately.
                latest = keys[-PIECE:]
                lately = latest.count(keys[-1]) / PIECE - self._regime.share(keys[-1])
                if lately >= GAIN:
                    candidate, gain = keys[-1], lately
            if gain >= GAIN:
                in_a_row = self._run if candidate == self._running else 0
                self.in_doubt = counts[candidate] + in_a_row > self._outlast()
        cut = 0
        if self.in_doubt and candidate != self.settled and self.settled in counts:
            # The change, if it is one, began after the last that has the settled value.
            cut = size - keys[::-1].index(self.settled)
        if 0 < cut < size:
            self._take(counted(keys[:cut], self.settled), keys[:cut], ats[:cut], sessions[:cut])
            is_mixed = self._take(counted(keys[cut:], self.settled), keys[cut:], ats[cut:], sessions[cut:])
        else:
            is_mixed = self._take(counts, keys, ats, sessions)
        pause = self._judge_again_at - self._seen
        if gain < GAIN:
            pause += _LONG_PAUSE
        self.idle = max(0, pause - 1)
        if gain < GAIN / 2 or not is_mixed or pause > 0:
            return None
        return self._judge(candidate, values[keys.index(candidate)])

    def _apply(self) -> None:
        """Count the requests with the settled value that were not counted yet."""
        number, self.unapplied = self.unapplied, 0
        self._seen += number
        self._regime.add({self.settled: number}, number, number)
        if self._running != self.settled:
            self._end_run(self.settled)

    def _take(
        self, counts: Mapping[Key, int], keys: Sequence[Key], ats: Sequence[float], sessions: Sequence[str]
    ) -> bool:
        """Whether any request in the window departs from the settled value."""
        size = len(keys)
        self._seen += size
        self.latest = ats[-1]
        chunks = self._chunks
        if keys[0] != self._running:
            self._end_run(keys[0])
        if len(counts) > 1:
            # The runs at both ends; one in the middle is as long as others that fall on an end.
            self._run += _run_length(keys)
            self._end_run(keys[-1])
            self._run = _run_length(reversed(keys))
            chunks.append(Chunk(counts, size, keys, ats, sessions))
        else:
            self._run += size
            if not (chunks and chunks[-1].extend(counts, keys, ats, sessions)):
                chunks.append(Chunk(counts, size, keys, ats, sessions))
        window = self._window
        window += keys
        self._departed += size - counts.get(self.settled, 0)
        while len(window) > WINDOW:
            self._retire()
        if not self._departed:
            self._regime.add({self.settled: len(window)}, len(window), len(window))
            self._clear_window()
            return False
        self.quiet = False
        self.doubted += size
        return True

    def _end_run(self, following: Key) -> None:
        if self._running != self.settled and self._run > self._longest:
            self._longest = self._run
        self._running, self._run = following, 0

    def _retire(self) -> None:
        oldest = self._chunks.popleft()
        size, hits = oldest.size, oldest.counts.get(self.settled, 0)
        del self._window[:size]
        self._departed -= size - hits
        self._regime.add(oldest.counts, size, hits)

    def _clear_window(self) -> None:
        self._chunks.clear()
        self._window.clear()
        self._departed = 0
        self.quiet = True
        self.doubted = 0

    def _outlast(self) -> int:
        """Requests up to which runs of other values were no change."""
        return max(self._longest, self._distrust)

    def _frequency(self, key: Key) -> int:
        return self._regime.counts.get(key, 0) + self._newest(key)

    def _newest(self, key: Key) -> int:
        """How often a value is in the window."""
        return self._window.count(key)

    def _judge(self, new: Key, value: ParameterValue) -> Moved | None:
        """Whether ``new``, just seen, has become the settled value, or has gained in share."""
        regime = self._regime
        newest = self._newest(new)
        if newest < MIN_NEW:
            self.idle = MIN_NEW - newest - 1
            return None
        everything = regime.total + len(self._window)
        before = regime.counts.get(new, 0) + 0.5
        needed = bound(self._seen) * regime.scatter.inflation(1 - regime.share(self.settled))
        # The most that any split could show.
        if newest * log((everything + 1.5) / before) < needed:
            enough = ceil(needed / log((everything + _AHEAD + 1.5) / before))
            self.idle = max(0, enough - newest - 1)
            return None
        old = self.settled if new != self.settled else regime.second(self.settled)
        if self.in_doubt:
            self._chunks = deque(piece for chunk in self._chunks for piece in chunk.pieces())
        search = Search(list(self._chunks), regime, self.settled, self._seen, self._outlast(), self._sessions)
        split = search.best(new, old)
        if split is None:
            self.idle = len(self._window) // _PAUSE
            if self.in_doubt:
                lacking = search.required(regime.total) - newest
                self.idle = min(lacking - 1 if lacking > 0 else _SOON, self.idle)
            self._judge_again_at = self._seen + 1 + self.idle
            if new != self.settled and 2 * self._frequency(self.settled) < regime.counts.get(new, 0) + newest:
                self._settle(new, value)  # the first requests were not the rule
                self._departed = sum(chunk.size - chunk.counts.get(new, 0) for chunk in self._chunks)
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
        self._known: list[Known] = [] if self.by_key else [(self.settled_value, key)]
        """It, and other values that are likely."""

    def _begin_regime(self, split: Split, at: float) -> None:
        after = list(self._chunks)[split.index :]
        ended = self._regime.total + len(self._window) - split.size
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


def _run_length(keys: Iterable[Key]) -> int:
    """How many at the beginning are alike."""
    length, first = 0, None
    for key in keys:
        if not length:
            first = key
        elif key != first:
            break
        length += 1
    return length
