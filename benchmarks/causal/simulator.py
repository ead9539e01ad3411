"""A service that answers calls token by token: slots, a queue, batching, rate limits; and its /metrics as
scraped.

First come, first served over a number of slots that may change; a call's decoding is slower the fuller the
batch was when it began. Every call's luck is fixed in advance, so that a run without a change meets the same
calls and the same luck.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from benchmarks.causal.traces import Work

CONVENTION = np.array([0.01 * 2**n for n in range(14)] + [np.inf])
"""Bucket bounds of the GenAI conventions, seconds."""


@dataclass(frozen=True)
class Config:
    """What a service is like while nothing is changed."""

    name: str
    trace: str
    rate: float
    """Calls per second."""
    slots: int
    prefill: float
    """Seconds per thousand prompt tokens."""
    per_token: float
    """Seconds per output token when alone in the batch."""
    overhead: float
    noise: float
    """Deviation of the log service time."""
    batching: float
    """How much slower decoding is in a full batch (0.5: half as slow again)."""
    heavy: float = 0.0
    """Share of calls that meet a Pareto-distributed stall."""
    calls: str = ""
    """Name of the service that every call waits for."""
    limit: float = np.inf
    """Calls per second that are let in."""


@dataclass(frozen=True)
class Shape:
    """How strongly something acts at each moment: it begins, may ramp up, may fade."""

    begins: float
    ramp: float = 0.0
    ends: float = np.inf
    fade: float = np.inf
    """Seconds to fall to 1/e; infinite for what lasts."""

    def at(self, t: np.ndarray) -> np.ndarray:
        since = t - self.begins
        up = np.clip(since / self.ramp, 0, 1) if self.ramp > 0 else (since >= 0).astype(float)
        down = np.exp(-np.maximum(since, 0) / self.fade) if np.isfinite(self.fade) else 1.0
        return np.where((since >= 0) & (t < self.ends), up * down, 0.0)


@dataclass(frozen=True)
class Force:
    """Something that acts on a service: a change's true effect, or a confounder."""

    path: str
    """``per_token``, ``output``, ``prefill``, ``slots``, ``tail``, ``prompt`` or ``limit``."""
    size: float
    """Log factor at full strength; for ``tail`` the share of calls that it hits, four times as slow."""
    shape: Shape
    change: int = -1
    """Which change of the scenario it belongs to; -1 for a confounder."""
    seed: int = 0
    rollout: bool = False
    """Reaches calls one by one during the ramp instead of all of them a little."""


@dataclass
class Calls:
    """A simulated stretch of calls."""

    at: np.ndarray
    latency: np.ndarray
    """Seconds; NaN where the call was refused."""
    first: np.ndarray
    """Seconds until the first token."""
    per_token: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    states: dict[int, tuple[list[float], float, float, float]] = field(default_factory=dict)
    """Queue as it was before a call: running calls' ends, last start, limiter's tokens and time."""


def spliced(calls: Calls, part: Calls, first: int) -> Calls:
    """``calls`` with those from ``first`` on replaced by ``part``, as far as it goes."""

    def column(name: str) -> np.ndarray:
        whole = getattr(calls, name).copy()
        whole[first : first + len(part.at)] = getattr(part, name)
        return np.asarray(whole)

    return Calls(*(column(name) for name in ("at", "latency", "first", "per_token", "prompt", "output")))


@dataclass(frozen=True)
class Luck:
    """All that is random about a service's calls, drawn once."""

    noise: np.ndarray
    stall: np.ndarray
    pick: np.ndarray
    drift: np.ndarray
    """Log factor on decoding for each second."""


def luck(config: Config, work: Work, seconds: float, wander: float, rng: np.random.Generator) -> Luck:
    """Draw a service's luck; ``wander`` is the deviation of its slow background drift."""
    n = len(work.at)
    noise = rng.normal(0, config.noise, n)
    stall = np.where(rng.random(n) < config.heavy, rng.pareto(1.6, n) * 3.0, 0.0)
    grid = np.arange(0, seconds + 61, 60)
    walk = np.zeros(len(grid))
    for memory, share in ((5.0, 0.5), (40.0, 0.87)):
        keep = np.exp(-1 / memory)
        part, kick = rng.normal(0, 1), rng.normal(0, np.sqrt(1 - keep**2), len(grid))
        for k in range(len(grid)):
            part = keep * part + kick[k]
            walk[k] += share * part
    drift = np.interp(np.arange(int(seconds) + 2), grid, wander * walk)
    return Luck(noise, stall, rng.random(n), drift)


