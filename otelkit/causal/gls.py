"""Generalised least squares under autocorrelated noise, and the scan of a step over all onsets.

Latency in one minute resembles that of the minute before; treated as independent, intervals come out three
times too narrow. The noise of a cell is modelled as a part of its own (larger where fewer calls ended) plus a
part that fades with time; how much of each is decided by restricted likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import linalg

from otelkit.causal.design import Regressors
from otelkit.query.panel import BoolArray, FloatArray

STRENGTHS: Final = (0.02, 0.1, 0.3, 1.0, 3.0)
"""Variance of the fading part relative to a cell's own."""
MEMORIES: Final = (30.0, 120.0, 600.0)
"""Seconds over which the fading part falls to 1/e."""


@dataclass(frozen=True)
class Fit:
    """Regression of all channels on one set of columns with one noise model."""

    regressors: Regressors
    whiten: FloatArray
    """Maps M known cells to independent noise of unit variance, shape (M, M)."""
    rows: BoolArray
    """Which of the N cells are known, shape (N,), boolean."""
    basis: FloatArray
    """Orthonormal basis of the whitened columns, shape (M, P)."""
    residuals: FloatArray
    """Whitened residuals, shape (M, K)."""
    covariance: FloatArray
    """Noise covariance between channels for one whitened cell, shape (K, K)."""
    coefficients: FloatArray
    """Shape (P, K)."""
    precision_inverse: FloatArray
    """Covariance of the coefficients for noise of unit variance, shape (P, P)."""
    degrees: float


def noise_matrix(times: FloatArray, calls: FloatArray, strength: float, memory: float) -> FloatArray:
    """Covariance of the noise of cells, up to scale; shape (M, M)."""
    own = np.median(calls) / np.maximum(calls, 1.0)
    fading = np.exp(-np.abs(times[:, None] - times[None, :]) / memory)
    matrix: FloatArray = strength * fading + np.diag(own)
    return matrix


def fit(channels: FloatArray, times: FloatArray, calls: FloatArray, regressors: Regressors) -> Fit:
    """Fit all channels, choosing the noise model by restricted likelihood.

    Cells with an unknown channel are left out.
    """
    rows = np.isfinite(channels).all(axis=1) & np.isfinite(calls) & (calls > 0)
    best: tuple[float, Fit] | None = None
    for memory in MEMORIES:
        for strength in STRENGTHS:
            matrix = noise_matrix(times[rows], calls[rows], strength, memory)
            lower = linalg.cholesky(matrix, lower=True)
            whiten = linalg.solve_triangular(lower, np.eye(len(matrix)), lower=True)
            candidate, likelihood = _solve(channels, rows, whiten, regressors)
            likelihood -= float(np.log(np.diag(lower)).sum())
            if best is None or likelihood > best[0]:
                best = (likelihood, candidate)
    assert best is not None
    return best[1]


def refit(fitted: Fit, channels: FloatArray, regressors: Regressors) -> Fit:
    """Fit other columns under a noise model that is already chosen."""
    return _solve(channels, fitted.rows, fitted.whiten, regressors)[0]


def _solve(
    channels: FloatArray, rows: BoolArray, whiten: FloatArray, regressors: Regressors
) -> tuple[Fit, float]:
    """One regression, and its restricted likelihood but for the noise model's own determinant."""
    y, x = whiten @ channels[rows], whiten @ regressors.columns[rows]
    ridge = _ridge(regressors, channels[rows].std(axis=0))
    # The prior enters as rows of pseudo-observations, so that one QR serves everything that follows.
    q, r = np.linalg.qr(np.vstack([x, np.diag(np.sqrt(ridge))]))
    basis = q[: len(y)]
    coefficients = linalg.solve_triangular(r, basis.T @ y)
    residuals = y - x @ coefficients
    degrees = max(len(y) - float((basis**2).sum()), 1.0)
    covariance = residuals.T @ residuals / degrees
    inverse = linalg.solve_triangular(r, np.eye(len(r)))
    spread = np.maximum(np.diag(covariance), 1e-12)
    # Averaged over the channels: they share the noise model but are not independent of each other.
    likelihood = -float(np.log(np.abs(np.diag(r))).sum()) - 0.5 * degrees * float(np.log(spread).mean())
    floor = 1e-6 * np.eye(len(covariance)) * max(float(np.trace(covariance)) / len(covariance), 1e-9)
    result = Fit(
        regressors=regressors,
        whiten=whiten,
        rows=rows,
        basis=basis,
        residuals=residuals,
        covariance=covariance + floor,
        coefficients=coefficients,
        precision_inverse=inverse @ inverse.T,
        degrees=degrees,
    )
    return result, likelihood


def _ridge(regressors: Regressors, scale: FloatArray) -> FloatArray:
    """Prior precision of the coefficients relative to noise variance; a small floor keeps the system
    solvable."""
    noise = float(np.median(scale)) ** 2 * 0.5 + 1e-8
    with np.errstate(divide="ignore"):
        precision: FloatArray = noise / regressors.prior_deviation**2
    return np.maximum(precision, 1e-9)


def scan(fitted: Fit, steps: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Effect of one more step, for each of many candidate steps.

    Args:
        fitted: the regression without these steps.
        steps: candidate columns, shape (N, S).

    Returns:
        Effects on each channel, shape (S, K), and their variance for noise of unit variance, shape (S,)
        (infinite where a step can't be told from what the regression already holds).
    """
    columns = fitted.whiten @ steps[fitted.rows]
    size = (columns**2).sum(axis=0) - ((fitted.basis.T @ columns) ** 2).sum(axis=0)
    usable = size > 1e-3 * np.maximum((columns**2).sum(axis=0), 1.0)
    safe = np.where(usable, size, 1.0)
    effects = np.where(usable[:, None], (columns.T @ fitted.residuals) / safe[:, None], 0.0)
    variance = np.where(usable, 1.0 / safe, np.inf)
    return effects, variance
