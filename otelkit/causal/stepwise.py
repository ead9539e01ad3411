"""The steps of a service's latency: found one after another, the clearest first, each credited to a change or
to nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from otelkit.causal import credit
from otelkit.causal.credit import Group, Step
from otelkit.causal.evidence import Witness

ACCEPTED: Final = 1.5
"""Log odds against nothing at which a change's step is taken for granted while others are looked for."""
ACCEPTED_UNKNOWN: Final = 9.0
"""The same for a step that nobody recorded."""
LEFT: Final = 0.0
"""Log Bayes factor below which a step is dropped once all others are known."""
FINER: Final = np.linspace(-0.5, 0.5, 11)
"""Cells around a step's place among which the best is taken."""
MOST_STEPS: Final = 12
MOST_UNKNOWN: Final = 4
"""Steps in all, and those that nobody recorded: beyond so many, noise is being explained."""


@dataclass(frozen=True)
class Best:
    """The clearest step of all that are left."""

    place: float
    owner: int | None
    log_odds: float


def find_steps(witness: Witness, groups: Sequence[Group]) -> list[Step]:
    """All steps that stand out, the clearest first, each with its owner."""
    cells = witness.fitted.cells
    spreads = [credit.lags_of(group, cells) for group in groups]
    bare = witness
    found: list[Step] = []
    at = np.arange(len(cells.times))
    unknown = credit.unknown_scores(witness, [])
    while len(found) < MOST_STEPS:
        taken = [step.place for step in found]
        if found:
            # Far from what was found last nothing has changed.
            near_it = np.abs(at - found[-1].place) <= 2 * witness.fitted.width
            unknown = np.where(near_it, credit.unknown_scores(witness, taken, near_it), unknown)
        place = int(np.argmax(unknown))
        best = Best(float(place), None, float(unknown[place]) - (ACCEPTED_UNKNOWN - ACCEPTED))
        if sum(step.owner is None for step in found) >= MOST_UNKNOWN:
            best = replace(best, log_odds=-np.inf)
        for number, group in enumerate(groups):
            if any(step.owner == number for step in found):
                continue
            own = credit.change_score(witness, group, spreads[number], taken)
            if own.log_bayes + credit.PRIOR > best.log_odds:
                best = Best(own.place, number, own.log_bayes + credit.PRIOR)
        if best.log_odds < ACCEPTED:
            break
        place_within = finer(witness, best.place)
        if best.owner is None:
            # The grid of cells may fit a step a little better than a change's own onsets do.
            near = [n for n, g in enumerate(groups) if credit.prompt(g, place_within, cells.seconds)]
            if near:
                nearest = min(near, key=lambda n: abs(groups[n].place - place_within))
                best = replace(best, owner=nearest)
        movement = witness.movement(
            place_within, witness.weigh(np.array([place_within]), paths(groups, best.owner))
        )
        found.append(Step(movement, best.owner, best.log_odds))
        witness = witness.knowing([movement])
    return owned(bare, groups, again(bare, groups, found))


def again(witness: Witness, groups: Sequence[Group], steps: Sequence[Step]) -> list[Step]:
    """Each step measured once more beside all others; what they leave nothing of is dropped.

    Args:
        witness: knows of no step.
        groups: all groups of changes.
        steps: as they were found.
    """
    kept = dict(enumerate(steps))
    for number, step in enumerate(steps if len(steps) > 1 else ()):
        others = witness.knowing([other.movement for n, other in kept.items() if n != number])
        beside = others.weigh(np.array([step.place]), paths(groups, step.owner))
        if beside.log_bayes[0] < LEFT:
            del kept[number]
        else:
            kept[number] = replace(step, movement=others.movement(step.place, beside))
    return list(kept.values())


def owned(witness: Witness, groups: Sequence[Group], steps: Sequence[Step]) -> list[Step]:
    """Steps that nobody recorded, given to the change that more likely made them, if it has none.

    While steps are found a change may get one that is dropped in the end; what it really did is then left to
    nobody.

    Args:
        witness: knows of no step.
        groups: all groups of changes.
        steps: as they were measured beside each other.
    """
    spreads = [credit.lags_of(group, witness.fitted.cells) for group in groups]
    result = list(steps)
    for number, step in enumerate(steps):
        idle = [n for n in range(len(groups)) if all(other.owner != n for other in result)]
        idle = [n for n in idle if abs(step.place - groups[n].place) <= spreads[n].cells[-1]]
        if step.owner is not None or not idle:
            continue
        beside = [other for n, other in enumerate(result) if n != number]
        others = witness.knowing([other.movement for other in beside])
        taken = [other.place for other in beside]
        near = np.abs(np.arange(len(witness.fitted.cells.times)) - step.place) <= 1
        unknown = float(credit.unknown_scores(others, taken, near).max())
        scores = {n: credit.change_score(others, groups[n], spreads[n], taken) for n in idle}
        scores = {n: own for n, own in scores.items() if credit.beside(own.place, [step.place])}
        best = max(scores, key=lambda n: scores[n].log_bayes, default=None)
        if best is not None and scores[best].log_bayes + credit.PRIOR > unknown:
            result[number] = replace(step, owner=best)
    return result


def paths(groups: Sequence[Group], owner: int | None) -> frozenset[str]:
    """Paths that the names of a step's owner speak of."""
    return groups[owner].paths if owner is not None else frozenset()


def finer(witness: Witness, place: float) -> float:
    """The best place within a step's cell, or the same where that is the data's first or last."""
    fine = place + FINER
    fine = fine[(fine > 0) & (fine < len(witness.fitted.cells.times) - 1)]
    if not len(fine):
        return place
    return float(fine[int(np.argmax(witness.weigh(fine).log_bayes))])
