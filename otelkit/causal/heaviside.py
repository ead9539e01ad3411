"""Inner products, under the noise, of every step with every other one.

The inverse covariance of N cells is semiseparable: its entry for two cells is a product of 2 x 2 matrices
along the way from one to the other. So the N x N inner products of Heaviside columns need no system solved
for each of them: one pass over the cells, in blocks, makes all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy.linalg import lapack

from otelkit.causal.noise import Factored
from otelkit.query.panel import FloatArray

BLOCK: Final = 20
"""Cells in a block: about the root of their usual number, so that neither loop is long."""


def products(
    channels: Sequence[Factored], left: FloatArray, right: FloatArray, variances: FloatArray
) -> FloatArray:
    """Inner products of the Heaviside columns (0 before a cell, 1 from it on), shape (K, N, N).

    Args:
        channels: K channels' noise.
        left, right: for each channel ``left @ right.T``, which is symmetric, is taken off; shape (K, N, P).
        variances: by which all of it is divided, shape (K,).
    """
    back, before, after, level = (
        np.array(parts) for parts in zip(*(_parts(factored) for factored in channels), strict=True)
    )
    over = 1 / variances[:, None]
    return _through(back, before * over[:, :, None], after, level * over, left * over[:, :, None], right)


def _parts(factored: Factored) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """B, shape (N, 2, 2), and ``before``, ``after``, shape (N, 2), and ``level``, shape (N,), of which
    ``_through`` makes the products of one channel.

    With Q the precision of the two fading parts given the data, S its inverse and B the matrices by which
    each cell's state follows from the next one's, S[i, j] = B[i] B[i + 1] ... B[j - 1] S[j, j] for i <= j.
    """
    weights = factored.weights
    back, precision = _backward(factored.cholesky)
    covariance = _inverse(precision + _reversed_precision(factored.bands) - _diagonal(factored.bands))
    both = np.repeat(weights, 2)
    forward, _ = lapack.dtbtrs(factored.cholesky, both[:, None], uplo="U", trans="T")
    smooth, _ = lapack.dtbtrs(factored.cholesky, forward, uplo="U")
    # Sums of weights over the cells before each one, carried to it; and of those from it on.
    before = _carried(factored.cholesky, forward[:, 0]) - both.reshape(-1, 2)
    after = smooth.reshape(-1, 2) - (covariance @ before[:, :, None])[:, :, 0]
    own = weights - 2 * weights * after.sum(axis=1) + weights**2 * covariance.sum(axis=(1, 2))
    level = np.cumsum(own[::-1])[::-1] - (before * after).sum(axis=1)
    return back, before, after, level


def _blocks(cholesky: FloatArray) -> tuple[FloatArray, ...]:
    """Of the upper triangular factor's 2 x 2 blocks: upper left, upper right and lower right of those on the
    diagonal, each (N,)."""
    return cholesky[2, 0::2], cholesky[1, 1::2], cholesky[2, 1::2]


def _backward(cholesky: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The matrices B, shape (N, 2, 2), the last one zero; and each cell's precision once the cells before it
    are eliminated, same shape."""
    p, q, r = _blocks(cholesky)
    back = np.zeros((len(p), 2, 2))
    u, v, x = cholesky[0, 2::2], cholesky[1, 2::2], cholesky[0, 3::2]
    back[:-1, 1, 0] = -v / r[:-1]
    back[:-1, 1, 1] = -x / r[:-1]
    back[:-1, 0, 0] = -(u + q[:-1] * back[:-1, 1, 0]) / p[:-1]
    back[:-1, 0, 1] = -q[:-1] * back[:-1, 1, 1] / p[:-1]
    return back, _square(cholesky)


def _square(cholesky: FloatArray) -> FloatArray:
    p, q, r = _blocks(cholesky)
    return np.stack([np.stack([p * p, p * q], axis=1), np.stack([p * q, q * q + r * r], axis=1)], axis=1)


def _carried(cholesky: FloatArray, solved: FloatArray) -> FloatArray:
    """What forward substitution leaves at each cell before it is divided, shape (N, 2)."""
    p, q, r = _blocks(cholesky)
    first, second = solved[0::2], solved[1::2]
    return np.column_stack([p * first, q * first + r * second])


