# mypy: disallow-subclassing-any=False
# ruff: noqa: N815  (attributes are called as in grafanalib, and so as in Grafana's JSON)
"""What grafanalib 0.7 lacks for a current Grafana, in one place and in grafanalib's own manner.

The classes are used like grafanalib's; :func:`dashboard_json` turns any grafanalib dashboard, ours or a
user's, into
what Grafana 13 would itself write for the same dashboard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attr
from grafanalib import core as g
from grafanalib._gen import DashboardEncoder

SCHEMA_VERSION: Final = 42
"""Grafana migrates anything older each time it loads a dashboard, and some migrations lose settings."""
PLUGIN_VERSION: Final = "13.2.3"

_attrs: Any = attr.s
"""grafanalib is not typed: a type checker must not invent constructors that lack its arguments."""

_DROPPED_FROM_DASHBOARD: Final = frozenset({"hideControls", "sharedCrosshair", "style", "gnetId", "version"})
_DROPPED_FROM_PANEL: Final = frozenset({"cacheTimeout", "editable", "error", "height", "minSpan", "span"})
_DROPPED_FROM_TARGET: Final = frozenset({"query", "target", "metric", "step", "intervalFactor"})
_DROPPED_FROM_VARIABLE: Final = frozenset({"useTags", "tagsQuery", "tagValuesQuery"})
_OF_TABLES_BEFORE_7: Final = frozenset({"color", "columns", "fontSize", "mappings"})
_OPTIONS_SINCE: Final[Mapping[str, Mapping[str, Any]]] = {
    g.STAT_TYPE: {"wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard"},
    g.STATE_TIMELINE_TYPE: {"perPage": 20},
    g.BAR_CHART_TYPE: {"fullHighlight": False, "xTickLabelMaxLength": 0},
}
"""Options that Grafana writes by now and grafanalib does not know, with their defaults."""


@_attrs
class Target(g.Target):
    """A Prometheus query with exemplars, and either over the span shown or at its end.

    :param exemplar: also ask for exemplars; only raw series have them, recorded ones do not
    :param instant: the value at the end of the span, not the curve
    """

    exemplar = attr.ib(default=False, validator=attr.validators.instance_of(bool))

    def to_json_data(self) -> dict[str, Any]:
        return {
            "refId": self.refId,
            "expr": self.expr,
            "format": self.format,
            "legendFormat": self.legendFormat,
            "exemplar": self.exemplar,
            "instant": self.instant,
            "range": not self.instant,
            "interval": self.interval or None,
            "hide": self.hide or None,
            "editorMode": "code",
            "datasource": self.datasource,
        }


@_attrs
class TempoTarget(g.Target):
    """A TraceQL search.

    :param query: TraceQL
    :param limit: traces to return at most
    """

    query = attr.ib(default="", validator=attr.validators.instance_of(str))
    limit = attr.ib(default=20, validator=attr.validators.instance_of(int))

    def to_json_data(self) -> dict[str, Any]:
        return {
            "refId": self.refId,
            "queryType": "traceql",
            "query": self.query,
            "limit": self.limit,
            "tableType": "traces",
            "filters": [],
            "datasource": self.datasource,
        }


@_attrs
class TimeSeries(g.TimeSeries):
    """grafanalib's time series with a text for "no data", links on the data, and thresholds as modern steps.

    :param noValue: shown where the queries return nothing
    :param dataLinks: list of :class:`grafanalib.core.DataLink`, offered on each point
    """

    noValue = attr.ib(default="", validator=attr.validators.instance_of(str))
    dataLinks = attr.ib(factory=list, validator=attr.validators.instance_of(list))

    def to_json_data(self) -> dict[str, Any]:
        panel: dict[str, Any] = super().to_json_data()
        defaults = panel["fieldConfig"]["defaults"]
        defaults["noValue"] = self.noValue or None
        defaults["links"] = self.dataLinks
        if self.scaleDistributionType == "linear":
            defaults["custom"]["scaleDistribution"] = {"type": "linear"}
        panel["options"]["legend"]["showLegend"] = self.legendDisplayMode != "hidden"
        return panel


@_attrs
class Table(g.Panel):
    """A table as Grafana has written it since version 9: cell options instead of a display mode.

    :param cellType: ``auto``, ``color-text``, ``color-background``, ``gauge`` ...
    :param dataLinks: list of :class:`grafanalib.core.DataLink`, offered on each cell
    :param noValue: shown in cells without a value, and where the queries return nothing
    :param overrides: changes for single columns
    :param sortBy: list of :class:`grafanalib.core.TableSortByField`
    :param unit: unit of columns that no override gives one
    """

    cellType = attr.ib(default="auto", validator=attr.validators.instance_of(str))
    dataLinks = attr.ib(factory=list, validator=attr.validators.instance_of(list))
    noValue = attr.ib(default="", validator=attr.validators.instance_of(str))
    overrides = attr.ib(factory=list, validator=attr.validators.instance_of(list))
    sortBy = attr.ib(factory=list, validator=attr.validators.instance_of(list))
    unit = attr.ib(default="", validator=attr.validators.instance_of(str))

    def to_json_data(self) -> dict[str, Any]:
        panel: dict[str, Any] = self.panel_json(
            {
                "type": g.TABLE_TYPE,
                "fieldConfig": {
                    "defaults": {
                        "custom": {
                            "align": "auto",
                            "cellOptions": {"type": self.cellType},
                            "filterable": True,
                            "inspect": False,
                        },
                        "links": self.dataLinks,
                        "noValue": self.noValue or None,
                        "unit": self.unit,
                    },
                    "overrides": self.overrides,
                },
                "options": {
                    "showHeader": True,
                    "showTypeIcons": False,
                    "cellHeight": "sm",
                    "frameIndex": 0,
                    "sortBy": self.sortBy,
                },
            }
        )
        return panel


@_attrs
class Heatmap(g.Panel):
    """The heatmap of Grafana 9 and later, over Prometheus buckets (``format: heatmap``).

    :param unit: unit of the bucket bounds
    :param valueUnit: unit of what is counted in a cell
    :param logBase: 0 keeps one row a bucket
    :param colorScheme: name of a colour scheme
    :param noValue: shown where the query returns nothing
    :param exemplarColor: colour of exemplars
    """

    unit = attr.ib(default="s", validator=attr.validators.instance_of(str))
    valueUnit = attr.ib(default="short", validator=attr.validators.instance_of(str))
    colorScheme = attr.ib(default="Oranges", validator=attr.validators.instance_of(str))
    noValue = attr.ib(default="", validator=attr.validators.instance_of(str))
    exemplarColor = attr.ib(default="rgba(31,96,196,0.9)", validator=attr.validators.instance_of(str))

    def to_json_data(self) -> dict[str, Any]:
        panel: dict[str, Any] = self.panel_json(
            {
                "type": g.HEATMAP_TYPE,
                "fieldConfig": {
                    "defaults": {
                        "custom": {
                            "scaleDistribution": {"type": "linear"},
                            "hideFrom": {"tooltip": False, "viz": False, "legend": False},
                        },
                        "noValue": self.noValue or None,
                    },
                    "overrides": [],
                },
                "options": {
                    "calculate": False,
                    "cellGap": 1,
                    "cellValues": {"unit": self.valueUnit},
                    "color": {
                        "mode": "scheme",
                        "scheme": self.colorScheme,
                        "fill": "dark-orange",
                        "scale": "exponential",
                        "exponent": 0.5,
                        "steps": 64,
                        "reverse": False,
                    },
                    "exemplars": {"color": self.exemplarColor},
                    "filterValues": {"le": 1e-9},
                    "legend": {"show": True},
                    "rowsFrame": {"layout": "auto"},
                    "selectionMode": "x",
                    "showValue": "never",
                    "tooltip": {"mode": "single", "yHistogram": True, "showColorScale": True},
                    "yAxis": {"axisPlacement": "left", "reverse": False, "unit": self.unit},
                },
            }
        )
        return panel


@_attrs
class NodeGraph(g.Panel):
    """Grafana's node graph. Its frames need the fields ``id`` (nodes) and ``id``, ``source``, ``target``
    (edges).

    :param nodeUnits: units of the nodes' main and secondary number
    :param edgeUnits: units of the edges' main and secondary number
    :param noValue: shown where the queries return nothing
    :param dataLinks: list of :class:`grafanalib.core.DataLink`, in the menu of nodes and edges
    """

    nodeUnits = attr.ib(default=("", ""), validator=attr.validators.instance_of(tuple))
    edgeUnits = attr.ib(default=("", ""), validator=attr.validators.instance_of(tuple))
    noValue = attr.ib(default="", validator=attr.validators.instance_of(str))
    dataLinks = attr.ib(factory=list, validator=attr.validators.instance_of(list))

    def to_json_data(self) -> dict[str, Any]:
        units = [
            {"mainStatUnit": main or None, "secondaryStatUnit": secondary or None}
            for main, secondary in (self.nodeUnits, self.edgeUnits)
        ]
        panel: dict[str, Any] = self.panel_json(
            {
                "type": "nodeGraph",
                "fieldConfig": {
                    "defaults": {"links": self.dataLinks, "noValue": self.noValue or None},
                    "overrides": [],
                },
                "options": {"nodes": units[0], "edges": units[1], "zoomMode": "cooperative"},
            }
        )
        return panel


@_attrs
class Trend(g.Panel):
    """Grafana's trend panel: curves over an ascending number that is not time.

    :param xField: field on the x axis
    :param unit: unit of what is drawn
    :param overrides: changes for single fields
    :param noValue: shown where the queries return nothing
    """

    xField = attr.ib(default="", validator=attr.validators.instance_of(str))
    unit = attr.ib(default="short", validator=attr.validators.instance_of(str))
    overrides = attr.ib(factory=list, validator=attr.validators.instance_of(list))
    noValue = attr.ib(default="", validator=attr.validators.instance_of(str))

    def to_json_data(self) -> dict[str, Any]:
        panel: dict[str, Any] = self.panel_json(
            {
                "type": "trend",
                "fieldConfig": {
                    "defaults": {
                        "custom": {
                            "drawStyle": "line",
                            "lineWidth": 2,
                            "pointSize": 8,
                            "showPoints": "always",
                        },
                        "noValue": self.noValue or None,
                        "unit": self.unit,
                    },
                    "overrides": self.overrides,
                },
                "options": {
                    "xField": self.xField,
                    "legend": {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "none"},
                },
            }
        )
        return panel


@attr.s
class PrometheusAnnotation:
    """Events from Prometheus, one for each sample that the query returns.

    :param useValueForTime: the sample's value is the event's time in milliseconds
    :param titleFormat: may use ``{{label}}``, as ``textFormat``
    :param tagKeys: labels shown as tags, separated by commas
    """

    name: str = attr.ib()
    expr: str = attr.ib()
    dataSource: Any = attr.ib()
    titleFormat: str = attr.ib(default="")
    textFormat: str = attr.ib(default="")
    tagKeys: str = attr.ib(default="")
    iconColor: str = attr.ib(default="blue")
    useValueForTime: bool = attr.ib(default=False, validator=attr.validators.instance_of(bool))
    interval: str = attr.ib(default="15s")

    def to_json_data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "datasource": self.dataSource,
            "enable": True,
            "hide": False,
            "builtIn": 0,
            "placement": "inControlsMenu",
            "iconColor": self.iconColor,
            "target": {
                "expr": self.expr,
                "refId": "Anno",
                "interval": self.interval,
                "datasource": self.dataSource,
            },
            "titleFormat": self.titleFormat,
            "textFormat": self.textFormat,
            "tagKeys": self.tagKeys,
            "useValueForTime": self.useValueForTime,
        }


def dashboard_json(dashboard: g.Dashboard) -> dict[str, Any]:
    """Any grafanalib dashboard as Grafana 13 would write it: panel ids, current schema, no nulls, no legacy
    keys.

    The data source of a panel is copied onto its targets; ``version`` is left out, Grafana counts it.
    """
    raw = json.dumps(dashboard.auto_panel_ids().to_json_data(), cls=DashboardEncoder)
    document: dict[str, Any] = _without_nulls(json.loads(raw))
    for key in _DROPPED_FROM_DASHBOARD:
        document.pop(key, None)
    for key in ("__inputs", "rows"):
        if not document.get(key):
            document.pop(key, None)
    document["schemaVersion"] = SCHEMA_VERSION
    document.setdefault("fiscalYearStartMonth", 0)
    document.get("timepicker", {}).pop("time_options", None)
    for link in document.get("links", []):
        link.setdefault("placement", "inControlsMenu")
    for panel in panels_of(document):
        _modernise_panel(panel)
    for variable in document.get("templating", {}).get("list", []):
        _modernise_variable(variable)
    return document


def dashboard_text(document: Mapping[str, Any]) -> str:
    """The bytes to be written to a file: the same for the same dashboard."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def panels_of(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels of a dashboard's JSON in order, rows and the panels inside collapsed rows included."""
    for panel in document.get("panels", []):
        yield panel
        yield from panel.get("panels", [])
    for row in document.get("rows", []):
        yield from row.get("panels", [])


