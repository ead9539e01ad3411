"""Whatever grafanalib can express comes out as a dashboard that a current Grafana shows."""

from __future__ import annotations

import inspect
import json
import warnings
from typing import Any

import attr
import pytest
from grafanalib import core as g
from grafanalib.elasticsearch import ElasticsearchTarget
from grafanalib.influxdb import InfluxDBTarget

from otelkit.dashboards import dashboard_json, lint, unknown_metrics

PANELS = {
    name: kind
    for name, kind in vars(g).items()
    if inspect.isclass(kind) and issubclass(kind, g.Panel) and kind is not g.Panel
}


def _made(name: str, **more: Any) -> dict[str, Any]:
    kind = PANELS[name]
    needed = {field.name: "x" for field in attr.fields(kind) if field.default is attr.NOTHING and field.init}
    arguments = {**needed, "title": name, "targets": [g.Target(expr="up"), g.Target(expr="down")], **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panel = kind(**arguments)
    return dashboard_json(g.Dashboard(title="d", description="d", uid="d", panels=[panel]))


@pytest.mark.parametrize("name", PANELS)
def test_every_kind_of_panel_comes_out(name: str) -> None:
    """A user with a panel that nobody here thought of could not use the command at all."""
    document = _made(name)
    (panel,) = document["panels"]
    assert panel["title"] == name
    assert panel["gridPos"]["w"] > 0
    assert isinstance(panel.get("options", {}), dict)
    assert [target["refId"] for target in panel.get("targets", [])] in ([], ["A", "B"])
    json.dumps(document)
    assert unknown_metrics(document) == []
    lint(document)


OF_GRAFANA_8 = ("Graph", "SingleStat", "PieChart", "Discrete", "Heatmap", "Worldmap")


@pytest.mark.parametrize("name", PANELS)
def test_advice_fits_the_kind_of_panel(name: str) -> None:
    """A user would be told to give a unit to a list of news, or to a panel whose unit stands elsewhere."""
    findings = lint(_made(name))
    left_behind = [one for one in findings if "as well as it can" in one]
    assert bool(left_behind) is (name in OF_GRAFANA_8)
    if left_behind or name in ("DashboardList", "News", "Text", "RowPanel"):
        assert not any("unit" in one or "noValue" in one or "no target" in one for one in findings)


def test_what_grafana_converts_does_not_claim_to_be_converted() -> None:
    """Grafana leaves out its conversions for a panel that says it is of Grafana's own version."""
    assert "pluginVersion" not in _made("Heatmap")["panels"][0]
    assert "pluginVersion" not in _made("Graph")["panels"][0]
    assert _made("TimeSeries")["panels"][0]["pluginVersion"].startswith("13.")


@pytest.mark.parametrize(
    ("name", "setting"), [("BarGauge", {"format": "s"}), ("GaugePanel", {"format": "s"})]
)
def test_gauges_keep_their_unit_and_reduction(name: str, setting: dict[str, Any]) -> None:
    """grafanalib writes them as before Grafana 7, where a current Grafana does not look."""
    (panel,) = _made(name, **setting, min=2, calc="max")["panels"]
    defaults = panel["fieldConfig"]["defaults"]
    assert (defaults["unit"], defaults["min"]) == ("s", 2)
    assert panel["options"]["reduceOptions"]["calcs"] == ["max"]
    assert panel["options"]["showThresholdMarkers"] is True
    assert set(panel["fieldConfig"]) == {"defaults", "overrides"}
    assert "fieldOptions" not in panel["options"]
    assert "calcs" not in defaults


def test_rows_of_old_become_places_on_the_grid() -> None:
    """A Grafana that is told of the current schema shows nothing of them."""

    def stat(title: str, **more: Any) -> g.Stat:
        return g.Stat(title=title, dataSource="Prom", targets=[g.Target(expr="up")], **more)

    rows = [
        g.Row(
            title="one",
            height=g.Pixels(190),
            panels=[stat("a", span=8), stat("b", span=4), stat("c", span=12)],
        ),
        g.Row(title="two", collapse=True, panels=[stat("d")]),
        g.Row(title="three", panels=[stat("e")]),
    ]
    document = dashboard_json(g.Dashboard(title="d", uid="d", rows=rows))
    assert "rows" not in document
    places = {panel["title"]: tuple(panel["gridPos"][key] for key in "xywh") for panel in document["panels"]}
    assert places == {
        "one": (0, 0, 24, 1),
        "a": (0, 1, 16, 5),
        "b": (16, 1, 8, 5),
        "c": (0, 6, 24, 5),
        "two": (0, 11, 24, 1),
        "three": (0, 12, 24, 1),
        "e": (0, 13, 24, 7),
    }
    two = next(panel for panel in document["panels"] if panel["title"] == "two")
    assert (two["collapsed"], [panel["title"] for panel in two["panels"]]) == (True, ["d"])
    assert len({panel["id"] for panel in document["panels"]}) == len(document["panels"])
    assert not any("lies over" in finding for finding in lint(document))


def test_panels_without_a_place_get_one_below_the_others() -> None:
    """Grafana would pile them up in the corner."""
    panels = [g.Stat(title=str(number)) for number in range(3)]
    panels.insert(1, g.Stat(title="placed", gridPos=g.GridPos(5, 24, 0, 0)))
    document = dashboard_json(g.Dashboard(title="d", uid="d", panels=panels))
    assert not any("lies over" in finding for finding in lint(document))
    assert min(panel["gridPos"]["y"] for panel in document["panels"] if panel["title"] != "placed") == 5


def test_named_data_sources_become_references() -> None:
    """The current schema knows data sources as objects only."""
    document = dashboard_json(
        g.Dashboard(
            title="d",
            uid="d",
            panels=[g.Stat(title="s", dataSource="Prom", targets=[g.Target(expr="up", datasource="Other")])],
            templating=g.Templating(
                list=[g.Template(name="x", query="label_values(up, job)", dataSource="Prom")]
            ),
            annotations=g.Annotations(list=[{"name": "a", "datasource": "Prom", "expr": "up"}]),
        )
    )
    (panel,) = document["panels"]
    assert panel["datasource"] == {"uid": "Prom"}
    assert panel["targets"][0]["datasource"] == {"uid": "Other"}
    assert document["templating"]["list"][0]["datasource"] == {"uid": "Prom"}
    assert document["annotations"]["list"][0]["datasource"] == {"uid": "Prom"}


def test_queries_of_other_data_sources_are_kept() -> None:
    """Clearing what Prometheus does not need would empty the panels of everything else."""
    targets = [
        InfluxDBTarget(query="SELECT mean(x) FROM y"),
        ElasticsearchTarget(query="status:500"),
        g.SqlTarget(rawSql="SELECT 1"),
        g.Target(expr="", target="stats.gauges.x"),
    ]
    influx, elastic, sql, graphite = _made("TimeSeries", targets=targets)["panels"][0]["targets"]
    assert influx["query"] == "SELECT mean(x) FROM y"
    assert elastic["query"] == "status:500"
    assert sql["rawSql"] == "SELECT 1"
    assert graphite["target"] == "stats.gauges.x"
