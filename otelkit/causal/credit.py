"""Whose step was it? Steps are found one after another, the clearest first, and each is credited to a change
or to nobody.

A step that begins where a change was made (or a little later) is more likely that change's than the work of
something unknown; one that begins before it cannot be. How much more is a matter of two rates: how often
changes have effects, and how often latency steps for no recorded reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from scipy import special

from otelkit.causal.evidence import Witness
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray

EFFECTIVE: Final = 0.25
"""Share of changes that are believed to move P99."""
UNKNOWN_PER_HOUR: Final = 0.5
"""Steps that nobody recorded a cause for."""
PROMPT_SECONDS: Final = 5.0
PROMPT_SHARE: Final = 0.85
"""Share of effects that begin within about ``PROMPT_SECONDS``."""
MINUTE: Final = 60.0
SLACK_SECONDS: Final = 5.0
"""How far the clock of the changes may be off that of the metrics."""
LATEST_SECONDS: Final = 300.0
ACCEPTED: Final = 1.5
"""Log odds against nothing at which a change's step is taken for granted while others are looked for."""
ACCEPTED_UNKNOWN: Final = 9.0
"""The same for a step that nobody recorded."""
FINER: Final = np.linspace(-0.5, 0.5, 11)
"""Cells around a step's place among which the best is taken."""
LEFTOVER_CELLS: Final = 3.0
MOST_STEPS: Final = 12
MOST_UNKNOWN: Final = 4
"""Steps in all, and those that nobody recorded: beyond so many, noise is being explained."""
WORTH_ASKING: Final = 3.0
"""Log odds from which on it is asked whether a rival and the change both had effects."""
AROUND_SECONDS: Final = 900.0
"""How far from a change an unrecorded step competes with it."""


@dataclass(frozen=True)
class Group:
    """Changes made at the same moment: no data can tell them apart."""

    changes: tuple[ParameterChange, ...]
    place: float
    """Cells from the start of the grid at which calls made under the new value begin to end."""
    rollout: float
    """Cells until the last worker took it up."""
    delay: float
    """Cells between a call's beginning and its being seen, usually; contained in ``place``."""
    paths: frozenset[str]
    """Paths that the parameters' names speak of."""


@dataclass(frozen=True)
class Lags:
    """Onsets looked at for a change, as cells after its place, with their prior probability."""

    cells: FloatArray
    log_prior: FloatArray


@dataclass(frozen=True)
class Step:
    """A step of latency that is taken for granted."""

    place: float
    """Cells from the start of the grid."""
    owner: int | None
    """Group that it is credited to; None for nobody."""
    log_odds: float


def lags(cell_seconds: float, delay: float, rollout: float, length: int) -> Lags:
    """Onsets to look at: most effects begin at once, some within a minute, few up to five minutes later.

    Args:
        cell_seconds: width of a cell.
        delay: cells by which calls are usually seen late; quick calls are seen sooner, so the search begins
            that much earlier.
        rollout: cells over which the change was rolled out.
        length: number of cells in all.
    """
    latest = min(LATEST_SECONDS / cell_seconds, length / 12) + rollout
    early = -min(delay, 4.0) - SLACK_SECONDS / cell_seconds
    cells = np.concatenate([np.arange(early, min(2.0, latest), 0.5), np.arange(2.0, latest + 1e-9, 1.0)])
    since = np.maximum(cells - rollout, 0.0) * cell_seconds
    prior = lag_density(since, cell_seconds)
    # Before the first call could have been seen, only a clock that is a little off explains an onset.
    prior = np.where(cells < -min(delay, 4.0) - 1e-9, 0.1 * prior, prior)
    width = np.gradient(cells)
    return Lags(cells, np.log(prior * width / (prior * width).sum()))