def _without_nulls(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {
            name: _without_nulls(below, name)
            for name, below in value.items()
            if below is not None or (name == "value" and key == "steps")
        }
    if isinstance(value, list):
        return [_without_nulls(below, key) for below in value]
    return value


def _modernise_panel(panel: dict[str, Any]) -> None:
    for key in _DROPPED_FROM_PANEL:
        panel.pop(key, None)
    if not panel.get("hideTimeOverride"):
        panel.pop("hideTimeOverride", None)
    if panel.get("type") == g.ROW_TYPE:
        for key in ("fieldConfig", "maxDataPoints", "targets", "transformations", "links", "transparent"):
            panel.pop(key, None)
        panel.setdefault("panels", [])
        return
    panel.setdefault("pluginVersion", PLUGIN_VERSION)
    panel.setdefault("repeatDirection", "h")
    field_config = panel.setdefault("fieldConfig", {"defaults": {}})
    field_config.setdefault("overrides", [])
    _modernise_field_defaults(field_config["defaults"])
    kind = panel.get("type")
    options = panel.setdefault("options", {})
    for name, value in _OPTIONS_SINCE.get(str(kind), {}).items():
        options.setdefault(name, value)
    if kind == g.TABLE_TYPE:
        for key in _OF_TABLES_BEFORE_7:
            panel.pop(key, None)
        custom = field_config["defaults"].get("custom", {})
        if "displayMode" in custom:
            custom["cellOptions"] = {"type": custom.pop("displayMode")}
    legend = options.get("legend")
    if isinstance(legend, dict) and kind != g.HEATMAP_TYPE:
        legend.setdefault("showLegend", legend.get("displayMode") != "hidden")
        legend.setdefault("calcs", [])
        if legend.get("displayMode") == "hidden":
            legend["displayMode"] = "list"
    tooltip = options.get("tooltip")
    if isinstance(tooltip, dict) and kind != g.HEATMAP_TYPE:
        tooltip.setdefault("sort", "none")
    for target in panel.get("targets", []):
        _modernise_target(target, panel.get("datasource"))


def _modernise_field_defaults(defaults: dict[str, Any]) -> None:
    steps = defaults.get("thresholds", {}).get("steps")
    if not steps:
        defaults.pop("thresholds", None)
    elif isinstance(steps, list):
        # grafanalib's Threshold writes the text "null" for the first one.
        defaults["thresholds"]["steps"] = [
            {"color": step["color"], "value": None if step.get("value") in (None, "null") else step["value"]}
            for step in steps
        ]
    for key in ("custom", "mappings", "links", "color"):
        if not defaults.get(key):
            defaults.pop(key, None)
    custom = defaults.get("custom", {})
    if not custom.get("stacking", True):
        custom["stacking"] = {"mode": "none", "group": "A"}


def _modernise_target(target: dict[str, Any], datasource: Any) -> None:
    if target.get("queryType") != "traceql":
        for key in _DROPPED_FROM_TARGET:
            target.pop(key, None)
    if "datasource" not in target and datasource is not None:
        target["datasource"] = datasource


def _modernise_variable(variable: dict[str, Any]) -> None:
    for key in _DROPPED_FROM_VARIABLE:
        variable.pop(key, None)
    if variable.get("type") != "interval":
        for key in ("auto", "auto_min", "auto_count"):
            variable.pop(key, None)
    variable.get("current", {}).pop("tags", None)
    variable.setdefault("skipUrlSync", False)
    variable.setdefault("allowCustomValue", True)
    if variable.get("type") in ("custom", "constant", "textbox", "interval"):
        variable.pop("refresh", None)
        variable.pop("sort", None)
    if not variable.get("current"):
        variable.pop("current", None)
