"""What the page's charts draw for each kind of panel, as plain JSON types; times in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Final

from markdown_it import MarkdownIt

from otelkit.dashboards.preview.fetch import PanelFrames, Span
from otelkit.dashboards.preview.frames import Field, Frame, Value

Drawn = dict[str, Any]
_TRACES_ONLY: Final = "Not drawn here: Grafana asks Tempo for these traces, the preview only Prometheus"
_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")


def draw(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    """The panel's frame (title, place, texts) and what is in it."""
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    kind = panel["type"]
    drawn: Drawn = {
        "id": panel["id"],
        "kind": kind,
        "title": panel.get("title", ""),
        "description": panel.get("description", ""),
        "place": panel.get("gridPos", {}),
        "unit": defaults.get("unit", ""),
        "noValue": _TRACES_ONLY if found.traces_only else defaults.get("noValue", "No data"),
        "problems": found.problems,
        "empty": not found.frames and not panel.get("options", {}).get("content"),
    }
    how = _KINDS.get(kind)
    if how is None:
        drawn["problems"] = [*found.problems, f"panels of type {kind!r} are not drawn by the preview"]
    elif not drawn["empty"]:
        drawn.update(how(panel, found, span))
    return drawn


def settings(panel: Mapping[str, Any], field: Field, ref: str) -> dict[str, Any]:
    """A field's configuration: the panel's defaults, then the overrides that match it, flattened."""
    config = panel.get("fieldConfig", {})
    flat = {name: value for name, value in config.get("defaults", {}).items() if name != "custom"}
    flat |= {f"custom.{name}": value for name, value in config.get("defaults", {}).get("custom", {}).items()}
    for override in config.get("overrides", []):
        matcher, wanted = override["matcher"].get("id"), override["matcher"].get("options")
        if (matcher == "byName" and wanted in (field.name, field.title)) or (
            matcher == "byFrameRefID" and wanted == ref
        ):
            flat |= {one["id"]: one.get("value") for one in override.get("properties", [])}
    return flat


