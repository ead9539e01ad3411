"""Grafana dashboards, written with grafanalib: which parameter change moved P99, and all that surrounds
it."""

from __future__ import annotations

from otelkit.dashboards.generate import documents, generate
from otelkit.dashboards.grafana import dashboard_json, dashboard_text
from otelkit.dashboards.lint import lint, unknown_metrics
from otelkit.dashboards.load import UserDashboard, load_dashboards

__all__ = [
    "UserDashboard",
    "dashboard_json",
    "dashboard_text",
    "documents",
    "generate",
    "lint",
    "load_dashboards",
    "unknown_metrics",
]
