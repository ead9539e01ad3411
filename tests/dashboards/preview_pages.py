"""Pages of the preview, and what is in them."""

from __future__ import annotations

import json
import re
from datetime import UTC
from typing import Any

from dashboards_history import FilledPrometheus

from otelkit.dashboards.preview import PrometheusApi, Span, render_preview


def rendered(filled: FilledPrometheus, document: dict[str, Any], **chosen: list[str]) -> str:
    """A dashboard's page over the history."""
    with PrometheusApi(filled.url) as api:
        return render_preview(document, api, Span(filled.start, filled.end, 15), chosen=chosen, zone=UTC)


def data_of(page: str) -> dict[str, Any]:
    """What the page's scripts draw from."""
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert match
    found: dict[str, Any] = json.loads(match[1])
    return found
