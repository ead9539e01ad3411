"""What monitoring shows of a service, and what a change really did."""

from __future__ import annotations

import numpy as np

from benchmarks.causal.world import trailing_quantiles
from benchmarks.causal_elsewhere.services import SECONDS, Array, Calls, Service
from otelkit.query.panel import ServiceSeries

STEP = 15.0
STEPS = int(SECONDS / STEP)
HORIZON = 600.0
"""Seconds after a change over which its true effect on P99 is taken."""
FEWEST_CALLS = 5


def scraped(service: Service, calls: Calls, rng: np.random.Generator, faults: bool) -> ServiceSeries:
    """Counts by bucket, quantiles over a trailing window, and covariates; ``faults`` has scrapes missing,
    processes restarted and samples late."""
    bounds = service.bounds
    shown = calls.served & (calls.end < SECONDS)
    row = (calls.end[shown] / STEP).astype(int)
    counts = np.zeros((STEPS, len(bounds) + 1))
    np.add.at(counts, (row, np.searchsorted(bounds, calls.latency[shown])), 1)
    ended = counts.sum(axis=1)
    begun = np.bincount((calls.at / STEP).astype(int), minlength=STEPS)[:STEPS]
    failed = ~calls.served & (calls.end < SECONDS)
    errors = np.bincount((calls.end[failed] / STEP).astype(int), minlength=STEPS)[:STEPS]

    def mean(values: Array) -> Array:
        with np.errstate(invalid="ignore"):
            return np.where(
                ended > 0, np.bincount(row, weights=values[shown], minlength=STEPS) / ended, np.nan
            )

    covariates = {
        "arrivals": begun / STEP,
        "completions": ended / STEP,
        "errors": errors / STEP,
        "input_tokens": mean(calls.prompts),
        "output_tokens": mean(calls.outputs),
    }
    if not service.bare:
        covariates["time_to_first_chunk"] = mean(calls.first_token)
        if not service.whole:
            covariates["time_per_output_chunk"] = mean(calls.per_token)
    if faults:
        counts = damaged(counts, covariates, rng)
    with_infinity = np.append(bounds, np.inf)
    return ServiceSeries(
        service.name,
        trailing_quantiles(with_infinity, counts, int(service.window / STEP)),
        float(service.window),
        with_infinity,
        counts,
        covariates,
    )


def damaged(counts: Array, covariates: dict[str, Array], rng: np.random.Generator) -> Array:
    """The counts with faults; the covariates get theirs in place."""
    for _ in range(rng.integers(3, 8)):
        first = rng.integers(0, STEPS - 15)
        missing = slice(first, first + rng.integers(1, 10))
        for values in (counts, *covariates.values()):
            values[missing] = np.nan
    for _ in range(rng.integers(1, 3)):
        # A process restarts: part of a step's calls were counted by the one that is gone.
        counts[rng.integers(0, STEPS)] *= rng.uniform(0.1, 0.7)
    counts = np.floor(counts)
    for _ in range(rng.integers(1, 4)):
        # A sample that comes late shows its calls in the next step.
        row = rng.integers(0, STEPS - 1)
        moved = np.floor(counts[row] * rng.uniform(0.2, 0.8))
        if np.isfinite(moved).all() and np.isfinite(counts[row + 1]).all():
            counts[row] -= moved
            counts[row + 1] += moved
    return counts


def truth(calls: Calls, without: Calls, at: float) -> tuple[float, float, float]:
    """Log ratio of P99 with a change made at ``at`` and without it, difference and P99 with it in seconds; of
    the calls that end within the horizon."""

    def p99(of: Calls) -> float:
        inside = of.served & (of.end > at) & (of.end <= min(at + HORIZON, SECONDS))
        return float(np.quantile(of.latency[inside], 0.99)) if inside.sum() > FEWEST_CALLS else np.nan

    made, left = p99(calls), p99(without)
    if not np.isfinite([made, left]).all():
        return 0.0, 0.0, made
    return float(np.log(made / left)), made - left, made