def _diagonal(bands: FloatArray) -> FloatArray:
    """The 2 x 2 blocks on the diagonal, shape (N, 2, 2)."""
    fast, both, slow = bands[2, 0::2], bands[1, 1::2], bands[2, 1::2]
    return np.stack([np.stack([fast, both], axis=1), np.stack([both, slow], axis=1)], axis=1)


def _reversed_precision(bands: FloatArray) -> FloatArray:
    """Each cell's precision once the cells after it are eliminated, shape (N, 2, 2)."""
    mirrored = np.zeros(bands.shape)
    for offset in range(3):
        mirrored[2 - offset, offset:] = bands[2 - offset, offset:][::-1]
    cholesky, _ = lapack.dpbtrf(mirrored)
    return _square(cholesky)[::-1, ::-1, ::-1]


def _inverse(matrices: FloatArray) -> FloatArray:
    """Of symmetric 2 x 2 matrices, shape (N, 2, 2)."""
    determinant = matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] ** 2
    turned = np.empty(matrices.shape)
    turned[:, 0, 0], turned[:, 1, 1] = matrices[:, 1, 1], matrices[:, 0, 0]
    turned[:, 0, 1] = turned[:, 1, 0] = -matrices[:, 0, 1]
    return turned / determinant[:, None, None]


def _through(
    back: FloatArray,
    before: FloatArray,
    after: FloatArray,
    level: FloatArray,
    left: FloatArray,
    right: FloatArray,
) -> FloatArray:
    """``level[b] + before[a] @ B[a] ... B[b - 1] @ after[b] - left[a] @ right[b]`` for all a <= b and the
    same for b and a, for each of K channels, shape (K, N, N)."""
    channels, n = level.shape
    number = -(-n // BLOCK)

    def blocks(values: FloatArray) -> FloatArray:
        """Cells of all channels by blocks, shape (K * number, BLOCK, ...); zero beyond the last cell."""
        padded = np.zeros((channels, number * BLOCK, *values.shape[2:]))
        padded[:, :n] = values
        return padded.reshape(channels * number, BLOCK, *values.shape[2:])

    # Inside all blocks at once: what the cells of the block, and its end, look like from each of its cells.
    step, begins, ends = blocks(back), blocks(before), blocks(after)
    seen = np.zeros((2, channels * number, BLOCK + 2))
    seen[0, :, BLOCK] = seen[1, :, BLOCK + 1] = 1.0
    near = np.zeros((channels * number, BLOCK, BLOCK + 2))
    for k in range(BLOCK - 1, -1, -1):
        ahead = seen[:, :, k + 1 :].copy()
        for part in range(2):
            seen[part, :, k + 1 :] = step[:, k, part, :1] * ahead[0] + step[:, k, part, 1:] * ahead[1]
            seen[part, :, k] = ends[:, k, part]
        near[:, k, k:] = begins[:, k, :1] * seen[0, :, k:] + begins[:, k, 1:] * seen[1, :, k:]
    inside, leave = (
        part.reshape(2, channels, number, -1).transpose(2, 1, 0, 3)
        for part in np.split(seen, [BLOCK], axis=2)
    )
    near, out = (part.reshape(channels, number, BLOCK, -1) for part in np.split(near, [BLOCK], axis=2))
    near = np.where(np.tri(BLOCK, dtype=bool), near.transpose(0, 1, 3, 2), near)
    # From block to block. One product for all three terms: each row of the table is written once.
    rows = np.concatenate([out.reshape(channels, -1, 2)[:, :n], np.ones((channels, n, 1)), -left], axis=2)
    far = np.concatenate([np.zeros((channels, 2, n)), level[:, None], right.transpose(0, 2, 1)], axis=1)
    result = np.empty((channels, n, n))
    for block in range(number - 1, -1, -1):
        start, end = block * BLOCK, min((block + 1) * BLOCK, n)
        own = near[:, block, : end - start, : end - start]
        latest = np.maximum(np.arange(start, end)[:, None], np.arange(start, end))
        result[:, start:end, start:end] = (
            own + level[:, latest] + rows[:, start:end, 3:] @ far[:, 3:, start:end]
        )
        result[:, start:end, end:] = rows[:, start:end] @ far[:, :, end:]
        result[:, end:, start:end] = result[:, start:end, end:].transpose(0, 2, 1)
        far[:, :2, end:] = leave[block] @ far[:, :2, end:]
        far[:, :2, start:end] = inside[block][:, :, : end - start]
    return result
