"""One service made ready: its cells, a table of steps for each channel, how the channels' errors agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from otelkit.causal import design, lookups, pooling, steps
from otelkit.causal.cells import COMPONENTS, LATENCY_PER_TOKEN, Cells
from otelkit.causal.design import Regressors
from otelkit.causal.lookups import Effects, Tables
from otelkit.causal.steps import Channel, Functional, Regression
from otelkit.query.panel import FloatArray

WIDTH_SECONDS: Final = 600.0
"""The first minutes after a change: the span whose P99 an effect is about."""

LONGEST_DELAY_SECONDS: Final = 120.0
SHRUNK: Final = 0.9
"""Share of the channels' correlations that is believed: a matrix from few distinct values is too sure of
itself."""

MOVED: Final = 4.0
"""Deviations from which on a channel has clearly moved at a suspected step. To leave out the cells about
every such step would be unfair: placebo dates would be judged by a matrix that was fitted to them, changes by
one that was not."""

Form = Callable[[Tables, FloatArray, FloatArray], Effects]


@dataclass(frozen=True)
class Fitted:
    """A service on N cells with K channels."""

    cells: Cells
    model: pooling.Model
    tables: Tables
    """Of the channels in the model's order."""
    regressions: tuple[Regression, ...]
    """One a channel, in the same order."""
    correlation: FloatArray
    """Of the channels' errors, shape (K, K)."""
    width: int
    """Cells in the first minutes."""
    columns: Regressors
    delays: FloatArray
    """Cells by which each channel shows a step later than the median does, shape (K,)."""
    functionals: tuple[Functional, ...]
    """One a channel, in the model's order."""
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
    late = delays(cells)
    names = [*cells.levels, *(name for name in COMPONENTS if name in cells.channels)]
    if LATENCY_PER_TOKEN in cells.channels and "time_per_output_chunk" not in names:
        names.append(LATENCY_PER_TOKEN)
    found: dict[str, Channel] = {}
    for name in names:
        places = [p + late.get(name, 0.0) for p in suspected]
        places = [p for p in places if 1 < p < len(at) - 2]
        steps_there = None
        if places:
            matrix = np.column_stack([np.clip(at + 1 - place, 0.0, 1.0) for place in places])
            steps_there = Regressors(matrix, ("step",) * len(places), np.full(len(places), 0.7))
        alike = next((channel.regression.noise for channel in reversed(found.values())), None)
        channel = steps.build(cells.channels[name], columns, cells.calls, cells.seconds, steps_there, alike)
        if channel is not None:
            found[name] = channel
    if not found or cells.target not in found:
        return None
    levels = {name: level for name, level in cells.levels.items() if name in found}
    shape = pooling.model(
        levels, [n for n in names if n in found and n not in levels], first_shares(cells), widths(cells)
    )
    tables = lookups.built([found[name] for name in shape.channels])
    regressions = tuple(found[name].regression for name in shape.channels)
    width = width_of(cells)
    offsets = np.array([late.get(name, 0.0) for name in shape.channels])
    functionals = tuple(found[name].functional for name in shape.channels)
    correlation = _correlation(tables, offsets, suspected)
    return Fitted(cells, shape, tables, regressions, correlation, width, columns, offsets, functionals)


def width_of(cells: Cells) -> int:
    """Cells in the first minutes."""
    return max(1, round(WIDTH_SECONDS / cells.seconds))


def short(cells: Cells) -> bool:
    """Whether the data are too short to tell a drift from a step."""
    return width_of(cells) * 6 > len(cells.times)


def delays(cells: Cells) -> dict[str, float]:
    """Cells by which each quantile shows a step later than the median does.

    Calls are seen when they end: of the calls that end within a minute of a change, those that took longer
    were made before it.
    """
    seconds = {name: float(np.exp(cells.usual[name])) for name in cells.levels if name in cells.usual}
    middle = next(iter(seconds.values()), 0.0)
    longest = LONGEST_DELAY_SECONDS
    late = {name: min(max(value - middle, 0.0), longest) / cells.seconds for name, value in seconds.items()}
    if "p75" in late:
        # Most tokens are those of longer calls.
        late["output_tokens"] = late[LATENCY_PER_TOKEN] = late["p75"]
    return late


