"""From a claim to what can be said: an interval, a verdict and one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from scipy import special

from otelkit.causal.confounders import Confounder, named
from otelkit.causal.credit import Claim, Group
from otelkit.causal.explanation import Verdict
from otelkit.query.panel import FloatArray

FALSE_DISCOVERIES: Final = 0.10
LIKELY: Final = 0.3
LIKELY_LATE: Final = 0.7
"""Probability of an effect from which on it is called causal, where it is prompt and where it begins late:
most effects are prompt, and what steps later had many moments to choose from."""
WORTH_LIKELY: Final = 0.1
WORTH_BESIDE: Final = 0.75
"""Probability of an effect worth the name; and where something else could have made it by itself, or moved
P99 before a late onset."""
SIGN_LIKELY: Final = 0.8
"""Probability of its sign, as the interval has it: a cause whose effect may as well have been the other way
helps nobody."""
SIGN_SHORT: Final = 0.85
"""The same where the data are too short for a drift, and for many placebo dates, to be seen."""
SPREAD: Final = 0.4
"""Share of an effect by which the minutes after a change may differ from what the model makes of them: queues
build up or drain. For intervals."""
LARGE: Final = 0.6
"""Effect (log P99) from which on that share stops growing."""
INTERVAL_ODDS: Final = 10.0
"""How often changes have effects is itself only guessed; intervals are given as if it were this many times
oftener, so that they do not shrink to nothing on the strength of that guess."""
LATE_REACH: Final = 4.0
"""How many times as far as what moved beside a change a late effect must be to be its own."""
LATE_CELLS: Final = 1.0
"""An onset later than this counts as late."""
WORTH: Final = 0.04
"""Share of P99 below which an effect is not worth the name."""
SURELY_NONE: Final = 0.9
"""Probability that an effect is smaller than the margin from which on it is called none."""
STRIKING: Final = 0.2
"""Movement of log P99 through what often moves it (load, prompts) from which on that is named although the
change surely did nothing."""
NOTHING: Final = 0.01
"""Deviation (log P99) of what "no effect" still allows."""
MIN_CALLS: Final = 15.0
"""Calls needed on each side of a change before anything is said."""


@dataclass(frozen=True)
class Estimate:
    """Effect on log P99 as a mixture of normal distributions."""

    weights: FloatArray
    means: FloatArray
    deviations: FloatArray

    @property
    def mean(self) -> float:
        return float(self.weights @ self.means)

    def below(self, value: float) -> float:
        """Probability that the effect is smaller than ``value``."""
        return float(self.weights @ special.ndtr((value - self.means) / self.deviations))

    def quantile(self, level: float) -> float:
        """By bisection."""
        low = float((self.means - 8 * self.deviations).min())
        high = float((self.means + 8 * self.deviations).max())
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.below(middle) < level else (low, middle)
        return (low + high) / 2

    @cached_property
    def cautious(self) -> Estimate:
        """The same under the belief that effects are more common (``INTERVAL_ODDS``), and differ more."""
        raised = self.weights * np.where(np.arange(len(self.weights)) == 0, 1.0, INTERVAL_ODDS)
        wider = np.hypot(self.deviations, SPREAD * np.minimum(np.abs(self.means), LARGE))
        return Estimate(raised / raised.sum(), self.means, wider)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval."""
        return self.cautious.quantile(0.025), self.cautious.quantile(0.975)

    @property
    def sign(self) -> float:
        """Probability of the likelier sign, as the interval has it."""
        below = self.cautious.below(0.0)
        return max(below, 1 - below)

    def within(self, margin: float) -> float:
        """Probability that the effect is no larger than ``margin``, a share of P99, either way."""
        return self.below(float(np.log1p(margin))) - self.below(float(np.log1p(-margin)))

    @property
    def worth(self) -> float:
        """Probability that the effect has the likelier sign and is worth the name."""
        return max(1 - self.below(float(np.log1p(WORTH))), self.below(float(np.log1p(-WORTH))))


def estimate(
    probability: float, posterior: FloatArray, means: FloatArray, deviations: FloatArray
) -> Estimate:
    """Mix "no effect" with the hypotheses of an effect.

    Args:
        probability: that the change had an effect.
        posterior: of each hypothesis if it had, shape (H,).
        means, deviations: of the effect under each, shape (H,).
    """
    return Estimate(
        np.concatenate([[1 - probability], probability * posterior]),
        np.concatenate([[0.0], means]),
        np.concatenate([[NOTHING], np.maximum(deviations, NOTHING)]),
    )


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


