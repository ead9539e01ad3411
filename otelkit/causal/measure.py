"""Each change's effect, measured beside the other changes and beside load; its onset; and how it looks
unadjusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal import design, gls, pooling
from otelkit.causal.cells import Cells
from otelkit.model import ParameterChange
from otelkit.query.panel import BoolArray

HORIZON: Final = 600.0
"""Seconds after a change over which its movement is looked at without adjustment."""
LATEST_ONSET: Final = 300.0
EARLIEST_ONSET: Final = -60.0
"""Seconds around a change among which the onset of its effect is looked for."""


@dataclass(frozen=True)
class Group:
    """Changes made at the same moment: no data can tell them apart."""

    changes: tuple[ParameterChange, ...]
    begins: float
    """Unix seconds at which calls made under the new value begin to end."""
    settles: float
    """Unix seconds at which all calls that end were made under it."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one group. Effects are on log P99."""

    effect: float
    deviation: float
    z: float
    raw_z: float
    """The same movement without regard to load and other causes."""
    raw_effect: float
    load_ratio: float
    """Offered load just after over just before; NaN where unknown."""
    onset: float
    """Unix seconds at which the step fits best."""
    calls_before: float
    calls_after: float
    pearson_r: float


def grouped(changes: Sequence[ParameterChange], cells: Cells, delay: float) -> list[Group]:
    """Changes by moment; those closer than one cell share a group. ``delay`` is the usual latency, seconds:
    a call made under the new value is seen when it ends."""
    groups: list[list[ParameterChange]] = []
    for change in changes:
        if groups and change.first_seen - groups[-1][0].first_seen < cells.seconds:
            groups[-1].append(change)
        else:
            groups.append([change])
    return [
        Group(tuple(g), g[0].first_seen + delay, max([g[0].first_seen, *(c.last_seen for c in g)]) + delay)
        for g in groups
    ]


def with_steps(causes: design.Regressors, cells: Cells, groups: Sequence[Group]) -> design.Regressors:
    """The causes' columns followed by one lasting step for each group, of unknown size."""
    steps = [design.step(cells, g.begins, g.settles) for g in groups]
    return design.Regressors(
        np.column_stack([causes.columns, *steps]),
        (*causes.names, *(f"change {number}" for number in range(len(groups)))),
        np.concatenate([causes.prior_deviation, np.full(len(groups), 3.0)]),
    )


def measure(cells: Cells, groups: Sequence[Group]) -> tuple[gls.Fit, list[Measured]]:
    """Measure all groups jointly."""
    causes = design.causes(cells)
    fitted = gls.fit(cells.channels, cells.times, cells.calls, with_steps(causes, cells, groups))
    first = len(causes.names)
    unadjusted = design.Regressors(causes.columns[:, :1], causes.names[:1], causes.prior_deviation[:1])
    result = []
    for number, group in enumerate(groups):
        column = first + number
        effect = pooling.tail_effects(
            fitted.coefficients[column : column + 1],
            fitted.precision_inverse[column, column][None],
            fitted.covariance,
            cells.levels,
        )
        others = [g for g in groups if g is not group]
        ahead = [g.begins for g in groups if g.begins > group.begins]
        behind = [g.begins for g in groups if g.begins < group.begins]
        until = min([group.begins + HORIZON, *ahead])
        since = max([group.begins - HORIZON, *behind])
        raw = _raw(cells, fitted, with_steps(unadjusted, cells, others), group, until)
        after = (cells.times > group.begins) & (cells.times <= until)
        before = (cells.times <= group.begins) & (cells.times > since)
        result.append(
            Measured(
                effect=float(effect.value[0]),
                deviation=float(effect.deviation[0]),
                z=float(effect.z[0]),
                raw_z=float(raw.z[0]),
                raw_effect=float(raw.value[0]),
                load_ratio=_load_ratio(cells, group, since, until),
                onset=_onset(cells, fitted, column, group, ahead),
                calls_before=float(np.nansum(cells.calls[before])),
                calls_after=float(np.nansum(cells.calls[after])),
                pearson_r=_pearson(cells, fitted, causes, number, before | after),
            )
        )
    return fitted, result


def _raw(
    cells: Cells, fitted: gls.Fit, others: design.Regressors, group: Group, until: float
) -> pooling.TailEffects:
    plain = gls.refit(fitted, cells.channels, others)
    effects, variance = gls.scan(plain, design.step(cells, group.begins, group.settles, until)[:, None])
    return pooling.tail_effects(effects, variance, plain.covariance, cells.levels)


def _load_ratio(cells: Cells, group: Group, since: float, until: float) -> float:
    """Offered load after over before, in the first minute or over the whole span, whichever moved further.

    One where the difference is within what calls arriving at random make; NaN where load is unknown.
    """
    moment = group.changes[0].first_seen
    before = cells.arrivals[(cells.times <= moment) & (cells.times > since)]
    if not np.isfinite(before).any() or np.nanmean(before) <= 0:
        return float("nan")
    furthest = 1.0
    for end in (min(moment + 60.0, until), until):
        after = cells.arrivals[(cells.times > moment + cells.seconds / 2) & (cells.times <= end)]
        if not np.isfinite(after).any() or np.nanmean(after) <= 0:
            continue
        ratio = float(np.nanmean(after) / np.nanmean(before))
        chance = np.sqrt(
            1 / max(np.nansum(after) * cells.seconds, 1) + 1 / max(np.nansum(before) * cells.seconds, 1)
        )
        if abs(np.log(ratio)) > max(2.5 * chance, abs(np.log(furthest))):
            furthest = ratio
    return furthest


def _onset(cells: Cells, fitted: gls.Fit, column: int, group: Group, ahead: Sequence[float]) -> float:
    """The moment at which a step in place of the group's own fits best."""
    latest = min(
        [group.begins + LATEST_ONSET, *(b - cells.seconds for b in ahead), cells.times[-1] - cells.seconds]
    )
    candidates = np.arange(group.begins + EARLIEST_ONSET, max(latest, group.begins) + 1e-9, cells.seconds / 2)
    candidates = candidates[candidates > cells.times[0]]
    if not len(candidates):
        return group.begins
    without = gls.refit(fitted, cells.channels, design.drop(fitted.regressors, column))
    steps = np.column_stack([design.step(cells, at, at + group.settles - group.begins) for at in candidates])
    effects, variance = gls.scan(without, steps)
    direction = np.linalg.solve(fitted.covariance, fitted.coefficients[column])
    gain = (effects @ direction) ** 2 / variance
    best = float(gain.max())
    # Half-way between neighbours that fit nearly as well: the peak is flat to within a cell.
    near = candidates[gain >= best * 0.995]
    return float(near.mean())


def _pearson(
    cells: Cells, fitted: gls.Fit, causes: design.Regressors, number: int, window: BoolArray
) -> float:
    """Correlation of the change's step with the load-adjusted P99 around it."""
    p = len(causes.names)
    adjusted = cells.channels[:, -1] - causes.columns @ fitted.coefficients[:p, -1]
    step = fitted.regressors.columns[:, p + number]
    use = window & np.isfinite(adjusted)
    if use.sum() < 4 or step[use].std() < 1e-9 or adjusted[use].std() < 1e-12:
        return float("nan")
    return float(np.corrcoef(step[use], adjusted[use])[0, 1])