def run(
    config: Config,
    work: Work,
    fate: Luck,
    forces: list[Force],
    downstream: Calls | None,
    *,
    first: int = 0,
    last: int | None = None,
    state: tuple[list[float], float, float, float] | None = None,
    keep: tuple[int, ...] = (),
) -> Calls:
    """Serve calls ``first`` to ``last``, starting from ``state``; the state before each call in ``keep`` is
    kept."""
    part = slice(first, last)
    at = work.at[part]
    prompt, output = work.prompt[part].copy(), work.output[part].copy()
    per_token = np.full(len(at), config.per_token) * np.exp(fate.drift[at.astype(int)])
    prefill = np.full(len(at), config.prefill)
    slots = np.full(len(at), float(config.slots))
    limit = np.full(len(at), config.limit)
    slow = np.ones(len(at))
    for force in forces:
        strength = force.shape.at(at)
        hit = np.modf(fate.pick[part] * (7 + 2 * force.seed))[0]
        if force.rollout:
            strength = (hit < strength).astype(float)
        factor = np.exp(force.size * strength)
        if force.path == "per_token":
            per_token *= factor
        elif force.path == "output":
            output *= factor
        elif force.path == "prefill":
            prefill *= factor
        elif force.path == "prompt":
            prompt *= factor
            output *= factor**0.3
        elif force.path == "slots":
            slots *= factor
        elif force.path == "limit":
            limit *= factor
        elif force.path == "tail":
            slow *= np.where((hit < force.size * strength) & (strength > 0), 4.0, 1.0)
    luck_factor = np.exp(fate.noise[part]) * slow
    before_first = (config.overhead + prompt / 1000 * prefill) * luck_factor
    if downstream is not None:
        nearest = np.clip(np.searchsorted(downstream.at, at), 0, len(downstream.at) - 1)
        waited = downstream.latency[nearest]
        before_first = before_first + np.where(np.isfinite(waited), waited, 0.05)
    decode = output * per_token * luck_factor
    result = Calls(at, np.empty(len(at)), np.empty(len(at)), np.empty(len(at)), prompt, np.round(output))
    running, started, tokens, filled = (list(state[0]), *state[1:]) if state else ([], 0.0, 10.0, 0.0)
    latency, first_token, each = result.latency, result.first, result.per_token
    wanted = set(keep)
    arrivals, places, limits = at.tolist(), np.maximum(np.round(slots), 1).tolist(), limit.tolist()
    lead, tail, stall = before_first.tolist(), decode.tolist(), fate.stall[part].tolist()
    limited = np.isfinite(config.limit)
    batching = config.batching
    push, pop = heapq.heappush, heapq.heappop
    for i, t in enumerate(arrivals):
        if first + i in wanted:
            result.states[first + i] = (list(running), started, tokens, filled)
        if limited:
            tokens = min(10.0, tokens + (t - filled) * limits[i])
            filled = t
            if tokens < 1.0:
                latency[i] = first_token[i] = each[i] = np.nan
                continue
            tokens -= 1.0
        if started < t:
            started = t
        while running and running[0] <= started:
            pop(running)
        room = places[i]
        while len(running) >= room:
            started = max(started, pop(running))
        stretch = tail[i] * (1.0 + batching * len(running) / room)
        push(running, started + lead[i] + stretch + stall[i])
        first_token[i] = started - t + lead[i]
        latency[i] = first_token[i] + stretch + stall[i]
        each[i] = stretch
    each /= np.maximum(result.output, 1)
    return result


@dataclass(frozen=True)
class Scrape:
    """What a scrape every ``step`` seconds shows of a service."""

    counts: np.ndarray
    covariates: dict[str, np.ndarray]


def scrape(calls: Calls, seconds: float, step: float, bounds: np.ndarray) -> Scrape:
    """Counts by bucket, rates and means per step of the calls that *ended* in it."""
    number = int(seconds / step)
    done = calls.at + calls.latency
    served = np.isfinite(done)
    row = np.where(served, done / step, -1).astype(int)
    use = served & (row < number)
    flat = row[use] * len(bounds) + np.searchsorted(bounds, calls.latency[use])
    counts = np.bincount(flat, minlength=number * len(bounds)).reshape(number, len(bounds)).astype(float)
    ended = counts.sum(axis=1)
    began = np.minimum((calls.at / step).astype(int), number - 1)

    def mean(values: np.ndarray) -> np.ndarray:
        total = np.bincount(row[use], weights=values[use], minlength=number)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(ended > 0, total / ended, np.nan)

    started = np.bincount(began, minlength=number)
    finished_before = np.cumsum(ended)
    refused = np.bincount(began[~served], minlength=number)
    return Scrape(
        counts,
        {
            "arrivals": started / step,
            "completions": ended / step,
            "errors": refused / step,
            "input_tokens": mean(calls.prompt),
            "output_tokens": mean(calls.output),
            "time_to_first_chunk": mean(calls.first),
            "time_per_output_chunk": mean(calls.per_token),
            "in_flight": np.cumsum(started - refused) - finished_before,
        },
    )
