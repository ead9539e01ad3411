"""Dashboards that were not made here: exported, cut down, written by scripts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import httpx
import pytest
from preview_pages import data_of

from otelkit.dashboards.preview import PrometheusApi, Span, render_preview

SPAN = Span(1_800_000_000, 1_800_003_600, 15)


@pytest.fixture
def api() -> Iterator[PrometheusApi]:
    """Every query has two series, or two rows; every label two values."""

    def answer(request: httpx.Request) -> httpx.Response:
        metrics = ({"job": "a", "le": "0.1"}, {"job": "b", "le": "0.2"})
        if "/label/" in request.url.path:
            data: Any = ["a", "b"]
        elif request.url.path.endswith("query_range"):
            values = [[SPAN.start + 15 * n, str(n)] for n in range(9)]
            data = {"resultType": "matrix", "result": [{"metric": m, "values": values} for m in metrics]}
        else:
            rows = [{"metric": m, "value": [SPAN.end, "1"]} for m in metrics]
            data = {"resultType": "vector", "result": rows}
        return httpx.Response(200, json={"status": "success", "data": data})

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        yield PrometheusApi("http://prometheus.test", client)


def _panel(without: str = "", **more: Any) -> dict[str, Any]:
    panel = {
        "id": 1,
        "type": "timeseries",
        "title": "p",
        "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
        "targets": [{"expr": "up", "refId": "A"}],
        **more,
    }
    panel.pop(without, None)
    return panel


def _drawn(api: PrometheusApi, *panels: Any, **more: Any) -> list[dict[str, Any]]:
    document = {"title": "x", "uid": "x", "panels": list(panels), **more}
    found: list[dict[str, Any]] = data_of(render_preview(document, api, SPAN, zone=UTC))["panels"]
    return found


NO_SETTINGS = {"defaults": {}, "overrides": [{"matcher": {"id": "numeric"}}, {}, None]}
ODD_PANELS: dict[str, dict[str, Any]] = {
    **{f"without {name}": _panel(name) for name in _panel()},
    **{f"bare {kind}": _panel(type=kind) for kind in ("stat", "heatmap", "barchart", "table", "nodeGraph")},
    "null settings": _panel(fieldConfig=None, options=None, transformations=None, targets=None),
    "overrides that match nothing": _panel(fieldConfig=NO_SETTINGS),
    "an interval with a sign": _panel(interval=">1m"),
    "an interval that is a variable": _panel(interval="$step"),
    "numbers for texts": _panel(title=5, description=6),
    "a table sorted by what it has not": _panel(
        type="table", options={"sortBy": [{"displayName": "?"}]}, targets=[{"expr": "up", "format": "table"}]
    ),
}


@pytest.mark.parametrize("name", ODD_PANELS)
def test_panels_that_lack_something_are_drawn(name: str, api: PrometheusApi) -> None:
    """A dashboard exported by an older Grafana, or written by a script, would be a traceback."""
    (drawn,) = _drawn(api, ODD_PANELS[name])
    assert not any("can't be drawn" in problem for problem in drawn["problems"])


@pytest.mark.parametrize(
    ("panel", "said"),
    [
        (_panel(type="trend"), "can't be drawn: KeyError: 'xField'"),
        (_panel("type", libraryPanel={"uid": "l"}), "panels of type 'libraryPanel' are not drawn"),
        (_panel(transformations=[{"id": "groupingToMatrix", "options": {}}]), "'groupingToMatrix'"),
        (_panel(transformations=[{"id": "merge", "filter": {"options": "("}}]), "'merge'"),
        (_panel(targets=[{"expr": "up"}, {"refId": "B", "type": "math"}]), "query B: is not for Prometheus"),
    ],
)
def test_what_can_not_be_drawn_costs_its_own_panel(
    panel: dict[str, Any], said: str, api: PrometheusApi
) -> None:
    """One panel would take all others with it, or be blank without a word."""
    first, second = _drawn(api, panel, _panel(id=2))
    assert any(said in problem for problem in first["problems"])
    assert second["problems"] == []


ODD_PARTS: dict[str, dict[str, Any]] = {
    "null lists": {"annotations": None, "templating": None},
    "Grafana's own annotations": {
        "annotations": {"list": [{"builtIn": 1, "enable": True, "name": "Annotations & Alerts"}, None]}
    },
    "annotations without a colour": {
        "annotations": {"list": [{"enable": True, "name": "a", "target": {"expr": "up"}}]}
    },
    "all kinds of variables": {
        "templating": {
            "list": [
                {"name": "a", "type": "adhoc"},
                {"name": "i", "type": "interval", "query": "1m,5m", "current": {"value": "1m"}},
                {"name": "t", "type": "textbox", "query": "x"},
                {"name": "q", "type": "query", "query": {"query": "label_values(up, job)"}, "current": None},
                {"name": "r", "type": "query", "query": {"query": "query_result(up)"}},
                {"name": "e", "type": "query", "query": ""},
                {"name": "nothing"},
                {"type": "query"},
            ]
        }
    },
    "a title that is no text": {"title": 5},
}


@pytest.mark.parametrize("name", ODD_PARTS)
def test_dashboards_that_lack_something_are_drawn(name: str, api: PrometheusApi) -> None:
    """Each of these is what people have, and would be a traceback."""
    (drawn,) = _drawn(api, _panel(), **ODD_PARTS[name])
    assert drawn["problems"] == []


def test_panels_of_a_folded_row_have_their_own_place(api: PrometheusApi) -> None:
    """They would be drawn over the panels below the row, which Grafana moves down as it unfolds one."""
    row = {"type": "row", "title": "r", "collapsed": True, "gridPos": {"x": 0, "y": 4, "w": 24, "h": 1}}
    row["panels"] = [_panel(id=5, gridPos={"x": 0, "y": 30, "w": 12, "h": 6})]
    below = _panel(id=6, title="below", gridPos={"x": 0, "y": 5, "w": 12, "h": 8})
    above = _panel(id=7, title="above", gridPos={"x": 0, "y": 0, "w": 12, "h": 4})
    drawn = {one["title"]: one["place"]["y"] for one in _drawn(api, above, row, below)}
    assert drawn == {"above": 0, "r": 4, "p": 5, "below": 11}


def test_panels_of_one_id_are_told_apart(api: PrometheusApi) -> None:
    """The second one's curves would be drawn into the first one's frame."""
    assert len({one["id"] for one in _drawn(api, _panel(), _panel(), _panel("id"))}) == 3
