"""What the data say of a step at any moment, with load, the fleet and the services called taken into
account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from otelkit.causal import beliefs, fitting, lookups, pooling
from otelkit.causal.fitting import Fitted
from otelkit.causal.pooling import Evidence
from otelkit.causal.shifts import Shift
from otelkit.query.panel import BoolArray, FloatArray


@dataclass(frozen=True)
class Witness:
    """A fitted service and what moved elsewhere."""

    fitted: Fitted
    shifts: tuple[Shift, ...] = ()

    def effects(self, onsets: FloatArray, ends: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Effects on every channel of a step at each place on the grid, or of a pulse to each of ``ends``,
        (S, K), and their covariance, (S, K, K)."""
        effects, noise = fitting.effects_at(self.fitted, onsets, ends)
        places = np.clip(np.round(onsets).astype(int), 0, len(self.fitted.cells.times) - 1)
        for shift in self.shifts:
            size, own = shift.size[places], shift.deviation[places]
            effects = effects - size
            together = shift.together[places]
            noise = noise + together[:, :, None] * together[:, None, :]
            noise = noise + (own**2)[:, :, None] * np.eye(own.shape[1])[None]
        return effects, noise

    def weigh(
        self, onsets: FloatArray, paths: frozenset[str] = frozenset(), ends: FloatArray | None = None
    ) -> Evidence:
        """Weigh the hypotheses for a step at each place, or a pulse to each of ``ends``; ``paths`` are those
        made likelier."""
        return pooling.weigh(beliefs.leaning(self.fitted.model, paths), *self.effects(onsets, ends))

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
        effects, noise = fitting.effects_at(self.fitted, onsets, ends)
        return pooling.weigh(pooling.plain(self.fitted.model), effects, noise).log_bayes

    def weigh_ramps(self, begins: FloatArray, ends: FloatArray) -> FloatArray:
        """The same for a slow rise or fall from one place to another."""
        effects, noise = fitting.effects_at(self.fitted, begins, ends, lookups.ramps_at)
        return pooling.weigh(pooling.plain(self.fitted.model), effects, noise).log_bayes

    def fleet_moved(self) -> BoolArray:
        """Whether the other services moved together about each cell, shape (N,)."""
        certain = np.zeros(len(self.fitted.cells.times), dtype=bool)
        for shift in self.shifts:
            certain |= shift.belief > 0.5
        spread: BoolArray = np.convolve(certain, np.ones(5), mode="full")[2 : len(certain) + 2] > 0.5
        return spread

    def knowing(self, onsets: Sequence[float]) -> Witness:
        """The same once steps at these places are taken for granted."""
        if not onsets:
            return self  # with what it has found out already
        fitted = self.fitted
        for onset in onsets:
            fitted = fitting.absorb(fitted, onset)
        return replace(self, fitted=fitted)

    def scaled(self, scale: float) -> Witness:
        """The same with the noise's deviation multiplied."""
        return replace(self, fitted=replace(self.fitted, scale=self.fitted.scale * scale))
