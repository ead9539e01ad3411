"""Whose step was it? A change's, or nobody's.

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

from otelkit.causal import fitting
from otelkit.causal.cells import Cells
from otelkit.causal.evidence import Movement, Witness
from otelkit.model import ParameterChange
from otelkit.query.panel import BoolArray, FloatArray

EFFECTIVE: Final = 0.25
"""Share of changes that are believed to move P99."""
PRIOR: Final = float(np.log(EFFECTIVE / (1 - EFFECTIVE)))
"""The same as log odds."""
UNKNOWN_PER_HOUR: Final = 0.1
"""Steps that nobody recorded a cause for."""
DRIFTS_PER_HOUR: Final = 0.07
"""Slow rises and falls that nobody recorded a cause for."""
DRIFT_SECONDS: Final = (1200.0, 2400.0, 3600.0)
DRIFT_STEP_SECONDS: Final = 300.0
"""How long they may take, and how finely their beginnings are looked at."""
PULSE_SECONDS: Final = (60.0, 120.0, 180.0, 240.0, 360.0, 480.0)
"""How long an effect that passes by itself may last."""
TRANSIENT: Final = 0.15
"""Share of effects that pass by themselves."""
PROMPT_SECONDS: Final = 5.0
PROMPT_SHARE: Final = 0.85
"""Share of effects that begin within about ``PROMPT_SECONDS``."""
MINUTE: Final = 60.0
SLACK_SECONDS: Final = 5.0
"""How far the clock of the changes is usually off that of the metrics, at most."""
OFF_SECONDS: Final = 45.0
OFF: Final = 0.05
"""How far it may rarely be off, and how likely an onset that needs this is, relative to one that does not."""
QUICK: Final = 0.5
"""Latency of quick calls relative to the median."""
LATEST_SECONDS: Final = 300.0
LEFTOVER_CELLS: Final = 3.0
WORTH_ASKING: Final = 3.0
"""Log odds from which on it is asked whether a rival and the change both had effects."""
WORTH_PLACING: Final = 0.0
"""Log odds of an unrecorded step from which on its place is looked at closely."""
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

    movement: Movement
    owner: int | None
    """Group that it is credited to; None for nobody."""
    log_odds: float

    @property
    def place(self) -> float:
        """Cells from the start of the grid."""
        return self.movement.place


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
    first = -early(delay, cell_seconds)
    start = first - np.ceil(2 * (OFF_SECONDS - SLACK_SECONDS) / cell_seconds) / 2
    cells = np.concatenate([np.arange(start, min(2.0, latest), 0.5), np.arange(2.0, latest + 1e-9, 1.0)])
    since = np.maximum(cells - rollout, 0.0) * cell_seconds
    prior = lag_density(since, cell_seconds)
    # Before the first call could have been seen, only a clock that is off explains an onset.
    prior = np.where(cells < first - 1e-9, OFF * prior, prior)
    width = np.gradient(cells)
    return Lags(cells, np.log(prior * width / (prior * width).sum()))


def lags_of(group: Group, cells: Cells) -> Lags:
    """The onsets to look at for a group of changes."""
    return lags(cells.seconds, group.delay, group.rollout, len(cells.times))


def lag_density(since: FloatArray, blur: float) -> FloatArray:
    """How often an effect begins ``since`` seconds after its change, per second; ``blur`` is how well that
    can be told."""
    prompt_density = np.exp(-since / (PROMPT_SECONDS + blur)) / (PROMPT_SECONDS + blur)
    density: FloatArray = PROMPT_SHARE * prompt_density + (1 - PROMPT_SHARE) * (
        0.4 * (since < MINUTE) / MINUTE + 0.6 * (since < 1.5 * LATEST_SECONDS) / LATEST_SECONDS
    )
    return density


def early(delay: float, cell_seconds: float) -> float:
    """Cells before a change's place at which the first, quick calls may show it."""
    return QUICK * min(delay, 4.0) + SLACK_SECONDS / cell_seconds


def prompt(group: Group, place: float, cell_seconds: float) -> bool:
    """Whether a step at ``place`` begins as soon after a change as it can be told."""
    return -early(group.delay, cell_seconds) - 0.3 <= place - group.place <= 1.0 + group.rollout


@dataclass(frozen=True)
class Own:
    """What speaks for one change."""

    log_bayes: float
    """For "this change had an effect", averaged over its lags."""
    place: float
    """Likeliest onset, in cells."""
    end: float | None
    """Where the effect passes by itself, if that fits best."""