def _timeseries(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    series = []
    for frame in found.frames:
        times = frame.fields[0].values
        for field in frame.fields[1:]:
            config = settings(panel, field, frame.ref)
            series.append(
                {
                    "name": field.title,
                    "points": _with_gaps(times, field.values, found.step),
                    "unit": config.get("unit", ""),
                    "color": _fixed_colour(config),
                    "right": config.get("custom.axisPlacement") == "right",
                    "rightLabel": config.get("custom.axisLabel", ""),
                    "bars": config.get("custom.drawStyle") == "bars",
                    "width": config.get("custom.lineWidth", 1),
                    "fill": config.get("custom.fillOpacity", 0),
                    "dashed": (config.get("custom.lineStyle") or {}).get("fill") == "dash",
                    "stack": _stack(config),
                    "softMin": config.get("custom.axisSoftMin"),
                    "softMax": config.get("custom.axisSoftMax"),
                }
            )
    _align_stacked(series)
    return {
        "series": series,
        "exemplars": [
            [float(one["timestamp"]) * 1000, float(one["value"]), one["labels"].get("trace_id", "")]
            for one in found.exemplars
        ],
        "steps": _visible_steps(panel),
        "from": span.start * 1000,
        "to": span.end * 1000,
    }


def _stat(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    values = []
    for frame in found.frames:
        for field in frame.fields[1:]:
            config = settings(panel, field, frame.ref)
            numbers = [value for value in field.values if isinstance(value, float)]
            last = numbers[-1] if numbers else None
            values.append(
                {
                    "name": field.title,
                    "value": last,
                    "decimals": config.get("decimals"),
                    "color": threshold_colour(config, last),
                    "curve": [list(pair) for pair in zip(frame.fields[0].values, field.values, strict=True)]
                    if panel["options"].get("graphMode") == "area"
                    else [],
                }
            )
    return {"values": values, "empty": all(one["value"] is None for one in values)}


def _table(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    frame = found.frames[0]
    columns, cells = [], []
    for field in frame.fields:
        config = settings(panel, field, frame.ref)
        coloured = config.get("custom.cellOptions", {}).get("type", "auto") != "auto"
        columns.append(
            {
                "title": field.title,
                "unit": config.get("unit", ""),
                "decimals": config.get("decimals"),
                "number": field.is_number,
                "noValue": config.get("noValue", "")
                if config.get("noValue") != panel_no_value(panel)
                else "",
            }
        )
        cells.append([_cell(config, value, coloured=coloured) for value in field.values])
    rows = [list(row) for row in zip(*cells, strict=True)]
    for order in reversed(panel.get("options", {}).get("sortBy", [])):
        index = next((n for n, column in enumerate(columns) if column["title"] == order["displayName"]), None)
        if index is not None:
            known = [row for row in rows if row[index]["value"] is not None]
            known.sort(key=lambda row, at=index: row[at]["value"], reverse=bool(order.get("desc")))  # type: ignore[misc]
            rows = [*known, *(row for row in rows if row[index]["value"] is None)]
    return {"columns": columns, "rows": rows}


def _cell(config: Mapping[str, Any], value: Value, *, coloured: bool) -> Drawn:
    mapped = mapping(config, value)
    colour = mapped.get("color") or (threshold_colour(config, value) if coloured else "")
    return {"value": value, "text": mapped.get("text", ""), "color": colour if coloured else ""}


def _heatmap(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    """Prometheus' buckets are cumulative; a cell is what lies between two bounds."""
    frames = sorted(found.frames, key=lambda frame: float(frame.fields[1].labels.get("le", "nan")))
    bounds = [frame.fields[1].labels.get("le", "") for frame in frames]
    times = sorted({float(at) for frame in frames for at in frame.fields[0].values if at is not None})
    index = {at: number for number, at in enumerate(times)}
    cells, below = [], dict.fromkeys(range(len(times)), 0.0)
    for row, frame in enumerate(frames):
        for at, value in zip(frame.fields[0].values, frame.fields[1].values, strict=True):
            if isinstance(value, float) and isinstance(at, float):
                column = index[at]
                count = value - below[column]
                below[column] = value
                if count > 1e-9:
                    cells.append([column, row, count])
    return {
        "times": times,
        "bounds": bounds,
        "cells": cells,
        "unit": panel["options"].get("yAxis", {}).get("unit", ""),
    }


def _node_graph(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    nodes: list[dict[str, Value]] = []
    edges: list[dict[str, Value]] = []
    for frame in found.frames:
        (edges if frame.named("source") else nodes).extend(frame.rows())
    options = panel.get("options", {})
    kept = ("id", "title", "subtitle", "mainstat", "secondarystat", "source", "target", "color", "thickness")
    return {
        "nodes": [{key: node[key] for key in kept if key in node} for node in nodes],
        "edges": [{key: edge[key] for key in kept if key in edge} for edge in edges],
        "units": {
            side: [options.get(side, {}).get(name, "") for name in ("mainStatUnit", "secondaryStatUnit")]
            for side in ("nodes", "edges")
        },
        "empty": not nodes,
    }


def _state_timeline(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    lanes = []
    for frame in found.frames:
        for field in frame.fields[1:]:
            config = settings(panel, field, frame.ref)
            lanes.append({"name": field.title, "stretches": _stretches(config, frame, field, found.step)})
    return {"lanes": lanes, "from": span.start * 1000, "to": span.end * 1000}


def _stretches(config: Mapping[str, Any], frame: Frame, field: Field, step: float) -> list[list[Any]]:
    """Neighbouring points of one colour as one stretch: from, to, colour, text."""
    stretches: list[list[Any]] = []
    for at, value in zip(frame.fields[0].values, field.values, strict=True):
        if not isinstance(value, float) or not isinstance(at, float):
            continue
        mapped = mapping(config, value)
        colour = mapped.get("color") or threshold_colour(config, value)
        until = at + step * 1000
        if stretches and stretches[-1][2] == colour and at <= stretches[-1][1]:
            stretches[-1][1] = until
        else:
            stretches.append([at, until, colour, mapped.get("text") or f"{value:g}"])
    return stretches


def _bar_chart(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    frame = found.frames[0]
    texts = [field for field in frame.fields if not field.is_number]
    numbers = [field for field in frame.fields if field.is_number and field.name != "Time"]
    return {
        "categories": [str(value) for value in texts[0].values] if texts else [],
        "series": [
            {
                "name": field.title,
                "values": field.values,
                "color": _fixed_colour(settings(panel, field, frame.ref)),
            }
            for field in numbers
        ],
        "stacked": panel.get("options", {}).get("stacking") == "normal",
    }


def _trend(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    frame = found.frames[0]
    x = frame.named(panel["options"]["xField"])
    if x is None or not x.is_number:
        return {"empty": True}
    series = []
    for field in frame.fields:
        if field is x or not field.is_number:
            continue
        config = settings(panel, field, frame.ref)
        series.append(
            {
                "name": field.title,
                "points": [[a, b] for a, b in zip(x.values, field.values, strict=True) if a is not None],
                "unit": config.get("unit", ""),
                "color": _fixed_colour(config),
                "right": config.get("custom.axisPlacement") == "right",
            }
        )
    return {"series": series, "x": x.title}


def _text(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    options = panel.get("options", {})
    content = str(options.get("content", ""))
    # A panel's own HTML is not run: the page may be looked at by others than its author.
    return {"content": _MARKDOWN.render(content) if options.get("mode") == "markdown" else escape(content)}


def _row(panel: Mapping[str, Any], found: PanelFrames, span: Span) -> Drawn:
    return {"empty": False}


_KINDS: Final[Mapping[str, Callable[[Mapping[str, Any], PanelFrames, Span], Drawn]]] = {
    "timeseries": _timeseries,
    "stat": _stat,
    "table": _table,
    "heatmap": _heatmap,
    "nodeGraph": _node_graph,
    "state-timeline": _state_timeline,
    "barchart": _bar_chart,
    "trend": _trend,
    "text": _text,
    "row": _row,
}


def panel_no_value(panel: Mapping[str, Any]) -> str:
    return str(panel.get("fieldConfig", {}).get("defaults", {}).get("noValue", ""))


def threshold_colour(config: Mapping[str, Any], value: Value) -> str:
    """Colour of the last threshold that the value reaches; empty where there are none."""
    colour = ""
    for step in config.get("thresholds", {}).get("steps", []):
        if step["value"] is None or (isinstance(value, float) and value >= step["value"]):
            colour = step["color"]
    return colour


def mapping(config: Mapping[str, Any], value: Value) -> dict[str, Any]:
    """Text and colour that a value mapping gives to exactly this value."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    for one in config.get("mappings", []):
        if one.get("type") == "value" and text in one["options"]:
            return dict(one["options"][text])
    return {}


def _with_gaps(times: Sequence[Value], values: Sequence[Value], step: float) -> list[list[Value]]:
    """Points with a null where samples are missing, so that the curve breaks there as Grafana's does."""
    points: list[list[Value]] = []
    before: float | None = None
    for at, value in zip(times, values, strict=True):
        if not isinstance(at, float):
            continue
        if before is not None and at - before > step * 1500:
            points.append([before + step * 1000, None])
        points.append([at, value])
        before = at
    return points


def _align_stacked(series: Sequence[Drawn]) -> None:
    """Give the series of a stack points at the same times: charts stack by place, not by time."""
    for group in {one["stack"] for one in series if one["stack"]}:
        members = [one for one in series if one["stack"] == group]
        times = sorted({at for one in members for at, _ in one["points"]})
        for one in members:
            known = dict(one["points"])
            one["points"] = [[at, known.get(at)] for at in times]


def _fixed_colour(config: Mapping[str, Any]) -> str:
    colour = config.get("color") or {}
    return str(colour.get("fixedColor", "")) if colour.get("mode") == "fixed" else ""


def _stack(config: Mapping[str, Any]) -> str:
    stacking = config.get("custom.stacking") or {}
    return str(stacking.get("group", "")) if stacking.get("mode") == "normal" else ""


def _visible_steps(panel: Mapping[str, Any]) -> list[list[Any]]:
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    if defaults.get("custom", {}).get("thresholdsStyle", {}).get("mode", "off") == "off":
        return []
    steps = defaults.get("thresholds", {}).get("steps", [])
    return [[step["value"], step["color"]] for step in steps if step["value"] is not None]
