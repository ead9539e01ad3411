"""What the causal engine reads: series of one or more services on one time grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class ServiceSeries:
    """Series of one service, all of length T; NaN where nothing is known (a gap is never a zero)."""

    service: str
    quantiles: Mapping[float, FloatArray]
    """Latency quantile (0.99, 0.95, 0.5) -> seconds, over a trailing window of ``window_seconds``."""
    window_seconds: float
    bucket_bounds: FloatArray | None = None
    """Upper bounds of the latency buckets in seconds, shape (B,), ascending, the last one infinite."""
    bucket_counts: FloatArray | None = None
    """Calls that ended in each step, by bucket (not cumulative over buckets nor time), shape (T, B)."""
    covariates: Mapping[str, FloatArray] = field(default_factory=dict)
    """Per step, where known: ``arrivals`` (calls begun per second, the load), ``completions`` (calls ended
    per second), ``errors`` (per second), ``input_tokens`` and ``output_tokens`` (mean per call),
    ``time_to_first_chunk`` and ``time_per_output_chunk`` (mean seconds), ``in_flight`` (calls under way)."""


@dataclass(frozen=True)
class Panel:
    """Series of several services on the grid ``times``."""

    times: FloatArray
    """Unix seconds, shape (T,), ascending, spaced by ``step_seconds``; a value at t covers (t - step, t]."""
    step_seconds: float
    services: Mapping[str, ServiceSeries]
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Service -> the services it calls, where known; these are never controls for it."""
    controls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Service -> the only services that may be its controls, where somebody said so."""
