"""What else could have moved P99 at a change's moment, each with its size, so that a verdict can name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.causal.credit import Claim, Group, Step
from otelkit.causal.evidence import Witness
from otelkit.causal.shifts import before_after

VISIBLE: Final = 0.05
"""Movement of log P99 from which on a confounder is worth naming."""
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
    table = fitted.tables[model.target]
    for word, sentence in (("load", "offered load"), ("queue", "offered load"), ("prompt", "prompt length")):
        columns = [k for k, name in enumerate(fitted.columns.names) if name.startswith(word)]
        explained = fitted.columns.columns[:, columns] @ table.coefficients[columns]
        moved = before_after(explained, fitted.width)[place]
        if np.isfinite(moved):
            found.append(Confounder(float(moved), f"{sentence} moved at the same moment"))
    for shift, sentence in zip(witness.shifts, elsewhere, strict=True):
        found.append(Confounder(float(shift.size[place, model.target]), sentence))
    for step in steps:
        apart = (step.place - groups[number].place) * cells.seconds
        near = max(20.0, 2 * cells.seconds)
        earlier = (
            min(UNKNOWN_BEFORE, cells.seconds * len(cells.times) / 12) if step.owner is None else 1.5 * near
        )
        if step.owner == number or not -earlier < apart < near:
            continue
        size = float(witness.weigh(np.array([step.place])).value[0])
        if step.owner is None:
            when = f"{abs(apart):.0f} s {'before' if apart < 0 else 'after'} it"
            found.append(Confounder(size, f"latency stepped {when}, for no recorded reason", apart < 0))
        else:
            found.append(Confounder(size, f"the step is that of {named(groups[step.owner])}"))
    if claim.unknown_probability > 0.3:
        apart = (claim.unknown_place - groups[number].place) * cells.seconds
        when = f"{abs(apart):.0f} s {'before' if apart < 0 else 'after'} the change"
        size = float(witness.weigh(np.array([claim.unknown_place])).value[0])
        found.append(Confounder(size, f"the movement fits an onset {when} better"))
    return sorted((c for c in found if abs(c.size) > VISIBLE), key=lambda c: -abs(c.size))


def named(group: Group) -> str:
    """The group's changes in words."""
    return " and ".join(f"{c.parameter}" for c in group.changes)
