"""The noise of cells: a part of their own and two parts that fade with time, fast and slowly.

Latency in one minute resembles that of the minute before; treated as independent, intervals come out three
times too narrow. How strong each part is, restricted likelihood decides. The two fading parts are Markov
processes, so that all that is needed of their covariance matrix comes from banded systems in time
proportional to the number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy.linalg import lapack

from otelkit.query.panel import FloatArray

STRENGTHS: Final = (0.01, 0.1, 0.5, 2.0, 8.0)
FAST_MEMORIES: Final = (45.0, 150.0)
SLOW_MEMORIES: Final = (600.0, 2400.0)
ROUNDS: Final = 4
GRIDS: Final = {
    "slow": STRENGTHS,
    "fast": STRENGTHS,
    "fast_memory": FAST_MEMORIES,
    "slow_memory": SLOW_MEMORIES,
}


@dataclass(frozen=True)
class Noise:
    """Strengths are variances relative to a usual cell's own; memories are seconds to fall to 1/e."""

    fast: float = 0.1
    slow: float = 0.1
    fast_memory: float = 45.0
    slow_memory: float = 2400.0


@dataclass(frozen=True)
class Factored:
    """A noise model made ready to solve with, for N cells."""

    weights: FloatArray
    """Inverse variance of each cell's own part, shape (N,); zero where the cell is unknown."""
    bands: FloatArray
    """Precision of the two fading parts given the data, fast and slow by turns, as upper bands, shape
    (3, 2N)."""
    cholesky: FloatArray
    """Its upper triangular factor, in the same form."""
    log_determinant: float
    """Of the covariance of the known cells."""

    def solve(self, columns: FloatArray) -> FloatArray:
        """The inverse covariance times ``columns``, shape (N, M)."""
        weighted = self.weights[:, None] * columns
        both = np.repeat(weighted, 2, axis=0)
        smooth, _ = lapack.dpbtrs(self.cholesky, both)
        result: FloatArray = weighted - self.weights[:, None] * (smooth[0::2] + smooth[1::2])
        return result


def factor(noise: Noise, weights: FloatArray, cell_seconds: float) -> Factored:
    """Prepare to solve with ``noise`` for cells whose own parts have inverse variances ``weights``."""
    n = len(weights)
    bands = np.zeros((3, 2 * n), order="F")  # as LAPACK has it
    log_prior = 0.0
    for place, strength, memory in ((0, noise.fast, noise.fast_memory), (1, noise.slow, noise.slow_memory)):
        keep = math.exp(-cell_seconds / memory)
        fresh = (1 - keep**2) * strength
        diagonal = bands[2, place::2]
        diagonal += (1 + keep**2) / fresh
        diagonal[0] = diagonal[-1] = 1 / fresh
        diagonal += weights
        bands[0, 2 + place :: 2] = -keep / fresh
        log_prior += n * math.log(strength) + (n - 1) * math.log(1 - keep**2)
    bands[1, 1::2] = weights
    cholesky, failed = lapack.dpbtrf(bands)
    if failed:
        raise np.linalg.LinAlgError(f"the precision is not positive definite from row {failed} on")
    known = weights > 0
    log_determinant = float(2 * np.log(cholesky[2]).sum() + log_prior - np.log(weights[known]).sum())
    return Factored(weights, bands, cholesky, log_determinant)


def choose(
    values: FloatArray,
    columns: FloatArray,
    ridge: FloatArray,
    weights: FloatArray,
    cell_seconds: float,
    start: Noise | None = None,
) -> tuple[Noise, float]:
    """The noise model of highest restricted likelihood, by climbing from ``start``, and its variance.

    Args:
        values: log latency, shape (N,); anything where ``weights`` is zero.
        columns: regressors, shape (N, P).
        ridge: prior precision of their coefficients relative to the noise variance, shape (P,).
        weights: shape (N,).
        cell_seconds: width of a cell.
        start: where to begin; a channel like this one's, for speed.
    """
    prepared = _Data.of(values, columns, ridge, weights, cell_seconds)
    best = start or Noise()
    tried = {best: _likelihood(best, prepared)}
    for _ in range(ROUNDS):
        before = best
        for field, grid in GRIDS.items():
            for candidate in _beside(best, field, grid):
                if candidate not in tried:
                    tried[candidate] = _likelihood(candidate, prepared)
                if tried[candidate][0] > tried[best][0]:
                    best = candidate
        if best == before:
            break
    return best, tried[best][1]


def _beside(noise: Noise, field: str, grid: Sequence[float]) -> list[Noise]:
    """The models whose one number is next on its grid."""
    place = min(range(len(grid)), key=lambda k: abs(grid[k] - getattr(noise, field)))
    return [replace(noise, **{field: grid[k]}) for k in (place - 1, place + 1) if 0 <= k < len(grid)]


@dataclass(frozen=True)
class _Data:
    """What is the same for all noise models: regressors and, as the last column, values."""

    weighted: FloatArray
    """Columns times weights, each row twice (once for each fading part), shape (2N, P + 1)."""
    inner: FloatArray
    """Inner products of the columns under each cell's own noise alone, shape (P + 1, P + 1)."""
    ridge: FloatArray
    weights: FloatArray
    cell_seconds: float
    degrees: int
    """Of freedom that are left for the noise."""

    @classmethod
    def of(
        cls,
        values: FloatArray,
        columns: FloatArray,
        ridge: FloatArray,
        weights: FloatArray,
        cell_seconds: float,
    ) -> _Data:
        known = weights > 0
        stacked = np.column_stack([columns, np.where(known, values, 0.0)])
        weighted = weights[:, None] * stacked
        degrees = int(known.sum()) - int((ridge < 1e-6).sum())
        both = np.asfortranarray(np.repeat(weighted, 2, axis=0))
        return cls(both, stacked.T @ weighted, ridge, weights, cell_seconds, max(degrees, 1))


def _likelihood(noise: Noise, data: _Data) -> tuple[float, float]:
    """Restricted log likelihood, and the variance of a usual cell's own part."""
    factored = factor(noise, data.weights, data.cell_seconds)
    # Half a solution is enough for inner products.
    half, _ = lapack.dtbtrs(factored.cholesky, data.weighted, uplo="U", trans="T")
    middle = len(half) // 2
    inner = data.inner - half[:middle].T @ half[:middle] - half[middle:].T @ half[middle:]
    diagonal = np.arange(len(data.ridge))
    inner[diagonal, diagonal] += data.ridge
    # The last pivot is what the regressors leave of the values.
    root, failed = lapack.dpotrf(inner)
    pivots = np.diag(root)
    if 0 < failed < len(pivots):
        raise np.linalg.LinAlgError(
            f"the regressors' products are not positive definite from row {failed} on"
        )
    log_normal, squares = 2 * float(np.log(pivots[:-1]).sum()), 0.0 if failed else float(pivots[-1] ** 2)
    # A weak belief that noise remembers: few cells can't prove that it does not.
    belief = -0.5 * (np.log(noise.fast / 0.1) ** 2 + np.log(noise.slow / 0.1) ** 2) / 3.0**2
    variance = max(squares / data.degrees, 1e-12)
    likelihood = -0.5 * (factored.log_determinant + log_normal + data.degrees * np.log(variance))
    return float(likelihood + belief), variance
