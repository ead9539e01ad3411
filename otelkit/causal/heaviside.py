"""Inner products, under the noise, of every step with every other one.

The inverse covariance of N cells is semiseparable: its entry for two cells is a product of 2 x 2 matrices
along the way from one to the other. So the N x N inner products of Heaviside columns need no system solved
for each of them: one pass over the cells, in blocks, makes all.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.linalg import lapack

from otelkit.causal.noise import Factored
from otelkit.query.panel import FloatArray

BLOCK: Final = 20
"""Cells in a block: about the root of their usual number, so that neither loop is long."""


def products(factored: Factored) -> FloatArray:
    """Inner products of the Heaviside columns (0 before a cell, 1 from it on), shape (N, N).

    With Q the precision of the two fading parts given the data, S its inverse and B the matrices by which
    each cell's state follows from the next one's, S[i, j] = B[i] B[i + 1] ... B[j - 1] S[j, j] for i <= j.
    """
    weights = factored.weights
    back, precision = _backward(factored.cholesky)
    covariance = np.linalg.inv(precision + _reversed_precision(factored.bands) - _diagonal(factored.bands))
    both = np.repeat(weights, 2)
    forward, _ = lapack.dtbtrs(factored.cholesky, both[:, None], uplo="U", trans="T")
    smooth, _ = lapack.dtbtrs(factored.cholesky, forward, uplo="U")
    # Sums of weights over the cells before each one, carried to it; and of those from it on.
    before = _carried(factored.cholesky, forward[:, 0]) - both.reshape(-1, 2)
    after = smooth.reshape(-1, 2) - (covariance @ before[:, :, None])[:, :, 0]
    own = weights - 2 * weights * after.sum(axis=1) + weights**2 * covariance.sum(axis=(1, 2))
    level = np.cumsum(own[::-1])[::-1] - (before * after).sum(axis=1)
    return _through(back, before, after, level)


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


def _through(back: FloatArray, before: FloatArray, after: FloatArray, level: FloatArray) -> FloatArray:
    """``level[b] + before[a] @ B[a] ... B[b - 1] @ after[b]`` for all a <= b and the same for b and a, shape
    (N, N)."""
    n = len(back)
    number = -(-n // BLOCK)
    padded = np.zeros((number * BLOCK, 2, 4))
    padded[:n, :, :2], padded[:n, :, 2], padded[:n, :, 3] = back, before, after
    step, left, right = (
        part.reshape(number, BLOCK, *part.shape[1:]) for part in np.split(padded, (2, 3), axis=2)
    )
    left = left.transpose(0, 1, 3, 2)
    # Inside all blocks at once: what the ends of the block look like from each of its cells.
    inside = np.zeros((number, 2, BLOCK))
    leave = np.broadcast_to(np.eye(2), (number, 2, 2))
    result = np.empty((number * BLOCK, number * BLOCK))
    added = np.zeros(number * BLOCK)
    added[:n] = level
    near = np.empty((number, BLOCK, BLOCK))
    out = np.empty((number, BLOCK, 2))
    for k in range(BLOCK - 1, -1, -1):
        inside = step[:, k] @ inside
        inside[:, :, k] = right[:, k, :, 0]
        leave = step[:, k] @ leave
        near[:, k] = (left[:, k] @ inside)[:, 0]
        out[:, k] = (left[:, k] @ leave)[:, 0]
    near += added.reshape(number, 1, BLOCK)
    near = np.where(np.tri(BLOCK, dtype=bool), near.transpose(0, 2, 1), near)
    # From block to block.
    far = np.zeros((2, number * BLOCK))
    for block in range(number - 1, -1, -1):
        start, end = block * BLOCK, (block + 1) * BLOCK
        result[start:end, start:end] = near[block]
        result[start:end, end:] = out[block] @ far[:, end:] + added[end:]
        result[end:, start:end] = result[start:end, end:].T
        far[:, end:] = leave[block] @ far[:, end:]
        far[:, start:end] = inside[block]
    return result[:n, :n]
