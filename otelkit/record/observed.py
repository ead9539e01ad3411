"""Finds observed parameter changes: at one call site, the settled value of a parameter moved to another
settled value.

Pure logic: values and times in, changes out; no clock, no I/O. Per call site and parameter it keeps the
counts of the regime in force and a short window of the newest requests while any of these departs from the
settled value. A change is reported when

* the window splits into two parts whose values can't well come from one distribution: the log Bayes factor of
  the Dirichlet- multinomial over {new value, old value, the rest} passes a bound that grows with the number
  of requests looked at,
* before the split the old value was settled (the most frequent, at least a third of the requests), and after
  it, it is nearly gone,
* after the split the new value is the most frequent, was rare before, and has held for longer than earlier
  departures did.

Requests that vary a parameter on purpose fail one of these, however long they go on. The split also dates the
change: it is first seen at the first request with the new value, not at the one that proved it. What can't be
told apart: a client that sends long runs of one value and then long runs of another on purpose looks like a
change at each switch, until runs of that length are known; and a value in use for fewer than ``MIN_NEW``
requests, or before ``MIN_OLD`` were seen, is never settled.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from math import lgamma, log, log1p
from typing import Any, Final

from otelkit.model import UNSET, CallSite, ParameterChange, ParameterValue, canonical

MIN_OLD: Final = 5
"""Requests that the old value must have been seen in."""
MIN_NEW: Final = 8
"""Requests that the new value must have been seen in."""
MAX_NEW: Final = 40
"""Requests with the new value that are proof however long earlier runs were."""
MAX_OUTLAST: Final = 16
"""A new value must be seen in more requests than there were before it, if those were no more than this."""
WINDOW: Final = 48
"""Newest requests that are searched for a split; also the longest delay of a report."""
_PAUSE: Final = 4
"""Requests to wait after a search that found no split: the search is the only costly step."""
_REGIME: Final = 512
"""Requests after which the weight of a regime's older ones is halved."""
_DISTINCT: Final = 64
"""Distinct values remembered per parameter."""
_MAX_TEXT: Final = 1024
_RULE: Final = 0.35
"""Least share of requests that a settled value has. Not one half: where a cap is settled, requests that ask
for less stay below it."""
_CLEAR: Final = 0.6
"""Below this share of the old value its regime is a mixture, whose make-up may drift: more evidence is asked
for."""
_UNCLEAR: Final = 4.0
_GONE: Final = 0.15
"""Most share that the old value keeps in the new regime."""
_RARE: Final = 0.2
"""Most share that the new value had in the old regime."""
_MAX_MEMBERS: Final = 64
_PLAIN: Final = (str, int, float, type(None))
_LGAMMA_HALF: Final = lgamma(0.5)

_Key = Any


def _key(value: ParameterValue) -> _Key:
    """A hashable stand-in that is equal for equal values only; lists and dicts compare by content."""
    kind = value.__class__
    if kind is int or (kind is float and value == value) or (kind is str and len(value) <= _MAX_TEXT):
        return value
    if value is None or value is UNSET or kind is bool:
        return value
    if kind is list and len(value) <= _MAX_MEMBERS and all(isinstance(item, _PLAIN) for item in value):
        return (list, *value)
    text = canonical(value)
    return (
        dict,
        text if len(text) <= _MAX_TEXT else hashlib.sha256(text.encode(errors="replace")).hexdigest(),
    )


def _evidence(new: int, old: int, rest: int) -> float:
    """Log marginal likelihood of the counts under a symmetric Dirichlet prior (1/2 each)."""
    return (
        lgamma(1.5) - lgamma(new + old + rest + 1.5)
        + lgamma(new + 0.5) + lgamma(old + 0.5) + lgamma(rest + 0.5) - 3 * _LGAMMA_HALF
    )  # fmt: skip


