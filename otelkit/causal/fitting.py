"""One service made ready: its cells, a step table per channel, and how the channels' errors go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from otelkit.causal import design, pooling, steps
from otelkit.causal.cells import COMPONENTS, Cells
from otelkit.causal.design import Regressors
from otelkit.causal.steps import StepTable
from otelkit.query.panel import FloatArray

WIDTH_SECONDS: Final = 600.0
"""The first minutes after a change: the span whose P99 an effect is about."""


@dataclass(frozen=True)
class Fitted:
    """A service on N cells with K channels."""

    cells: Cells
    model: pooling.Model
    tables: tuple[StepTable, ...]
    """One a channel, in the model's order."""
    correlation: FloatArray
    """Of the channels' errors, shape (K, K)."""
    width: int
    """Cells in the first minutes."""
    columns: Regressors
    scale: float = 1.0
    """How many times the noise model's own deviation the effects at quiet moments really spread."""


def fit(cells: Cells, suspected: Sequence[float] = ()) -> Fitted | None:
    """Fit every channel.

    Args:
        cells: the service.
        suspected: places on the grid at which a step may be; so that it is not taken for noise.

    Returns:
        None where not even the quantile to be explained can be fitted.
    """
    columns = design.causes(cells)
    at = np.arange(len(cells.times), dtype=float)
    places = [p for p in suspected if 1 < p < len(at) - 2]
    steps_there = None
    if places:
        matrix = np.column_stack([np.clip(at + 1 - place, 0.0, 1.0) for place in places])
        steps_there = Regressors(matrix, ("step",) * len(places), np.full(len(places), 0.7))
    names = [*cells.levels, *(name for name in COMPONENTS if name in cells.channels)]
    tables: dict[str, StepTable] = {}
    for name in names:
        table = steps.build(cells.channels[name], columns, cells.calls, cells.seconds, steps_there)
        if table is not None:
            tables[name] = table
    if not tables or list(cells.levels)[-1] not in tables:
        return None
    levels = {name: level for name, level in cells.levels.items() if name in tables}
    shape = pooling.model(
        levels, [n for n in names if n in tables and n not in levels], first_shares(cells), widths(cells)
    )
    ordered = tuple(tables[name] for name in shape.channels)
    width = max(1, round(WIDTH_SECONDS / cells.seconds))
    return Fitted(cells, shape, ordered, _correlation(ordered), width, columns)


def first_shares(cells: Cells) -> dict[str, float]:
    """For each quantile, the share of such a call's latency that passes before its first token; a fifth where
    unknown.

    The wait is taken to be alike for all calls: a small part of a long one.
    """
    usual = {
        name: np.nanmedian(cells.channels[name]) for name in cells.levels if _known(cells.channels[name])
    }
    middle = next(iter(usual.values()), 0.0)
    first = cells.channels.get("time_to_first_chunk")
    share = 0.2
    if first is not None and _known(first):
        # The channel is log1p(wait / usual latency).
        share = float(np.expm1(np.nanmedian(first)))
    longer = {name: float(np.exp(usual.get(name, middle) - middle)) for name in cells.levels}
    return {name: float(np.clip(share / times, 0.01, 0.95)) for name, times in longer.items()}


def _known(values: FloatArray) -> bool:
    return bool(np.isfinite(values).any())


def widths(cells: Cells) -> dict[str, float]:
    """Upper over lower bound of the bucket in which each quantile usually lies; empty without buckets."""
    if cells.bounds is None:
        return {}
    result = {}
    for name in cells.levels:
        known = cells.channels[name][np.isfinite(cells.channels[name])]
        if len(known):
            place = int(np.searchsorted(cells.bounds, np.exp(np.median(known))))
            upper = cells.bounds[min(place, len(cells.bounds) - 2)]
            lower = cells.bounds[place - 1] if place > 0 else upper / 2
            result[name] = float(upper / lower) if upper > lower else 4.0
    return result


def _correlation(tables: Sequence[StepTable]) -> FloatArray:
    """Correlation of the channels' step effects over short widths, where many distinct ones can be had."""
    found = []
    for table in tables:
        onsets = np.arange(len(table.response), dtype=float)
        effects, variance = steps.effects_at(table, onsets, max(2, len(onsets) // 24))
        found.append(np.clip(effects / np.sqrt(variance), -3.0, 3.0))
    z = np.array(found)
    inner = z @ z.T + 1e-6 * np.eye(len(z))
    scale = np.sqrt(np.diag(inner))
    # Towards independence: a matrix from few distinct values is too sure of itself.
    matrix: FloatArray = 0.9 * inner / np.outer(scale, scale) + 0.1 * np.eye(len(z))
    return matrix


def absorb(fitted: Fitted, onset: float) -> Fitted:
    """The service once a step at ``onset`` (a place on the grid of cells) is taken for granted."""
    return replace(fitted, tables=tuple(steps.absorb(t, onset, fitted.width) for t in fitted.tables))


def effects_at(fitted: Fitted, onsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Effects of steps at S places on the grid on every channel, shape (S, K), and their covariance, shape
    (S, K, K)."""
    pairs = [steps.effects_at(table, onsets, fitted.width) for table in fitted.tables]
    effects = np.column_stack([p[0] for p in pairs])
    deviations = fitted.scale * np.sqrt(np.minimum(np.column_stack([p[1] for p in pairs]), 1e4))
    return effects, deviations[:, :, None] * fitted.correlation[None] * deviations[:, None, :]
