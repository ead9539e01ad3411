"""What the data say of a step at any moment, with load, the fleet and the services called taken into
account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from otelkit.causal import beliefs, fitting, lookups, pooling
from otelkit.causal.fitting import Fitted
from otelkit.causal.pooling import Evidence
from otelkit.causal.shifts import Shift
from otelkit.query.panel import BoolArray, FloatArray

LASTING: Final = 0.5
"""Share of effects that stay as they are."""
QUEUES_COUNT: Final = 0.1
"""Deviation (log latency) of queues from which on a wait that is seen may be theirs."""
KNOWN_TIMES: Final = 1.5
KNOWN_LEAST: Final = 0.05
"""How many times what its paths would make of it, and how much at least (log latency), a step that is taken
for granted may be on each channel."""
KNOWN_QUEUES: Final = 0.25
KNOWN_QUEUES_LEAST: Final = 0.1
"""Share of such a step by which queues may build up or drain in the minutes after it, and the least."""


@dataclass(frozen=True)
class Movement:
    """A step that is taken for granted."""

    place: float
    """Cells from the start of the grid."""
    deviations: FloatArray
    """How large (log latency) it may be on each channel, shape (K,)."""
    size: float
    """Its effect on log P99."""


@dataclass(frozen=True)
class Witness:
    """A fitted service and what moved elsewhere."""

    fitted: Fitted
    shifts: tuple[Shift, ...] = ()
    queues: FloatArray | float = 0.0
    """Variance (log latency) by which queues may have built up or drained about a step at each cell, shape
    (N,)."""

    hidden: FloatArray | float = 0.0
    """Deviation (log latency) by which an effect may be larger on each channel than is seen of it, shape
    (N, K)."""

    settling: FloatArray | float = 0.0
    """The same in the minutes after steps that are taken for granted, shape (N,)."""
    found: dict[tuple[object, ...], Evidence] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What was asked before: each change's claim is weighed again when others compete with it."""

    def effects(
        self,
        onsets: FloatArray,
        ends: FloatArray | None = None,
        later_deviation: FloatArray | float = lookups.LATER_DEVIATION,
    ) -> tuple[FloatArray, FloatArray]:
        """Effects on every channel of a step at each place on the grid, or of a pulse to each of ``ends``,
        (S, K), and their covariance, (S, K, K); ``later_deviation`` as in :func:`lookups.effects_at`."""
        if ends is None:
            effects, noise = fitting.effects_at(self.fitted, onsets, later_deviation)
        else:
            effects, noise = fitting.effects_between(self.fitted, onsets, ends)
        places = np.clip(np.round(onsets).astype(int), 0, len(self.fitted.cells.times) - 1)
        diagonal = np.arange(effects.shape[1])
        for shift in self.shifts:
            effects = effects - shift.size[places]
            together = shift.together[places]
            noise += together[:, :, None] * together[:, None, :]
            noise[:, diagonal, diagonal] += shift.deviation[places] ** 2
        if not isinstance(self.queues, float):
            noise += self._waits(effects, self.queues[places])
        if not isinstance(self.settling, float):
            queue = self.fitted.model.queue
            noise += self.settling[places][:, None, None] * np.outer(queue, queue)
        return effects, noise

    def _waits(self, effects: FloatArray, queues: FloatArray) -> FloatArray:
        """Covariance, (S, K, K), of what queues of variance ``queues`` (S,) may have done to the channels.

        The wait for the first token shows how much queue there is; what it makes of each quantile is known
        only roughly.
        """
        model = self.fitted.model
        usually, differs = model.wait
        variance = queues.copy()
        if "time_to_first_chunk" in model.channels:
            seen = effects[:, model.channels.index("time_to_first_chunk")]
            variance += (seen * queues / (queues + QUEUES_COUNT**2)) ** 2
        return queues[:, None, None] * np.outer(usually, usually) + variance[:, None, None] * np.outer(
            differs, differs
        )

    def weigh(
        self, onsets: FloatArray, paths: frozenset[str] = frozenset(), ends: FloatArray | None = None
    ) -> Evidence:
        """Weigh the hypotheses for a step at each place, or a pulse to each of ``ends``; ``paths`` are those
        made likelier.

        What follows on the first minutes of a step is read in two ways: it stays as it is, so that all of the
        time after it speaks of it, or it may become something else.
        """
        model = self.fitted.model
        if ends is not None:
            weights = beliefs.leaning(model, paths)
            return pooling.weigh(model, *self.effects(onsets, ends), weights, self.unseen(onsets))
        asked = (onsets.tobytes(), paths)
        if asked not in self.found:
            weights = beliefs.leaning(model, paths)
            later = np.repeat([lookups.LATER_DEVIATION, lookups.LASTING_DEVIATION], len(onsets))
            twice = np.tile(onsets, 2)
            both = pooling.weigh(model, *self.effects(twice, None, later), weights, self.unseen(twice))
            self.found[asked] = both.folded(LASTING)
        return self.found[asked]

    def unseen(self, onsets: FloatArray) -> FloatArray | None:
        """Deviation by which an effect at each place may be larger on each channel than is seen, (S, K); None
        where all of it is seen."""
        if isinstance(self.hidden, float):
            return None
        places = np.clip(np.round(onsets).astype(int), 0, len(self.hidden) - 1)
        return np.asarray(self.hidden[places])

    def weigh_undoubting(self, onsets: FloatArray) -> FloatArray:
        """Log Bayes factor of a step at each place, against none, were it known how much of it came from
        elsewhere, shape (S,)."""
        sure = [
            replace(s, deviation=np.zeros_like(s.deviation), together=np.zeros_like(s.together))
            for s in self.shifts
        ]
        calm = replace(self, shifts=tuple(sure), queues=0.0, settling=0.0)
        seen = calm.effects(onsets)
        return pooling.weigh(self.fitted.model.plain, *seen, unseen=self.unseen(onsets)).log_bayes

    @cached_property
    def everywhere(self) -> Evidence:
        """Of a step at each cell."""
        return self.weigh(np.arange(len(self.fitted.cells.times), dtype=float))

    def log_bayes(self, wanted: BoolArray) -> FloatArray:
        """Log Bayes factors of a step at each of the cells ``wanted`` (N,), against none."""
        if "everywhere" in vars(self) or wanted.mean() > 0.5:
            return self.everywhere.log_bayes[wanted]
        return self.weigh(np.flatnonzero(wanted).astype(float)).log_bayes

    def weigh_pulses(self, onsets: FloatArray, ends: FloatArray) -> FloatArray:
        """Log Bayes factor of a pulse between each pair of places, against none, shape (S,)."""
        asked = (onsets.tobytes(), ends.tobytes())
        if asked not in self.found:
            plain = self.fitted.model.plain
            seen = self.effects(onsets, ends)
            self.found[asked] = pooling.weigh(plain, *seen, unseen=self.unseen(onsets))
        return self.found[asked].log_bayes

    def weigh_lasting(self, onset: float) -> float:
        """Log Bayes factor of a step that stays as it is, whatever moved elsewhere, against none."""
        end = np.array([2.0 * len(self.fitted.cells.times)])
        effects, noise = fitting.effects_between(self.fitted, np.array([onset]), end)
        return float(pooling.weigh(self.fitted.model.plain, effects, noise).log_bayes[0])

    def weigh_ramps(self, begins: FloatArray, ends: FloatArray) -> FloatArray:
        """The same for a slow rise or fall from one place to another."""
        effects, noise = fitting.effects_between(self.fitted, begins, ends, lookups.ramps_at)
        return pooling.weigh(self.fitted.model.plain, effects, noise).log_bayes

    def fleet_moved(self) -> BoolArray:
        """Whether the other services moved together about each cell, shape (N,)."""
        certain = np.zeros(len(self.fitted.cells.times), dtype=bool)
        for shift in self.shifts:
            certain |= shift.belief > 0.5
        spread: BoolArray = np.convolve(certain, np.ones(5), mode="full")[2 : len(certain) + 2] > 0.5
        return spread

    def movement(self, place: float, found: Evidence | None = None) -> Movement:
        """What a step at a place is, if there is one; ``found`` is what it was weighed to be."""
        found = found or self.weigh(np.array([place]))
        # Both readings have the same hypotheses.
        posterior = found.posterior[0].reshape(-1, len(self.fitted.model.weights)).sum(axis=0)
        variance = posterior @ self.fitted.model.channel_variances
        return Movement(place, KNOWN_TIMES * np.sqrt(variance) + KNOWN_LEAST, float(found.value[0]))

    def knowing(self, movements: Sequence[Movement]) -> Witness:
        """The same once these steps are taken for granted."""
        if not movements:
            return self  # with what it has found out already
        fitted = self.fitted
        at = np.arange(len(fitted.cells.times))
        settling = self.settling + np.zeros(len(at))
        for movement in movements:
            fitted = fitting.absorb(fitted, movement.place, movement.deviations)
            after = (at > movement.place - 1) & (at < movement.place + fitted.width)
            settling += after * (KNOWN_QUEUES_LEAST + KNOWN_QUEUES * abs(movement.size)) ** 2
        return replace(self, fitted=fitted, settling=settling)

    def scaled(self, scale: float) -> Witness:
        """The same with the noise's deviation multiplied."""
        return replace(self, fitted=replace(self.fitted, scale=self.fitted.scale * scale))