NOTHING_OWN: Final = Own(-np.inf, 0.0, None)


def change_score(
    witness: Witness, group: Group, spread: Lags, taken: Sequence[float], others: Sequence[float] = ()
) -> Own:
    """Weigh one change's claim: an effect that stays, or one that passes.

    Args:
        witness: knows the movements at the places ``taken``.
        group: the change.
        spread: its lags.
        taken: what is left over beside a known step is no step of its own, unless this change was made just
            there.
        others: places of other changes; an effect that ends beside one has not passed by itself.
    """
    onsets = group.place + spread.cells
    cells = witness.fitted.cells
    lone = not witness.fleet_moved()[int(np.clip(round(group.place), 0, len(cells.times) - 1))]
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
        return replace(NOTHING_OWN, place=group.place)
    onsets, prior = onsets[free], spread.log_prior[free]
    stays = prior + witness.weigh(onsets, group.paths).log_bayes
    best = int(np.argmax(stays))
    total, place, end = float(special.logsumexp(stays)), float(onsets[best]), None
    soon = np.array([prompt(group, onset, cells.seconds) for onset in onsets])
    if lone and soon.any():
        begins, ends, chance = pulses(onsets[soon], cells)
        if len(begins):
            passes = np.repeat(prior[soon], len(begins) // int(soon.sum()))
            passes = passes + np.log(TRANSIENT * chance) + witness.weigh_pulses(begins, ends)
            peak = int(np.argmax(passes))
            if passes[peak] > stays[best] and not beside(float(ends[peak]), others):
                place, end = float(begins[peak]), float(ends[peak])
    return Own(total, place, end)


def pulses(onsets: FloatArray, cells: Cells) -> tuple[FloatArray, FloatArray, float]:
    """Beginnings and ends of all pulses from these onsets on, those of one onset next to each other, and the
    chance of each length."""
    lengths = np.array(
        sorted({max(1, round(seconds / cells.seconds)) for seconds in PULSE_SECONDS}), dtype=float
    )
    lengths = lengths[lengths < len(cells.times) / 12]
    if not len(lengths):
        return np.empty(0), np.empty(0), 1.0
    begins = np.repeat(onsets, len(lengths))
    return begins, begins + np.tile(lengths, len(onsets)), 1.0 / len(lengths)


def beside(place: float, taken: Sequence[float]) -> bool:
    """Whether a known step is so near that what is left of it could be taken for another."""
    return any(abs(place - other) <= LEFTOVER_CELLS for other in taken)


def unknown_scores(witness: Witness, taken: Sequence[float], wanted: BoolArray | None = None) -> FloatArray:
    """Log odds, for each cell, of a step there that nobody recorded, against none; shape (N,). ``taken`` as
    above; minus infinity where not ``wanted``."""
    cells = witness.fitted.cells
    length = len(cells.times)
    at = np.arange(length)
    # A step needs something on both sides.
    usable = (at >= 2) & (at < length - 2)
    for place in taken:
        # What is left of one is broader the later the slowest channel shows it.
        usable &= np.abs(at - place) > LEFTOVER_CELLS + witness.fitted.delays.max()
    if wanted is not None:
        usable &= wanted
    scores = np.full(length, -np.inf)
    if usable.any():
        rate = np.log(UNKNOWN_PER_HOUR * cells.seconds / 3600.0)
        scores[usable] = rate + witness.log_bayes(np.asarray(usable))
    return placed(witness, scores)


def placed(witness: Witness, scores: FloatArray) -> FloatArray:
    """``scores`` (N,) of a step at each cell, lowered where the step is more likely at another cell near it.

    Doubt about load, the fleet and queues is counted at the cells where these moved. A step there, were it
    ever so clear, would look better a few cells off, where nothing is doubted. So where it is, is read
    without doubt, from the nearest peak; that it is a step at all, with the doubt that there is at the peak.
    """
    likely = scores > WORTH_PLACING
    if not likely.any():
        return scores
    reach = witness.fitted.width
    at = np.arange(len(scores))
    near = (np.abs(at[:, None] - at[likely]) <= reach).any(axis=1) & np.isfinite(scores)
    clear = np.full(len(scores), -np.inf)
    clear[near] = witness.weigh_undoubting(at[near].astype(float))
    padded = np.pad(clear, reach, constant_values=-np.inf)
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    peak = np.where(near, at + np.argmax(around, axis=1) - reach, at)
    while (peak[peak] != peak).any():  # until none has a better one within reach
        peak = peak[peak]
    best = peak[likely]
    result = scores.copy()
    result[likely] = np.minimum(scores[likely], scores[best] - (clear[best] - clear[likely]))
    return result


def drift_score(witness: Witness, place: float) -> float:
    """Log odds of a slow rise or fall across ``place`` that nobody recorded, against none.

    A drift lasts longer than the minutes in which a step is looked for, so it is first compared with a step
    that stays as long.
    """
    cells = witness.fitted.cells
    step = max(1.0, DRIFT_STEP_SECONDS / cells.seconds)
    begins, ends = [], []
    for seconds in DRIFT_SECONDS:
        length = seconds / cells.seconds
        for begin in np.arange(place - 0.9 * length, place - 0.1 * length, step):
            if begin > 1 and length > 2 * step:
                begins.append(begin)
                ends.append(begin + length)
    if not begins or fitting.short(cells):
        return -np.inf
    rate = DRIFTS_PER_HOUR * DRIFT_STEP_SECONDS / 3600.0 / len(DRIFT_SECONDS)
    drifts = float(special.logsumexp(witness.weigh_ramps(np.array(begins), np.array(ends))))
    stays = witness.weigh_lasting(place)
    step_there = float(witness.weigh(np.array([place])).log_bayes[0])
    return float(np.log(rate)) + step_there + drifts - stays


@dataclass(frozen=True)
class Claim:
    """One change's claim, with every step that is not its own taken for granted."""

    log_bayes: float
    net: float
    """The log Bayes factor that would give ``probability`` were there nothing to compete with."""
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
    end: float | None = None
    """Where the effect passes by itself, if that fits best."""


def claim(witness: Witness, groups: Sequence[Group], number: int, steps: Sequence[Step]) -> Claim:
    """Judge one change's claim. ``witness`` knows every step that is not its own."""
    cells = witness.fitted.cells
    own = groups[number]
    taken = [s.place for s in steps if s.owner != number]
    elsewhere = [group.place for n, group in enumerate(groups) if n != number]
    spread = lags_of(own, cells)
    mine = change_score(witness, own, spread, taken, elsewhere)

    def beside_it(place: float) -> float:
        """Log odds of an effect of this change once a step at ``place`` is known."""
        known = witness.knowing([witness.movement(place)])
        return float(PRIOR + change_score(known, own, spread, [*taken, place]).log_bayes)

    before = min(AROUND_SECONDS / cells.seconds, len(cells.times) / 12)
    after = spread.cells[-1]
    eligible = np.array(
        [
            -before <= place - own.place <= after and not prompt(own, float(place), cells.seconds)
            for place in range(len(cells.times))
        ]
    )
    unknown = unknown_scores(witness, taken, eligible)
    unknown_place = int(np.argmax(unknown))
    stepped = float(special.logsumexp(unknown)) if eligible.any() else -np.inf
    # A rollout is slow itself.
    drifted = drift_score(witness, mine.place) if own.rollout * cells.seconds < MINUTE else -np.inf
    somebody = float(np.logaddexp(stepped, drifted))
    credited = {s.owner for s in steps}
    rivals = {}
    for n, group in enumerate(groups):
        if n != number and n not in credited and abs(group.place - own.place) <= before:
            rivals[n] = change_score(witness, group, lags_of(group, cells), taken)
    best = max(rivals, key=lambda n: rivals[n].log_bayes, default=None)
    rival = rivals[best] if best is not None else NOTHING_OWN
    rival_odds = PRIOR + rival.log_bayes
    scores = np.array(
        [
            0.0,
            PRIOR + mine.log_bayes,
            somebody,
            stepped + beside_it(float(unknown_place)) if stepped > WORTH_ASKING else -np.inf,
            rival_odds,
            rival_odds + beside_it(rival.place) if rival_odds > WORTH_ASKING else -np.inf,
        ]
    )
    shares = special.softmax(scores)
    return Claim(
        log_bayes=mine.log_bayes,
        net=min(
            mine.log_bayes, float(special.logsumexp(scores[1::2]) - special.logsumexp(scores[::2]) - PRIOR)
        ),
        probability=float(shares[1] + shares[3] + shares[5]),
        rival=best if shares[4] > 0.1 else None,
        rival_probability=float(shares[4]),
        unknown_probability=float(shares[2]),
        unknown_place=float(unknown_place),
        onset=mine.place,
        end=mine.end,
    )
