# mypy: disallow-subclassing-any=False
# ruff: noqa: N815  (attributes are called as in grafanalib, and so as in Grafana's JSON)
"""Targets and annotations that grafanalib 0.7 lacks, used like its own."""

from __future__ import annotations

from typing import Any

import attr
from grafanalib import core as g

_attrs: Any = attr.s
"""grafanalib is not typed: a type checker must not invent constructors that lack its arguments."""


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