def lag_density(since: FloatArray, blur: float) -> FloatArray:
    """How often an effect begins ``since`` seconds after its change, per second; ``blur`` is how well that
    can be told."""
    prompt_density = np.exp(-since / (PROMPT_SECONDS + blur)) / (PROMPT_SECONDS + blur)
    density: FloatArray = PROMPT_SHARE * prompt_density + (1 - PROMPT_SHARE) * (
        0.6 * (since < MINUTE) / MINUTE + 0.4 * (since < 1.5 * LATEST_SECONDS) / LATEST_SECONDS
    )
    return density


def prompt(group: Group, place: float, cell_seconds: float) -> bool:
    """Whether a step at ``place`` begins as soon after a change as it can be told."""
    early = min(group.delay, 4.0) + SLACK_SECONDS / cell_seconds
    return -early - 1.0 <= place - group.place <= 1.0 + group.rollout


def change_score(
    witness: Witness, group: Group, spread: Lags, taken: Sequence[float]
) -> tuple[float, FloatArray]:
    """Log Bayes factor for "this change had an effect", and the probability of each lag if it did.

    Args:
        witness: knows the steps at the places ``taken``.
        group: the change.
        spread: its lags.
        taken: what is left over beside a known step is no step of its own, unless this change was made just
            there.
    """
    onsets = group.place + spread.cells
    cells = witness.fitted.cells
    lone = not witness.fleet_moved(group.place)
    last = len(cells.times) - 1 - LEFTOVER_CELLS

    def own(onset: float) -> bool:
        """Whether a step there could be the change's own."""
        leftover = beside(onset, taken)
        if prompt(group, onset, cells.seconds):
            return not leftover or onset >= group.place - 0.5
        # When the whole fleet moved, or so near the end, what comes later proves nothing.
        return lone and not leftover and onset < last

    free = np.array([own(onset) for onset in onsets])
    if not free.any():
        return -np.inf, np.zeros(len(onsets))
    weighted = np.where(free, spread.log_prior + witness.weigh(onsets, group.paths).log_bayes, -np.inf)
    total = float(special.logsumexp(weighted))
    return total, np.exp(weighted - total)


def beside(place: float, taken: Sequence[float]) -> bool:
    """Whether a known step is so near that what is left of it could be taken for another."""
    return any(abs(place - other) <= LEFTOVER_CELLS for other in taken)


def unknown_scores(witness: Witness, cell_seconds: float, taken: Sequence[float]) -> FloatArray:
    """Log odds, for each cell, of a step there that nobody recorded, against none; shape (N,). ``taken`` as
    above."""
    length = len(witness.fitted.cells.times)
    rate = np.log(UNKNOWN_PER_HOUR * cell_seconds / 3600.0)
    scores: FloatArray = rate + witness.weigh(np.arange(length, dtype=float)).log_bayes
    scores[[beside(place, taken) for place in range(length)]] = -np.inf
    # A step needs something on both sides.
    scores[:2] = scores[-2:] = -np.inf
    return scores


def find_steps(witness: Witness, groups: Sequence[Group]) -> list[Step]:
    """All steps that stand out, the clearest first, each with its owner."""
    cells = witness.fitted.cells
    spreads = [lags(cells.seconds, group.delay, group.rollout, len(cells.times)) for group in groups]
    prior = np.log(EFFECTIVE / (1 - EFFECTIVE))
    found: list[Step] = []
    while len(found) < MOST_STEPS:
        taken = [step.place for step in found]
        unknown = unknown_scores(witness, cells.seconds, taken)
        place = int(np.argmax(unknown))
        best = Step(float(place), None, float(unknown[place]) - (ACCEPTED_UNKNOWN - ACCEPTED))
        if sum(step.owner is None for step in found) >= MOST_UNKNOWN:
            best = replace(best, log_odds=-np.inf)
        for number, group in enumerate(groups):
            if any(step.owner == number for step in found):
                continue
            score, chances = change_score(witness, group, spreads[number], taken)
            if score + prior > best.log_odds:
                onset = group.place + float(spreads[number].cells[int(np.argmax(chances))])
                best = Step(onset, number, score + prior)
        if best.log_odds < ACCEPTED:
            break
        if best.owner is None:
            # The grid of cells may fit a step a little better than a change's own onsets do.
            owned = {step.owner for step in found}
            near = [
                n for n, g in enumerate(groups) if n not in owned and prompt(g, best.place, cells.seconds)
            ]
            if near:
                nearest = min(near, key=lambda n: abs(groups[n].place - best.place))
                best = Step(best.place, nearest, best.log_odds)
        fine = best.place + FINER
        fine = fine[(fine > 0) & (fine < len(cells.times) - 1)]
        best = replace(best, place=float(fine[int(np.argmax(witness.weigh(fine).log_bayes))]))
        found.append(best)
        witness = witness.knowing([best.place])
    return found


