"""What the data say of a step at any moment, with load, the fleet and the services called taken into
account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from otelkit.causal import beliefs, fitting, pooling
from otelkit.causal.fitting import Fitted
from otelkit.causal.pooling import Evidence
from otelkit.causal.shifts import Shift
from otelkit.query.panel import FloatArray


@dataclass(frozen=True)
class Witness:
    """A fitted service and what moved elsewhere."""

    fitted: Fitted
    shifts: tuple[Shift, ...] = ()

    def effects(self, onsets: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Effects on every channel of a step at each place on the grid, (S, K), and their covariance, (S, K,
        K)."""
        effects, noise = fitting.effects_at(self.fitted, onsets)
        places = np.clip(np.round(onsets).astype(int), 0, len(self.fitted.cells.times) - 1)
        for shift in self.shifts:
            size, own = shift.size[places], shift.deviation[places]
            effects = effects - size
            together = shift.together[places]
            noise = noise + together[:, :, None] * together[:, None, :]
            noise = noise + (own**2)[:, :, None] * np.eye(own.shape[1])[None]
        return effects, noise

    def weigh(self, onsets: FloatArray, paths: frozenset[str] = frozenset()) -> Evidence:
        """Weigh the hypotheses for a step at each place; ``paths`` are those made likelier."""
        return pooling.weigh(beliefs.leaning(self.fitted.model, paths), *self.effects(onsets))

    def fleet_moved(self, place: float) -> bool:
        """Whether the other services moved together about ``place``."""
        cell = int(np.clip(round(place), 0, len(self.fitted.cells.times) - 1))
        return any(bool((shift.belief[max(0, cell - 2) : cell + 3] > 0.5).any()) for shift in self.shifts)

    def knowing(self, onsets: Sequence[float]) -> Witness:
        """The same once steps at these places are taken for granted."""
        fitted = self.fitted
        for onset in onsets:
            fitted = fitting.absorb(fitted, onset)
        return replace(self, fitted=fitted)

    def scaled(self, scale: float) -> Witness:
        """The same with the noise's deviation multiplied."""
        return replace(self, fitted=replace(self.fitted, scale=self.fitted.scale * scale))