def first_shares(cells: Cells) -> dict[str, float]:
    """For each quantile, the share of such a call's latency that passes before its first token; a fifth where
    unknown.

    The wait is taken to be alike for all calls: a small part of a long one.
    """
    usual = cells.usual
    middle = next((usual[name] for name in cells.levels if name in usual), 0.0)
    share = 0.2
    if "time_to_first_chunk" in usual:
        # The channel is log1p(wait / usual latency).
        share = float(np.expm1(usual["time_to_first_chunk"]))
    longer = {name: float(np.exp(usual.get(name, middle) - middle)) for name in cells.levels}
    return {name: float(np.clip(share / times, 0.01, 0.95)) for name, times in longer.items()}


def widths(cells: Cells) -> dict[str, float]:
    """Upper over lower bound of the bucket in which each quantile usually lies; empty without buckets."""
    if cells.bounds is None:
        return {}
    result = {}
    for name in cells.levels:
        if name in cells.usual:
            place = int(np.searchsorted(cells.bounds, np.exp(cells.usual[name])))
            upper = cells.bounds[min(place, len(cells.bounds) - 2)]
            lower = cells.bounds[place - 1] if place > 0 else upper / 2
            result[name] = float(upper / lower) if upper > lower else 4.0
    return result


def _correlation(tables: Tables, offsets: FloatArray, suspected: Sequence[float]) -> FloatArray:
    """Correlation of the channels' step effects over short widths, where many distinct ones can be had.

    Without the cells about a suspected step where a channel clearly moved, as long as a third of all are
    left: a real effect moves all channels together, and would pass for noise that they share.
    """
    onsets = np.arange(tables.response.shape[1], dtype=float)
    short_width = max(2, len(onsets) // 24)
    found = lookups.effects_at(tables, onsets + offsets[:, None], short_width)
    z = found.sizes / np.sqrt(found.variances)
    away = np.ones(len(onsets), dtype=bool)
    for place in suspected:
        near = np.abs(onsets - place) <= short_width
        if near.any() and np.abs(z[:, near]).max() > MOVED:
            away &= ~near
    if 3 * away.sum() >= len(onsets):
        z = z[:, away]
    z = np.clip(z, -3.0, 3.0)
    inner = z @ z.T + 1e-6 * np.eye(len(z))
    scale = np.sqrt(np.diag(inner))
    # Towards independence: a matrix from few distinct values is too sure of itself.
    matrix: FloatArray = SHRUNK * inner / np.outer(scale, scale) + (1 - SHRUNK) * np.eye(len(z))
    return matrix


def absorb(fitted: Fitted, onset: float, deviations: FloatArray) -> Fitted:
    """The service once a step at ``onset`` (a place on the grid of cells), of at most about ``deviations``
    (K,) on the channels, is taken for granted."""
    return replace(
        fitted, tables=lookups.absorb(fitted.tables, onset + fitted.delays, fitted.width, deviations)
    )


def effects_at(
    fitted: Fitted, onsets: FloatArray, later_deviation: FloatArray | float = lookups.LATER_DEVIATION
) -> tuple[FloatArray, FloatArray]:
    """Effects of steps at S places on the grid on every channel, shape (S, K), and their covariance, shape
    (S, K, K); ``later_deviation`` as in :func:`lookups.effects_at`."""
    begins = onsets + fitted.delays[:, None]
    return _with_covariance(fitted, lookups.effects_at(fitted.tables, begins, fitted.width, later_deviation))


def effects_between(
    fitted: Fitted, begins: FloatArray, ends: FloatArray, form: Form = lookups.pulses_at
) -> tuple[FloatArray, FloatArray]:
    """The same of S pulses, or of another ``form``, from one place to another."""
    late = fitted.delays[:, None]
    return _with_covariance(fitted, form(fitted.tables, begins + late, ends + late))


def _with_covariance(fitted: Fitted, found: Effects) -> tuple[FloatArray, FloatArray]:
    deviations = fitted.scale * np.sqrt(np.minimum(found.variances.T, 1e4))
    covariance = deviations[:, :, None] * fitted.correlation[None] * deviations[:, None, :]
    if fitted.tables.known.shape[2]:
        covariance *= shared(found.inflations.T)
    return found.sizes.T, covariance


def shared(inflations: FloatArray) -> FloatArray:
    """Share of the channels' correlations that is left once known steps are free to differ, shape (S, K, K).

    A channel on which a known step leaves much open is measured by other cells than one on which it leaves
    little. Of two least-squares estimates of which one has more to leave open, the covariance is the variance
    of the one that has less; so their correlation falls with the root of the ratio of their variances.
    """
    root = np.sqrt(inflations)
    ratio = root[:, :, None] / root[:, None, :]
    result: FloatArray = np.minimum(ratio, 1 / ratio)
    return result
