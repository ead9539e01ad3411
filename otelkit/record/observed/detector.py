"""All parameters of all call sites, in bounded memory."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from otelkit.model import CallSite, ParameterChange, ParameterValue
from otelkit.record.observed.series import Series
from otelkit.record.observed.site import Found, Site


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


class Evictions(NamedTuple):
    """How much was forgotten, or not taken, for want of room. The numbers only grow."""

    call_sites: int
    parameters: int
    values: int


class ChangeDetector:
    """Detects observed changes at many call sites in bounded memory: least recently used sites go first.

    Args:
        max_sites: call sites remembered.
        max_parameters: parameters remembered per call site; those that are no longer given go first.
    """

    def __init__(self, *, max_sites: int = 1024, max_parameters: int = 64) -> None:
        self._sites: OrderedDict[CallSite, Site] = OrderedDict()
        self._max_sites = max_sites
        self._max_parameters = max_parameters
        self._lock = threading.Lock()
        self._latest: CallSite | None = None
        """Saves hashing five strings when one call site is used again and again."""
        self._observe_latest: Callable[..., Found | None]
        _detectors.add(self)
        self._evicted = Evictions(0, 0, 0)
        """Of call sites that are no longer remembered."""

    def observe(
        self, call_site: CallSite, parameters: Mapping[str, ParameterValue], at: float, session: str = ""
    ) -> tuple[ParameterChange, ...]:
        """Take one request's parameters; returns the changes that it proves.

        Args:
            call_site: where the request was made; equal call sites share their settled values.
            parameters: as given by the request; values are kept for up to 64 requests, so not to be altered.
                A parameter that is missing is UNSET, which is a value like any other.
            at: Unix seconds at which the request began. Need not ascend.
            session: of the conversation or user that the request belongs to; empty where that is not known.
                Settings of one user are then told from a change by their number of sessions.
        """
        lock = self._lock
        lock.acquire()  # ``with`` costs more than twice as much, and this is done for every generation
        try:
            if call_site is not self._latest:
                self._use(call_site)
            found = self._observe_latest(parameters, at, session)
        finally:
            lock.release()
        if not found:
            return ()
        return tuple(
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
            for name, moved in found
        )

    def after_fork(self) -> None:
        """In the child: a lock that no other thread holds, and nothing half done."""
        self._lock = threading.Lock()
        self._latest = None
        for site in self._sites.values():
            site.after_fork()

    def evictions(self) -> Evictions:
        """What had to be forgotten so far."""
        with self._lock:
            sites, parameters, values = self._evicted
            parameters += sum(site.evicted for site in self._sites.values())
            values += sum(site.forgotten() for site in self._sites.values())
            return Evictions(sites, parameters, values)

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

    def _settled(self, call_site: CallSite, site: Site, name: str, series: Series) -> SettledValue | None:
        unapplied = series.unapplied
        if series.quiet:
            series.unapplied += site.unapplied
        told = series.tell() if series.is_ripe() else None
        series.unapplied = unapplied
        if told is None:
            return None
        scope = call_site.location or call_site.model
        return SettledValue(call_site.service, scope, name, series.settled_value, *told)

    def _use(self, call_site: CallSite) -> None:
        site = self._sites.get(call_site)
        if site is None:
            site = self._sites[call_site] = Site(self._max_parameters)
            if len(self._sites) > self._max_sites:
                gone = self._sites.popitem(last=False)[1]
                sites, parameters, values = self._evicted
                self._evicted = Evictions(sites + 1, parameters + gone.evicted, values + gone.forgotten())
        else:
            self._sites.move_to_end(call_site)
        self._latest = call_site
        self._observe_latest = site.observe


_detectors: Final[weakref.WeakSet[ChangeDetector]] = weakref.WeakSet()


def _after_fork() -> None:
    for detector in list(_detectors):
        detector.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
