"""Where panels lie: every one on the grid, also those of rows as Grafana had them before version 5, which
grafanalib still writes and a Grafana that is told of the current schema does not show."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from grafanalib import core as g

COLUMNS: Final = 24
_SPANS: Final = 12
"""Columns of the rows of old."""
_CELL_PIXELS: Final = 38
"""Height of a cell of the grid with its margin."""
_WIDTH, _HEIGHT = COLUMNS // 2, 8
"""Size of a panel that was given none, in cells."""

Panel = dict[str, Any]


def place(document: dict[str, Any]) -> None:
    """Give every panel its place, in the document itself.

    Panels with a place keep it; the others follow below them, from left to right, rows of old with their
    headings after those.
    """
    panels: list[Panel] = document.setdefault("panels", [])
    bottom = max((_end(panel) for panel in panels if "gridPos" in panel), default=0)
    bottom = _flow([panel for panel in panels if "gridPos" not in panel], bottom, _HEIGHT)
    rows: list[Panel] = document.pop("rows", None) or []
    with_headings = any(row.get("showTitle") or row.get("collapse") or row.get("repeat") for row in rows)
    ids = [int(panel.get("id") or 0) for panel in [*panels, *(one for row in rows for one in row["panels"])]]
    free = max(ids, default=0) + 1
    for row in rows:
        content: list[Panel] = row["panels"]
        if with_headings:
            heading = _heading(row, free, bottom)
            free += 1
            panels.append(heading)
            bottom += 1
            if row.get("collapse"):
                heading["panels"] = content
        if not row.get("collapse"):
            panels += content
        below = _flow(content, bottom, _cells(row.get("height")))
        bottom = bottom if row.get("collapse") else below
    for panel in panels:
        _flow([one for one in panel.get("panels", []) if "gridPos" not in one], _end(panel), _HEIGHT)


def _flow(panels: Sequence[Panel], y: int, height: int) -> int:
    """Put panels beside each other, line after line from ``y`` on; returns where the next line begins."""
    x = line = 0
    for panel in panels:
        heading = panel.get("type") == g.ROW_TYPE
        width = COLUMNS if heading else min(COLUMNS, int(panel.get("span", 0)) * COLUMNS // _SPANS) or _WIDTH
        tall = 1 if heading else _cells(panel.get("height")) if panel.get("height") else height
        if x + width > COLUMNS:
            x, y, line = 0, y + line, 0
        panel["gridPos"] = {"h": tall, "w": width, "x": x, "y": y}
        x, line = x + width, max(line, tall)
    return y + line


def _heading(row: Panel, number: int, y: int) -> Panel:
    heading = {
        "type": g.ROW_TYPE,
        "id": number,
        "title": row.get("title", ""),
        "collapsed": bool(row.get("collapse")),
        "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
        "panels": [],
    }
    return {**heading, "repeat": row["repeat"]} if row.get("repeat") else heading


def _end(panel: Panel) -> int:
    at = panel["gridPos"]
    return int(at["y"]) + int(at["h"])


def _cells(pixels: Any) -> int:
    """Cells for a height such as ``250px`` or ``250``."""
    found = re.match(r"\d+", str(pixels))
    return max(3, math.ceil(int(found[0]) / _CELL_PIXELS)) if found else _HEIGHT
