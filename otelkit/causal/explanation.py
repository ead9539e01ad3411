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
    onset: float | None = None
    """Unix seconds at which the effect of a causal change is first seen."""
    too_soon: bool = False
    """Whether too little came after the change to see what else moved at the same moment (the other services,
    a service that is called, load, prompts): a "causal" may yet turn out to be one of them."""
    known_at: float | None = None
    """Unix seconds that data must reach before the verdict can be given, while it is too early for one."""

    @property
    def crosses_threshold(self) -> bool | None:
        """Whether this change moved P99, up or down, by at least the threshold.

        True only of a causal change, by the estimate of its effect. False where the whole interval lies below
        the threshold, and where something else moved P99: there is nothing to act on in this change then.
        None where there is no threshold, or where it can't be said.
        """
        if self.threshold is None:
            return None
        if self.verdict is Verdict.CORRELATED_ONLY:
            return False
        if self.effect is None:
            return None
        if self.verdict is Verdict.CAUSAL and abs(self.effect.value) >= self.threshold:
            return True
        reach = max(abs(self.effect.low), abs(self.effect.high))
        return False if reach < self.threshold else None


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
