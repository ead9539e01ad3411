"""A grafanalib dashboard as the JSON that Grafana 13 would itself write for it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from grafanalib import core as g
from grafanalib._gen import DashboardEncoder

from otelkit.dashboards.grafana.modern import modernise_datasource, modernise_panel, modernise_variable
from otelkit.dashboards.grafana.place import place

SCHEMA_VERSION: Final = 42
"""Grafana migrates anything older each time it loads a dashboard, and some migrations lose settings."""

_DROPPED: Final = frozenset({"hideControls", "sharedCrosshair", "style", "gnetId", "version"})


def dashboard_json(dashboard: g.Dashboard) -> dict[str, Any]:
    """Any grafanalib dashboard in the current schema: panel ids and places, no nulls, no legacy keys.

    The data source of a panel is copied onto its targets; ``version`` is left out, Grafana counts it.
    """
    raw = json.dumps(dashboard.auto_panel_ids().to_json_data(), cls=DashboardEncoder, allow_nan=False)
    document: dict[str, Any] = _without_nulls(json.loads(raw))
    for key in _DROPPED:
        document.pop(key, None)
    if not document.get("__inputs"):
        document.pop("__inputs", None)
    document["schemaVersion"] = SCHEMA_VERSION
    document.setdefault("fiscalYearStartMonth", 0)
    document.get("timepicker", {}).pop("time_options", None)
    for link in document.get("links", []):
        link.setdefault("placement", "inControlsMenu")
    place(document)
    for panel in panels_of(document):
        modernise_panel(panel)
    for one in document.get("templating", {}).get("list", []):
        modernise_variable(one)
    for one in document.get("annotations", {}).get("list", []):
        modernise_datasource(one)
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
