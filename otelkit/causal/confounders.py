"""What else could have moved P99 at a change's moment, each with its size, so that a verdict can name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal.credit import Claim, Group, Step
from otelkit.causal.evidence import Witness
from otelkit.causal.fitting import Fitted
from otelkit.causal.shifts import DOUBT_LOAD, DOUBT_PROMPTS, before_after
from otelkit.query.panel import FloatArray

VISIBLE: Final = 0.05
"""Movement of log P99 from which on a confounder is worth naming."""
UNUSUAL: Final = 2.5
"""How many times further than usual load or prompts must have moved to be worth naming."""
FLEET_REACH: Final = 1.0
"""How many times the median movement of the fleet one service's part in it may be."""
UNKNOWN_BEFORE: Final = 420.0
"""Seconds before a change from which on a step for no recorded reason still shows beside it."""


@dataclass(frozen=True)
class Confounder:
    """Something beside the change that moved, or may have moved, P99."""

    size: float
    """Log P99."""
    sentence: str
    earlier_step: bool = False
    """An unrecorded step shortly before the change, which its end would take back."""
    unrecorded: bool = False
    """A step of latency that nobody recorded a cause for."""
    reach: float = 1.0
    """How many times ``size`` it may really have moved P99."""
    known: bool = False
    """Whether its part is estimated beside the change's: strong evidence for the change then stands."""
    builds: bool = False
    """Whether queues go on building up for minutes after it."""
    either_way: bool = False
    """Whether taking it off may have left a movement of either sign."""
    common: bool = False
    """Whether the like often moves P99 by a tenth or more, change or no change."""

    def explains(self, effect: float) -> bool:
        """Whether it could have made an effect of that size (log P99) by itself."""
        same = self.either_way or self.size * effect > 0
        return same and self.reach * abs(self.size) >= abs(effect)


def around(
    witness: Witness,
    groups: Sequence[Group],
    number: int,
    claim: Claim,
    steps: Sequence[Step],
    elsewhere: Sequence[str],
) -> list[Confounder]:
    """Confounders at one change, the largest first.

    Args:
        witness: the service, knowing of no step.
        groups: all groups of changes.
        number: the one that is judged.
        claim: its claim.
        steps: all accepted steps.
        elsewhere: a sentence for each of the witness's shifts.
    """
    fitted = witness.fitted
    cells, model = fitted.cells, fitted.model
    place = int(np.clip(round(groups[number].place), 0, len(cells.times) - 1))
    found: list[Confounder] = []
    regression = fitted.regressions[model.target]
    minutes = width(fitted)
    load = [k for k, name in enumerate(fitted.columns.names) if name.startswith(("load", "queue"))]
    explained = fitted.columns.columns[:, load] @ regression.coefficients[load]
    size = unusual_move(explained, minutes, place)
    with np.errstate(divide="ignore", invalid="ignore"):
        offered = unusual_move(np.where(cells.arrivals > 0, np.log(cells.arrivals), np.nan), minutes, place)
    size = max(size, DOUBT_LOAD * offered, key=abs)
    found.append(
        Confounder(
            size,
            "offered load moved at the same moment",
            known=True,
            builds=True,
            either_way=True,
            common=True,
        )
    )
    prompts = cells.covariates.get("input_tokens")
    if prompts is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = unusual_move(np.where(prompts > 0, np.log(prompts), np.nan), minutes, place)
        found.append(Confounder(DOUBT_PROMPTS * moved, "prompt length moved at the same moment", common=True))
    for shift, sentence in zip(witness.shifts, elsewhere, strict=True):
        fleet = bool(shift.belief.any())
        size = float(shift.size[place, model.target])
        found.append(Confounder(size, sentence, reach=FLEET_REACH if fleet else 1.0, either_way=fleet))
    for step in steps:
        apart = (step.place - groups[number].place) * cells.seconds
        near = max(20.0, 2 * cells.seconds)
        earlier = (
            min(UNKNOWN_BEFORE, cells.seconds * len(cells.times) / 12) if step.owner is None else 1.5 * near
        )
        if step.owner == number or not -earlier < apart < near:
            continue
        size = step.movement.size
        if step.owner is None:
            when = f"{abs(apart):.0f} s {'before' if apart < 0 else 'after'} it"
            found.append(
                Confounder(
                    size,
                    f"latency stepped {when}, for no recorded reason",
                    earlier_step=apart < 0,
                    unrecorded=True,
                    reach=0.5,
                )
            )
        else:
            sentence = f"the step is that of {named(groups[step.owner])}"
            found.append(Confounder(size, sentence, reach=0.25, known=True))
    if claim.unknown_probability > 0.3:
        apart = (claim.unknown_place - groups[number].place) * cells.seconds
        when = f"{abs(apart):.0f} s {'before' if apart < 0 else 'after'} the change"
        size = float(witness.weigh(np.array([claim.unknown_place])).value[0])
        found.append(Confounder(size, f"the movement fits an onset {when} better", common=True))
    return sorted((c for c in found if abs(c.size) > VISIBLE), key=lambda c: -abs(c.size))


def width(fitted: Fitted) -> int:
    """Cells before and after a change over which load and prompts are compared: where there are only minutes
    of data, fewer."""
    return max(2, min(fitted.width, len(fitted.cells.times) // 12))


def unusual_move(values: FloatArray, width: int, place: int) -> float:
    """Mean over the minutes after a place less that before it; 0 where it moves as far now and then."""
    moves = before_after(values, width)
    known = np.abs(moves[np.isfinite(moves)])
    if not len(known) or not np.isfinite(moves[place]):
        return 0.0
    usual = 1.48 * float(np.median(known))
    return float(moves[place]) if abs(moves[place]) > UNUSUAL * usual else 0.0


def named(group: Group) -> str:
    """The group's changes in words."""
    return " and ".join(f"{c.parameter}" for c in group.changes)
