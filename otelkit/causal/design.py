"""Regressors: what else moves latency (offered load, prompts), and the steps that changes may have made.

Only causes that a change cannot act through belong here. Offered load (calls begun) does; calls under way,
queue length and output length do not: a change that lengthens answers moves P99 *through* them, and adjusting
for them would explain its effect away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal import units
from otelkit.causal.cells import Cells
from otelkit.query.panel import FloatArray

LOAD_SPANS: Final = (20.0, 60.0, 240.0)
"""Trailing means of offered load, seconds: a queue remembers the load of the last minutes."""
QUEUE_ROOMS: Final = (1.1, 1.4)
"""Capacities, relative to the usual load, at which a queue is imagined."""


@dataclass(frozen=True)
class Regressors:
    """Columns of a regression with what is believed of their coefficients beforehand."""

    columns: FloatArray
    """Shape (N, P)."""
    names: tuple[str, ...]
    prior_deviation: FloatArray
    """Shape (P,): a coefficient is believed to lie within about this of zero; infinite for the intercept."""


def joined(first: Regressors, second: Regressors) -> Regressors:
    """The columns of both."""
    return Regressors(
        np.column_stack([first.columns, second.columns]),
        (*first.names, *second.names),
        np.concatenate([first.prior_deviation, second.prior_deviation]),
    )


def trailing_mean(values: FloatArray, cells: int) -> FloatArray:
    """Mean over the last ``cells`` cells, over those known; NaN where none is."""
    known = np.isfinite(values)
    total, number = np.zeros((2, len(values) + cells))
    np.cumsum(np.where(known, values, 0.0), out=total[cells:])
    np.cumsum(known, out=number[cells:])
    count = number[cells:] - number[:-cells]
    mean: FloatArray = np.where(count > 0, (total[cells:] - total[:-cells]) / np.maximum(count, 1), np.nan)
    return mean


def causes(cells: Cells) -> Regressors:
    """Intercept, offered load and prompt length, each relative to its usual value."""
    columns: list[FloatArray] = [np.ones(len(cells.times))]
    names = ["level"]
    deviations = [np.inf]

    def add(name: str, values: FloatArray, deviation: float) -> None:
        known = np.isfinite(values)
        if known.any() and np.ptp(values[known]) > 1e-6:
            columns.append(np.where(known, values - np.mean(values[known]), 0.0))
            names.append(name)
            deviations.append(deviation)

    usual = units.usual(cells.arrivals)
    if usual > 0:
        spans = sorted({max(1, round(span / cells.seconds)) for span in LOAD_SPANS})
        means = {span: trailing_mean(cells.arrivals, span) / usual for span in spans}
        for span in spans:
            add(f"load over {span * cells.seconds:.0f} s", means[span], 0.4)
        middle = means[spans[len(spans) // 2]]
        add("load above usual", np.maximum(middle - 1.15, 0.0), 0.8)
        for room in QUEUE_ROOMS:
            add(f"queue at {room:g} times the usual load", virtual_queue(cells, usual * room), 0.3)
    prompt = cells.covariates.get("input_tokens")
    if prompt is not None and units.usual(prompt) > 0:
        with np.errstate(invalid="ignore"):
            relative = np.log(np.maximum(prompt / units.usual(prompt), 1e-3))
        add("prompt length", relative, 0.4)
        add("prompt length over minutes", trailing_mean(relative, max(2, round(180 / cells.seconds))), 0.5)
    return Regressors(np.column_stack(columns), tuple(names), np.array(deviations))


def virtual_queue(cells: Cells, capacity: float) -> FloatArray:
    """Log of the seconds of work that would wait if ``capacity`` calls a second could be served; shape
    (N,)."""
    offered = np.where(np.isfinite(cells.arrivals), cells.arrivals, capacity)
    # The reflected random walk in closed form: the sum less its lowest value so far.
    walk = np.cumsum((offered / capacity - 1.0) * cells.seconds)
    waiting = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
    result: FloatArray = np.log1p(waiting / 30.0)
    return result


def step(cells: Cells, begins: float, settles: float, ends: float = np.inf) -> FloatArray:
    """The share of each cell's calls that a change reaches, shape (N,).

    Args:
        cells: gives the grid.
        begins: Unix seconds at which the first call that was made under the new value ends.
        settles: Unix seconds at which all calls do; equals ``begins`` for a change made at once.
        ends: Unix seconds at which the change is taken back.
    """
    upper = cells.times
    lower = upper - cells.seconds
    return _ramp(lower, upper, begins, settles) - _ramp(lower, upper, ends, ends)


def _ramp(lower: FloatArray, upper: FloatArray, begins: float, settles: float) -> FloatArray:
    """Mean over (lower, upper] of a function that is 0 before ``begins``, 1 after ``settles``, straight
    between."""
    if not np.isfinite(begins):
        return np.zeros(len(lower))
    settles = max(settles, begins + 1e-6)

    def integral(at: FloatArray) -> FloatArray:
        inside = np.clip(at - begins, 0.0, settles - begins)
        area: FloatArray = inside**2 / (2 * (settles - begins)) + np.maximum(at - settles, 0.0)
        return area

    share: FloatArray = (integral(upper) - integral(lower)) / (upper - lower)
    return share
