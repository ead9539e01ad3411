"""Parts of a dashboard's JSON as Grafana writes them now, in place of what grafanalib 0.7 writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from grafanalib import core as g

PLUGIN_VERSION: Final = "13.2.3"
_WRITTEN_BY_IT: Final = frozenset(
    {
        g.TIMESERIES_TYPE,
        g.STAT_TYPE,
        g.TABLE_TYPE,
        g.HEATMAP_TYPE,
        g.STATE_TIMELINE_TYPE,
        g.BAR_CHART_TYPE,
        g.TEXT_TYPE,
        "nodeGraph",
        "trend",
    }
)
"""Kinds whose form is that of ``PLUGIN_VERSION``. Grafana migrates all others when it loads them, which it
would not do if they claimed to be of its version."""

_DROPPED_FROM_PANEL: Final = frozenset({"cacheTimeout", "editable", "error", "height", "minSpan", "span"})
_EMPTY_IN_TARGET: Final = frozenset({"target", "metric"})
"""Of Graphite and OpenTSDB, whose queries are written with the same class."""
_OF_TARGETS_BEFORE_5: Final = frozenset({"step", "intervalFactor"})
_DROPPED_FROM_VARIABLE: Final = frozenset({"useTags", "tagsQuery", "tagValuesQuery"})
_OF_TABLES_BEFORE_7: Final = frozenset({"color", "columns", "fontSize", "mappings"})
_OPTIONS_SINCE: Final[Mapping[str, Mapping[str, Any]]] = {
    g.STAT_TYPE: {"wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard"},
    g.STATE_TIMELINE_TYPE: {"perPage": 20},
    g.BAR_CHART_TYPE: {"fullHighlight": False, "xTickLabelMaxLength": 0},
}
"""Options that Grafana writes by now and grafanalib does not know, with their defaults."""


def modernise_panel(panel: dict[str, Any]) -> None:
    """Change a panel, its targets included."""
    for key in _DROPPED_FROM_PANEL:
        panel.pop(key, None)
    if not panel.get("hideTimeOverride"):
        panel.pop("hideTimeOverride", None)
    if panel.get("type") == g.ROW_TYPE:
        for key in ("fieldConfig", "maxDataPoints", "targets", "transformations", "links", "transparent"):
            panel.pop(key, None)
        panel.setdefault("panels", [])
        return
    modernise_datasource(panel)
    panel.setdefault("repeatDirection", "h")
    field_config = panel.setdefault("fieldConfig", {"defaults": {}})
    field_config.setdefault("overrides", [])
    kind = str(panel.get("type"))
    options = panel["options"] = panel.get("options") or {}
    if kind in _WRITTEN_BY_IT and "dataFormat" not in panel:
        panel.setdefault("pluginVersion", PLUGIN_VERSION)
    for key in ("showThresholdLabels", "showThresholdMarkers"):
        if key in field_config:
            options[key] = field_config.pop(key)
    _reduce_options(options, field_config["defaults"])
    _field_defaults(field_config["defaults"])
    for name, value in _OPTIONS_SINCE.get(kind, {}).items():
        options.setdefault(name, value)
    if kind == g.TABLE_TYPE:
        for key in _OF_TABLES_BEFORE_7:
            panel.pop(key, None)
        custom = field_config["defaults"].get("custom", {})
        if "displayMode" in custom:
            custom["cellOptions"] = {"type": custom.pop("displayMode")}
    if kind != g.HEATMAP_TYPE:
        _legend_and_tooltip(options)
    targets = panel.get("targets", [])
    _name_targets(targets)
    for target in targets:
        _modernise_target(target, panel.get("datasource"))


def modernise_variable(variable: dict[str, Any]) -> None:
    """Change a template variable."""
    modernise_datasource(variable)
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


def modernise_datasource(part: dict[str, Any]) -> None:
    """A data source that is only named becomes a reference; Grafana finds it by name where no uid is so."""
    if isinstance(part.get("datasource"), str):
        part["datasource"] = {"uid": part["datasource"]}


def _reduce_options(options: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Gauges as before Grafana 7: what becomes of a series' points stood among the field's settings."""
    old = options.pop("fieldOptions", None)
    if old is not None:
        thresholds = old.pop("thresholds", None)
        defaults.update({key: value for key, value in old.pop("defaults", {}).items() if value != ""})
        defaults.setdefault("mappings", old.get("mappings", []))
        if thresholds and not defaults.get("thresholds", {}).get("steps"):
            defaults["thresholds"] = {"mode": "absolute", "steps": thresholds}
    source = defaults if old is None else old
    if "calcs" in source:
        options["reduceOptions"] = {
            "calcs": source.pop("calcs"),
            "values": source.pop("values", False),
            **({"limit": source.pop("limit")} if "limit" in source else {}),
        }
        for key in ("override", "title"):
            defaults.pop(key, None)


def _field_defaults(defaults: dict[str, Any]) -> None:
    steps = defaults.get("thresholds", {}).get("steps")
    if not steps or not isinstance(steps, list):
        defaults.pop("thresholds", None)
    else:
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


def _legend_and_tooltip(options: dict[str, Any]) -> None:
    legend = options.get("legend")
    if isinstance(legend, dict):
        legend.setdefault("showLegend", legend.get("displayMode") != "hidden")
        legend.setdefault("calcs", [])
        if legend.get("displayMode") == "hidden":
            legend["displayMode"] = "list"
    tooltip = options.get("tooltip")
    if isinstance(tooltip, dict):
        tooltip.setdefault("sort", "none")


def _name_targets(targets: list[dict[str, Any]]) -> None:
    """Queries without a letter get one, as Grafana gives them; two of the same would be one."""
    taken = {target.get("refId") for target in targets}
    free = (chr(ord("A") + number) for number in range(26) if chr(ord("A") + number) not in taken)
    for number, target in enumerate(targets):
        if not target.get("refId"):
            target["refId"] = next(free, f"query{number}")


def _modernise_target(target: dict[str, Any], datasource: Any) -> None:
    if "expr" in target:
        if target.get("query") == target["expr"]:
            del target["query"]
        for key in _EMPTY_IN_TARGET:
            if not target.get(key):
                target.pop(key, None)
        for key in _OF_TARGETS_BEFORE_5:
            target.pop(key, None)
    modernise_datasource(target)
    if "datasource" not in target and datasource is not None:
        target["datasource"] = datasource