def rival_causes(
    own: Group, claim: Claim, effect: Estimate, confounders: Sequence[Confounder]
) -> list[Confounder]:
    """Those that could have made the effect by themselves; before a late onset, those that are more than a
    small part of it."""
    asked = effect.mean / LATE_REACH if is_late(own, claim) else effect.mean
    return [c for c in confounders if c.explains(asked)]


def is_late(own: Group, claim: Claim) -> bool:
    """Whether an effect begins too long after its change to be seen as prompt."""
    return claim.onset - own.place > LATE_CELLS + own.rollout


def decide(
    groups: Sequence[Group],
    own: Group,
    claim: Claim,
    effect: Estimate,
    q: float,
    confounders: Sequence[Confounder],
    calls: tuple[float, float],
    margin: float,
    short: bool = False,
    cut_off: float | None = None,
) -> tuple[Verdict, str]:
    """The verdict on one group of changes, and its reason.

    ``short`` says that the data are too short to see a drift in them; ``cut_off`` is the last bound (seconds)
    of the buckets where P99 lies beyond it before and after.
    """
    if min(calls) < MIN_CALLS:
        side = "before" if calls[0] < calls[1] else "after"
        return (
            Verdict.CANNOT_SEPARATE,
            f"Only {min(calls):.0f} calls {side} it: more traffic or a longer span would settle it.",
        )
    rivalled = claim.rival is not None and claim.probability < 0.75 and claim.rival_probability > 0.25
    if rivalled and effect.worth > 0.2:
        rival = named(groups[claim.rival or 0])
        return (
            Verdict.CANNOT_SEPARATE,
            f"P99 moved, but {rival} changed too close to it: change them some minutes apart.",
        )
    taken_back = next((c for c in confounders if c.earlier_step and _takes_back(effect.mean, c.size)), None)
    # A change that follows one of the same parameter may well take that one's effect back itself.
    names = {change.parameter for change in own.changes}
    again = any(g.place < own.place and names & {c.parameter for c in g.changes} for g in groups)
    if taken_back is not None and not again:
        return Verdict.CORRELATED_ONLY, f"P99 went back to where it was before {taken_back.sentence}."
    rivals = rival_causes(own, claim, effect, confounders)
    late = is_late(own, claim)
    likely = claim.probability > (LIKELY_LATE if late else LIKELY)
    if not rivals:
        enough = likely and effect.worth > WORTH_LIKELY
    else:
        known = all(c.known and not (c.builds and late) for c in rivals)
        enough = likely and effect.worth > WORTH_BESIDE and known
    if q < FALSE_DISCOVERIES and enough and effect.sign > (SIGN_SHORT if short else SIGN_LIKELY):
        if len(own.changes) > 1:
            return (
                Verdict.CANNOT_SEPARATE,
                f"P99 moved, but {named(own)} changed at the same moment: change them one at a time.",
            )
        beside = f" Accounted for beside it: {confounders[0].sentence}." if confounders else ""
        return Verdict.CAUSAL, f"P99 stepped when it was made, beyond load and whatever else moved.{beside}"
    none = effect.within(margin)
    striking = [c for c in confounders if abs(c.size) > (STRIKING if c.common else margin)]
    if striking or (confounders and none < SURELY_NONE):
        return Verdict.CORRELATED_ONLY, _moved((rivals or striking or confounders)[0])
    if cut_off is not None:
        return (
            Verdict.CANNOT_SEPARATE,
            f"P99 lies beyond the last bound of its buckets ({cut_off:g} s) before it and after: "
            "bounds above that would show it.",
        )
    if none >= SURELY_NONE:
        seen = next((c for c in confounders if abs(c.size) > margin), None)
        moved = f" {_moved(seen)}" if seen is not None else ""
        return (
            Verdict.NO_EFFECT,
            f"An effect on P99 of {margin:.0%} or more is improbable ({1 - none:.1%}).{moved}",
        )
    low, high = (float(np.expm1(bound)) for bound in effect.interval)
    return (
        Verdict.CANNOT_SEPARATE,
        f"No effect stands out, but one between {low:+.0%} and {high:+.0%} "
        "can't be ruled out: more calls would settle it.",
    )


def _moved(confounder: Confounder) -> str:
    return f"P99 moved by {np.expm1(confounder.size):+.0%}, but {confounder.sentence}."


def _takes_back(effect: float, earlier: float) -> bool:
    """Whether an effect undoes an earlier step, give or take."""
    return effect * earlier < 0 and 0.5 < abs(effect / earlier) < 2.5
