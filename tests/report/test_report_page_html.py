"""The HTML page as text: what it says, and what it gives its charts to draw."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from html import unescape
from typing import Any

import numpy as np
import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation
from otelkit.query.panel import Panel
from otelkit.report import render_page
from otelkit.report.page_data import POINTS_DRAWN, curves
from otelkit.report.wording import Clock


def sample_page(**more: Any) -> str:
    """The sample's page; keywords replace fields of the explanation."""
    return render_page(sample.sample_explanation(**more), sample.sample_panel(), zone=UTC)


def test_nothing_to_show_is_explained() -> None:
    """An empty chart must say whether the service, the quantile or the samples are missing."""
    series = sample.sample_panel().services["chat"]
    times = sample.sample_panel().times
    empty = Explanation("chat", math.nan, math.nan, ())
    nan = replace(series, quantiles={0.99: np.full(sample.STEPS, np.nan)})
    cases = {
        "holds no series of service 'chat'; services in it: search": Panel(times, 1.0, {"search": series}),
        "holds no points in this span": Panel(times[:0], 1.0, {"chat": series}),
        "holds no P99 of service 'chat'; quantiles in it: P50": Panel(
            times, 1.0, {"chat": replace(series, quantiles={0.5: series.quantiles[0.5]})}
        ),
        "All 330 points of P99 in this span are empty": Panel(times, 1.0, {"chat": nan}),
    }
    for message, panel in cases.items():
        html = unescape(render_page(empty, panel, zone=UTC))
        assert message in html
        assert "No parameter change of this service was seen" in html


def test_same_input_same_bytes() -> None:
    """A page that changes by itself can't be compared or committed."""
    assert sample_page() == sample_page()


def test_times_are_local_with_the_offset_stated() -> None:
    """A time without its offset sends two people to two different minutes of the logs."""
    html = render_page(sample.sample_explanation(), sample.sample_panel(), zone=timezone(timedelta(hours=2)))
    assert "all times UTC+02:00" in html
    assert ">16:01:52</time>" in html
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    assert data["marks"][0]["from"] == (sample.START + 38 + 7200) * 1000


def test_load_is_drawn_over_the_window_of_p99() -> None:
    """Calls of single seconds are so noisy that a surge of half their height can't be seen."""
    data = curves(sample.sample_explanation(), sample.sample_panel(), Clock(0, 1, UTC))
    assert data is not None
    arrivals = sample.sample_panel().services["chat"].covariates["arrivals"]
    assert data["loadName"] == "calls begun per second, mean over 30 s"
    assert data["load"][65] == pytest.approx(arrivals[36:66].mean(), rel=1e-3)
    assert data["load"][5] == pytest.approx(arrivals[:6].mean(), rel=1e-3)
    assert data["load"][75] is None


def test_long_spans_are_thinned_but_keep_peaks_and_gaps() -> None:
    """Thirty days at 15 s must open in a browser, and one bad minute in them must still be seen."""
    count = 30 * 86400 // 15
    p99 = np.full(count, 0.4)
    p99[100_001] = 3.0
    p99[50_000:50_200] = np.nan
    series = replace(sample.sample_panel().services["chat"], quantiles={0.99: p99}, covariates={})
    panel = Panel(sample.START + 15.0 * np.arange(count), 15.0, {"chat": series})
    explanation = Explanation("chat", sample.START, sample.START + 15.0 * count, ())
    drawn = curves(explanation, panel, Clock(explanation.start, explanation.end, UTC))
    assert drawn is not None
    assert len(drawn["t"]) <= POINTS_DRAWN
    assert 3000.0 in drawn["p99"]
    assert None in drawn["p99"]


def test_changes_far_outside_the_data_do_not_squeeze_the_chart() -> None:
    """One change of last week in the list must not turn today's curve into a vertical line."""
    findings = (sample.finding(at=100), sample.finding("top_k", at=-86400))
    html = sample_page(findings=findings)
    data = json.loads(re.search(r'id="data">(.*?)</script>', html, re.S)[1])  # type: ignore[index]
    assert [mark["parameter"] for mark in data["marks"]] == ["temperature"]
    assert "1 change lies outside the data and is not drawn." in html
    assert 'id="row-1"' in html and 'id="row-2"' in html


def test_counterfactual_on_another_grid_is_refused() -> None:
    """Curves of different lengths drawn on one axis would shift the counterfactual in time, silently."""
    with pytest.raises(ValueError, match="counterfactual has 3 points, the panel has 330"):
        sample_page(counterfactual=np.ones(3))
