"""From what was measured to what can be said: one verdict and one sentence per change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from otelkit.causal.cells import Cells
from otelkit.causal.explanation import Finding, Interval, Verdict
from otelkit.causal.measure import Group, Measured
from otelkit.causal.placebo import Null
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray

FALSE_DISCOVERIES: Final = 0.05
MIN_CALLS: Final = 20.0
"""Calls needed on each side of a change before anything is said."""
LOAD_MOVED: Final = 1.2


def false_discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Benjamini-Hochberg q values, in the order given."""
    p = np.asarray(p_values, dtype=float)
    if not len(p):
        return []
    order = np.argsort(p)
    q = p[order] * len(p) / np.arange(1, len(p) + 1)
    q = np.minimum(np.minimum.accumulate(q[::-1])[::-1], 1.0)
    result = np.empty(len(p))
    result[order] = q
    return [float(value) for value in result]


def judge(
    cells: Cells,
    own: Sequence[ParameterChange],
    groups: Sequence[Group],
    measured: Sequence[Measured],
    null: Null,
    p99_after: Sequence[float],
    *,
    delay: float,
    margin: float,
) -> list[Finding]:
    """One finding per change of ``own``, in its order.

    Args:
        p99_after: P99 (seconds) seen while each group was in force, NaN where unknown: turns ratios into
            seconds.
        delay: usual latency, seconds, by which an onset is seen late.
        margin: share of P99 that counts as nothing.
    """
    p_values = [null.p_value(m.z) for m in measured]
    q_values = false_discovery_rates(p_values)
    findings: dict[str, Finding] = {}
    for group, m, p, q, level in zip(groups, measured, p_values, q_values, p99_after, strict=True):
        for change in group.changes:
            findings[_key(change)] = _one(
                cells, change, group, m, null, p, q, level, delay=delay, margin=margin
            )
    return [findings.get(_key(change)) or _outside(change, cells) for change in own]


def _key(change: ParameterChange) -> str:
    return f"{change.id} {change.first_seen}"


def _outside(change: ParameterChange, cells: Cells) -> Finding:
    side = "before the data begins" if change.first_seen <= cells.times[0] else "at or after the data's end"
    return Finding(
        change,
        Verdict.CANNOT_SEPARATE,
        f"The change lies {side}: read a span that has data on both sides of it.",
    )


def _one(
    cells: Cells,
    change: ParameterChange,
    group: Group,
    m: Measured,
    null: Null,
    p: float,
    q: float,
    level: float,
    *,
    delay: float,
    margin: float,
) -> Finding:
    wide = 1.96 * m.deviation * null.scale
    ratio = Interval(*(float(np.expm1(v)) for v in (m.effect, m.effect - wide, m.effect + wide)))
    seconds = None
    placebo: FloatArray | None = None
    if np.isfinite(level):
        without = level / np.exp(m.effect)
        seconds = Interval(*(float(without * r) for r in (ratio.value, ratio.low, ratio.high)))
        placebo = np.asarray(without * np.expm1(null.effects))
    verdict, reason = _decide(group, m, q, ratio, null, margin)
    causal = verdict is Verdict.CAUSAL
    lag = max(0.0, m.onset - delay - change.first_seen) if causal else None
    return Finding(
        change=change,
        verdict=verdict,
        reason=reason,
        effect=seconds,
        effect_ratio=ratio,
        lag_seconds=lag,
        pearson_r=m.pearson_r if np.isfinite(m.pearson_r) else None,
        p_value=p,
        q_value=q,
        placebo_effects=placebo,
    )


def _decide(
    group: Group, m: Measured, q: float, ratio: Interval, null: Null, margin: float
) -> tuple[Verdict, str]:
    load_moved = np.isfinite(m.load_ratio) and not 1 / LOAD_MOVED < m.load_ratio < LOAD_MOVED
    load = f"offered load went to {m.load_ratio:.2g} times what it was at the same moment"
    if min(m.calls_before, m.calls_after) < MIN_CALLS:
        side = "before" if m.calls_before < m.calls_after else "after"
        few = min(m.calls_before, m.calls_after)
        return (
            Verdict.CANNOT_SEPARATE,
            f"Only {few:.0f} calls {side} it: more traffic or a longer span would settle it.",
        )
    significant = q < FALSE_DISCOVERIES and ratio.low * ratio.high > 0
    if significant and len(group.changes) > 1:
        names = ", ".join(c.parameter for c in group.changes)
        return (
            Verdict.CANNOT_SEPARATE,
            f"P99 moved, but {names} changed at the same moment: change them one at a time.",
        )
    if significant:
        beside = (
            "; load and the other changes are accounted for"
            if not load_moved
            else f", beside the load: {load}"
        )
        return Verdict.CAUSAL, f"P99 stepped at the change by more than placebo dates ever show{beside}."
    if load_moved and null.p_value(m.raw_z) < FALSE_DISCOVERIES:
        return Verdict.CORRELATED_ONLY, f"P99 moved with the traffic: {load}."
    if -margin < ratio.low and ratio.high < margin:
        return Verdict.NO_EFFECT, f"Any effect on P99 is smaller than {margin:.0%}."
    if load_moved:
        return Verdict.CANNOT_SEPARATE, f"No effect stands out, but {load}: steady traffic would settle it."
    return (
        Verdict.CANNOT_SEPARATE,
        f"No effect stands out, but one between {ratio.low:+.0%} and {ratio.high:+.0%} "
        "can't be ruled out: more calls would.",
    )
