"""One channel made ready to be asked what a step at any moment would have done to it.

For the Heaviside column of each cell (0 before it, 1 from it on) it keeps the inner product, under the noise,
with the data, load and the other regressors taken off. With those of every column with every other one
(``heaviside``) steps, pulses and scans over all onsets are then look-ups in tables (``lookups``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal import noise as noise_module
from otelkit.causal.design import Regressors, joined
from otelkit.causal.noise import Factored, Noise
from otelkit.query.panel import FloatArray

LEAST_DEVIATION: Final = 0.02
"""Deviation of a usual cell (log latency) below which no series is believed to be that quiet for long."""


@dataclass(frozen=True)
class Regression:
    """What else moves one channel of one service on N cells, and its noise."""

    variance: float
    """Noise variance of a usual cell's own part."""
    noise: Noise
    coefficients: FloatArray
    """Of the regressors, shape (P,)."""
    adjusted: FloatArray
    """The data without what the regressors explain, shape (N,); NaN where unknown."""


@dataclass(frozen=True)
class Channel:
    """One channel of one service on N cells."""

    response: FloatArray
    """Inner products of Heaviside columns with the data, shape (N,), over the noise variance."""
    regression: Regression
    functional: Functional
    """By which another series answers as the data did."""


@dataclass(frozen=True)
class Functional:
    """How a series of N cells becomes inner products with Heaviside columns, regressors taken off."""

    factored: Factored
    columns: FloatArray
    """Regressors, shape (N, P)."""
    cross: FloatArray
    """Inner products of Heaviside columns with them, shape (N, P)."""
    normal: FloatArray
    """Covariance of their coefficients, shape (P, P)."""

    def response(self, series: FloatArray) -> FloatArray:
        """Inner products of Heaviside columns with M series, shape (N, M) as given; not over the variance."""
        solved = self.factored.solve(series)
        result: FloatArray = np.cumsum(solved[::-1], axis=0)[::-1] - self.cross @ (
            self.normal @ (self.columns.T @ solved)
        )
        return result


def build(
    values: FloatArray,
    regressors: Regressors,
    calls: FloatArray,
    cell_seconds: float,
    suspected: Regressors | None = None,
    alike: Noise | None = None,
) -> Channel | None:
    """Fit one channel.

    Args:
        values: log latency (or another log series), shape (N,), NaN where unknown.
        regressors: what else moves it.
        calls: calls in each cell; a cell's own noise falls with their number.
        cell_seconds: width of a cell.
        suspected: steps that may be there; they are kept out of the noise, not out of the data.
        alike: the noise of a channel like this one.

    Returns:
        None where the channel has too little to say.
    """
    known = np.isfinite(values) & np.isfinite(calls) & (calls > 0)
    if known.sum() < max(10, len(regressors.names) + 4):
        return None
    usual = float(np.median(calls[known]))
    weights = np.where(known, np.where(known, calls, 0.0) / usual, 0.0)
    data = np.where(known, values, 0.0)
    data = np.where(known, data - float(np.median(data[known])), 0.0)
    spread = _own_variance(values)
    if spread <= 0:
        return None
    columns = regressors.columns
    ridge = np.maximum(spread / regressors.prior_deviation**2, 1e-9)
    with_steps = joined(regressors, suspected) if suspected is not None else regressors
    noise, variance = noise_module.choose(
        data,
        with_steps.columns,
        np.maximum(spread / with_steps.prior_deviation**2, 1e-9),
        weights,
        cell_seconds,
        alike,
    )
    variance = max(variance, LEAST_DEVIATION**2)
    factored = noise_module.factor(noise, weights, cell_seconds)
    solved_columns = factored.solve(columns)
    normal = np.linalg.inv(columns.T @ solved_columns + np.diag(ridge))
    coefficients = normal @ (solved_columns.T @ data)
    adjusted = data - columns @ coefficients
    cross = np.cumsum(solved_columns[::-1], axis=0)[::-1]
    functional = Functional(factored, columns, cross, normal)
    response = functional.response(adjusted[:, None])[:, 0]
    regression = Regression(variance, noise, coefficients, np.where(known, adjusted, np.nan))
    return Channel(response / variance, regression, functional)


def _own_variance(values: FloatArray) -> float:
    """Rough variance from differences of neighbours."""
    known = values[np.isfinite(values)]
    steps = np.diff(known)
    return float(np.mean(np.minimum(steps**2, 9 * np.median(steps**2) + 1e-12)) / 2) if len(steps) else 0.0
