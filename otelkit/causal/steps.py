"""What a step at any moment would have done to one channel: a table that answers for all moments at once.

For the Heaviside column of each cell (0 before it, 1 from it on) the table keeps its inner products, under
the noise, with every other one and with the data, load and the other regressors taken off. Steps, pulses and
scans over all onsets are then look-ups.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from otelkit.causal import heaviside
from otelkit.causal import noise as noise_module
from otelkit.causal.design import Regressors, joined
from otelkit.causal.noise import Noise
from otelkit.query.panel import FloatArray

LATER_DEVIATION: Final = 0.3
"""How far (log latency) a change's later effect is believed to differ from that of its first minutes."""
LEAST_DEVIATION: Final = 0.02
"""Deviation of a usual cell (log latency) below which no series is believed to be that quiet for long."""
STAIRS: Final = 6
ROWS: Final = 16
KNOWN_DEVIATION: Final = 2.0
"""Size that an accepted step is believed to have at most; wide, so that the data decide."""


@dataclass(frozen=True)
class StepTable:
    """One channel of one service on N cells."""

    products: FloatArray
    """Inner products of Heaviside columns, shape (N, N), over the noise variance, with no step known."""
    response: FloatArray
    """Their inner products with the data, shape (N,), over the noise variance."""
    variance: float
    """Noise variance of a usual cell's own part."""
    noise: Noise
    coefficients: FloatArray
    """Of the regressors, shape (P,)."""
    adjusted: FloatArray
    """The data without what the regressors explain, shape (N,); NaN where unknown."""
    known: FloatArray
    """What known steps take off the products: ``known @ known.T``, shape (N, number of columns)."""


def build(
    values: FloatArray,
    regressors: Regressors,
    calls: FloatArray,
    cell_seconds: float,
    suspected: Regressors | None = None,
    alike: Noise | None = None,
) -> StepTable | None:
    """The table of one channel.

    Args:
        values: log latency (or another log series), shape (N,), NaN where unknown.
        regressors: what else moves it.
        calls: calls in each cell; a cell's own noise falls with their number.
        cell_seconds: width of a cell.
        suspected: steps that may be there; they are kept out of the noise, not out of the table.
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
    n = len(values)
    solved_columns = factored.solve(columns)
    normal = np.linalg.inv(columns.T @ solved_columns + np.diag(ridge))
    coefficients = normal @ (solved_columns.T @ data)
    adjusted = data - columns @ coefficients
    products = heaviside.products(factored)
    solved = factored.solve(adjusted[:, None])[:, 0]
    cross = np.cumsum(solved_columns[::-1], axis=0)[::-1]
    taken_off = cross @ normal
    # By rows: a product of this size in one piece would wake the threads of BLAS, which cost more than it.
    for first in range(0, n, ROWS):
        products[first : first + ROWS] -= taken_off[first : first + ROWS] @ cross.T
    response = np.cumsum(solved[::-1])[::-1] - cross @ (normal @ (columns.T @ solved))
    return StepTable(
        products=products / variance,
        response=response / variance,
        variance=variance,
        noise=noise,
        coefficients=coefficients,
        adjusted=np.where(known, adjusted, np.nan),
        known=np.empty((n, 0)),
    )


def _own_variance(values: FloatArray) -> float:
    """Rough variance from differences of neighbours."""
    known = values[np.isfinite(values)]
    steps = np.diff(known)
    return float(np.mean(np.minimum(steps**2, 9 * np.median(steps**2) + 1e-12)) / 2) if len(steps) else 0.0


def effects_at(table: StepTable, onsets: FloatArray, width: float) -> tuple[FloatArray, FloatArray]:
    """Effects of steps over their first ``width`` cells.

    What follows after ``width`` cells may differ by about ``LATER_DEVIATION``.

    Args:
        table: the channel.
        onsets: places on the grid of cells at which the steps begin, shape (S,); fractions count.
        width: cells.

    Returns:
        Effects (log latency) and their variances, each of shape (S,); the variance is infinite where nothing
        is known.
    """
    step = _heaviside(table, onsets)
    later = _heaviside(table, onsets + width)
    own, own_response = _inner(table, step, step), _dot(table, step)
    after = _inner(table, later, later) + 1 / LATER_DEVIATION**2
    both = _inner(table, step, later)
    information = own - both**2 / after
    response = own_response - both / after * _dot(table, later)
    usable = information > 1e-6
    safe = np.where(usable, information, 1.0)
    return np.where(usable, response / safe, 0.0), np.where(usable, 1 / safe, np.inf)


def pulses_at(table: StepTable, onsets: FloatArray, ends: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Effects of pulses that begin and end at places on the grid, and their variances, each of shape (S,)."""
    (first, up), (last, down) = _heaviside(table, onsets), _heaviside(table, ends)
    pulse = np.column_stack([first, last]), np.column_stack([up, -down])
    information = _inner(table, pulse, pulse)
    usable = information > 1e-6
    safe = np.where(usable, information, 1.0)
    return np.where(usable, _dot(table, pulse) / safe, 0.0), np.where(usable, 1 / safe, np.inf)


