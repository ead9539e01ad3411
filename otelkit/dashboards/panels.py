"""Panels with this project's defaults: a size, a description, a text for "no data"; and their placing on the
grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attr
from grafanalib import core as g

from otelkit.dashboards import grafana

COLUMNS: Final = 24
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
TEMPO: Final = {"type": "tempo", "uid": "${tempo}"}

RED: Final = "red"
ORANGE: Final = "orange"
YELLOW: Final = "yellow"
GREEN: Final = "green"
BLUE: Final = "blue"
GREY: Final = "#8e8e8e"

Size = tuple[int, int]
"""Width (of 24 columns) and height (of 30 pixels) of a panel."""
Steps = Sequence[tuple[float | None, str]]
"""Thresholds: from which value on which colour; the first value is None."""


def query(expr: str, legend: str = "", ref: str = "A", *, exemplar: bool = False) -> grafana.Target:
    """A query over the span shown; ``legend`` may use ``{{label}}``."""
    return grafana.Target(
        expr=expr, legendFormat=legend or "__auto", refId=ref, exemplar=exemplar, datasource=DATASOURCE
    )


def queries(*pairs: tuple[str, str], exemplar: bool = False) -> list[grafana.Target]:
    """Queries from pairs of legend and expression, called A, B, C."""
    return [
        query(expr, legend, chr(ord("A") + number), exemplar=exemplar)
        for number, (legend, expr) in enumerate(pairs)
    ]


def at_end(expr: str, ref: str = "A", legend: str = "", *, table: bool = False) -> grafana.Target:
    """A query for the value at the end of the span shown."""
    return grafana.Target(
        expr=expr,
        legendFormat=legend or "__auto",
        refId=ref,
        instant=True,
        format=g.TABLE_TARGET_FORMAT if table else g.TIME_SERIES_TARGET_FORMAT,
        datasource=DATASOURCE,
    )


def timeseries(
    title: str,
    description: str,
    targets: list[grafana.Target],
    *,
    unit: str,
    size: Size = (12, 8),
    no_data: str,
    overrides: Sequence[Mapping[str, Any]] = (),
    steps: Steps = (),
    links: Sequence[g.DataLink] = (),
    **more: Any,
) -> grafana.TimeSeries:
    """Curves over time; with ``steps`` their lowest finite value and all above are drawn as dashed lines."""
    settings: dict[str, Any] = {
        "lineWidth": 2,
        "fillOpacity": 6,
        "showPoints": "never",
        "tooltipMode": "multi",
        "tooltipSort": "desc",
        "legendDisplayMode": "list",
        "axisSoftMin": 0,
        "thresholdsStyleMode": "dashed" if steps else "off",
        **more,
    }
    return grafana.TimeSeries(
        title=title,
        description=description,
        targets=targets,
        unit=unit,
        noValue=no_data,
        overrides=list(overrides),
        thresholds=_steps(steps),
        dataLinks=list(links),
        **_common(size),
        **settings,
    )


def stat(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    size: Size = (4, 4),
    no_data: str,
    steps: Steps = ((None, BLUE),),
    curve: bool = False,
    decimals: int | None = None,
) -> g.Stat:
    """One number; ``curve`` draws its course behind it."""
    return g.Stat(
        title=title,
        description=description,
        targets=[query(expr, title) if curve else at_end(expr, legend=title)],
        format=unit,
        decimals=decimals,
        graphMode="area" if curve else "none",
        reduceCalc="lastNotNull",
        noValue=no_data,
        color={"mode": "thresholds"},
        thresholds=_steps(steps),
        **_common(size),
    )


def table(
    title: str,
    description: str,
    targets: list[Any],
    *,
    size: Size = (24, 8),
    no_data: str,
    columns: Mapping[str, str] | None = None,
    hidden: Sequence[str] = (),
    overrides: Sequence[Mapping[str, Any]] = (),
    sort_by: tuple[str, bool] | None = None,
    links: Sequence[g.DataLink] = (),
) -> grafana.Table:
    """Instant queries merged into one table by their labels.

    Args:
        columns: field name -> heading, in the order of the columns; fields not named are kept behind them.
        hidden: fields left out.
        sort_by: heading, and whether descending.
    """
    transformations: list[dict[str, Any]] = [{"id": "merge", "options": {}}] if len(targets) > 1 else []
    if columns is not None:
        transformations.append(organize(columns, hidden))
    return grafana.Table(
        title=title,
        description=description,
        targets=targets,
        transformations=transformations,
        noValue=no_data,
        overrides=list(overrides),
        sortBy=[g.TableSortByField(displayName=sort_by[0], desc=sort_by[1])] if sort_by else [],
        dataLinks=list(links),
        **_common(size),
    )


def heatmap(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    size: Size = (12, 8),
    no_data: str,
    value_unit: str = "short",
    exemplar: bool = True,
) -> grafana.Heatmap:
    """Counts by bucket over time; ``expr`` must keep the label ``le`` and nothing else."""
    target = query(expr, "{{le}}", exemplar=exemplar)
    target.format = "heatmap"
    return grafana.Heatmap(
        title=title,
        description=description,
        targets=[target],
        unit=unit,
        valueUnit=value_unit,
        noValue=no_data,
        **_common(size),
    )


def node_graph(
    title: str,
    description: str,
    frames: Mapping[str, Mapping[str, str]],
    *,
    units: tuple[tuple[str, str], tuple[str, str]],
    size: Size = (24, 14),
    no_data: str,
    links: Sequence[g.DataLink] = (),
) -> grafana.NodeGraph:
    """A node graph from instant queries.

    Args:
        frames: ``nodes`` and ``edges`` -> field of the graph (``mainstat``, ``secondarystat``,
        ``thickness``) ->
            expression. All expressions of a frame carry the same labels; those are the graph's other fields.
        units: of the nodes' main and secondary number, then of the edges'.
    """
    targets, transformations = [], []
    for frame, fields in frames.items():
        refs = [frame if not number else f"{frame}_{field}" for number, field in enumerate(fields)]
        targets += [at_end(expr, ref, table=True) for ref, expr in zip(refs, fields.values(), strict=True)]
        if len(refs) > 1:
            only = {"id": "byRefId", "options": f"/^(?:{'|'.join(refs)})$/"}
            transformations.append({"id": "merge", "options": {}, "filter": only})
    # Renaming changes only what is shown, and the graph looks at true names: a sum of one field makes a
    # field.
    # With more than one target, Prometheus' values are called after their target.
    for frame, fields in frames.items():
        refs = [frame if not number else f"{frame}_{field}" for number, field in enumerate(fields)]
        transformations += [
            calculated(field, f"Value #{ref}", frame) for ref, field in zip(refs, fields, strict=True)
        ]
    return grafana.NodeGraph(
        title=title,
        description=description,
        targets=targets,
        transformations=transformations,
        nodeUnits=units[0],
        edgeUnits=units[1],
        noValue=no_data,
        dataLinks=list(links),
        **_common(size),
    )


def calculated(alias: str, field: str, frame: str) -> dict[str, Any]:
    """Transformation: a new field ``alias`` with the values of ``field``, in frames made from ``frame``
    only."""
    return {
        "id": "calculateField",
        "filter": {"id": "byRefId", "options": f"/(?:^|-){frame}(?:$|-)/"},
        "options": {
            "mode": "reduceRow",
            "alias": alias,
            "reduce": {"reducer": "sum", "include": [field]},
            "replaceFields": False,
        },
    }


def organize(columns: Mapping[str, str], hidden: Sequence[str] = ()) -> dict[str, Any]:
    """Transformation: order, headings and left-out fields of a table."""
    return {
        "id": "organize",
        "options": {
            "indexByName": {name: number for number, name in enumerate(columns)},
            "renameByName": dict(columns),
            "excludeByName": dict.fromkeys(hidden, True),
            "includeByName": {},
        },
    }


def bar_chart(
    title: str,
    description: str,
    targets: list[grafana.Target],
    *,
    unit: str,
    size: Size = (12, 8),
    no_data: str,
    transformations: Sequence[Mapping[str, Any]] = (),
    stacked: bool = False,
    overrides: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> g.BarChart:
    """Bars by the first text field of the (table) queries."""
    return g.BarChart(
        title=title,
        description=description,
        targets=targets,
        transformations=list(transformations),
        stacking="normal" if stacked else "none",
        tooltipMode="multi",
        orientation="horizontal",
        thresholdSteps=_steps(((None, BLUE),)),
        overrides=list(overrides),
        extraJson={"fieldConfig": {"defaults": {"unit": unit, "noValue": no_data}}},
        **_common(size),
        **more,
    )


def trend(
    title: str,
    description: str,
    targets: list[grafana.Target],
    *,
    x: str,
    unit: str,
    size: Size = (12, 8),
    no_data: str,
    transformations: Sequence[Mapping[str, Any]] = (),
    overrides: Sequence[Mapping[str, Any]] = (),
) -> grafana.Trend:
    """Curves over a number that is not time."""
    return grafana.Trend(
        title=title,
        description=description,
        targets=targets,
        transformations=list(transformations),
        xField=x,
        unit=unit,
        noValue=no_data,
        overrides=list(overrides),
        **_common(size),
    )


def state_timeline(
    title: str,
    description: str,
    targets: list[grafana.Target],
    *,
    size: Size = (24, 5),
    no_data: str,
    steps: Steps,
    mappings: Sequence[Mapping[str, Any]] = (),
) -> g.StateTimeline:
    """One lane a series, coloured by its value."""
    return g.StateTimeline(
        title=title,
        description=description,
        targets=targets,
        mappings=list(mappings),
        showValue="never",
        legendDisplayMode="hidden",
        thresholds=_steps(steps),
        extraJson={"fieldConfig": {"defaults": {"unit": "short", "noValue": no_data}}},
        **_common(size),
    )


def traces(title: str, description: str, traceql: str, *, size: Size = (24, 8)) -> grafana.Table:
    """A table of traces found by a TraceQL search."""
    return grafana.Table(
        title=title,
        description=description,
        targets=[grafana.TempoTarget(query=traceql, refId="A", datasource=TEMPO)],
        noValue="No such trace, or Tempo has not kept it",
        unit="none",
        **{**_common(size), "dataSource": TEMPO},
    )


def text(title: str, content: str, *, size: Size = (24, 4)) -> g.Text:
    """Markdown."""
    return g.Text(title=title, content=content, **{**_common(size), "dataSource": None})


def row(title: str) -> g.RowPanel:
    """A heading over the panels that follow."""
    return g.RowPanel(title=title, gridPos=g.GridPos(h=1, w=COLUMNS, x=0, y=0))


def placed(panels: Sequence[g.Panel]) -> list[g.Panel]:
    """Put panels on the grid from left to right, line after line; a line is as high as its highest panel."""
    x = y = line_height = 0
    result = []
    for panel in panels:
        width, height = panel.gridPos.w, panel.gridPos.h
        if x + width > COLUMNS:
            x, y, line_height = 0, y + line_height, 0
        result.append(attr.evolve(panel, gridPos=g.GridPos(h=height, w=width, x=x, y=y)))
        x, line_height = x + width, max(line_height, height)
    return result


def by_name(name: str, **properties: Any) -> dict[str, Any]:
    """Field override for one series or column; ``unit="s"``, ``custom__axisPlacement="right"``."""
    return _override("byName", name, properties)


def by_query(ref: str, **properties: Any) -> dict[str, Any]:
    """Field override for all series of one query."""
    return _override("byFrameRefID", ref, properties)


def values(colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Value mappings: text -> colour."""
    options = {text: {"color": colour, "index": n} for n, (text, colour) in enumerate(colours.items())}
    return [{"type": "value", "options": options}]


def fixed(colour: str) -> dict[str, str]:
    """A colour that does not depend on the value."""
    return {"mode": "fixed", "fixedColor": colour}


def _override(matcher: str, of: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "matcher": {"id": matcher, "options": of},
        "properties": [{"id": name.replace("__", "."), "value": value} for name, value in properties.items()],
    }


def _common(size: Size) -> dict[str, Any]:
    return {
        "dataSource": DATASOURCE,
        "gridPos": g.GridPos(w=size[0], h=size[1], x=0, y=0),
        "maxDataPoints": None,
    }


def _steps(steps: Steps) -> list[dict[str, Any]]:
    return [{"color": colour, "value": value} for value, colour in steps]
