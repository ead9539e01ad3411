"""Run a panel's targets as Grafana's Prometheus data source would."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from otelkit.dashboards.preview import frames as f
from otelkit.dashboards.preview.prometheus import PrometheusApi, QueryError
from otelkit.dashboards.preview.variables import Variables

_POINTS_PER_COLUMN: Final = 15
"""Points over a panel's width of 24 columns: about what a screen of 1600 pixels shows."""
_STEPS: Final = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION: Final = re.compile(r">?\s*(\d+(?:\.\d+)?)(ms|[smhd])")
_MOST_EXEMPLARS: Final = 150


@dataclass(frozen=True, slots=True)
class Span:
    """What is looked at: Unix seconds, and how often the services are scraped."""

    start: float
    end: float
    scrape_seconds: float

    def step(self, columns: int, least: str = "") -> float:
        """Seconds between points, for a panel of so many columns."""
        wanted = (self.end - self.start) / (_POINTS_PER_COLUMN * columns)
        wanted = max(wanted, self.scrape_seconds, _seconds(least))
        return float(next((step for step in _STEPS if step >= wanted), _STEPS[-1]))

    def built_in(self, step: float) -> dict[str, str]:
        """Grafana's own variables."""
        seconds = math.ceil(self.end - self.start)
        rate = max(step + self.scrape_seconds, 4 * self.scrape_seconds)
        return {
            "__interval": f"{step:g}s",
            "__rate_interval": f"{rate:g}s",
            "__range": f"{seconds}s",
            "__range_s": str(seconds),
            "__range_ms": str(seconds * 1000),
        }


@dataclass(slots=True)
class PanelFrames:
    frames: list[f.Frame] = field(default_factory=list)
    exemplars: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """refIds of targets that returned nothing."""
    traces_only: bool = False
    """Whether all of its targets ask for traces, which Prometheus has none of."""
    step: float = 0.0


def fetch(panel: Mapping[str, Any], api: PrometheusApi, variables: Variables, span: Span) -> PanelFrames:
    """All frames of a panel, its transformations applied; what went wrong is said in ``problems``."""
    step = span.step(
        int(panel.get("gridPos", {}).get("w", 12)), variables.replace(str(panel.get("interval") or ""))
    )
    known = Variables({**variables.texts, **span.built_in(step)})
    found = PanelFrames(step=step)
    targets = [target for target in panel.get("targets", []) if not target.get("hide")]
    found.traces_only = bool(targets) and all(target.get("queryType") == "traceql" for target in targets)
    tables = [target for target in targets if target.get("format") == "table"]
    for target in targets:
        ref = target.get("refId", "")
        if "expr" not in target:
            if not found.traces_only:
                found.problems.append(f"query {ref}: is not for Prometheus, the only one that is asked")
            continue
        expr = known.replace(target["expr"])
        legend = known.replace(target.get("legendFormat") or "")
        try:
            made = _frames(target, expr, ref, legend, api, span, step, alone=len(tables) < 2)
            if target.get("exemplar"):
                found.exemplars += api.exemplars(expr, span.start, span.end)[-_MOST_EXEMPLARS:]
        except QueryError as error:
            found.problems.append(f"query {ref}: {error}")
            continue
        if not made:
            found.empty.append(ref)
        found.frames += made
    found.frames, unknown = f.transform(found.frames, panel.get("transformations", []))
    found.problems += [f"transformation {name!r} is not known to the preview" for name in unknown]
    return found


def _frames(
    target: Mapping[str, Any],
    expr: str,
    ref: str,
    legend: str,
    api: PrometheusApi,
    span: Span,
    step: float,
    *,
    alone: bool,
) -> list[f.Frame]:
    if target.get("format") == "table":
        table = f.table_frame(api.at(expr, span.end), ref, alone=alone)
        return [table] if table else []
    if target.get("instant"):
        return f.series_frames(api.at(expr, span.end), ref, legend)
    start = span.start // step * step
    return f.series_frames(api.over(expr, start, span.end, step), ref, legend)


def _seconds(text: str) -> float:
    """Seconds of a duration such as ``>1m``; 0 for what is none."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2]] if found else 0.0
