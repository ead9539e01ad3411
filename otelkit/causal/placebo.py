"""How strong a claim the same search finds at moments where nothing was changed.

Every accepted step is taken off first (an earlier real effect would inflate placebos), then every quiet cell
is treated as if a change had been made there: the same lags, the same hypotheses. A noise model that is wrong
shows here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from otelkit.causal import credit
from otelkit.causal.cells import Cells
from otelkit.causal.evidence import Witness
from otelkit.query.panel import BoolArray, FloatArray

UPPER: Final = 0.2
"""Share of placebo scores above which their tail is taken for exponential."""
TAIL: Final = 0.8
TAIL_WEIGHT: Final = 6.0
"""Mean excess that log Bayes factors show when the noise model holds, and how many placebos' worth that
belief has."""
LEAST_P: Final = 1e-4
"""Smaller p-values than this nobody can vouch for from a few hours of placebos."""
RARER: Final = 14.0
"""A Bayes factor B is reached by at most 1 in B of changes without effect, by Markov's inequality; where the
noise model holds, really by 1 in this many times B. Placebos that are calm by chance must not say less."""
NO_STEP: Final = -20.0
"""Log Bayes factor of what cannot be a step."""
BELIEVED: Final = 12.0
"""Placebos' worth of the belief that the noise model's scale is right."""
MEAN_SQUARE: Final = 0.92
"""Mean of the square of a standard normal variable, where more than 4 counts as 4."""
SCALES: Final = (1.0, 1.8)


@dataclass(frozen=True)
class Null:
    """Scores and effects found where nothing was changed."""

    scores: FloatArray
    effects: FloatArray
    """Log P99."""
    threshold: float
    excess: float

    def p_value(self, score: float) -> float:
        """Chance of a placebo score at least as high, and no less than the score itself allows."""
        least = max(float(np.exp(-max(score, 0.0))) / RARER, LEAST_P)
        if score > self.threshold or not len(self.scores):
            return max(float(UPPER * np.exp(-max(score - self.threshold, 0.0) / self.excess)), least)
        return max(float((1 + (self.scores >= score).sum()) / (1 + len(self.scores))), least)


def quiet(witness: Witness, places: Sequence[float], guard: float) -> BoolArray:
    """Cells further than ``guard`` cells from all of ``places`` and not at the ends, shape (N,)."""
    n = len(witness.fitted.cells.times)
    at = np.arange(n)
    margin = max(2, min(n // 12, witness.fitted.width // 2))
    result = (at >= margin) & (at < n - margin)
    for place in places:
        result &= np.abs(at - place) > guard
    return np.asarray(result)


def guard(cells: Cells) -> float:
    """Cells around a change or a step that are no placebo."""
    return float(min(credit.LATEST_SECONDS / cells.seconds + 2, len(cells.times) / 12))


def scale(witness: Witness, cells: BoolArray) -> float:
    """How many times the noise model's own deviation the effects at quiet moments really spread."""
    onsets = np.flatnonzero(cells).astype(float)
    if not len(onsets):
        return 1.0
    effects, noise = witness.effects(onsets)
    deviations = np.sqrt(np.einsum("skk->sk", noise))
    # Steps that nobody recorded may be among them: they must not count for much.
    squares = float(np.minimum((effects / deviations) ** 2, 4.0).mean()) / MEAN_SQUARE
    distinct = max(1.0, len(onsets) / max(witness.fitted.width / 2, 1))
    return float(np.clip(np.sqrt((squares * distinct + BELIEVED) / (distinct + BELIEVED)), *SCALES))


def null(witness: Witness, cells: BoolArray, delay: float, taken: Sequence[float]) -> Null:
    """Scores of the same search at all quiet cells.

    Args:
        witness: knows the accepted steps at the places ``taken``.
        cells: quiet ones.
        delay: as in ``credit.lags``.
        taken: as everywhere, what is left over beside a known step is no step of its own.
    """
    at = witness.fitted.cells
    onsets = np.flatnonzero(cells)
    if not len(onsets):
        return Null(np.empty(0), np.empty(0), 0.0, TAIL)
    everywhere = witness.everywhere
    spread = credit.lags(at.seconds, delay, 0.0, len(at.times))
    places = onsets[:, None] + spread.cells[None]
    free = [not credit.beside(float(place), taken) for place in range(len(at.times))]
    looked_at = np.interp(places, np.arange(len(at.times)), np.where(free, everywhere.log_bayes, NO_STEP))
    scores = special.logsumexp(spread.log_prior[None] + looked_at, axis=1)
    threshold = float(np.quantile(scores, 1 - UPPER))
    above = scores[scores > threshold] - threshold
    distinct = max(1.0, len(above) / max(witness.fitted.width / 4, 1))
    mean = float(above.mean()) if len(above) else TAIL
    excess = (mean * distinct + TAIL * TAIL_WEIGHT) / (distinct + TAIL_WEIGHT)
    return Null(scores, everywhere.value[onsets], threshold, excess)
