"""Dashboards from elsewhere: what Grafana exports, scripts write and people cut down, made whole."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from otelkit.dashboards.grafana import place

Panel = dict[str, Any]


def whole(document: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which every part that is drawn from is there, and no two panels share an id or a place."""
    made: dict[str, Any] = copy.deepcopy(dict(document))
    made["title"] = str(made.get("title") or "")
    for name in ("templating", "annotations"):
        part = made.get(name)
        listed = part.get("list") if isinstance(part, dict) else None
        made[name] = {"list": [one for one in listed or [] if isinstance(one, dict)]}
    made["templating"]["list"] = [one for one in made["templating"]["list"] if one.get("name")]
    for variable in made["templating"]["list"]:
        variable.setdefault("type", "query")
    made["panels"] = _panels(made.get("panels"))
    place(made)
    for row in [panel for panel in made["panels"] if panel.get("panels")]:
        _open(row, made["panels"])
    taken: set[Any] = set()
    for panel in [*made["panels"], *(one for row in made["panels"] for one in row.get("panels", []))]:
        while panel.get("id") is None or panel["id"] in taken:
            panel["id"] = max((one for one in taken if isinstance(one, int)), default=0) + 1
        taken.add(panel["id"])
    return made


def _panels(found: Any) -> list[Panel]:
    panels = [panel for panel in found or [] if isinstance(panel, dict)]
    for panel in panels:
        panel["title"] = str(panel.get("title") or "")
        panel["description"] = str(panel.get("description") or "")
        panel["type"] = str(panel.get("type") or ("libraryPanel" if "libraryPanel" in panel else ""))
        for name in ("targets", "transformations"):
            panel[name] = [one for one in panel.get(name) or [] if isinstance(one, dict)]
        panel["options"] = panel.get("options") or {}
        config = panel["fieldConfig"] = panel.get("fieldConfig") or {}
        config["defaults"] = config.get("defaults") or {}
        config["overrides"] = [
            one for one in config.get("overrides") or [] if isinstance(one, dict) and "matcher" in one
        ]
        if "panels" in panel:
            panel["panels"] = _panels(panel["panels"])
    return panels


def _open(row: Panel, panels: list[Panel]) -> None:
    """As Grafana unfolds a row: its panels come below it, and all that was there moves down."""
    inner, top = row["panels"], row["gridPos"]["y"] + 1
    move = top - min(panel["gridPos"]["y"] for panel in inner)
    for panel in inner:
        panel["gridPos"]["y"] += move
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in inner) - top
    for panel in panels:
        if panel is not row and panel["gridPos"]["y"] >= top:
            panel["gridPos"]["y"] += height
            for below in panel.get("panels", []):
                below["gridPos"]["y"] += height
