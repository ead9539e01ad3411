"""The parameters that each call site used last, and since when, for debug pages."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otelkit.model import CallSite, Generation, ParameterValue

MAX_SITES: Final = 256


@dataclass(slots=True)
class SiteParameters:
    """What is known of one call site."""

    calls: int = 0
    last_call_at: float = 0.0
    """Unix seconds."""
    values: Mapping[str, ParameterValue] = field(default_factory=dict)
    """Of the last call."""
    since: dict[str, float] = field(default_factory=dict)
    """Unix seconds of the first of the calls in a row that had this value."""


class CallSiteParameters:
    """Bounded: the call site used least recently goes first."""

    def __init__(self, max_sites: int = MAX_SITES) -> None:
        self._lock = threading.Lock()
        self._sites: OrderedDict[CallSite, SiteParameters] = OrderedDict()
        self._max_sites = max_sites

    def add(self, generation: Generation) -> None:
        """Off the request's path."""
        at, parameters = generation.start_ns / 1e9, generation.parameters
        with self._lock:
            site = self._sites.setdefault(generation.call_site, SiteParameters())
            self._sites.move_to_end(generation.call_site)
            if len(self._sites) > self._max_sites:
                self._sites.popitem(last=False)
            site.calls += 1
            site.last_call_at = at
            if parameters is site.values or parameters == site.values:
                return
            before = site.values
            site.since = {
                name: site.since[name] if name in before and before[name] == value else at
                for name, value in parameters.items()
            }
            site.values = parameters

    def all(self) -> list[tuple[CallSite, SiteParameters]]:
        """The call site used last comes first."""
        with self._lock:
            return list(reversed(self._sites.items()))

    def after_fork(self) -> None:
        """In the child: its own lock; the calls of the parent are the parent's."""
        self._lock = threading.Lock()
        self._sites.clear()
