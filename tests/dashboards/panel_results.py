"""Ask a Prometheus what every target of a dashboard returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview import PrometheusApi, Span
from otelkit.dashboards.preview.fetch import fetch
from otelkit.dashboards.preview.frames import Frame
from otelkit.dashboards.preview.variables import resolve


@dataclass
class Results:
    frames: dict[str, list[Frame]]
    """Panel -> its frames, transformed."""
    empty: list[str]
    """``panel / refId`` of targets that returned nothing or only gaps."""
    problems: list[str]


def results(
    document: Mapping[str, Any], url: str, span: Span, chosen: Mapping[str, Sequence[str]] | None = None
) -> Results:
    """Run every panel; targets of Tempo are left out."""
    found = Results({}, [], [])
    with PrometheusApi(url) as api:
        variables = resolve(document, api, span.start, span.end, chosen or {})
        found.problems += variables.problems
        for panel in panels_of(document):
            asked = [target for target in panel.get("targets", []) if "expr" in target]
            if not asked:
                continue
            answer = fetch({**panel, "targets": asked}, api, variables, span)
            title = panel["title"]
            found.frames[title] = answer.frames
            found.problems += [f"{title}: {problem}" for problem in answer.problems]
            found.empty += [f"{title} / {ref}" for ref in answer.empty]
            found.empty += [f"{title} / {ref}" for ref in _only_gaps(answer.frames)]
    return found


def _only_gaps(frames: Sequence[Frame]) -> list[str]:
    by_ref: dict[str, bool] = {}
    for frame in frames:
        numbers = [field for field in frame.fields if field.name != "Time" and field.is_number]
        by_ref[frame.ref] = by_ref.get(frame.ref, False) or bool(numbers)
    return [ref for ref, has_numbers in by_ref.items() if not has_numbers]
