"""Effects of several times the latency, of which no path's proportions say all."""

from __future__ import annotations

import numpy as np
import pytest

from otelkit.causal import pooling

LEVELS = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SHARES = {"p50": 0.2, "p95": 0.1, "p99": 0.08}
SECONDS = {"p50": 1.0, "p95": 2.0, "p99": 2.5}
"""Latency of such calls before the change."""
PARTS = ("time_per_output_chunk", "output_tokens", "time_to_first_chunk")


def noise(number: int, quantiles: int) -> np.ndarray:
    """Of one step, shape (1, K, K): quantiles err together, the parts of a call are known well."""
    deviations = np.where(np.arange(number) < quantiles, 0.25, 0.05)
    correlation = np.full((number, number), 0.85)
    correlation[quantiles:] = correlation[:, quantiles:] = 0.0
    np.fill_diagonal(correlation, 1.0)
    return (correlation * np.outer(deviations, deviations))[None]


@pytest.mark.parametrize("wait", [3.0, 10.0, 20.0])
def test_seconds_that_no_part_of_a_call_shows_count(wait: float) -> None:
    """Broken if latency that rises many times over is taken for noise because neither the first token nor the
    tokens came later: checks of the answer, or a wait before the call, are in neither."""
    model = pooling.model(LEVELS, PARTS, SHARES, {})
    made = [np.log1p(wait / SECONDS[name]) for name in LEVELS]
    found = pooling.weigh(model, np.array([[*made, 0.0, 0.0, 0.0]]), noise(6, 3))
    assert found.log_bayes[0] > 10
    assert found.value[0] == pytest.approx(made[-1], rel=0.5)


@pytest.mark.parametrize("wait", [10.0, 20.0])
def test_a_large_wait_is_no_effect_in_proportion(wait: float) -> None:
    """Broken if what P99 was seen to do is not believed because the median, of which a wait makes more, did
    not go along in proportion."""
    model = pooling.model(LEVELS, (), SHARES, {})
    made = [np.log1p(wait / SECONDS[name]) for name in LEVELS]
    found = pooling.weigh(model, np.array([made]), noise(3, 3))
    assert found.value[0] == pytest.approx(made[-1], rel=0.1)
