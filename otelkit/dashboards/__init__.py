"""Grafana dashboards, written with grafanalib: which parameter change moved P99, and all that surrounds
it."""

from __future__ import annotations

from otelkit.dashboards.generate import documents, generate
from otelkit.dashboards.grafana import dashboard_json, dashboard_text
from otelkit.dashboards.lint import lint
from otelkit.dashboards.load import UserDashboard, load_dashboards, refused_by_grafana, uid_of
from otelkit.dashboards.queries import findings_at, unknown_metrics

__all__ = [
    "UserDashboard",
    "dashboard_json",
    "dashboard_text",
    "documents",
    "findings_at",
    "generate",
    "lint",
    "load_dashboards",
    "refused_by_grafana",
    "uid_of",
    "unknown_metrics",
]
