"""Pictures of a dashboard without a Grafana: its queries run against a Prometheus, its panels drawn by
ECharts."""

from __future__ import annotations

from otelkit.dashboards.preview.fetch import Span
from otelkit.dashboards.preview.page import render_preview
from otelkit.dashboards.preview.picture import find_browser, take_picture
from otelkit.dashboards.preview.prometheus import PrometheusApi

__all__ = ["PrometheusApi", "Span", "find_browser", "render_preview", "take_picture"]
