"""Steps, pulses and ramps looked up in the tables of all channels of a service at once.

Places on the grid of cells may be fractions and differ by channel: their shape is (K, S), for S movements on
K channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from otelkit.causal import heaviside
from otelkit.causal.steps import Channel
from otelkit.query.panel import FloatArray

LATER_DEVIATION: Final = 0.3
"""How far (log latency) a change's later effect may differ from that of its first minutes."""
LASTING_DEVIATION: Final = 0.05
"""The same of a change whose effect stays as it is."""
STAIRS: Final = 6

Columns = tuple[NDArray[np.int_], FloatArray]
"""Movements as sums of M Heaviside columns (two neighbouring ones for a step between cells): their places and
shares, each of shape (M, K, S)."""


class Effects(NamedTuple):
    """Movements as measured on K channels, each field of shape (K, S)."""

    sizes: FloatArray
    """Log latency."""
    variances: FloatArray
    """Infinite where nothing is known."""
    inflations: FloatArray
    """How many times larger the variance is for the steps that are taken for granted."""


@dataclass(frozen=True)
class Tables:
    """The step tables of K channels on N cells."""

    products: FloatArray
    """Inner products of Heaviside columns, shape (K, N, N), over the noise variance, with no step known."""
    response: FloatArray
    """Their inner products with the data, shape (K, N), over the noise variance."""
    known: FloatArray
    """What known steps take off the products, ``known @ known.T`` for each channel; shape (K, N, number of
    columns)."""


def built(channels: Sequence[Channel]) -> Tables:
    """The tables of all channels, in order, with no step known."""
    functionals = [channel.functional for channel in channels]
    products = heaviside.products(
        [functional.factored for functional in functionals],
        np.array([functional.cross @ functional.normal for functional in functionals]),
        np.array([functional.cross for functional in functionals]),
        np.array([channel.regression.variance for channel in channels]),
    )
    response = np.array([channel.response for channel in channels])
    return Tables(products, response, np.empty((*response.shape, 0)))


def effects_at(
    tables: Tables, onsets: FloatArray, width: float, later_deviation: FloatArray | float = LATER_DEVIATION
) -> Effects:
    """Effects of steps at ``onsets`` over their first ``width`` cells.

    What follows after ``width`` cells may differ by about ``later_deviation``: one for all S steps, or one
    each.
    """
    return _effects_at(tables, tables.response, onsets, width, later_deviation)


def others_at(tables: Tables, responses: FloatArray, onsets: FloatArray, width: float) -> FloatArray:
    """What ``effects_at`` would have said of C other series in the data's place, shape (C, K, S).

    Args:
        tables: with no step known.
        responses: inner products of Heaviside columns with the others over the noise variance, (C, K, N).
        onsets: as there.
        width: as there.
    """
    return _effects_at(tables, responses, onsets, width, LATER_DEVIATION).sizes


def _effects_at(
    tables: Tables,
    response: FloatArray,
    onsets: FloatArray,
    width: float,
    later_deviation: FloatArray | float,
) -> Effects:
    """Of one series or, with responses of shape (C, K, N), sizes of shape (C, K, S)."""
    step = _heaviside(tables, onsets)
    later = _heaviside(tables, onsets + width)
    pairs = ((step, step), (later, later), (step, later))
    bare = [_bare(tables, *pair) for pair in pairs]
    own, after, both = (whole - _taken(tables, *pair) for whole, pair in zip(bare, pairs, strict=True))
    belief = 1 / later_deviation**2
    share = both / (after + belief)
    return _solved(
        own - share * both,
        _dot(response, step) - share * _dot(response, later),
        bare[0] - bare[2] ** 2 / (bare[1] + belief),
    )


def pulses_at(tables: Tables, onsets: FloatArray, ends: FloatArray) -> Effects:
    """Effects of pulses that begin and end at places on the grid."""
    (first, up), (last, down) = _heaviside(tables, onsets), _heaviside(tables, ends)
    pulse = np.concatenate([first, last]), np.concatenate([up, -down])
    bare = _bare(tables, pulse, pulse)
    return _solved(bare - _taken(tables, pulse, pulse), _dot(tables.response, pulse), bare)


