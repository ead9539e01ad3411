"""All parameters of one call site: which of them are looked at for a request, and when."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue
from otelkit.record.observed.series import Moved, Series
from otelkit.record.observed.splits import Stamp

HABIT: Final = 192
"""Requests for which a parameter must have varied to be known for it."""
BATCH: Final = 16
"""Requests that are looked at together for parameters that are known to vary: a quarter of the cost."""
_NESTED_EVERY: Final = 8
"""A truth value in the place of an equal number, inside a list or mapping, is looked for in one of so many
requests: it costs ten times what ``==`` does."""
MAX_SESSIONS: Final = 256
"""Sessions remembered, the newest ones."""

Request = tuple[Mapping[str, ParameterValue], float, str]
"""Parameters, Unix seconds, and session; a plain tuple, as one is made for most requests."""
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
        "_by_key", "_doubted", "_expected", "_forgotten", "_given", "_is_habit", "_max_parameters", "_nested",
        "_pick", "_settled", "_waiting", "evicted", "requests", "series", "sessions", "unapplied",
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
        self.unapplied = 0
        """Requests in which quiet parameters had their settled value that they have not been told of yet."""
        self._doubted: dict[str, Series] = {}
        self._waiting: list[Request] = []
        """Those that the doubted ones have not been told of yet."""
        self._is_habit = False
        """Whether all that are doubted are known to vary."""
        self._arrange()

    def observe(self, parameters: Mapping[str, ParameterValue], at: float, session: str) -> Found | None:
        """Take one request; what it proves, if anything."""
        if session and session not in self.sessions:
            self.sessions[session] = self.requests
            if len(self.sessions) > MAX_SESSIONS:
                self.sessions.popitem(last=False)
        self.requests += 1
        try:
            if self._doubted:
                # A name that is new, or that was unset, is one that is not among those given.
                same = self._pick(parameters) == self._expected and parameters.keys() <= self._given
            else:
                same = parameters == self._settled
            if same and self._by_key:
                same = all(series.is_settled(parameters[name]) for series, name in self._by_key)
            if same and self._nested and not self.requests % _NESTED_EVERY:
                same = all(series.is_settled(parameters[name]) for series, name in self._nested)
        except Exception:  # not given, or values that can't be compared, such as arrays
            same = False
        if not same:
            return self._look((parameters, at, session))
        self.unapplied += 1
        if not self._doubted:
            return None
        # The doubted parameters are told now or later.
        waiting = self._waiting
        waiting.append((parameters, at, session))
        if len(waiting) < BATCH and (self._is_habit or self._is_settled(parameters)):
            return None
        found: Found = []
        if self._tell_doubted(found):
            self._arrange()
        return found

    def _is_settled(self, parameters: Mapping[str, ParameterValue]) -> bool:
        """Whether a request has the settled value of every doubted parameter: it proves nothing then."""
        return all(series.is_settled(parameters.get(name, UNSET)) for name, series in self._doubted.items())

    def _look(self, request: Request) -> Found:
        """Tell every parameter of a request, and of those before it."""
        self._flush()
        self._track_new(request)
        quiet = [(name, series) for name, series in self.series.items() if name not in self._doubted]
        found: Found = []
        self._waiting.append(request)
        self._tell_doubted(found)
        for name, series in quiet:
            value = request[0].get(name, UNSET)
            if series.is_settled(value):
                series.unapplied += 1
            else:
                self._tell(series, name, (value,), (request[1:],), found)
        self._arrange()
        return found

    def _tell_doubted(self, found: Found) -> bool:
        """Tell the doubted parameters of the requests that wait; whether they need to be arranged anew."""
        waiting, self._waiting = self._waiting, []
        stamps = [(at, session) for _, at, session in waiting]
        if not self._is_habit and len(waiting) > 1:  # all but the newest have the settled values
            for series in self._doubted.values():
                series.observe_settled(stamps[:-1])
            del waiting[:-1], stamps[:-1]
        changed = False
        for name, series in self._doubted.items():
            self._tell(
                series, name, [parameters.get(name, UNSET) for parameters, _, _ in waiting], stamps, found
            )
            changed = changed or series.quiet
        return changed or (not self._is_habit and self._has_habit())

    def _tell(
        self,
        series: Series,
        name: str,
        values: Sequence[ParameterValue],
        stamps: Sequence[Stamp],
        found: Found,
    ) -> None:
        moved = series.observe(values, stamps)
        if moved is not None:
            found.append((name, moved))

    def _has_habit(self) -> bool:
        return all(series.doubted >= HABIT for series in self._doubted.values())

    def _flush(self) -> None:
        if self.unapplied:
            for name, series in self.series.items():
                if name not in self._doubted:
                    series.unapplied += self.unapplied
            self.unapplied = 0

    def _arrange(self) -> None:
        """Sort the parameters into quiet and doubted ones."""
        self._flush()
        self._doubted = {name: series for name, series in self.series.items() if not series.quiet}
        self._is_habit = self._has_habit()
        given = {
            name: series
            for name, series in self.series.items()
            if series.quiet and series.settled_value is not UNSET
        }
        by_key = [(series, name) for name, series in given.items() if series.by_key]
        self._nested = [one for one in by_key if isinstance(one[0].settled_value, list | dict)]
        self._by_key = [one for one in by_key if one not in self._nested]
        plain = [name for name, series in given.items() if (series, name) not in self._by_key]
        self._settled = {name: series.settled_value for name, series in given.items()}
        """The parameters of a request that departs in nothing, while none is in doubt."""
        self._pick: Callable[[Mapping[str, Any]], Any] = itemgetter(*plain) if plain else _none
        self._expected = self._pick(self._settled)
        self._given = given.keys() | self._doubted.keys()

    def forgotten(self) -> int:
        """Distinct values of all parameters that there was no room for."""
        return self._forgotten + sum(series.forgotten for series in self.series.values())

    def _track_new(self, request: Request) -> None:
        """Parameters not seen at this site before were UNSET in its earlier requests."""
        earlier, (parameters, at, _) = self.requests - 1, request
        for name in [name for name in parameters if name not in self.series]:
            if len(self.series) >= self._max_parameters:
                self.evicted += 1
                if not self._make_room():
                    continue
            value = UNSET if earlier else parameters[name]
            self.series[name] = Series(value, earlier, at, self.sessions)

    def _make_room(self) -> bool:
        unused = {
            name: series.latest
            for name, series in self.series.items()
            if name not in self._doubted and series.settled_value is UNSET
        }
        oldest = min(unused, key=unused.__getitem__, default=None)
        if oldest is None:
            return False
        self._forgotten += self.series.pop(oldest).forgotten
        return True


def _none(parameters: Mapping[str, ParameterValue]) -> None:
    """Picks nothing."""
