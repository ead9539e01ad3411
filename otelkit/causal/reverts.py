"""A change and the one that took it back, judged together: one effect that lasts from the one to the other.

Apart, each asks what latency was like before and after its own moment, and whatever happens between the two
blurs both. Together they ask one question: what was different in between. Both get the answer, with opposite
signs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from scipy import special

from otelkit.causal.credit import PRIOR, Claim, Group, Step
from otelkit.causal.evidence import Witness
from otelkit.causal.pooling import Evidence
from otelkit.model import canonical

SHORTEST_CELLS: Final = 3.0
"""Cells between the two below which nothing can be said of the time between."""
MORE: Final = 1.0
"""Log Bayes factor by which the joint question must be answered more clearly than that of one change."""


def partner(groups: Sequence[Group], number: int) -> int | None:
    """The group that takes this one's change back, or whose change this one takes back."""
    ahead = next((n for n in range(number + 1, len(groups)) if _undoes(groups[number], groups[n])), None)
    if ahead is not None:
        return ahead
    return next((n for n in range(number - 1, -1, -1) if _undoes(groups[n], groups[number])), None)


def _undoes(first: Group, second: Group) -> bool:
    if len(first.changes) != 1 or len(second.changes) != 1:
        return False
    there, back = first.changes[0], second.changes[0]
    same = (there.parameter, there.scope) == (back.parameter, back.scope)
    values = canonical(there.old), canonical(there.new)
    return same and values == (canonical(back.new), canonical(back.old)) and values[0] != values[1]


def together(
    witness: Witness, groups: Sequence[Group], number: int, other: int, steps: Sequence[Step], claim: Claim
) -> tuple[Claim, Evidence] | None:
    """Judge a group with its partner.

    Args:
        witness: the service, knowing of no step.
        groups: all groups.
        number: the group that is judged.
        other: its partner.
        steps: all accepted steps.
        claim: the group's claim by itself.

    Returns:
        The claim and the evidence from both, for a step at this group's place; None where they say no more
        than the claim by itself.
    """
    first, last = groups[min(number, other)], groups[max(number, other)]
    begins, ends = first.place + first.rollout / 2, last.place + last.rollout / 2
    if ends - begins < SHORTEST_CELLS:
        return None
    free = witness.knowing([step.movement for step in steps if step.owner not in (number, other)])
    found = free.weigh(np.array([begins]), first.paths | last.paths, np.array([ends]))
    log_bayes = float(found.log_bayes[0])
    if log_bayes < claim.net + MORE:
        return None
    onset = groups[number].place
    joint = replace(
        claim,
        log_bayes=log_bayes,
        net=log_bayes,
        probability=float(special.expit(PRIOR + log_bayes)),
        rival=None,
        rival_probability=0.0,
        unknown_probability=0.0,
        onset=onset,
        end=None,
    )
    turned = found if number < other else replace(found, means=-found.means)
    return joint, turned
