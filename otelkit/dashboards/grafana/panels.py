# mypy: disallow-subclassing-any=False
# ruff: noqa: N815  (attributes are called as in grafanalib, and so as in Grafana's JSON)
"""Kinds of panel that grafanalib 0.7 lacks or writes in a form that Grafana has left behind, used like its
own."""

from __future__ import annotations

from typing import Any

import attr
from grafanalib import core as g

_attrs: Any = attr.s
"""grafanalib is not typed: a type checker must not invent constructors that lack its arguments."""


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
