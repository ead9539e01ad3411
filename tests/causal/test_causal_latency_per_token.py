"""Services whose calls are not streamed, so that nothing says how fast tokens come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import START, panel

from otelkit.causal import Verdict, explain
from otelkit.causal.explanation import Finding
from otelkit.causal.histogram import means
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel, ServiceSeries

STEP = 15.0
STEPS = 480
CALLS = 40
"""Per step."""
BOUNDS = np.append(0.25 * 2.0 ** np.arange(9), np.inf)
AT = 240
SPEED = "time_per_output_chunk"


def series(
    seed: int, slower: float = 1.0, longer: float = 1.0, *, name: str = "chat", streamed: bool = False
) -> ServiceSeries:
    """Answers whose usual length wanders by a third within minutes; from the middle on tokens take ``slower``
    times as long and answers have ``longer`` times as many."""
    rng = np.random.default_rng(seed)
    after = (np.arange(STEPS) >= AT)[:, None]
    wander = np.repeat(rng.normal(0, 0.35, STEPS // 4), 4)[:, None]
    tokens = 120 * np.exp(wander + rng.normal(0, 0.9, (STEPS, CALLS))) * np.where(after, longer, 1.0)
    each = 0.02 * np.where(after, slower, 1.0)
    latency = 0.3 + tokens * each * rng.lognormal(0, 0.1, tokens.shape)
    place = np.searchsorted(BOUNDS, latency)
    counts = np.array([np.bincount(row, minlength=len(BOUNDS)) for row in place], dtype=float)
    covariates = {
        "arrivals": np.full(STEPS, CALLS / STEP),
        "output_tokens": tokens.mean(axis=1),
        "input_tokens": np.full(STEPS, 500.0),
    }
    if streamed:
        covariates[SPEED] = each[:, 0]
    p99 = np.quantile(latency, 0.99, axis=1)
    return ServiceSeries(name, {0.99: p99}, STEP, BOUNDS, counts, covariates)


def found(data: Panel, parameter: str) -> Finding:
    change = ParameterChange("chat", parameter, 1, 2, START + AT * STEP, START + AT * STEP)
    (finding,) = explain(data, "chat", [change]).findings
    return finding


@pytest.mark.parametrize("seed", range(4))
def test_slower_tokens_are_seen_though_answers_vary(seed: int) -> None:
    """Broken if how long answers happen to be hides that every token came later, where both are counted."""
    finding = found(panel(series(seed, slower=1.2), step=STEP), "dtype")
    assert finding.verdict is Verdict.CAUSAL
    assert finding.effect_ratio is not None
    assert finding.effect_ratio.low < 0.2 < finding.effect_ratio.high
    assert finding.mechanism["output_length"].value < 0.1


@pytest.mark.parametrize("seed", range(4))
def test_answers_that_wander_are_no_effect(seed: int) -> None:
    """Broken if latency over tokens makes effects of nothing."""
    assert found(panel(series(seed), step=STEP), "dtype").verdict is Verdict.NO_EFFECT


@pytest.mark.parametrize("seed", range(4))
def test_longer_answers_are_not_taken_for_slower_tokens(seed: int) -> None:
    """Broken if more tokens and more seconds in proportion pass for something else."""
    finding = found(panel(series(seed, longer=3.0), step=STEP), "max_tokens")
    assert finding.verdict is Verdict.CAUSAL
    assert finding.mechanism["output_length"].value > 0.8


@pytest.mark.parametrize("seed", range(4))
def test_other_services_that_stream_stand_for_the_fleet(seed: int) -> None:
    """Broken if what slowed all services is laid to a change because the others, whose calls are streamed,
    lack a series that only this one needs."""
    others = [series(100 * n + seed, slower=1.3, name=f"other-{n}", streamed=True) for n in range(1, 5)]
    finding = found(panel(series(seed, slower=1.3), *others, step=STEP), "dtype")
    assert finding.verdict is not Verdict.CAUSAL


@pytest.mark.parametrize("seed", range(4))
def test_a_called_service_that_slowed_is_no_effect_of_a_change(seed: int) -> None:
    """Broken if latency over tokens shows the services called, and nothing takes that off."""
    below = series(100 + seed, slower=3.0, name="below")
    above = series(seed)
    assert above.bucket_counts is not None and below.bucket_counts is not None
    rng = np.random.default_rng(seed)
    # Each call waits for one of the other service, drawn from its buckets, besides what it does itself.
    added = np.zeros_like(above.bucket_counts)
    middles = np.append(0.25 * 2.0 ** (np.arange(9) - 0.5), 100.0)
    for row in range(STEPS):
        own = rng.permutation(np.repeat(middles, above.bucket_counts[row].astype(int)))
        waited = np.repeat(middles, below.bucket_counts[row].astype(int))
        jitter = np.exp(rng.uniform(-0.35, 0.35, (2, CALLS)))
        total = own * jitter[0] + waited * jitter[1]
        added[row] = np.bincount(np.searchsorted(BOUNDS, total), minlength=len(BOUNDS))
    data = panel(replace(above, bucket_counts=added), below, step=STEP, chat=("below",))
    finding = found(data, "dtype")
    assert finding.verdict is Verdict.CORRELATED_ONLY
    assert finding.effect_ratio is not None
    assert abs(finding.effect_ratio.value) < 0.1


def test_means_of_histograms() -> None:
    """Broken if an empty or unknown histogram has a mean, or a bucket counts for more than its calls."""
    counts = np.array([[1.0, 0, 0], [0, 3.0, 1.0], [0, 0, 0], [np.nan, 1.0, 0]])
    found_means = means(np.array([1.0, 4.0, np.inf]), counts)
    assert found_means[0] == pytest.approx(np.sqrt(0.5))
    assert found_means[1] == pytest.approx((3 * 2.0 + np.sqrt(4.0 * 8.0)) / 4)
    assert np.isnan(found_means[2:]).all()
