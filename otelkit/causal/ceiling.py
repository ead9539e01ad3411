"""Where latency passes the last bound of its buckets: a quantile is shown at that bound, whatever it is.

What is seen there of a movement is the least that it may be, and a service that stays there for long tells
nothing more.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from otelkit.query.panel import BoolArray, FloatArray

KEPT_SECONDS: Final = 720.0
"""How much of a stretch is kept: as long as an effect is measured, and until it is seen."""
BRIDGED: Final = 3
"""Cells by which two stretches may be apart and still be one."""
FLAT: Final = 4
"""Cells in a row at a series' very highest value from which on that is a bound: a quantile that moves freely
does not repeat itself."""


def beyond(counts: FloatArray, level: float) -> BoolArray:
    """Whether a quantile lies beyond the last finite bound, shape (N,).

    Args:
        counts: calls by bucket in each cell, the last bucket infinite, shape (N, B).
        level: of the quantile, between 0 and 1.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(counts[:, -1] > (1.0 - level) * counts.sum(axis=1))


def flat(values: FloatArray) -> BoolArray:
    """The same of a quantile series whose buckets are not known, shape (N,)."""
    known = np.isfinite(values)
    top = known & (values >= np.max(values, where=known, initial=-np.inf))
    runs = np.diff(np.flatnonzero(np.diff(top, prepend=False, append=False)))[::2]
    cut_off = len(runs) and runs.max() >= FLAT and not top[known].all()
    return top if cut_off else np.zeros(len(top), dtype=bool)


def long_after(hidden: BoolArray, cell_seconds: float) -> BoolArray:
    """Cells of each stretch of hidden ones beyond its first ``KEPT_SECONDS``, shape (N,)."""
    result = np.zeros(len(hidden), dtype=bool)
    places = np.flatnonzero(hidden)
    begins = np.diff(places, prepend=-np.inf) > BRIDGED
    start = np.maximum.accumulate(np.where(begins, places, 0)) if len(places) else places
    result[places] = (places - start) * cell_seconds >= KEPT_SECONDS
    return result
