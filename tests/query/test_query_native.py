"""Native histograms: rules and panel from a real Prometheus that converts a scripted page on scraping."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import pytest
from live import BOUNDS, ScriptedService, prometheus, serve

from otelkit.query import PrometheusSource
from otelkit.query.native import classic_series
from otelkit.spec import parse_spec

SPEC = parse_spec("""
native: true
services: [{name: chat, latency: {buckets: [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]}}]
scrape_interval: 500ms
evaluation_interval: 1s
base_window: 5s
windows: [3s, 5s]
""")


@pytest.mark.prometheus
def test_a_native_panel_is_that_of_the_calls(prometheus_binary: Path, tmp_path: Path) -> None:
    """Counts, load and recorded P99 are there without any `_bucket` series."""
    chat = ScriptedService("chat", 3)
    with contextlib.ExitStack() as stack:
        page = stack.enter_context(serve(chat))
        address = stack.enter_context(prometheus(prometheus_binary, tmp_path, SPEC, [page]))
        start = time.time()
        while time.time() - start < 7:
            chat.call(error="timeout" if len(chat.calls) % 10 == 0 else "")
            time.sleep(0.02)
        time.sleep(1.2)
        source = stack.enter_context(PrometheusSource(address, SPEC))
        panel = source.panel(["chat"], start + 1, start + 8, 1)
        series = panel.services["chat"]
        assert source.service_names(start, start + 7) == ("chat",)
    assert source.warnings == ()
    assert series.bucket_counts is not None and series.bucket_bounds is not None
    truth = np.histogram(chat.calls, bins=[0, *series.bucket_bounds])[0]
    np.testing.assert_allclose(np.nansum(series.bucket_counts, axis=0), truth)
    assert set(series.bucket_bounds[:-1]) <= set(BOUNDS)
    late = panel.times > start + 4
    exact = np.quantile(chat.calls, 0.99)
    assert 0.5 * exact < np.nanmedian(series.quantiles[0.99][late]) < 2 * exact
    assert np.nanmean(series.covariates["output_tokens"]) == pytest.approx(20)
    assert np.nanmean(series.covariates["errors"]) == pytest.approx(
        np.nanmean(series.covariates["completions"]) / 10, rel=0.3
    )


def test_bounds_that_a_coarser_sample_hides_are_left_out() -> None:
    """A native histogram that halves its resolution must not look like one whose calls vanished."""
    fine = {"count": "6", "sum": "9", "buckets": [[0, "1", "2", "2"], [0, "2", "4", "3"], [0, "4", "8", "1"]]}
    coarse = {"count": "8", "sum": "9", "buckets": [[0, "1", "4", "7"], [0, "4", "16", "1"]]}
    found = classic_series({"__name__": "x"}, [(1.0, fine), (2.0, coarse)])
    values = {series.labels.get("le", series.name): series.values.tolist() for series in found}
    assert values == {"4.0": [5, 7], "16.0": [6, 8], "+Inf": [6, 8], "x_count": [6, 8], "x_sum": [9, 9]}
