"""The quick way to the inner products of steps gives what solving for every step gives."""

from __future__ import annotations

import numpy as np
import pytest

from otelkit.causal import heaviside
from otelkit.causal.noise import Noise, factor


@pytest.mark.parametrize("length", [12, 20, 137])
@pytest.mark.parametrize("cell_seconds", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("noise", [Noise(), Noise(8.0, 0.01, 150.0, 600.0), Noise(0.01, 8.0)])
def test_the_products_are_those_of_the_dense_inverse_covariance(
    length: int, cell_seconds: float, noise: Noise
) -> None:
    """If this fails, every effect and interval is wrong, whatever the data."""
    rng = np.random.default_rng(length)
    weights = rng.gamma(20.0, 0.05, length)
    weights[rng.random(length) < 0.1] = 0.0
    known = np.flatnonzero(weights)
    apart = np.abs(known[:, None] - known[None]) * cell_seconds
    covariance = (
        np.diag(1 / weights[known])
        + noise.fast * np.exp(-apart / noise.fast_memory)
        + noise.slow * np.exp(-apart / noise.slow_memory)
    )
    columns = (known[:, None] >= np.arange(length)[None]).astype(float)
    dense = columns.T @ np.linalg.solve(covariance, columns)
    factored = factor(noise, weights, cell_seconds)
    left = rng.normal(size=(2, length, 3))
    metric = np.diag([1.0, 2.0, 3.0])
    found = heaviside.products([factored, factored], left @ metric, left, np.array([1.0, 4.0]))
    for channel, variance in enumerate((1.0, 4.0)):
        expected = (dense - left[channel] @ metric @ left[channel].T) / variance
        np.testing.assert_allclose(found[channel], expected, rtol=1e-8, atol=1e-10 * np.abs(expected).max())
