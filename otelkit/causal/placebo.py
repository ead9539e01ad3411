"""How large an effect the same measurement finds at moments where nothing was changed.

The accepted picture (load, all changes' steps) is taken off first; then one more step is tried at every quiet
moment. A noise model that is wrong shows here, and widens intervals and p-values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from otelkit.causal import design, gls, pooling
from otelkit.causal.cells import Cells
from otelkit.query.panel import FloatArray


@dataclass(frozen=True)
class Null:
    """Effects on log P99 found where nothing was changed."""

    effects: FloatArray
    z: FloatArray
    scale: float
    """How many times the noise model's own deviation the placebo effects really spread."""
    degrees: float
    """Degrees of freedom of the t distribution that stands for their tails."""

    def p_value(self, z: float) -> float:
        """Chance of a placebo effect at least as far from zero as ``z``."""
        return float(2 * stats.t.sf(abs(z) / self.scale, self.degrees))


def null_effects(cells: Cells, fitted: gls.Fit, moments: Sequence[float], guard: float = 20.0) -> Null:
    """Try a step at every moment further than ``guard`` seconds from those in ``moments`` and from the
    ends."""
    guard = max(guard, 2 * cells.seconds)
    quiet = np.ones(len(cells.times), dtype=bool)
    for moment in [*moments, cells.times[0], cells.times[-1]]:
        quiet &= np.abs(cells.times - moment) > guard
    candidates = cells.times[quiet]
    if not len(candidates):
        return Null(np.empty(0), np.empty(0), 1.3, 4.0)
    steps = np.column_stack([design.step(cells, at, at) for at in candidates])
    effects, variance = gls.scan(fitted, steps)
    found = pooling.tail_effects(effects, variance, fitted.covariance, cells.levels)
    z = found.z[np.isfinite(variance)]
    # Neighbouring placebos nearly repeat each other; shrink their spread towards the noise model's by how
    # many are distinct.
    distinct = max(len(z) * cells.seconds / 60.0, 1.0)
    spread = float(np.mean(z**2)) if len(z) else 1.0
    scale = np.sqrt((spread * distinct + 4.0 * 1.2) / (distinct + 4.0))
    return Null(
        found.value[np.isfinite(variance)], z, max(float(scale), 1.0), max(4.0, min(fitted.degrees / 4, 60.0))
    )
