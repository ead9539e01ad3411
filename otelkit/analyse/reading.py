"""What a round reads: the services whose changes are due, and enough others to compare them with."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from otelkit import semconv
from otelkit.causal.windows import cut
from otelkit.errors import BackendUnreachable
from otelkit.query import Panel, Source
from otelkit.query.connection import Api
from otelkit.spec import Spec

logger = logging.getLogger("otelkit.analyse")

MOST_CONTROLS: Final = 12
"""Other services that are read for comparison; what the fleet does is the median of them."""
_LONGEST_SECONDS: Final = 4 * 3600.0
_LONGEST_STEPS: Final = 2400


class Reading:
    """Series of one span, each service read once.

    Args:
        start, end: Unix seconds, multiples of ``step``.
        names: all services with data in the span.
    """

    def __init__(self, source: Source, start: float, end: float, step: float, names: Sequence[str]) -> None:
        self.start, self.end, self.step = start, end, step
        self._source = source
        self._names = names
        self._panels: dict[str, Panel | None] = {}

    def panel(self, service: str, spec: Spec) -> Panel:
        """The service, those that it calls, and some others as controls.

        Raises:
            DataError: the service has no series in the span.
            BackendUnreachable: Prometheus did not answer.
        """
        own = self._panels.get(service) or self._source.panel([service], self.start, self.end, self.step)
        self._panels[service] = own
        known = spec.service(service)
        allowed = self._names if known.controls is None else known.controls
        others = [name for name in allowed if name != service and name not in known.depends_on]
        panels = [own, *filter(None, map(self._read, (*known.depends_on, *others[:MOST_CONTROLS])))]
        return _trimmed(_joined(panels), service)

    def _read(self, name: str) -> Panel | None:
        if name not in self._panels:
            try:
                self._panels[name] = self._source.panel([name], self.start, self.end, self.step)
            except BackendUnreachable:
                raise
            except Exception as error:
                # It came or went, or its data is odd; others do as well for comparison.
                logger.debug("%s is left out of comparisons: %s", name, error)
                self._panels[name] = None
        return self._panels[name]


def _joined(panels: Sequence[Panel]) -> Panel:
    return replace(
        panels[0],
        services={name: series for panel in panels for name, series in panel.services.items()},
        dependencies={name: below for panel in panels for name, below in panel.dependencies.items()},
        controls={name: named for panel in panels for name, named in panel.controls.items()},
    )


def _trimmed(panel: Panel, service: str) -> Panel:
    """Without what lies before the service's first sample: the causal engine divides a span into some hundred
    cells, so of a young service a shorter span shows more."""
    counts = panel.services[service].bucket_counts
    known = None if counts is None else np.flatnonzero(np.isfinite(counts).any(axis=1))
    if known is None or not len(known):
        return panel
    return cut(panel, float(panel.times[known[0]]) - panel.step_seconds / 2, float(panel.times[-1]))


def grid_step(scrape_seconds: float) -> float:
    """Step of the series, whole seconds."""
    return max(1.0, math.ceil(scrape_seconds))


def span_seconds(step: float) -> float:
    """Length of what is read: longer data costs, and says little of a change."""
    return min(_LONGEST_SECONDS, _LONGEST_STEPS * step)


def p99_now(api: Api, spec: Spec, services: Iterable[str], at: float) -> dict[str, float]:
    """Recorded P99 (seconds) of services at a Unix time, over the shortest window of each; none where nothing
    is recorded or no call ended.

    Raises:
        BackendUnreachable: Prometheus did not answer.
    """
    names = {
        service: semconv.recorded_quantile(0.99, str(spec.service(service).windows[0]))
        for service in services
    }
    if not names:
        return {}
    pattern = "|".join(sorted(set(names.values())))
    found = {}
    for one in api.get("query", {"query": f'{{__name__=~"{pattern}"}}', "time": f"{at:.3f}"})["result"]:
        service, value = one["metric"].get(semconv.LABEL_SERVICE, ""), float(one["value"][1])
        if names.get(service) == one["metric"].get("__name__") and math.isfinite(value):
            found[service] = value
    return found
