"""All parameters of all call sites, in bounded memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from otelkit.model import UNSET, CallSite, ParameterChange, ParameterValue
from otelkit.record.observed.series import Series

_HABIT: Final = 192
"""Requests for which a parameter must have varied to be known for it."""
_MAX_SESSIONS: Final = 256
"""Sessions remembered per call site."""
_BATCH: Final = 16
"""Requests that are looked at together where none departs but in parameters that are known to vary: a quarter
of the cost."""


@dataclass(frozen=True, slots=True)
class SettledValue:
    """What a call site uses for a parameter in this process."""

    service: str
    scope: str
    parameter: str
    value: ParameterValue
    """Undefined unless ``is_clear``."""
    is_clear: bool
    """Whether one value prevails; if not, requests vary the parameter."""
    since: float
    """Unix seconds from which that is so."""


class _Site:
    """All parameters of one call site."""

    __slots__ = ("ambiguous", "quiet", "requests", "series", "sessions", "settled", "unapplied", "waiting")

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.requests = 0
        self.settled: Mapping[str, ParameterValue] | None = None
        """The parameters of a request that departs in nothing; None while any parameter is in doubt."""
        self.ambiguous: tuple[tuple[str, Series], ...] = ()
        """Those of them that ``==`` takes another kind of value for."""
        self.quiet: list[tuple[str, Series]] | None = None
        """Those that vary in nothing, where all others are known to vary; None while any is in doubt."""
        self.unapplied = 0
        """Requests equal to ``settled`` that the series have not been told of yet."""
        self.waiting: list[tuple[Mapping[str, ParameterValue], float, str]] = []
        """Requests that have not been looked at, each with its time and session."""
        self.sessions: dict[str, int] = {}
        """The newest sessions, and the number of the request that each began with."""

    def begin_session(self, session: str) -> None:
        self.sessions[session] = self.requests
        if len(self.sessions) > _MAX_SESSIONS:
            del self.sessions[next(iter(self.sessions))]


class ChangeDetector:
    """Detects observed changes at many call sites in bounded memory: least recently used sites go first.

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
        self, call_site: CallSite, parameters: Mapping[str, ParameterValue], at: float, session: str = ""
    ) -> tuple[ParameterChange, ...]:
        """Take one request's parameters; returns the changes that it proves.

        Args:
            call_site: where the request was made; equal call sites share their settled values.
            parameters: as given by the request; kept for a few requests, so not to be altered. A parameter
                that is missing is UNSET, which is a value like any other.
            at: Unix seconds at which the request began. Need not ascend.
            session: of the conversation or user that the request belongs to; empty where that is not known.
                Settings of one user are then told from a change by their number of sessions.
        """
        with self._lock:
            latest = self._latest
            site = latest[1] if latest is not None and latest[0] is call_site else self._use(call_site)
            if session and session not in site.sessions:
                site.begin_session(session)
            site.requests += 1
            if site.settled is not None and parameters == site.settled:
                for name, series in site.ambiguous:
                    if not series.is_settled(parameters[name]):
                        break
                else:
                    site.unapplied += 1
                    return ()
            site.waiting.append((parameters, at, session))
            quiet = site.quiet
            if quiet is not None and len(site.waiting) < _BATCH:
                for name, series in quiet:
                    value = parameters.get(name, UNSET)
                    if value is not series.settled_value and not series.is_settled(value):
                        break
                else:
                    return ()
            return self._look(site, call_site)

    def settled_values(self) -> list[SettledValue]:
        """What every call site uses for each parameter that was seen often enough to tell."""
        found = []
        with self._lock:
            for call_site, site in self._sites.items():
                for name, series in site.series.items():
                    settled = self._settled(call_site, site, name, series)
                    if settled is not None:
                        found.append(settled)
        return found

    def _settled(self, call_site: CallSite, site: _Site, name: str, series: Series) -> SettledValue | None:
        unapplied = series.unapplied
        series.unapplied += site.unapplied
        told = series.tell() if series.is_ripe() else None
        series.unapplied = unapplied
        if told is None:
            return None
        scope = call_site.location or call_site.model
        return SettledValue(call_site.service, scope, name, series.settled_value, *told)

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

    def _look(self, site: _Site, call_site: CallSite) -> tuple[ParameterChange, ...]:
        """Tell the series of the requests that wait."""
        waiting, site.waiting = site.waiting, []
        if site.unapplied:
            for series in site.series.values():
                series.unapplied += site.unapplied
            site.unapplied = 0
        known = True
        if not site.series.keys() >= set().union(*[parameters for parameters, _, _ in waiting]):
            earlier = site.requests - len(waiting)
            for number, (parameters, at, _) in enumerate(waiting):
                known = self._track_new(site, parameters, earlier + number, at) and known
        changes: list[ParameterChange] = []
        times = [at for _, at, _ in waiting]
        sessions = [session for _, _, session in waiting]
        quiet: list[tuple[str, Series]] = []
        checked = len(waiting) - 1 if site.quiet is not None else 0
        in_doubt, habitual = not known, known
        for name, series in site.series.items():
            # Of series that were quiet, all but the newest request have been found settled when they came.
            begin = checked if series.quiet else 0
            values = [parameters.get(name, UNSET) for parameters, _, _ in waiting[begin:]]
            if series.quiet:
                settled = next(
                    (n for n, value in enumerate(values) if not series.is_settled(value)), len(values)
                )
                begin += settled
                series.unapplied += begin
                del values[:settled]
                if not values:
                    quiet.append((name, series))
                    continue
            moved = series.observe(values, times[begin:], sessions[begin:])
            if moved is not None:
                changes.append(
                    ParameterChange(
                        service=call_site.service,
                        parameter=name,
                        old=moved.old,
                        new=moved.new,
                        first_seen=moved.first_seen,
                        last_seen=moved.first_seen,
                        scope=call_site.location or call_site.model,
                        shares=moved.shares,
                    )
                )
            if series.quiet:
                quiet.append((name, series))
            else:
                in_doubt = True
                habitual = habitual and series.doubted >= _HABIT
        site.quiet = quiet if habitual and in_doubt else None
        self._settle(site, None if in_doubt else waiting[-1][0])
        return tuple(changes)

    def _settle(self, site: _Site, parameters: Mapping[str, ParameterValue] | None) -> None:
        site.settled = None if parameters is None else dict(parameters)
        if parameters is not None:
            site.ambiguous = tuple(
                (name, site.series[name]) for name in parameters if site.series[name].ambiguous
            )

    def _track_new(
        self, site: _Site, parameters: Mapping[str, ParameterValue], earlier: int, at: float
    ) -> bool:
        """Parameters not seen at this site before were UNSET in its ``earlier`` requests.

        Returns:
            Whether there was room for all of them.
        """
        for name in parameters.keys() - site.series.keys():
            if len(site.series) >= self._max_parameters:
                self.ignored_parameters += 1
                return False
            site.series[name] = Series(UNSET if earlier else parameters[name], earlier, at, site.sessions)
        return True
