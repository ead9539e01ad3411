"""What many services and hours cost: CPU time, wall-clock time and memory of ``explain``, in its own process.

python -m benchmarks.causal.scale hundred_services_1000_changes
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
from scipy import special

from benchmarks.causal.kinds import sharpened
from otelkit.causal import explain
from otelkit.causal.histogram import quantiles
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel, ServiceSeries

START = 1_700_000_000.0
STEP = 15.0


@dataclass(frozen=True)
class Size:
    """How much there is to explain."""

    services: int
    hours: float
    changes: int
    """Per service."""


SIZES = {
    "ten_services_12_hours": Size(10, 12.0, 10),
    "hundred_services_1000_changes": Size(100, 12.0, 10),
}


def series(name: str, length: int, bounds: np.ndarray, rng: np.random.Generator) -> ServiceSeries:
    """Log-normal latencies with a daily wave, a slow wander and a step now and then, seen in buckets."""
    at = np.arange(length)
    load = 30.0 * (1 + 0.3 * np.sin(2 * np.pi * at * STEP / 86_400 + rng.random()))
    centre = 0.5 + 0.03 * np.cumsum(rng.normal(0, 0.05, length)) + 0.3 * (at > rng.uniform(0, length))
    below = special.ndtr((np.log(bounds)[None] - centre[:, None]) / 0.4)
    counts = rng.poisson(load[:, None] * np.diff(below, axis=1, prepend=0.0)).astype(float)
    ended = np.maximum(counts.sum(axis=1), 1)
    p = quantiles(bounds, counts, (0.5, 0.95, 0.99))
    return ServiceSeries(
        name,
        {0.5: p[:, 0], 0.95: p[:, 1], 0.99: p[:, 2]},
        STEP,
        bounds,
        counts,
        {
            "arrivals": rng.poisson(load) / STEP,
            "completions": ended / STEP,
            "output_tokens": 200 * rng.lognormal(0, 0.5 / np.sqrt(ended)),
            "time_per_output_chunk": 0.02 * np.exp(centre - 0.5) * rng.lognormal(0, 0.2 / np.sqrt(ended)),
            "time_to_first_chunk": 0.3 * rng.lognormal(0, 0.3 / np.sqrt(ended)),
        },
    )


def measure(size: Size) -> dict[str, float]:
    """Explain every change of every service once."""
    rng = np.random.default_rng(1)
    length = int(size.hours * 3600 / STEP)
    bounds = sharpened(4.0)
    names = [f"service-{number}" for number in range(size.services)]
    panel = Panel(
        START + STEP * (1 + np.arange(length)), STEP, {n: series(n, length, bounds, rng) for n in names}
    )
    changes = [
        ParameterChange(name, f"parameter_{k}", 1, 2, t, t)
        for name in names
        for k, t in enumerate(START + np.sort(rng.uniform(0.02, 0.98, size.changes)) * size.hours * 3600)
    ]
    begun, cpu = time.perf_counter(), time.process_time()
    for name in names:
        explain(panel, name, [change for change in changes if change.service == name])
    return {
        "changes": len(changes),
        "seconds": round(time.perf_counter() - begun, 2),
        "cpu_ms_per_change": round(1000 * (time.process_time() - cpu) / len(changes), 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def measured(name: str) -> dict[str, float]:
    """The same in a process of its own, so that nothing else counts towards its memory."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.causal.scale", name], check=True, capture_output=True, text=True
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


if __name__ == "__main__":
    print(json.dumps(measure(SIZES[sys.argv[1]])))
