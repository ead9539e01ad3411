"""Regressors: what else moves latency (offered load, prompts), and the steps that changes may have made.

Only causes that a change cannot act through belong here. Offered load (calls begun) does; calls under way,
queue length and output length do not: a change that lengthens answers moves P99 *through* them, and adjusting
for them would explain its effect away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal.cells import Cells
from otelkit.query.panel import FloatArray

LOAD_SPANS: Final = (20.0, 60.0, 240.0)
"""Trailing means of offered load, seconds: a queue remembers the load of the last minutes."""


@dataclass(frozen=True)
class Regressors:
    """Columns of a regression with what is believed of their coefficients beforehand."""

    columns: FloatArray
    """Shape (N, P)."""
    names: tuple[str, ...]
    prior_deviation: FloatArray
    """Shape (P,): a coefficient is believed to lie within about this of zero; infinite for the intercept."""


def drop(regressors: Regressors, column: int) -> Regressors:
    """All columns but one."""
    keep = [number for number in range(len(regressors.names)) if number != column]
    return Regressors(
        regressors.columns[:, keep],
        tuple(regressors.names[k] for k in keep),
        regressors.prior_deviation[keep],
    )


def trailing_mean(values: FloatArray, cells: int) -> FloatArray:
    """Mean over the last ``cells`` cells, over those known; NaN where none is."""
    known = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    number = np.concatenate([[0], np.cumsum(known)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - cells, 0)
    count = number[ends] - number[starts]
    mean: FloatArray = np.where(count > 0, (total[ends] - total[starts]) / np.maximum(count, 1), np.nan)
    return mean


def causes(cells: Cells) -> Regressors:
    """Intercept, offered load and prompt length, each relative to its usual value."""
    columns: list[FloatArray] = [np.ones(len(cells.times))]
    names = ["level"]
    deviations = [np.inf]

    def add(name: str, values: FloatArray, deviation: float) -> None:
        filled = np.where(np.isfinite(values), values, 0.0)
        if filled.std() > 1e-6:
            columns.append(filled)
            names.append(name)
            deviations.append(deviation)

    usual = _usual(cells.arrivals)
    if usual > 0:
        spans = sorted({max(1, round(span / cells.seconds)) for span in LOAD_SPANS})
        for span in spans:
            relative = trailing_mean(cells.arrivals, span) / usual - 1.0
            add(f"load {span * cells.seconds:.0f} s", relative, 0.5)
        excess = np.maximum(
            trailing_mean(cells.arrivals, spans[-1] if len(spans) < 3 else spans[1]) / usual - 1.15, 0.0
        )
        add("load above usual", excess, 1.0)
    prompt = cells.covariates.get("input_tokens")
    if prompt is not None and _usual(prompt) > 0:
        with np.errstate(invalid="ignore"):
            add("prompt length", np.log(np.maximum(prompt / _usual(prompt), 1e-3)), 0.5)
    return Regressors(np.column_stack(columns), tuple(names), np.array(deviations))


def _usual(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


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
