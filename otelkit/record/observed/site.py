"""All parameters of one call site: which of them are looked at for a request, and when."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter, methodcaller
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue
from otelkit.record.observed.series import Moved, Series

HABIT: Final = 192
"""Requests for which a parameter must have varied to be known for it."""
BATCH: Final = 16
"""Requests that are looked at together for parameters that are known to vary: a quarter of the cost."""
LONG_HABIT: Final = 512
"""Requests for which they must have varied for ``LONG_BATCH`` to be looked at together, while no value comes
so often that it may be a change."""
PEEK: Final = 16
"""After so many more it is asked whether any value comes so often among them that they can't wait."""
LONG_BATCH: Final = 64
"""Requests that are then looked at together."""
_NESTED_EVERY: Final = 8
"""A truth value in the place of an equal number, inside a list or mapping, is looked for in one of so many
requests: it costs five times what ``==`` does."""
_NESTED: Final = object()
"""In the place of a value's type: a list or mapping."""
MAX_SESSIONS: Final = 256
"""Sessions remembered, the newest ones."""

Values = Any
"""Of the doubted parameters in one request: a tuple, or the value itself where only one is in doubt."""
Found = list[tuple[str, Moved]]
"""Changes that are proven, with their parameter's name."""


class Site:
    """A parameter is quiet while it has its settled value, which one comparison tells for all of them.
    Requests are kept for the others alone.

    Args:
        max_parameters: remembered. One more takes the place of one that requests no longer give, the one not
            given for longest first; while all are in use it is ignored.
    """

    __slots__ = (
        "_alone", "_ats", "_by_key", "_check_at", "_check_every", "_doubted", "_expected", "_flush_at",
        "_forgotten", "_gaps", "_given", "_idle_until", "_in_sessions", "_is_habit", "_max_parameters",
        "_newest", "_peek_at", "_pick", "_settled", "_size", "_take", "_told", "_values", "evicted",
        "requests", "series", "sessions",
    )  # fmt: skip

    def __init__(self, max_parameters: int) -> None:
        self._max_parameters = max_parameters
        self.series: dict[str, Series] = {}
        self.requests = 0
        self.evicted = 0
        """Parameters that made room for others, or that there was no room for."""
        self._forgotten = 0
        self.sessions: OrderedDict[str, int] = OrderedDict()
        """The newest sessions, and the number of the request that each began with."""
        self._told = 0
        """Requests that the quiet parameters have been told of."""
        self._doubted: dict[str, Series] = {}
        self._gaps: set[str] = set()
        """Doubted parameters that some requests do not give."""
        self._values: list[Values] = []
        """What the doubted ones have not been told of yet, a request each."""
        self._ats: list[float] = []
        """Unix seconds of those requests."""
        self._in_sessions: list[str] = []
        self._flush_at = BATCH
        """Number of the request at which they are told at the latest."""
        self._peek_at = 0
        """Number of the request before which it need not be asked whether they are told."""
        self._is_habit = False
        """Whether all that are doubted are known to vary."""
        self._newest: Values = None
        """Of the request they were told of last."""
        self._idle_until = 0
        """Number of the request up to which more like that one prove nothing."""
        self._arrange()

    def observe(self, parameters: Mapping[str, ParameterValue], at: float, session: str) -> Found | None:
        """Take one request; what it proves, if anything."""
        if session and session not in self.sessions:
            self.sessions[session] = self.requests
            if len(self.sessions) > MAX_SESSIONS:
                self.sessions.popitem(last=False)
        number = self.requests = self.requests + 1
        wait = None
        try:
            take, pick, alone = self._take, self._pick, self._alone
            values: Values = None
            if pick is None:
                expected = self._settled
                if alone is not None:
                    values = take(parameters)
                    if values is not UNSET:
                        expected = self._expected
                        expected[alone] = values
                same = parameters == expected
            else:
                # A name that is new, or that was unset, is one that is not among those given.
                same = pick(parameters) == self._expected and (
                    len(parameters) == self._size or parameters.keys() <= self._given
                )
                values = take(parameters)
            if same and (number < self._check_at or self._are_settled(parameters)):
                if not self._doubted:
                    return None
                wait = number < self._peek_at or self._can_wait(values)
                self._values.append(values)
                self._ats.append(at)
                self._in_sessions.append(session)
                if wait:
                    return None
        except Exception:  # not given, or values that can't be compared, such as arrays
            pass
        if wait is None:
            return self._look(parameters, at, session)
        found: Found = []
        if self._tell_doubted(found):
            self._arrange()
        return found

    @property
    def unapplied(self) -> int:
        """Requests in which quiet parameters had their settled value that they have not been told of yet."""
        return self.requests - self._told

    def _are_settled(self, parameters: Mapping[str, ParameterValue]) -> bool:
        """Whether the quiet parameters have their settled values, of those that ``==`` does not tell from
        others."""
        self._check_at = self.requests + self._check_every
        skip_nested = self.requests % (_NESTED_EVERY // self._check_every)
        for series, name, kind in self._by_key:
            if kind is _NESTED and skip_nested:
                continue
            value = parameters[name]
            if type(value) is not kind and not series.is_settled(value):
                return False
        return True

    def _can_wait(self, values: Values) -> bool:
        """Whether the doubted parameters need not be told of a request, and of those that wait, yet."""
        if self.requests >= self._flush_at:
            return False
        if not self._is_habit:
            return self._proves_nothing(values)
        self._peek_at += PEEK
        newest = self._values[-PEEK:]
        if self._alone is not None:
            series = self._doubted[self._alone]
            return not (series.rises(newest) and series.outlasts(self._values))
        columns = zip(self._doubted.values(), zip(*newest, strict=True), strict=True)
        for index, (series, column) in enumerate(columns):
            if series.rises(column) and series.outlasts(self._columns(self._values)[index]):
                return False
        return True

    def _columns(self, values: list[Values]) -> Sequence[Sequence[ParameterValue]]:
        """The values of some requests, for each doubted parameter."""
        return (values,) if self._alone is not None else list(zip(*values, strict=True))

    def _proves_nothing(self, values: Values) -> bool:
        """Whether a request need not be looked at alone: every doubted parameter has its settled value, or
        the one it had last, which would prove something only in more requests."""
        if self.requests <= self._idle_until and values == self._newest:
            return True
        if len(self._doubted) == 1:
            values = (values,)
        return all(
            series.is_settled(value) for series, value in zip(self._doubted.values(), values, strict=True)
        )

    def _look(self, parameters: Mapping[str, ParameterValue], at: float, session: str) -> Found:
        """Tell every parameter of a request, and of those before it."""
        self._tell_quiet(self.requests - 1)
        self._told = self.requests
        self._track_new(parameters, at)
        quiet = [(name, series) for name, series in self.series.items() if name not in self._doubted]
        found: Found = []
        if self._doubted:
            self._gaps.update(self._doubted.keys() - parameters.keys())
            values = tuple([parameters.get(name, UNSET) for name in self._doubted])
            self._values.append(values if len(values) > 1 else values[0])
            self._ats.append(at)
            self._in_sessions.append(session)
            self._tell_doubted(found)
        for name, series in quiet:
            value = parameters.get(name, UNSET)
            if series.is_settled(value):
                series.unapplied += 1
            elif (moved := series.observe_apart((value,), (at,), (session,))) is not None:
                found.append((name, moved))
        self._arrange()
        return found

    def _tell_doubted(self, found: Found) -> bool:
        """Tell the doubted parameters of the requests that wait; whether they need to be arranged anew."""
        columns, ats, sessions = self._columns(self._values), self._ats, self._in_sessions
        self._newest = self._values[-1]
        self._values, self._ats, self._in_sessions = [], [], []
        is_habit = self._is_habit
        any_quiet = False
        size = LONG_BATCH if is_habit and self._has_habit(LONG_HABIT) else BATCH
        for (name, series), column in zip(self._doubted.items(), columns, strict=True):
            observe = series.observe if is_habit else series.observe_apart
            moved = observe(column, ats, sessions)
            if moved is not None:
                found.append((name, moved))
            any_quiet = any_quiet or series.quiet
            if series.in_doubt:
                size = min(size, series.idle + 1)
            elif series.is_large:
                size = min(size, BATCH)
        self._flush_at = self.requests + size
        if is_habit:
            self._peek_at = self.requests + min(PEEK, size)
            return any_quiet
        self._idle_until = self.requests + min(series.idle for series in self._doubted.values())
        return any_quiet or self._has_habit()

    def _has_habit(self, requests: int = HABIT) -> bool:
        return all(series.doubted >= requests for series in self._doubted.values())

    def _tell_quiet(self, upto: int) -> None:
        """Tell the quiet parameters of the requests up to the one with that number."""
        if upto > self._told:
            for name, series in self.series.items():
                if name not in self._doubted:
                    series.unapplied += upto - self._told
            self._told = upto

    def _arrange(self) -> None:
        """Sort the parameters into quiet and doubted ones."""
        self._tell_quiet(self.requests)
        doubted = {name: series for name, series in self.series.items() if not series.quiet}
        if doubted.keys() != self._doubted.keys():
            self._idle_until = 0
        self._doubted = doubted
        self._gaps &= self._doubted.keys()
        self._is_habit = self._has_habit()
        self._peek_at = self.requests + PEEK if self._is_habit else 0
        given = {
            name: series
            for name, series in self.series.items()
            if series.quiet and series.settled_value is not UNSET
        }
        self._by_key = [(series, name, _kind(series)) for name, series in given.items() if series.by_key]
        self._check_every = 1 if any(kind is not _NESTED for _, _, kind in self._by_key) else _NESTED_EVERY
        self._check_at = self.requests + self._check_every if self._by_key else sys.maxsize
        odd = {name for _, name, kind in self._by_key if kind is None}
        self._settled = {name: series.settled_value for name, series in given.items()}
        """The parameters of a request that departs in nothing and gives none that is in doubt."""
        self._take = _taker(list(self._doubted), bool(self._gaps))
        self._alone = next(iter(self._doubted)) if len(self._doubted) == 1 else None
        """The only one in doubt."""
        self._pick: Callable[[Mapping[str, Any]], Any] | None = None
        """Takes the quiet parameters from those of a request; None where it costs less to compare all, with
        the value of the only one in doubt put in its place among the settled ones."""
        self._expected: Any = dict(self._settled)
        if odd or len(self._doubted) > 1:
            plain = [name for name in given if name not in odd]
            self._pick = itemgetter(*plain) if plain else _none
            self._expected = self._pick(self._settled)
        self._given = given.keys() | self._doubted.keys()
        self._size = -1 if self._gaps else len(self._given)
        """Number of parameters of a request that gives no others; -1 where that can't be told from it."""

    def after_fork(self) -> None:
        """In the child: another thread of the parent may have been in the middle of any of this."""
        self._values, self._ats, self._in_sessions = [], [], []
        self._arrange()

    def forgotten(self) -> int:
        """Distinct values of all parameters that there was no room for."""
        return self._forgotten + sum(series.forgotten for series in self.series.values())

    def _track_new(self, parameters: Mapping[str, ParameterValue], at: float) -> None:
        """Parameters not seen at this site before were UNSET in its earlier requests."""
        earlier = self.requests - 1
        for name in [name for name in parameters if name not in self.series]:
            if len(self.series) >= self._max_parameters:
                self.evicted += 1
                if not self._make_room():
                    continue
            value = UNSET if earlier else parameters[name]
            self.series[name] = Series(value, earlier, at, self.sessions)

    def _make_room(self) -> bool:
        # Requests since one gave it; unlike times, they only grow.
        unused = {
            name: series.unapplied
            for name, series in self.series.items()
            if name not in self._doubted and series.settled_value is UNSET
        }
        oldest = max(unused, key=unused.__getitem__, default=None)
        if oldest is None:
            return False
        self._forgotten += self.series.pop(oldest).forgotten
        return True


def _kind(series: Series) -> object:
    """Of a settled value that ``==`` does not tell from others: the type that does, ``_NESTED`` for a list or
    mapping, None where ``==`` says nothing."""
    value = series.settled_value
    if isinstance(value, list | dict):
        return _NESTED
    return type(value) if isinstance(value, int | float) else None


def _none(parameters: Mapping[str, ParameterValue]) -> None:
    """Picks nothing."""


def _taker(names: list[str], with_gaps: bool) -> Callable[[Mapping[str, Any]], Values]:
    """Takes the values of these parameters from those of a request. Without ``with_gaps`` it raises KeyError
    if one is missing, in half the time."""
    if not names:
        return _none
    if not with_gaps:
        return itemgetter(*names)
    if len(names) == 1:
        return methodcaller("get", names[0], UNSET)
    return lambda parameters: tuple([parameters.get(name, UNSET) for name in names])
