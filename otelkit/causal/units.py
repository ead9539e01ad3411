"""Covariates in another unit than ``ServiceSeries`` asks for, told by what is impossible in the right one.

Whoever makes a panel by hand takes milliseconds for seconds, or the tokens of all calls for tokens per call,
and no answer would look wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from otelkit.causal.checks import UNITS
from otelkit.query.panel import FloatArray

IMPOSSIBLE: Final = 3.0
"""Times P99 from which on a part of a usual call is in another unit."""
AS_CALLS: Final = 0.5
"""Slope of a token series' moves from cell to cell on those of the number of calls (both logarithms) from
which on it counts the tokens of all of them: it is one then, and about zero for a mean per call."""
CERTAIN: Final = 5.0
"""Standard errors of that slope by which it must differ from zero: where calls hardly vary it may be
anything."""
ENOUGH_CELLS: Final = 40


def as_meant(
    covariates: Mapping[str, FloatArray], calls: FloatArray, p99: float
) -> tuple[dict[str, FloatArray], tuple[str, ...]]:
    """Covariates in the units asked for.

    Args:
        covariates: by name, each of shape (N,).
        calls: calls that ended in each cell, or any multiple of it, shape (N,).
        p99: the usual P99 latency, seconds; NaN if unknown.

    Returns:
        The covariates, and a sentence for each that was in another unit.
    """
    result = dict(covariates)
    said = []
    for name in result.keys() & {"input_tokens", "output_tokens"}:
        if _follows(result[name], calls):
            with np.errstate(divide="ignore", invalid="ignore"):
                result[name] = np.where(calls > 0, result[name] / calls, np.nan)
            said.append(
                f"{name} grows with the number of calls, so it was divided by it: give the mean per call."
            )
    tokens = usual(result.get("output_tokens", np.ones(1)))
    for name, parts in (("time_to_first_chunk", 1.0), ("time_per_output_chunk", tokens)):
        factor = _factor(usual(result.get(name, np.empty(0))) * parts, p99)
        if factor is not None:
            result[name] = result[name] / factor
            said.append(f"{name} exceeds P99 as seconds, so it was read as {UNITS[factor]}: give seconds.")
    return result, tuple(sorted(said))


def _factor(seconds: float, p99: float) -> float | None:
    """What to divide by so that a part of a call is no longer than all of it; None where it need not be."""
    if not (p99 > 0 and seconds > IMPOSSIBLE * p99):
        return None
    return next((factor for factor in UNITS if seconds / factor <= IMPOSSIBLE * p99), None)


def _follows(tokens: FloatArray, calls: FloatArray) -> bool:
    """Whether a token series moves with the number of calls from one cell to the next."""
    both = np.where((tokens > 0) & (calls > 0), [tokens, calls], 1.0)
    moved = np.diff(np.log(both), axis=1)
    known = np.isfinite(tokens) & (tokens > 0) & (calls > 0)
    y, x = moved[:, known[1:] & known[:-1]]
    if len(x) < ENOUGH_CELLS or not x.any():
        return False
    slope = (x @ y) / (x @ x)
    apart = np.sqrt(((y - slope * x) ** 2).mean() / (x @ x))
    return bool(slope > max(AS_CALLS, CERTAIN * apart))


def usual(values: FloatArray) -> float:
    """Median of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")