class _Parameter:
    """One parameter at one call site."""

    __slots__ = (
        "_count", "_dwells", "_judge_again_at", "_longest", "_regime", "_run", "_running", "_seen", "_since",
        "_total", "_values", "_window", "quiet", "settled", "settled_value", "unapplied",
    )  # fmt: skip

    def __init__(self, value: ParameterValue, weight: int) -> None:
        self.settled = _key(value)
        """Key of the most frequent value of the regime in force."""
        self.settled_value = value
        self.quiet = True
        """Every request in the window has the settled value; the window is empty then."""
        self.unapplied = 0
        """Requests with the settled value that are not counted yet; only while quiet."""
        self._regime: dict[_Key, int] = {self.settled: weight}
        self._total = weight
        self._seen = weight
        self._judge_again_at = 0
        self._window: deque[tuple[_Key, float]] = deque()
        """(value, Unix seconds) of the newest requests; empty while all of them have the settled value."""
        self._count: dict[_Key, int] = {}
        self._values: dict[_Key, ParameterValue] = {}
        """The departing values in the window, as they were given."""
        self._running: _Key = self.settled
        self._run = 0
        """How often ``_running`` has just come in a row."""
        self._longest = 0
        """Longest run of a value other than the settled one that has ended."""
        self._since = 0
        """Requests seen when the regime in force began."""
        self._dwells: deque[int] = deque(maxlen=4)
        """Lengths (requests) of the regimes before it."""

    def observe(
        self, value: ParameterValue, at: float
    ) -> tuple[ParameterValue, ParameterValue, float] | None:
        """Returns (old, new, first seen) when this request proves a change."""
        if self.unapplied:
            self._seen += self.unapplied
            self._absorb(self.settled, self.unapplied)
            self.unapplied = 0
        key, settled = _key(value), self.settled
        self._seen += 1
        if key == self._running:
            self._run += 1
        else:
            if self._running != settled and self._run > self._longest:
                self._longest = self._run
            self._running, self._run = key, 1
        window, count = self._window, self._count
        window.append((key, at))
        count[key] = count.get(key, 0) + 1
        if len(window) > WINDOW:
            oldest = window.popleft()[0]
            count[oldest] -= 1
            if not count[oldest]:
                del count[oldest]
                self._values.pop(oldest, None)
            self._absorb(oldest, 1)
        if key != settled:
            self.quiet = False
            self._values[key] = value
            return self._judge(key) if count[key] >= MIN_NEW and self._seen >= self._judge_again_at else None
        if count[key] == len(window):
            self._absorb(key, len(window))
            window.clear()
            count.clear()
            self.quiet = True
        return None

    def _absorb(self, key: _Key, times: int) -> None:
        """Count requests that have left the window."""
        regime = self._regime
        regime[key] = regime.get(key, 0) + times
        self._total += times
        if self._total > _REGIME or len(regime) > _DISTINCT:
            self._regime = {kept: number // 2 for kept, number in regime.items() if number > 1}
            # What falls out stays in the total: it was neither the old nor the new value.
            self._total = max(self._total // 2, sum(self._regime.values()))

    def _judge(self, key: _Key) -> tuple[ParameterValue, ParameterValue, float] | None:
        """Whether ``key``, just seen, has become the settled value."""
        new = self._count[key]
        required = self._required()
        if new < required:
            return None
        before = self._regime.get(key, 0)
        bound = 7.0 + log1p(self._seen / 50)
        if new * log((self._total + 1.5) / (before + 0.5)) < bound:
            return None  # can't reach the bound, whatever the split
        split = self._best_split(key, bound, required)
        if split is None:
            self._judge_again_at = self._seen + _PAUSE
            if self._total < MIN_OLD and new > 2 * self._frequency(self.settled):
                self._settle(key)  # the first few requests were not the rule
            return None
        first_seen = self._first_seen(key, split)
        old = self.settled_value
        self._settle(key)
        self._begin_regime(split)
        return old, self.settled_value, first_seen

    def _first_seen(self, key: _Key, split: int) -> float:
        """When the new value was first used. Before the split too, where a few requests with the old value
        came between: as far back as there is no old value, or to the first of all if the value was never seen
        before."""
        window = list(self._window)
        if key not in self._regime:
            split = 0
        while split > 0 and window[split - 1][0] != self.settled:
            split -= 1
        return min(at for value, at in window[split:] if value == key)

    def _required(self) -> int:
        """Requests that a new value must have been seen in: more than runs that were no change have
        lasted."""
        required = max(MIN_NEW, 2 * self._longest)
        if self._dwells and (longest_dwell := max(self._dwells)) < WINDOW:
            required = max(
                required, longest_dwell * 3 // 2
            )  # regimes that short, one after the other, are variation
        return min(required, MAX_NEW)

    def _frequency(self, key: _Key) -> int:
        return self._regime.get(key, 0) + self._count.get(key, 0)

    def _best_split(self, key: _Key, bound: float, required: int) -> int | None:
        """Index into the window at which the new regime begins, if there is one."""
        settled, window = self.settled, self._window
        all_new, all_old = self._frequency(key), self._frequency(settled)
        everything = self._total + len(window)
        one_regime = _evidence(all_new, all_old, everything - all_new - all_old)
        best, best_score = None, bound
        new = old = 0
        for index in range(len(window) - 1, -1, -1):
            value = window[index][0]
            if value == settled:
                old += 1
            elif value == key:
                new += 1
                size = len(window) - index
                left, left_new, left_old = everything - size, all_new - new, all_old - old
                if (
                    new < required
                    or left < MIN_OLD
                    or new <= left <= MAX_OUTLAST
                    or new < _RULE * size
                    or old > _GONE * size
                    or left_old < _RULE * left
                    or left_new > _RARE * left
                ):
                    continue
                score = (
                    _evidence(new, old, size - new - old)
                    + _evidence(left_new, left_old, left - left_new - left_old)
                    - one_regime
                )
                if left_old < _CLEAR * left:
                    score -= _UNCLEAR
                if score > best_score:
                    best, best_score = index, score
        return best

    def _settle(self, key: _Key) -> None:
        self.settled, self.settled_value = key, self._values.pop(key)

    def _begin_regime(self, split: int) -> None:
        self._regime = dict(Counter(value for value, _ in list(self._window)[split:]))
        self._total = sum(self._regime.values())
        self._window.clear()
        self._count.clear()
        self._values.clear()
        self._dwells.append(self._seen - self._total - self._since)
        self._since = self._seen - self._total
        self._longest = 0
        self.quiet = True


class _Site:
    """All parameters of one call site."""

    __slots__ = ("names", "parameters", "requests", "settled", "unapplied")

    def __init__(self) -> None:
        self.parameters: dict[str, _Parameter] = {}
        self.names: tuple[str, ...] = ()
        """Of the request before."""
        self.requests = 0
        self.settled: Mapping[str, ParameterValue] | None = None
        """The parameters of a request that departs in nothing; None while any parameter is in doubt."""
        self.unapplied = 0
        """Requests equal to ``settled`` that the parameters have not been told of yet."""


class ChangeDetector:
    """Detects observed changes at many call sites in bounded memory: least recently used sites and parameters
    go first.

    Args:
        max_sites: call sites remembered.
        max_parameters: parameters remembered per call site; further ones are ignored and counted.
    """

    def __init__(self, *, max_sites: int = 1024, max_parameters: int = 64) -> None:
        self._sites: OrderedDict[CallSite, _Site] = OrderedDict()
        self._max_sites = max_sites
        self._max_parameters = max_parameters
        self._lock = threading.Lock()
        self._latest: tuple[CallSite, _Site] | None = None
        """Saves hashing five strings when one call site is used again and again."""
        self.evicted_sites = 0
        self.ignored_parameters = 0

    def observe(
        self, call_site: CallSite, parameters: Mapping[str, ParameterValue], at: float
    ) -> tuple[ParameterChange, ...]:
        """Take one request's parameters; returns the changes that it proves.

        Args:
            call_site: where the request was made; equal call sites share their settled values.
            parameters: as given by the request. A parameter that is missing is UNSET, which is a value like
            any other.
            at: Unix seconds at which the request began. Need not ascend.
        """
        with self._lock:
            latest = self._latest
            site = latest[1] if latest is not None and latest[0] is call_site else self._use(call_site)
            site.requests += 1
            if site.settled is not None and parameters == site.settled:
                site.unapplied += 1
                return ()
            return self._depart(site, call_site, parameters, at)

    def _use(self, call_site: CallSite) -> _Site:
        site = self._sites.get(call_site)
        if site is None:
            site = self._sites[call_site] = _Site()
            if len(self._sites) > self._max_sites:
                self._sites.popitem(last=False)
                self.evicted_sites += 1
        else:
            self._sites.move_to_end(call_site)
        self._latest = call_site, site
        return site

    def _depart(
        self, site: _Site, call_site: CallSite, parameters: Mapping[str, ParameterValue], at: float
    ) -> tuple[ParameterChange, ...]:
        tracked = site.parameters
        if site.unapplied:
            for parameter in tracked.values():
                parameter.unapplied += site.unapplied
            site.unapplied = 0
        names = tuple(parameters)
        if names != site.names:
            self._track_new(site, parameters)
            site.names = names
        changes: list[ParameterChange] = []
        in_doubt = len(tracked) < len(names)
        for name, parameter in tracked.items():
            value = parameters.get(name, UNSET)
            if parameter.quiet and (value is parameter.settled_value or value == parameter.settled_value):
                parameter.unapplied += 1
                continue
            change = parameter.observe(value, at)
            if change is not None:
                old, new, first_seen = change
                changes.append(
                    ParameterChange(
                        service=call_site.service,
                        parameter=name,
                        old=old,
                        new=new,
                        first_seen=first_seen,
                        last_seen=first_seen,
                        scope=call_site.location or call_site.model,
                    )
                )
            in_doubt = in_doubt or not parameter.quiet
        site.settled = None if in_doubt else dict(parameters)
        return tuple(changes)

    def _track_new(self, site: _Site, parameters: Mapping[str, ParameterValue]) -> None:
        """Parameters not seen at this site before were UNSET until now."""
        earlier = site.requests - 1
        for name in parameters.keys() - site.parameters.keys():
            if len(site.parameters) < self._max_parameters:
                site.parameters[name] = _Parameter(UNSET if earlier else parameters[name], earlier)
            else:
                self.ignored_parameters += 1
