"""What moved elsewhere at the same moment: the fleet as a whole, and the services that this one calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal import design, fitting, lookups
from otelkit.causal.cells import LATENCY_PER_TOKEN, Cells, IntArray
from otelkit.causal.fitting import Fitted
from otelkit.query.panel import FloatArray

UNLIKE: Final = 0.25
"""Share by which one service's part in a movement of the fleet may differ from the usual one."""
DOUBT_LOAD: Final = 0.5
DOUBT_PROMPTS: Final = 0.8
"""Log latency by which the regression may be off for each unit of log load, and of log prompt length, beyond
the usual."""
HIDDEN: Final = 1.0
"""Log latency by which a quantile beyond the last bound of its buckets may have moved further than is
seen."""
LOAD_QUEUES: Final = 0.5
FLEET_QUEUES: Final = 0.6
"""Log latency by which queues may have moved for each unit of log load beyond the usual, and of the fleet's
log P99."""
BRIEF: Final = 0.2
"""Share of the first minutes over which a movement of the fleet that soon passes is looked for."""
LEAST_USUAL: Final = 0.015
"""Movement (log latency) that a fleet is believed to make now and then, however quiet it looks: where calls
hardly ever wait, the smallest wait would else count as a deploy."""
ALIGN_SECONDS: Final = 20.0
"""How far apart services may take up what moves all of them."""
FEWEST_CONTROLS: Final = 2
CERTAIN: Final = 4.0
"""A movement of the fleet this many times its usual deviation is half believed."""


@dataclass(frozen=True)
class Shift:
    """A movement elsewhere, as it would show on each channel of the service at a step at each cell."""

    size: FloatArray
    """Log latency, shape (N, K)."""
    deviation: FloatArray
    """Shape (N, K): how far that may be off for each channel by itself."""
    together: FloatArray
    """Shape (N, K): how far it may be off for all channels at once."""
    belief: FloatArray
    """Shape (N,): how surely the whole fleet moved; zero for movements of other kinds."""