def ramps_at(table: StepTable, begins: FloatArray, ends: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Full effects of straight ramps between places on the grid, and their variances, each of shape (S,).

    A ramp is taken as a staircase of ``STAIRS`` steps.
    """
    parts = [_heaviside(table, begins + (ends - begins) * (stair + 0.5) / STAIRS) for stair in range(STAIRS)]
    ramp = np.column_stack([p[0] for p in parts]), np.column_stack([p[1] for p in parts]) / STAIRS
    information = _inner(table, ramp, ramp)
    usable = information > 1e-6
    safe = np.where(usable, information, 1.0)
    return np.where(usable, _dot(table, ramp) / safe, 0.0), np.where(usable, 1 / safe, np.inf)


def absorb(table: StepTable, onset: float, width: float) -> StepTable:
    """The table once a step at ``onset`` (and what becomes of it after ``width`` cells) is taken for
    granted."""
    response, known = table.response, table.known
    for place, deviation in ((onset, KNOWN_DEVIATION), (onset + width, LATER_DEVIATION)):
        indices, shares = (part[0] for part in _heaviside(table, np.array([place])))
        with_all = table.products[:, indices] @ shares - known @ (known[indices].T @ shares)
        size = float(shares @ with_all[indices]) + 1 / deviation**2
        response = response - with_all * (float(shares @ response[indices]) / size)
        known = np.column_stack([known, with_all / np.sqrt(size)])
    return replace(table, response=response, known=known)


Columns = tuple[NDArray[np.int_], FloatArray]
"""Movements as sums of M Heaviside columns (two neighbouring ones for a step between cells): their places
(S, M) and shares (S, M)."""


def _heaviside(table: StepTable, onsets: FloatArray) -> Columns:
    n = len(table.response)
    first = np.floor(onsets).astype(int)
    part = 1.0 - (onsets - first)
    inside = (onsets >= 0) & (first < n)
    shares = np.column_stack([part, np.where(first + 1 < n, 1.0 - part, 0.0)]) * inside[:, None]
    places = np.clip(np.column_stack([first, first + 1]), 0, n - 1)
    return places, shares


def _inner(table: StepTable, left: Columns, right: Columns) -> FloatArray:
    total = np.zeros(len(left[0]))
    for i in range(left[0].shape[1]):
        for j in range(right[0].shape[1]):
            total += left[1][:, i] * right[1][:, j] * table.products[left[0][:, i], right[0][:, j]]
    if table.known.shape[1]:
        total -= (_known(table, left) * _known(table, right)).sum(axis=1)
    return total


def _known(table: StepTable, columns: Columns) -> FloatArray:
    """Shape (S, number of known columns)."""
    result: FloatArray = (columns[1][:, :, None] * table.known[columns[0]]).sum(axis=1)
    return result


def _dot(table: StepTable, columns: Columns) -> FloatArray:
    result: FloatArray = (columns[1] * table.response[columns[0]]).sum(axis=1)
    return result
