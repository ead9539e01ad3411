"""A small service with planted causes: Poisson arrivals, four slots, one token after another, latency in
buckets."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from otelkit.model import ParameterChange
from otelkit.query.panel import Panel, ServiceSeries

START = 1_700_000_000.0
BOUNDS = np.array(
    [
        0.01,
        0.02,
        0.04,
        0.08,
        0.16,
        0.32,
        0.4,
        0.48,
        0.56,
        0.64,
        0.72,
        0.8,
        0.88,
        1.0,
        1.2,
        1.28,
        1.4,
        1.6,
        2.56,
        5.12,
        10.24,
        np.inf,
    ]
)


@dataclass(frozen=True)
class Service:
    """What a planted service does at time t (seconds from the start)."""

    rate: Callable[[float], float] = lambda t: 3.0
    tokens: Callable[[float], float] = lambda t: 8.0
    seconds_per_token: Callable[[float], float] = lambda t: 0.028
    prompt: Callable[[float], float] = lambda t: 300.0
    """Tokens of the prompt, of which 10,000 are read in a second."""
    slots: int = 4
    spread: float = 0.25
    """Deviation of the log service time."""
    tokens_spread: float = 0.3
    name: str = "chat"
    covariates: frozenset[str] = field(
        default_factory=lambda: frozenset({"arrivals", "completions", "output_tokens"})
    )


def simulate(service: Service, seconds: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arrival times, latencies (both seconds) and output tokens of every call."""
    rng = np.random.default_rng(seed)
    arrivals, latencies, outputs = [], [], []
    free = [0.0] * service.slots
    t = 0.0
    while True:
        t += rng.exponential(1 / service.rate(t))
        if t >= seconds:
            return np.array(arrivals), np.array(latencies), np.array(outputs)
        limit = service.tokens(t)
        tokens = max(1.0, min(limit, limit * rng.lognormal(0.2, service.tokens_spread)))
        busy = service.prompt(t) / 10_000 + tokens * service.seconds_per_token(t) * rng.lognormal(
            0, service.spread
        )
        begins = max(t, heapq.heappop(free))
        heapq.heappush(free, begins + busy)
        arrivals.append(t)
        latencies.append(begins + busy - t)
        outputs.append(tokens)


def series(
    service: Service, seconds: int, seed: int, *, step: float = 1.0, bounds: np.ndarray = BOUNDS
) -> ServiceSeries:
    """What a scrape of that service every ``step`` seconds gives."""
    at, latency, tokens = simulate(service, seconds, seed)
    number = int(seconds / step)
    done = at + latency
    row = np.floor(done / step).astype(int)
    keep = row < number
    counts = np.zeros((number, len(bounds)))
    np.add.at(counts, (row[keep], np.searchsorted(bounds, latency[keep])), 1)
    begun = np.bincount(np.minimum(np.floor(at / step).astype(int), number - 1), minlength=number) / step
    ended = counts.sum(axis=1)
    total = np.bincount(row[keep], weights=tokens[keep], minlength=number)
    with np.errstate(divide="ignore", invalid="ignore"):
        output = np.where(ended > 0, total / ended, np.nan)
    asked = np.random.default_rng([seed, 1]).lognormal(0, 0.3, len(at)) * [service.prompt(t) for t in at]
    total = np.bincount(row[keep], weights=asked[keep], minlength=number)
    with np.errstate(divide="ignore", invalid="ignore"):
        prompt = np.where(ended > 0, total / ended, np.nan)
    total = np.bincount(
        row[keep], weights=np.array([service.seconds_per_token(t) for t in at])[keep], minlength=number
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(ended > 0, total / ended, np.nan)
    every = {
        "arrivals": begun,
        "completions": ended / step,
        "output_tokens": output,
        "input_tokens": prompt,
        "time_per_output_chunk": each,
    }
    window = max(30.0, step)
    quantiles = {q: windowed_quantile(counts, bounds, q, int(window / step)) for q in (0.5, 0.95, 0.99)}
    return ServiceSeries(
        service.name,
        quantiles,
        window,
        bounds,
        counts,
        {k: v for k, v in every.items() if k in service.covariates},
    )


def windowed_quantile(counts: np.ndarray, bounds: np.ndarray, q: float, steps: int) -> np.ndarray:
    """``histogram_quantile`` over a trailing window, written independently of the engine's."""
    result = np.full(len(counts), np.nan)
    for t in range(len(counts)):
        total = counts[max(0, t + 1 - steps) : t + 1].sum(axis=0)
        n = total.sum()
        if n == 0:
            continue
        cumulative, rank = np.cumsum(total), q * n
        b = int(np.searchsorted(cumulative, rank))
        if not np.isfinite(bounds[b]):
            result[t] = bounds[b - 1]
            continue
        low = bounds[b - 1] if b else 0.0
        below = cumulative[b - 1] if b else 0.0
        result[t] = low + (bounds[b] - low) * (rank - below) / total[b]
    return result


def panel(*all_series: ServiceSeries, step: float = 1.0, **dependencies: tuple[str, ...]) -> Panel:
    """The series on one grid."""
    number = len(next(iter(all_series[0].quantiles.values())))
    return Panel(
        START + step * (1 + np.arange(number)), step, {s.service: s for s in all_series}, dependencies
    )


def change(
    at: float, parameter: str = "max_tokens", old: object = 1, new: object = 2, **more: object
) -> ParameterChange:
    """A change ``at`` seconds from the start."""
    service = str(more.pop("service", "chat"))
    last = float(str(more.pop("last", at)))
    return ParameterChange(service, parameter, old, new, START + at, START + last, **more)  # type: ignore[arg-type]


def switched(*points: tuple[float, float], first: float) -> Callable[[float], float]:
    """A value that is ``first`` and then each point's value from each point's time on."""

    def value(t: float) -> float:
        now = first
        for at, then in points:
            if t >= at:
                now = then
        return now

    return value


def demo_service() -> tuple[Service, Sequence[ParameterChange]]:
    """The demo's script: nothing, up, a surge with an idle change, up and back."""
    service = Service(
        rate=switched((175, 4.8), (215, 3.0), first=3.0),
        tokens=switched((105, 16), (260, 28), (300, 16), first=8),
    )
    changes = (
        change(55, "presence_penalty", 0, 0.5),
        change(105, "max_tokens", 8, 16),
        change(175, "seed", 1, 2),
        change(260, "max_tokens", 16, 28),
        change(300, "max_tokens", 28, 16),
    )
    return service, changes
