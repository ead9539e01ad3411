"""Series and changes for the causal engine, from Prometheus or from /metrics pages scraped in process."""

from __future__ import annotations

from otelkit.query.panel import Panel, ServiceSeries
from otelkit.query.prometheus import PrometheusSource
from otelkit.query.scrape import ScrapeSource
from otelkit.query.source import Source

__all__ = ["Panel", "PrometheusSource", "ScrapeSource", "ServiceSeries", "Source"]
