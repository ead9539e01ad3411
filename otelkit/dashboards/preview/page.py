"""One self-contained HTML page that shows a dashboard's panels over the data of a Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Final

from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview.draw import Drawn, draw
from otelkit.dashboards.preview.events import events
from otelkit.dashboards.preview.fetch import PanelFrames, Span, fetch
from otelkit.dashboards.preview.foreign import whole
from otelkit.dashboards.preview.prometheus import PrometheusApi
from otelkit.dashboards.preview.variables import Variables, resolve
from otelkit.echarts import shell
from otelkit.errors import OtelkitError

_SCRIPTS: Final = ("units.js", "charts.js", "page.js")
_ALWAYS_FILLED: Final = frozenset({"row", "text", "stat"})
"""Kinds of panel that show something without data: a count of nothing is 0."""
_NAMED_COLOURS: Final = {
    "red": "#e02f44",
    "orange": "#ff780a",
    "yellow": "#e0b400",
    "green": "#37872d",
    "blue": "#1f60c4",
}


def render_preview(
    document: Mapping[str, Any],
    api: PrometheusApi,
    span: Span,
    *,
    chosen: Mapping[str, Sequence[str]] | None = None,
    zone: tzinfo | None = None,
) -> str:
    """Draw a dashboard's JSON over what a Prometheus holds. The same data give the same bytes.

    Args:
        chosen: variable -> values, where not the dashboard's own.
        zone: time zone of the times in the page's text; None is the machine's own.

    Raises:
        BackendUnreachable: Prometheus does not answer.
        UsageError: a variable was chosen that the dashboard does not have.
    """
    document = whole(document)
    variables = resolve(document, api, span.start, span.end, chosen or {})
    marks, problems = events(document, api, variables, span)
    panels = [_drawn(panel, api, variables, span) for panel in panels_of(document)]
    problems = [*variables.problems, *problems]
    with_data = [panel for panel in panels if panel["kind"] not in _ALWAYS_FILLED]
    if with_data and all(panel["empty"] for panel in with_data):
        problems.append(f"{api.url} has no data for any panel in this span")
    return shell.render(
        "otelkit.dashboards.preview",
        "preview.html.j2",
        scripts=_SCRIPTS,
        title=document["title"],
        span=f"{_clock(span.start, zone)} to {_clock(span.end, zone)}",
        variables=list(variables.shown.items()),
        problems=problems,
        panels=panels,
        marks=[
            {
                **mark,
                "at": _clock(mark["time"] / 1000, zone),
                "shown": _NAMED_COLOURS.get(mark["color"], mark["color"]),
            }
            for mark in marks
        ],
        data={"panels": panels, "annotations": marks},
    )


def _drawn(panel: Mapping[str, Any], api: PrometheusApi, variables: Variables, span: Span) -> Drawn:
    """One panel; a setting that is not as Grafana writes it costs its own panel, not the page."""
    titled = {**panel, "title": variables.replace(panel["title"])}
    try:
        return draw(titled, fetch(panel, api, variables, span), span)
    except OtelkitError:
        raise
    except Exception as error:
        said = f"can't be drawn: {type(error).__name__}: {error}"
        return draw(titled, PanelFrames(problems=[said]), span)


def _clock(seconds: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(seconds, zone).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")
