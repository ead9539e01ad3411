"""What grafanalib 0.7 lacks for a current Grafana, in one place and in grafanalib's own manner.

The classes are used like grafanalib's; :func:`dashboard_json` turns any grafanalib dashboard, ours or a
user's, into what Grafana 13 would itself write for the same dashboard.
"""

from __future__ import annotations

from otelkit.dashboards.grafana.document import (
    SCHEMA_VERSION,
    dashboard_json,
    dashboard_text,
    panels_of,
)
from otelkit.dashboards.grafana.panels import Heatmap, NodeGraph, Table, TimeSeries, Trend
from otelkit.dashboards.grafana.place import place
from otelkit.dashboards.grafana.queries import PrometheusAnnotation, Target, TempoTarget

__all__ = [
    "SCHEMA_VERSION",
    "Heatmap",
    "NodeGraph",
    "PrometheusAnnotation",
    "Table",
    "Target",
    "TempoTarget",
    "TimeSeries",
    "Trend",
    "dashboard_json",
    "dashboard_text",
    "panels_of",
    "place",
]
