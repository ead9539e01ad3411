"""A dashboard's annotations, read from Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otelkit.dashboards.preview.fetch import Span
from otelkit.dashboards.preview.frames import legend_text
from otelkit.dashboards.preview.prometheus import PrometheusApi, QueryError
from otelkit.dashboards.preview.variables import Variables


def events(
    document: Mapping[str, Any], api: PrometheusApi, variables: Variables, span: Span
) -> tuple[list[dict[str, Any]], list[str]]:
    """Events in order of time (milliseconds), with title, text and colour; and what went wrong."""
    found_events: dict[tuple[Any, ...], dict[str, Any]] = {}
    problems = []
    step = span.step(24)
    known = Variables({**variables.texts, **span.built_in(step)})
    for one in document.get("annotations", {}).get("list", []):
        if not one.get("enable") or not (one.get("target") or {}).get("expr"):
            continue
        try:
            found = api.over(known.replace(one["target"]["expr"]), span.start, span.end, step)
        except QueryError as error:
            problems.append(f"annotation {one['name']!r}: {error}")
            continue
        for series in found:
            labels = series["metric"]
            title = legend_text(one.get("titleFormat") or one["name"], labels)
            text = legend_text(one["textFormat"], labels) if one.get("textFormat") else ""
            for at, value in series["values"]:
                time = float(value) if one.get("useValueForTime") else float(at) * 1000
                if span.start * 1000 <= time <= span.end * 1000:
                    event = {
                        "time": time,
                        "title": title,
                        "text": text,
                        "color": one.get("iconColor") or "blue",
                    }
                    found_events[(title, text, round(time))] = event
    return sorted(found_events.values(), key=lambda event: float(event["time"])), problems