def ramps_at(tables: Tables, begins: FloatArray, ends: FloatArray) -> Effects:
    """Full effects of straight ramps between places on the grid.

    A ramp is taken as a staircase of ``STAIRS`` steps.
    """
    parts = [_heaviside(tables, begins + (ends - begins) * (stair + 0.5) / STAIRS) for stair in range(STAIRS)]
    ramp = np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]) / STAIRS
    bare = _bare(tables, ramp, ramp)
    return _solved(bare - _taken(tables, ramp, ramp), _dot(tables.response, ramp), bare)


def _solved(information: FloatArray, response: FloatArray, bare: FloatArray) -> Effects:
    """``bare`` is the information that there would be if no step were known."""
    usable = information > 1e-6
    safe = np.where(usable, information, 1.0)
    return Effects(
        np.where(usable, response / safe, 0.0),
        np.where(usable, 1 / safe, np.inf),
        np.where(usable, np.maximum(bare / safe, 1.0), 1.0),
    )


def absorb(tables: Tables, onsets: FloatArray, width: float, deviations: FloatArray) -> Tables:
    """The tables once a step at ``onsets``, shape (K,), and what becomes of it after ``width`` cells, is
    taken for granted.

    Args:
        tables: with what is known already.
        onsets: places on the grid.
        width: cells of the first minutes.
        deviations: size (log latency) that the step is believed to have at most on each channel, shape (K,).
    """
    response, known = tables.response, tables.known
    every = np.arange(len(response))
    for begins, deviation in (
        (onsets, deviations),
        (onsets + width, np.minimum(deviations, LATER_DEVIATION)),
    ):
        places, shares = (part[:, :, 0] for part in _heaviside(tables, begins[:, None]))
        with_all = (tables.products[every, places] * shares[:, :, None]).sum(axis=0)
        taken = (known[every, places] * shares[:, :, None]).sum(axis=0)
        with_all = with_all - (known @ taken[:, :, None])[:, :, 0]
        size = (with_all[every, places] * shares).sum(axis=0) + 1 / deviation**2
        seen = (response[every, places] * shares).sum(axis=0)
        response = response - with_all * (seen / size)[:, None]
        known = np.concatenate([known, (with_all / np.sqrt(size)[:, None])[:, :, None]], axis=2)
    return replace(tables, response=response, known=known)


def _heaviside(tables: Tables, onsets: FloatArray) -> Columns:
    n = tables.response.shape[1]
    floor = np.floor(onsets)
    first = floor.astype(int)
    later = onsets - floor
    inside = (onsets >= 0) & (first < n)
    shares = np.array([(1.0 - later) * inside, later * (inside & (first + 1 < n))])
    return np.minimum(np.maximum(np.array([first, first + 1]), 0), n - 1), shares


def _bare(tables: Tables, left: Columns, right: Columns) -> FloatArray:
    """Inner products with no step known."""
    number, n = tables.response.shape
    # One flat gather of all pairs of columns: indexing by three arrays is slower.
    rows = left[0] * n + (np.arange(number) * n * n)[:, None]
    pairs = tables.products.reshape(-1).take(rows[:, None] + right[0][None])
    pairs *= left[1][:, None] * right[1][None]
    total: FloatArray = pairs.sum(axis=(0, 1))
    return total


def _taken(tables: Tables, left: Columns, right: Columns) -> FloatArray:
    """What known steps take off them."""
    if not tables.known.shape[2]:
        return np.zeros(left[0].shape[1:])
    total: FloatArray = (_known(tables, left) * _known(tables, right)).sum(axis=2)
    return total


def _known(tables: Tables, columns: Columns) -> FloatArray:
    """Shape (K, S, number of known columns)."""
    every = np.arange(len(tables.response))[:, None]
    result: FloatArray = (columns[1][:, :, :, None] * tables.known[every, columns[0]]).sum(axis=0)
    return result


def _dot(response: FloatArray, columns: Columns) -> FloatArray:
    """With a response of shape (K, N), or with each of several, shape (C, K, N)."""
    *several, number, n = response.shape
    places = columns[0] + (np.arange(number) * n)[:, None]
    found = response.reshape(*several, number * n).take(places, axis=-1)
    result: FloatArray = (columns[1] * found).sum(axis=-3)
    return result