@dataclass(frozen=True)
class Claim:
    """One change's claim, with every step that is not its own taken for granted."""

    log_bayes: float
    probability: float
    """That it had an effect, against nothing, against an unrecorded step and against the other changes near
    it."""
    rival: int | None
    """The other change that most likely made the step instead, where one is likelier than a tenth."""
    rival_probability: float
    """That the rival had an effect and this change had none."""
    unknown_probability: float
    """That there was an unrecorded step and this change had no effect."""
    unknown_place: float
    onset: float
    """Most likely place of the step, in cells."""


def claim(witness: Witness, groups: Sequence[Group], number: int, steps: Sequence[Step]) -> Claim:
    """Judge one change's claim. ``witness`` knows every step that is not its own."""
    cells = witness.fitted.cells
    own = groups[number]
    taken = [s.place for s in steps if s.owner != number]
    prior = np.log(EFFECTIVE / (1 - EFFECTIVE))

    def spread(group: Group) -> Lags:
        return lags(cells.seconds, group.delay, group.rollout, len(cells.times))

    log_bayes, chances = change_score(witness, own, spread(own), taken)

    def beside_it(place: float) -> float:
        """Log odds of an effect of this change once a step at ``place`` is known."""
        known = witness.knowing([place])
        return float(prior + change_score(known, own, spread(own), [*taken, place])[0])

    unknown = unknown_scores(witness, cells.seconds, taken)
    before = min(AROUND_SECONDS / cells.seconds, len(cells.times) / 12)
    after = spread(own).cells[-1]
    eligible = [
        -before <= place - own.place <= after and not prompt(own, float(place), cells.seconds)
        for place in range(len(unknown))
    ]
    unknown = np.where(eligible, unknown, -np.inf)
    unknown_place = int(np.argmax(unknown))
    somebody = float(special.logsumexp(unknown)) if any(eligible) else -np.inf
    credited = {s.owner for s in steps}
    rivals = {}
    for n, group in enumerate(groups):
        if n != number and n not in credited and abs(group.place - own.place) <= before:
            score, rival_chances = change_score(witness, group, spread(group), taken)
            rivals[n] = (
                prior + score,
                group.place + float(spread(group).cells[int(np.argmax(rival_chances))]),
            )
    best = max(rivals, key=lambda n: rivals[n][0], default=None)
    rival_odds, rival_place = rivals[best] if best is not None else (-np.inf, 0.0)
    scores = np.array(
        [
            0.0,
            prior + log_bayes,
            somebody,
            somebody + beside_it(float(unknown_place)) if somebody > WORTH_ASKING else -np.inf,
            rival_odds,
            rival_odds + beside_it(rival_place) if rival_odds > WORTH_ASKING else -np.inf,
        ]
    )
    shares = special.softmax(scores)
    return Claim(
        log_bayes=log_bayes,
        probability=float(shares[1] + shares[3] + shares[5]),
        rival=best if shares[4] > 0.1 else None,
        rival_probability=float(shares[4]),
        unknown_probability=float(shares[2]),
        unknown_place=float(unknown_place),
        onset=own.place + float(spread(own).cells[int(np.argmax(chances))]),
    )
