"""How right a method was: one set of figures for any list of answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.causal.world import Planted, Truth

LARGE = 0.25
"""An effect of this share of P99 or more counts as large."""


@dataclass(frozen=True)
class Answer:
    """What a method said of one change."""

    causal: bool
    verdict: str = ""
    """What was said of a change that is not called causal; methods that know only two answers say "no
    effect"."""
    log_ratio: float | None = None
    low: float | None = None
    high: float | None = None
    """Effect on log P99 with its 95 % interval."""
    lag: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Case:
    """One change, its truth and an answer."""

    kind: str
    seed: int
    planted: Planted
    truth: Truth
    answer: Answer

    @property
    def right_sign(self) -> bool:
        return self.answer.log_ratio is not None and self.answer.log_ratio * self.truth.log_ratio > 0

    @property
    def hit(self) -> bool:
        return self.truth.real and self.answer.causal and self.right_sign

    @property
    def false_positive(self) -> bool:
        """A wrong sign is one too, and a miss besides."""
        return self.answer.causal and not self.hit


def figures(cases: Sequence[Case]) -> dict[str, Any]:
    """All figures of one method."""
    real = [c for c in cases if c.truth.real]
    large = [c for c in real if abs(np.expm1(c.truth.log_ratio)) >= LARGE]
    clean = [c for c in cases if not c.truth.real and not c.planted.confounded]
    confounded = [c for c in cases if not c.truth.real and c.planted.confounded]
    hits, false = sum(c.hit for c in cases), sum(c.false_positive for c in cases)
    precision = hits / (hits + false) if hits + false else None
    recall = hits / len(real) if real else None
    f1 = 2 * hits / (2 * hits + false + len(real) - hits) if real else None
    bounded = [c for c in cases if c.answer.low is not None and c.answer.high is not None]
    lags = [
        abs(c.answer.lag - c.planted.lag)
        for c in cases
        if c.hit and c.answer.lag is not None and c.planted.lag is not None
    ]
    nulls = [c.answer.p for c in (*clean, *confounded) if c.answer.p is not None]
    clean_p = [c.answer.p for c in clean if c.answer.p is not None]
    return {
        "changes": len(cases),
        "real": len(real),
        "precision": _round(precision),
        "recall": _round(recall),
        "f1": _round(f1),
        "recall_large": _share(large, lambda c: c.hit),
        "false_positives_clean": _share(clean, lambda c: c.answer.causal),
        "false_positives_confounded": _share(confounded, lambda c: c.answer.causal),
        "coverage": _share(bounded, lambda c: c.answer.low <= c.truth.log_ratio <= c.answer.high),
        "coverage_real": _share(
            [c for c in bounded if c.truth.real], lambda c: c.answer.low <= c.truth.log_ratio <= c.answer.high
        ),
        "interval_width_median": _round(
            float(np.median([c.answer.high - c.answer.low for c in bounded])) if bounded else None  # type: ignore[operator]
        ),
        "lag_error_seconds_median": _round(float(np.median(lags)) if lags else None),
        "null_p_below_0.05": _round(float(np.mean(np.array(nulls) < 0.05)) if nulls else None),
        "clean_null_p_below_0.05": _round(float(np.mean(np.array(clean_p) < 0.05)) if clean_p else None),
        "three_way_accuracy": _share(list(cases), _three_way),
    }


def by_kind(cases: Sequence[Case]) -> dict[str, Any]:
    """Hits over real effects and false positives over nulls, for each kind."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.kind].append(case)
    return {
        kind: {
            "hits": sum(c.hit for c in group),
            "real": sum(c.truth.real for c in group),
            "false_positives": sum(c.false_positive for c in group),
            "nulls": sum(not c.truth.real for c in group),
        }
        for kind, group in groups.items()
    }


def _three_way(case: Case) -> bool:
    """Causal, correlated only, or no effect; "cannot separate" is never right here.

    A null beside a confounder may be called either: whether P99 moved visibly at that moment is a matter of
    degree.
    """
    if case.truth.real:
        return case.hit
    if case.answer.causal:
        return False
    if case.planted.confounded:
        return case.answer.verdict in ("correlated only", "no effect")
    return case.answer.verdict == "no effect"


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _share(cases: list[Case], test: Any) -> float | None:
    return _round(sum(bool(test(c)) for c in cases) / len(cases)) if cases else None
