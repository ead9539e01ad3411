"""What finished calls wait for is done before metrics are read, so that these are up to date."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

WAIT_SECONDS: Final = 0.1
"""A scrape may be answered by an event loop that has other things to do."""


class WorkBeforeScrape(Collector):
    """Has no metric. A registry asks in the order of registration: to be made before the metrics.

    Args:
        work_off: works on all that waits, for at most so many seconds.
    """

    def __init__(self, registry: CollectorRegistry, work_off: Callable[[float], object]) -> None:
        self._registry = registry
        self._work_off = work_off
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Nothing, once that is done or the time is over."""
        self._work_off(WAIT_SECONDS)
        return ()

    def unregister(self) -> None:
        """Take it off the registry."""
        self._registry.unregister(self)
