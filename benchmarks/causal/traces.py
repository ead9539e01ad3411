"""Arrivals and token counts of real traces, stretched to any rate and length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

NAMES = ("azure_conv", "azure_code", "mooncake")
COPIES = 3
GRAIN = {"azure_conv": 0.0, "azure_code": 0.0, "mooncake": 3.0}
"""Seconds to which the source rounded its arrivals; spread again evenly."""


@dataclass(frozen=True)
class Work:
    """Calls in order of arrival."""

    at: np.ndarray
    """Seconds from the start."""
    prompt: np.ndarray
    output: np.ndarray
    """Tokens."""


@cache
def load(name: str) -> Work:
    """One trace as it is."""
    with np.load(Path(__file__).parent / "data" / "traces.npz") as file:
        at = np.cumsum(file[f"{name}_gap_ms"].astype(float)) / 1000
        return Work(
            at, file[f"{name}_input"].astype(float), np.maximum(file[f"{name}_output"].astype(float), 1)
        )


@cache
def peak(name: str) -> float:
    """Busy minutes' rate (the highest decile) over the mean rate."""
    trace = load(name)
    per_minute = np.bincount((trace.at / 60).astype(int))[:-1]
    return float(np.quantile(per_minute, 0.9) / per_minute.mean())


def work(name: str, rate: float, seconds: float, profile: np.ndarray, rng: np.random.Generator) -> Work:
    """Calls of a trace at ``rate`` a second on average, over ``seconds``.

    Args:
        name: one of ``NAMES``.
        profile: relative load for each second, shape (seconds,); 1 is usual.

    The trace is joined end to end from random places; above its own rate copies are laid over each other,
    below it calls are left out, so that its bursts stay.
    """
    trace = load(name)
    length = float(trace.at[-1]) + 1.0
    own = len(trace.at) / length
    # Operational time runs faster where the profile is high.
    clock = np.concatenate([[0.0], np.cumsum(profile)])
    copies = max(COPIES, int(np.ceil(rate / own)))
    keep = rate / own / copies
    parts = []
    for _ in range(copies):
        begun = 0.0
        while begun < clock[-1]:
            offset = rng.uniform(0, length)
            first = int(np.searchsorted(trace.at, offset))
            span = rng.uniform(0.5, 1.0) * length
            index = (first + np.arange(len(trace.at))) % len(trace.at)
            at = np.where(index >= first, trace.at[index], trace.at[index] + length) - offset
            at = at + rng.uniform(0, max(GRAIN[name], 1e-3), len(at))
            use = (at < span) & (at >= 0) & (begun + at < clock[-1]) & (rng.random(len(at)) < keep)
            parts.append((begun + at[use], index[use]))
            begun += span
    operational = np.concatenate([p[0] for p in parts])
    index = np.concatenate([p[1] for p in parts])
    order = np.argsort(operational, kind="stable")
    at = np.interp(operational[order], clock, np.arange(len(clock)))
    return Work(at, trace.prompt[index[order]], trace.output[index[order]])
