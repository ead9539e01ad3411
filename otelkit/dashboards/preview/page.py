"""One self-contained HTML page that shows a dashboard's panels over the data of a Prometheus."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from functools import cache
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from otelkit import __version__, echarts
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview.draw import draw
from otelkit.dashboards.preview.events import events
from otelkit.dashboards.preview.fetch import Span, fetch
from otelkit.dashboards.preview.prometheus import PrometheusApi
from otelkit.dashboards.preview.variables import resolve

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
    variables = resolve(document, api, span.start, span.end, chosen or {})
    marks, problems = events(document, api, variables, span)
    panels = []
    for panel in panels_of(document):
        titled = {**panel, "title": variables.replace(panel.get("title", ""))}
        panels.append(draw(titled, fetch(panel, api, variables, span), span))
    problems = [*variables.problems, *problems]
    with_data = [panel for panel in panels if panel["kind"] not in _ALWAYS_FILLED]
    if with_data and all(panel["empty"] for panel in with_data):
        problems.append(f"{api.url} has no data for any panel in this span")
    scripts = [echarts.library(), *map(_asset, _SCRIPTS)]
    return (
        _environment()
        .get_template("preview.html.j2")
        .render(
            title=document.get("title", ""),
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
            styles=Markup(_asset("page.css")),
            scripts=[Markup(script) for script in scripts],
            policy=_policy(scripts),
            version=__version__,
        )
    )


def _clock(seconds: float, zone: tzinfo | None) -> str:
    return datetime.fromtimestamp(seconds, zone).astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")


@cache
def _asset(name: str) -> str:
    return (
        (resources.files("otelkit.dashboards.preview") / "assets" / name).read_text(encoding="utf-8").strip()
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("otelkit.dashboards.preview"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "separators": (",", ":"),
        "sort_keys": True,
    }
    return environment


def _policy(scripts: Sequence[str]) -> str:
    """A content security policy under which only these very scripts run and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