def before_after(values: FloatArray, width: int) -> FloatArray:
    """Mean over the ``width`` cells from each cell on, less that over the ``width`` before; shape (..., N) as
    given, NaN at the ends."""
    n = values.shape[-1]
    known = np.isfinite(values)
    total, number = np.zeros((2, *values.shape[:-1], n + 1))
    np.cumsum(np.where(known, values, 0.0), axis=-1, out=total[..., 1:])
    np.cumsum(known, axis=-1, out=number[..., 1:])
    at = np.arange(n)
    behind, ahead = np.maximum(at - width, 0), np.minimum(at + width, n)
    count_after = number[..., ahead] - number[..., at]
    count_before = number[..., at] - number[..., behind]
    enough = (count_after >= max(1, width // 4)) & (count_before >= max(1, width // 4))
    with np.errstate(divide="ignore", invalid="ignore"):
        after = (total[..., ahead] - total[..., at]) / count_after
        before = (total[..., at] - total[..., behind]) / count_before
    result: FloatArray = np.where(enough, after - before, np.nan)
    return result


def load_adjusted(cells: Cells, names: Sequence[str]) -> dict[str, FloatArray]:
    """Channels with what load and prompts explain taken off by ridge regression, each of shape (N,)."""
    regressors = design.causes(cells)
    ridge = np.diag(np.maximum(0.05 / regressors.prior_deviation**2, 1e-9))
    result = {
        name: np.where(np.isfinite(cells.channels[name]), cells.channels[name], np.nan) for name in names
    }
    # Channels of one service are mostly known in the same cells.
    alike: dict[bytes, list[str]] = {}
    for name, values in result.items():
        alike.setdefault(np.isfinite(values).tobytes(), []).append(name)
    for together in alike.values():
        known = np.isfinite(result[together[0]])
        if known.sum() >= 2 * len(regressors.names):
            x = regressors.columns[known]
            y = np.column_stack([result[name][known] for name in together])
            y -= y.mean(axis=0)
            y -= x @ np.linalg.solve(x.T @ x + ridge, x.T @ y)
            for name, adjusted in zip(together, y.T, strict=True):
                result[name][known] = adjusted
    return result


def fleet(controls: Sequence[Cells], fitted: Fitted) -> Shift | None:
    """The median movement of the controls, as the service's own estimates would show it, believed only where
    it is larger than it usually is.

    Args:
        controls: other services on the same cells, none of which depends on the one that is explained.
        fitted: the service.

    Returns:
        None with fewer than two controls.
    """
    cells, channels, width = fitted.cells, fitted.model.channels, fitted.width
    usable = [c for c in controls if len(c.times) == len(cells.times)]
    if len(usable) < FEWEST_CONTROLS:
        return None
    adjusted = [load_adjusted(c, [name for name in channels if name in c.channels]) for c in usable]
    moves = movements(usable, adjusted, fitted)
    size, deviation = np.zeros((2, len(cells.times), len(channels)))
    surprise = np.zeros(len(cells.times))
    for k, name in enumerate(channels):
        having = [name in columns for columns in adjusted]
        if sum(having) < FEWEST_CONTROLS:
            continue
        series = np.array([columns[name] for columns in adjusted if name in columns])
        for span in (width, max(2, round(BRIEF * width))):
            surprise = np.maximum(surprise, _surprise(series, span))
        known = moves[having, k]
        middle = _median(known)
        apart = 1.48 * _median(np.abs(known - middle)) * 1.25 / np.sqrt(len(known))
        usual = 1.48 * float(np.median(np.abs(middle))) + 1e-6
        size[:, k] = middle
        deviation[:, k] = np.minimum(np.maximum(apart, 0.5 * usual), np.abs(middle) + usual)
    belief: FloatArray = surprise**4 / (surprise**4 + CERTAIN**4)
    best = _furthest(size, round(ALIGN_SECONDS / cells.seconds + 0.5))
    belief = np.maximum(belief, belief[best])
    moved = size[best] * belief[:, None]
    return Shift(moved, deviation[best] * belief[:, None], UNLIKE * moved, belief)


def movements(
    controls: Sequence[Cells], adjusted: Sequence[Mapping[str, FloatArray]], fitted: Fitted
) -> FloatArray:
    """What the service's own estimates of a step at each cell would be had its channels moved as those of
    each of C controls did, shape (C, K, N); zero where a control lacks the channel.

    A movement that fades, or that begins a little beside the cell, then shows as it does in the service.

    Args:
        controls: other services on the same cells.
        adjusted: their channels without what load and prompts explain.
        fitted: the service.
    """
    channels = fitted.model.channels
    at = np.arange(len(fitted.cells.times), dtype=float)
    late = _lateness(fitted.cells)
    series = np.zeros((len(channels), len(at), len(controls)))
    for c, (control, columns) in enumerate(zip(controls, adjusted, strict=True)):
        theirs = _lateness(control)
        for k, name in enumerate(channels):
            if name in columns and name in control.usual:
                known = np.isfinite(columns[name])
                # Each service shows it as late as its calls are long.
                places = at - (late(name) - theirs(name))
                series[k, :, c] = np.interp(places, at[known], columns[name][known])
    responses = [
        functional.response(of_all) / regression.variance
        for functional, of_all, regression in zip(fitted.functionals, series, fitted.regressions, strict=True)
    ]
    onsets = at + fitted.delays[:, None]
    return lookups.others_at(fitted.tables, np.array(responses).transpose(2, 0, 1), onsets, fitted.width)


def _lateness(cells: Cells) -> Callable[[str], float]:
    """Cells from a call's beginning to its showing, for each channel by name."""
    late = fitting.delays(cells)
    middle = next(iter(cells.levels), None)
    usual = float(np.exp(cells.usual.get(middle, 0.0))) / cells.seconds if middle is not None else 0.0
    return lambda name: usual + late.get(name, 0.0)


def _surprise(series: FloatArray, width: int) -> FloatArray:
    """How many times further than usual the median of C controls moved at each cell, shape (N,)."""
    # Where scrapes are missing everywhere nothing is known to have moved.
    middle = np.abs(_median(np.nan_to_num(before_after(series, width))))
    result: FloatArray = middle / max(1.48 * float(np.median(middle)), LEAST_USUAL)
    return result


def _median(values: FloatArray) -> FloatArray:
    """Over the first axis, of a few known values each: sorting them takes a fifth of numpy's median."""
    ordered = np.sort(values, axis=0)
    result: FloatArray = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2
    return result


def _furthest(size: FloatArray, reach: int) -> IntArray:
    """For each cell the one within ``reach`` at which all channels together moved furthest, shape (N,)."""
    far = ((size / (np.median(np.abs(size), axis=0) + 1e-6)) ** 2).sum(axis=1)
    near = np.lib.stride_tricks.sliding_window_view(np.pad(far, reach, constant_values=-1.0), 2 * reach + 1)
    found: IntArray = np.arange(len(far)) + np.argmax(near, axis=1) - reach
    return found


def dependency(
    cells: Cells, called: Sequence[Cells], channels: Sequence[str], levels: Mapping[str, float], width: int
) -> Shift | None:
    """The movement of the services called, in seconds added to this one's calls.

    The coefficient is one by construction; a regression would attenuate it. It is believed only where the
    called service moved more than it usually does.
    """
    usable = [
        c
        for c in called
        if len(c.times) == len(cells.times) and "p50" in c.channels and "p50" in cells.channels
    ]
    if not usable:
        return None
    n = len(cells.times)
    size = np.zeros((n, len(channels)))
    for other in usable:
        first, last = next(iter(other.levels)), other.target
        centre, far = other.usual.get(first, 0.0), other.usual.get(last, 0.0)
        adjusted = load_adjusted(other, [first, last])
        moved, moved_far = (before_after(adjusted[name], width) for name in (first, last))
        usual = 1.48 * float(np.nanmedian(np.abs(moved))) + 1e-6 if np.isfinite(moved).any() else 1.0
        surprise = np.abs(np.nan_to_num(moved)) / usual
        belief = surprise**4 / (surprise**4 + 3.0**4)
        for k, name in enumerate(channels):
            own = cells.usual.get(name, 0.0)
            if name in levels:
                share = min(max((levels[name] - 0.5) / 0.49, 0.0), 1.0)
            elif name == LATENCY_PER_TOKEN:
                share, own = 0.5, cells.usual.get("p75", cells.usual.get("p50", 0.0))
            elif name == "time_to_first_chunk":
                size[:, k] += (
                    belief * np.expm1(np.nan_to_num(moved)) * np.exp(centre - cells.usual.get("p50", 0.0))
                )
                continue
            else:
                continue
            added = (1 - share) * np.exp(centre) * np.expm1(np.nan_to_num(moved))
            added = added + share * np.exp(far) * np.expm1(np.nan_to_num(moved_far))
            size[:, k] += belief * np.log1p(np.maximum(added / np.exp(own), -0.8))
    return Shift(size, 0.15 * np.abs(size), 0.4 * size, np.zeros(n))


def unusual(cells: Cells, channels: Sequence[str], width: int) -> Shift:
    """Doubt where load or prompts moved further than they usually do: there the regression speaks of what it
    has not seen.

    The size is zero; only the deviation grows.
    """
    n = len(cells.times)
    doubt = np.zeros((n, len(channels)))
    for series, weight in (
        (cells.arrivals, DOUBT_LOAD),
        (cells.covariates.get("input_tokens"), DOUBT_PROMPTS),
    ):
        if series is None:
            continue
        beyond = weight * beyond_usual(series, width)
        for k, name in enumerate(channels):
            share = 0.2 if name == "time_per_output_chunk" else 1.0
            if name == "output_tokens" and series is cells.arrivals:
                share = 0.0
            doubt[:, k] = np.hypot(doubt[:, k], share * beyond)
    return Shift(np.zeros(doubt.shape), np.zeros(doubt.shape), doubt, np.zeros(n))


def hidden(cells: Cells, channels: Sequence[str], width: int) -> FloatArray | float:
    """Deviation (log latency), shape (N, K), by which each channel may have moved further than is seen, where
    a quantile lies beyond the last bound of its buckets on one side of a cell only; zero where none does."""
    doubt = np.zeros((len(cells.times), len(channels)))
    for k, name in enumerate(channels):
        if name in cells.hidden and cells.hidden[name].any():
            known = np.isfinite(cells.channels[name])
            share = before_after(np.where(known, cells.hidden[name], np.nan), width)
            doubt[:, k] = HIDDEN * np.abs(np.nan_to_num(share))
    return doubt if doubt.any() else 0.0


def beyond_usual(series: FloatArray, width: int) -> FloatArray:
    """By how much more than it usually does the log of a series moved at each cell, shape (N,); zero where
    unknown."""
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = before_after(np.where(series > 0, np.log(series), np.nan), width)
    size = np.abs(np.nan_to_num(moved))
    usual = 1.48 * float(np.median(size[size > 0])) if (size > 0).any() else 0.0
    result: FloatArray = np.maximum(size - 2.0 * usual, 0.0)
    return result


def queues(cells: Cells, fleet_moved: FloatArray | None, width: int) -> FloatArray:
    """Variance (log latency) by which queues may have moved about each cell, shape (N,).

    How much a busy service's queue makes of more load, or of tokens that became a little slower everywhere,
    its neighbours can't tell.

    Args:
        cells: the service.
        fleet_moved: movement of the fleet's log P99 at each cell, (N,).
        width: cells of the first minutes.
    """
    # A queue goes on growing for minutes after the load has risen.
    beyond = beyond_usual(cells.arrivals, width)
    padded = np.pad(beyond, (width, 2))
    recent = np.lib.stride_tricks.sliding_window_view(padded, width + 3).max(axis=1)
    variance: FloatArray = (LOAD_QUEUES * recent) ** 2
    if fleet_moved is not None:
        variance = variance + (FLEET_QUEUES * fleet_moved) ** 2
    return variance
