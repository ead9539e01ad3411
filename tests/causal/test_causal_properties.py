"""What must hold whatever the data: units, order and time do not matter, and a null stays a null."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import START, Service, change, panel, series, switched
from scipy import special

from otelkit.causal import Verdict, explain, pooling
from otelkit.causal import cells as cell_module
from otelkit.causal.credit import drift_score
from otelkit.causal.engine import control_names, prepare
from otelkit.causal.mediators import through_errors
from otelkit.causal.placebo import LEAST_P, RARER, Null
from otelkit.causal.windows import windows
from otelkit.query.panel import Panel, ServiceSeries

AT, SECONDS, STEP = 3600.0, 6000, 15.0


def steady(**fields: object) -> Service:
    return Service(**{"rate": lambda t: 4.0, "slots": 12, "tokens": lambda t: 40.0, **fields})  # type: ignore[arg-type]


def slower(**fields: object) -> Panel:
    """Tokens become 40 % slower at ``AT``."""
    service = steady(seconds_per_token=switched((AT, 0.04), first=0.028), **fields)
    return panel(series(service, SECONDS, 1, step=STEP), step=STEP)


def test_shifted_in_time() -> None:
    """Broken if the answer depends on when the data was taken."""
    data, later = slower(), 1_000_000.0
    moved = replace(data, times=data.times + later)
    shifted = replace(change(AT), first_seen=START + AT + later, last_seen=START + AT + later)
    first, second = explain(data, "chat", [change(AT)]), explain(moved, "chat", [shifted])
    assert first.findings[0].verdict is second.findings[0].verdict is Verdict.CAUSAL
    assert first.findings[0].effect_ratio == second.findings[0].effect_ratio


def test_latency_and_time_in_another_unit() -> None:
    """Broken if the relative effect changes when all that is measured in time is scaled alike."""
    data, unit = slower(), 0.5

    def scaled(s: ServiceSeries) -> ServiceSeries:
        assert s.bucket_bounds is not None
        return replace(
            s, quantiles={q: v * unit for q, v in s.quantiles.items()}, bucket_bounds=s.bucket_bounds * unit
        )

    first = explain(data, "chat", [change(AT)]).findings[0]
    half = replace(data, services={"chat": scaled(data.services["chat"])})
    second = explain(half, "chat", [change(AT)]).findings[0]
    assert first.verdict is second.verdict is Verdict.CAUSAL
    assert first.effect_ratio is not None and second.effect_ratio is not None
    assert second.effect_ratio.value == pytest.approx(first.effect_ratio.value, rel=0.1)


def test_revert_is_credited_both_ways() -> None:
    """Broken if a change that takes another back is judged without it: what lies between is one effect."""
    service = steady(
        seconds_per_token=switched((AT, 0.033), (AT + 420, 0.028), first=0.028), rate=lambda t: 2.0
    )
    there, back = change(AT, "model", "a", "b"), change(AT + 420, "model", "b", "a")
    for seed in range(2):
        result = explain(panel(series(service, SECONDS, seed, step=STEP), step=STEP), "chat", [there, back])
        assert [f.verdict for f in result.findings] == [Verdict.CAUSAL] * 2
        first, second = (f.effect_ratio for f in result.findings)
        assert first is not None and second is not None
        assert first.value == pytest.approx(1 / (1 + second.value) - 1)


def test_null_p_values_are_uniform() -> None:
    """Broken if changes that do nothing get small p-values more often than they should."""
    p_values = []
    for seed in range(6):
        data = panel(series(steady(tokens_spread=0.6), SECONDS, 50 + seed, step=STEP), step=STEP)
        idle = [change(at, f"idle_{at:g}") for at in (1500.0, 2700.0, 3900.0, 5000.0)]
        findings = explain(data, "chat", idle).findings
        assert all(f.verdict is not Verdict.CAUSAL for f in findings)
        p_values += [f.p_value for f in findings if f.p_value is not None]
    assert len(p_values) == 24
    assert np.mean(np.array(p_values) < 0.05) <= 4 / 24
    assert np.mean(np.array(p_values) > 0.5) >= 0.25


def test_drift_is_told_from_a_step() -> None:
    """Broken if a slow rise across an idle change looks like a step to it, or a step like a rise."""
    rising = steady(seconds_per_token=lambda t: 0.028 * (1 + 0.5 * np.clip((t - 2700) / 2400, 0, 1)))
    odds = {}
    for name, data in (
        ("drift", panel(series(rising, SECONDS, 3, step=STEP), step=STEP)),
        ("step", slower()),
    ):
        prepared = prepare(windows(data, "chat", [change(AT)])[0], "chat")
        assert not isinstance(prepared, str)
        place = prepared.groups[0].place
        step = float(prepared.witness.weigh(np.array([place])).log_bayes[0])
        odds[name] = drift_score(prepared.witness, place) - step
    assert odds["drift"] > odds["step"] + 5


def test_controls_named_by_the_panel() -> None:
    """Broken if services that somebody excluded as controls, or callers and called ones, are used as such."""
    names = ("chat", "search", "code", "voice")
    one = series(steady(), 600, 0, step=STEP)
    data = Panel(START + STEP * (1 + np.arange(40)), STEP, {n: replace(one, service=n) for n in names})
    assert control_names(data, "chat") == ["code", "search", "voice"]
    called = replace(data, dependencies={"chat": ("search",), "voice": ("chat",)})
    assert control_names(called, "chat") == ["code"]
    assert control_names(replace(data, controls={"chat": ("voice", "gone")}), "chat") == ["voice"]


def test_many_hypotheses_weighed_at_once_are_those_weighed_alone() -> None:
    """Broken if the joint factorisation differs from the textbook formula."""
    rng = np.random.default_rng(0)
    levels = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    shape = pooling.model(levels, ["output_tokens"], dict.fromkeys(levels, 0.2), {})
    effects = rng.normal(0, 0.1, (70, 4))
    root = rng.normal(0, 0.1, (70, 4, 4))
    noise = root @ root.transpose(0, 2, 1) + 0.002 * np.eye(4)
    found = pooling.weigh(shape, effects, noise)
    total = shape.priors[5] + noise[9]
    shared, size = shape.target_priors
    assert found.means[9, 5] == pytest.approx(shared[5] @ np.linalg.solve(total, effects[9]))
    spread = size[5] - shared[5] @ np.linalg.solve(total, shared[5])
    assert found.deviations[9, 5] == pytest.approx(
        np.hypot(np.sqrt(spread), pooling.INEXACT * abs(found.means[9, 5]))
    )


def test_slower_tokens_do_not_make_p99_better() -> None:
    """Broken if a queue that may or may not be there turns the effect of clearly slower tokens round."""
    levels = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    shape = pooling.model(levels, ["time_per_output_chunk"], dict.fromkeys(levels, 0.1), {})
    # Queues move all quantiles alike, by 0.4 more or less, so P99 tells little; tokens are 50 % slower.
    noise = 0.4**2 * np.pad(np.ones((3, 3)), (0, 1)) + np.diag([0.15, 0.15, 0.15, 0.03]) ** 2
    found = pooling.weigh(shape, np.array([[0.4, 0.2, 0.1, 0.4]]), noise[None])
    assert found.log_bayes[0] > 10
    positive = special.ndtr(found.means[0] / found.deviations[0])
    assert found.posterior[0] @ positive > 0.96


def test_few_placebos_do_not_make_a_weak_claim_certain() -> None:
    """Broken if dates that were calm by chance give a p-value that the claim itself can't have."""
    calm = Null(scores=np.full(40, -3.0), effects=np.zeros(40), threshold=-3.0, excess=0.2)
    assert calm.p_value(1.0) == pytest.approx(np.exp(-1.0) / RARER)
    assert calm.p_value(9.0) == LEAST_P


@pytest.mark.parametrize(("failing", "part"), [(0.3, True), (0.02, False)], ids=["more errors", "as many"])
def test_part_that_errors_make(failing: float, part: bool) -> None:
    """Broken if an effect through failing calls is not put down to them, or one that is not is."""
    rng = np.random.default_rng(0)
    data = panel(series(steady(), SECONDS, 1, step=STEP), step=STEP)
    cells = cell_module.build(data, data.services["chat"])
    n = len(cells.times)
    share = np.where(np.arange(n) < n // 2, rng.uniform(0, 0.04, n), failing)
    failures = replace(cells, covariates={**cells.covariates, "errors": share * cells.arrivals})
    found = through_errors(failures, 2.0 * share + rng.normal(0, 0.01, n), n / 2, 20)
    assert (found is not None) == part
    if found is not None:
        assert found.effect == pytest.approx(2.0 * (failing - 0.02), abs=0.15)
