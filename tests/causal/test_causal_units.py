"""Covariates in another unit than asked for: read as they must have been meant, and said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from planted import START, change, panel
from test_causal_latency_per_token import AT, STEP, STEPS, series

from otelkit.causal import Explanation, explain, units
from otelkit.query.panel import Panel, ServiceSeries

Misreading = Callable[[ServiceSeries], ServiceSeries]


def right(seed: int) -> Panel:
    """A service whose tokens become slower, with every covariate; calls by step vary as they do."""
    one = series(seed, slower=1.3, streamed=True)
    rng = np.random.default_rng(seed)
    counts = one.bucket_counts
    assert counts is not None
    counts = rng.binomial(counts.astype(int), rng.uniform(0.5, 1.0, (STEPS, 1))).astype(float)
    ended = counts.sum(axis=1) / STEP
    first = 0.3 * rng.lognormal(0, 0.02, STEPS)
    more = {"completions": ended, "arrivals": ended, "time_to_first_chunk": first}
    return panel(replace(one, bucket_counts=counts, covariates={**one.covariates, **more}), step=STEP)


def misread(data: Panel, wrong: Misreading) -> Panel:
    return replace(data, services={name: wrong(one) for name, one in data.services.items()})


def answers(data: Panel) -> tuple[Explanation, list[tuple[object, float]]]:
    said = explain(data, "chat", [change(AT * STEP, "dtype"), change(AT * STEP / 2, "seed")])
    effects = [(f.verdict, f.effect_ratio.value if f.effect_ratio else 0.0) for f in said.findings]
    return said, effects


def times(factor: float, *names: str) -> Misreading:
    return lambda one: replace(
        one, covariates={n: v * factor if n in names else v for n, v in one.covariates.items()}
    )


def summed(*names: str) -> Misreading:
    """The tokens of all calls."""
    return lambda one: replace(
        one,
        covariates={
            n: v * one.covariates["completions"] if n in names else v for n, v in one.covariates.items()
        },
    )


def without_buckets(one: ServiceSeries) -> ServiceSeries:
    return replace(one, bucket_bounds=None, bucket_counts=None)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        (times(1e3, "time_per_output_chunk"), ["time_per_output_chunk"]),
        (times(1e6, "time_per_output_chunk"), ["time_per_output_chunk"]),
        (times(1e9, "time_to_first_chunk"), ["time_to_first_chunk"]),
        (
            times(1e3, "time_to_first_chunk", "time_per_output_chunk"),
            ["time_per_output_chunk", "time_to_first_chunk"],
        ),
        (summed("output_tokens"), ["output_tokens"]),
        (summed("input_tokens", "output_tokens"), ["input_tokens", "output_tokens"]),
    ],
)
def test_wrong_units_change_no_answer(wrong: Misreading, names: list[str]) -> None:
    """Broken if milliseconds pass for seconds, or tokens of all calls for those of one, unsaid."""
    data = right(1)
    expected, effects = answers(data)
    assert not any("give" in warning for warning in expected.warnings)
    found, same = answers(misread(data, wrong))
    assert [v for v, _ in same] == [v for v, _ in effects]
    assert [e for _, e in same] == pytest.approx([e for _, e in effects], abs=0.01)
    said = [warning for warning in found.warnings if "give" in warning]
    assert [warning.split()[0] for warning in said] == names


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_told_without_buckets_too(seed: int) -> None:
    """Broken if only bucket counts say how many calls there were."""
    data = misread(misread(right(seed), summed("output_tokens")), without_buckets)
    found, _ = answers(data)
    assert any(warning.startswith("output_tokens") for warning in found.warnings)


@pytest.mark.parametrize("seed", range(20))
def test_a_mean_is_no_sum(seed: int) -> None:
    """Broken if a mean per call counts as a sum by chance, above all where calls hardly vary."""
    rng = np.random.default_rng(seed)
    tokens = rng.lognormal(5, 0.4, 300)
    for calls in (np.full(300, 40.0), 40.0 + (rng.random(300) < 0.1), rng.poisson(3.0, 300).astype(float)):
        kept, said = units.as_meant({"output_tokens": tokens}, calls, 5.0)
        assert not said
        assert np.array_equal(kept["output_tokens"], tokens)


def test_what_is_unknown_is_not_read_otherwise() -> None:
    """Broken if a gap, an empty series or an unknown P99 makes a unit wrong."""
    gaps = {"output_tokens": np.full(100, np.nan), "time_to_first_chunk": np.full(100, 500.0)}
    kept, said = units.as_meant(gaps, np.arange(100.0), float("nan"))
    assert not said
    assert kept["time_to_first_chunk"][0] == 500.0


def test_a_wait_that_no_unit_explains_is_left_as_it_is() -> None:
    """Broken if nonsense is divided until it fits."""
    _, said = units.as_meant({"time_to_first_chunk": np.full(100, 1e30)}, np.ones(100), START)
    assert not said


def test_an_overload_is_no_other_unit() -> None:
    """Broken if data of an incident is refused because P99 of all its calls is far above the usual."""
    bounds = np.append(0.25 * 2.0 ** np.arange(14), np.inf)
    usual = np.bincount(np.full(40, 2), minlength=len(bounds)).astype(float)
    overload = np.bincount(np.full(40, 12), minlength=len(bounds)).astype(float)
    counts = np.where((np.arange(STEPS) >= STEPS - 30)[:, None], overload, usual)
    p99 = np.where(counts[:, 12] > 0, 1000.0, 1.0)
    data = panel(ServiceSeries("chat", {0.99: p99}, STEP, bounds, counts, {}), step=STEP)
    assert explain(data, "chat", [change(AT * STEP)]).findings
