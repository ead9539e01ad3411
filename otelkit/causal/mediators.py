"""What a change does to P99 through errors and the retries that follow them.

The other paths move the latency channels in known proportions. Errors do not: how much slower calls are while
some fail is learnt from the time before the change, and applied to how much oftener they failed after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal.cells import Cells
from otelkit.causal.shifts import before_after
from otelkit.query.panel import FloatArray

SMALLEST: Final = 0.005
"""Share of calls that must fail more or less often before anything is put down to it."""
FEWEST_CELLS: Final = 20
BELIEF: Final = 0.2
"""Deviation of the coefficient as believed beforehand: log P99 for each tenth of calls that fail."""


@dataclass(frozen=True)
class ErrorsPart:
    """Effect on log P99 through errors."""

    effect: float
    deviation: float


def error_share(cells: Cells) -> FloatArray | None:
    """Share of calls that fail in each cell, shape (N,); None where errors are not recorded."""
    errors = cells.covariates.get("errors")
    if errors is None or not np.isfinite(errors).any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        share: FloatArray = np.where(cells.arrivals > 0, errors / cells.arrivals, np.nan)
    return np.clip(share, 0.0, 1.0)


def through_errors(cells: Cells, adjusted: FloatArray, place: float, width: int) -> ErrorsPart | None:
    """The part of a change's effect that errors make.

    Args:
        cells: the service.
        adjusted: log P99 without what load explains, shape (N,).
        place: of the change, in cells.
        width: cells of the first minutes.

    Returns:
        None where errors did not move, or where the time before says nothing of what they do.
    """
    share = error_share(cells)
    if share is None:
        return None
    moved = before_after(share, width)[int(np.clip(round(place), 0, len(share) - 1))]
    if not np.isfinite(moved) or abs(moved) < SMALLEST:
        return None
    before = (np.arange(len(share)) < place - 1) & np.isfinite(share) & np.isfinite(adjusted)
    if before.sum() < FEWEST_CELLS or np.ptp(share[before]) < SMALLEST:
        return None
    x = share[before] - share[before].mean()
    y = adjusted[before] - adjusted[before].mean()
    noise = max(float(y.var()), 1e-6)
    precision = float(x @ x) / noise + 1 / (10 * BELIEF) ** 2
    coefficient = float(x @ y) / noise / precision
    return ErrorsPart(coefficient * float(moved), abs(float(moved)) / float(np.sqrt(precision)))
