"""One effect on P99 from the effects on several quantiles.

P99 of a few minutes rests on a handful of calls; the median rests on all of them. Most changes move the whole
distribution, some only its tail. Saying so as a prior lets the calm quantiles speak for the noisy one, and
pulls an effect that noise alone could have made towards zero (no winner's curse).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from otelkit.query.panel import FloatArray

SHIFT: Final = 0.5
"""Deviation of log-latency effects that all quantiles share."""
TAIL: Final = 0.3
"""Deviation of effects that grow towards the tail."""
OWN: Final = 0.05
"""Deviation of what remains for each quantile alone."""


@dataclass(frozen=True)
class TailEffects:
    """Effects on log P99 of S candidate steps."""

    value: FloatArray
    """Shape (S,)."""
    deviation: FloatArray
    """Posterior standard deviation, shape (S,)."""
    z: FloatArray
    """The value over its deviation were there no effect; unit normal then, if the noise model holds. Shape
    (S,)."""


def prior(levels: tuple[float, ...]) -> FloatArray:
    """Prior covariance of a change's effects on the log quantiles at ``levels``; shape (K, K)."""
    share = np.array(levels)
    steep = np.clip(np.log(0.5 / (1 - share)) / np.log(0.5 / 0.01), 0.0, 1.5)
    matrix: FloatArray = SHIFT**2 + TAIL**2 * np.outer(steep, steep) + OWN**2 * np.eye(len(share))
    return matrix


def tail_effects(
    effects: FloatArray, variance: FloatArray, covariance: FloatArray, levels: tuple[float, ...]
) -> TailEffects:
    """Combine the quantiles' effects into one on the last level.

    Args:
        effects: shape (S, K).
        variance: shape (S,), for noise of unit variance; infinite where nothing is known.
        covariance: noise covariance between channels, shape (K, K).
        levels: K quantile levels, ascending.
    """
    before = prior(levels)
    known = np.isfinite(variance)
    noise = np.where(known, variance, 1.0)[:, None, None] * covariance[None]
    weights = np.linalg.solve(
        before[None] + noise, np.broadcast_to(before[:, -1], (len(variance), len(levels)))[..., None]
    )
    weights = weights[..., 0]
    value = (weights * effects).sum(axis=1)
    null = np.sqrt(np.maximum(np.einsum("sk,skl,sl->s", weights, noise, weights), 1e-18))
    posterior = np.sqrt(np.maximum(before[-1, -1] - weights @ before[:, -1], 1e-12))
    return TailEffects(
        value=np.where(known, value, 0.0),
        deviation=np.where(known, posterior, np.sqrt(before[-1, -1])),
        z=np.where(known, value / null, 0.0),
    )
