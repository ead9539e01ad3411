"""What the causal engine answers: the same object behind the terminal table, JSON, the HTML page and the
metrics."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray


class Verdict(enum.Enum):
    """What can be said of one change."""

    CAUSAL = "causal"
    """Moved P99: onset at the change, not explained by load, other services or another change."""
    CORRELATED_ONLY = "correlated only"
    """P99 moved, but something else explains it; the reason names it."""
    NO_EFFECT = "no effect"
    """An effect as large as a stated margin is improbable. An equivalence claim, not a missing
    significance."""
    CANNOT_SEPARATE = "cannot separate"
    """Changes overlap or data is thin; the reason says which, and what would settle it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval, in seconds unless said otherwise."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one change."""

    change: ParameterChange
    verdict: Verdict
    reason: str
    """One sentence; names the confounder where there is one."""
    effect: Interval | None = None
    """Change of P99 in seconds; None when nothing can be estimated."""
    effect_ratio: Interval | None = None
    """The same relative to P99 without the change (0.59 is +59 %)."""
    lag_seconds: float | None = None
    """Seconds from the change to the onset of its effect; None where there is no onset."""
    pearson_r: float | None = None
    """Correlation of the change's step with load-adjusted P99. Shown, never deciding."""
    p_value: float | None = None
    q_value: float | None = None
    """Benjamini-Hochberg over the changes explained together."""
    mechanism: Mapping[str, Interval] = field(default_factory=dict)
    """Share (1 is all) of the effect by path: ``output_length``, ``time_per_token``, ``first_token``,
    ``queueing``, ``errors``; empty where it was not split."""
    placebo_effects: FloatArray | None = None
    """Effects (seconds) found by the same search at dates without a change: what the p-value came from."""
    threshold: float | None = None
    """Seconds of effect on P99 from which a change of this parameter is one to act on, where stated."""
    known_at: float | None = None
    """Unix seconds that data must reach before the verdict can be given, while it is too early for one."""

    @property
    def crosses_threshold(self) -> bool | None:
        """Whether the effect, up or down, is at least the threshold; None without either."""
        if self.threshold is None or self.effect is None:
            return None
        return abs(self.effect.value) >= self.threshold


@dataclass(frozen=True, slots=True)
class Explanation:
    """All that can be said about one service's P99 over one span of time."""

    service: str
    start: float
    """Unix seconds."""
    end: float
    findings: tuple[Finding, ...]
    """In order of time."""
    p99_before: float | None = None
    """Seconds, over the span before the largest rise put down to a change, or the largest fall if none."""
    p99_after: float | None = None
    moved_at: float | None = None
    """Unix seconds of that movement; None when P99 did not move."""
    unexplained_seconds: float | None = None
    """What is left of ``p99_after - p99_before`` once effects of causal changes are taken off."""
    counterfactual: FloatArray | None = None
    """P99 (seconds) on the panel's grid as it would have been without the causal changes."""
    counterfactual_low: FloatArray | None = None
    """Lower end of the counterfactual's 95 % band, seconds, on the same grid."""
    counterfactual_high: FloatArray | None = None
    method: str = ""
    warnings: tuple[str, ...] = ()
    """What the data lacked (buckets too coarse, gaps, short history), for a reader."""
