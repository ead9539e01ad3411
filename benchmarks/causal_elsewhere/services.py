"""A service that streams answers of a language model from a first-in-first-out queue, and all its luck, so
that it can be run again without a change and nothing else differs."""

from __future__ import annotations

import functools
import heapq
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.causal import traces

SECONDS = 10800.0
PULSE = 5.0
"""Seconds over which the rate of calls is the same."""
PULSES = int(SECONDS / PULSE)
GENAI_BOUNDS = np.array([0.01 * 2**k for k in range(14)])
SUMMED = ("over", "post", "tail", "reject")
"""Parts of a force that add up; the others are factors, but for the widest tail."""

Array = np.ndarray
Force = Callable[["Service"], dict[str, Array]]


@functools.cache
def arrivals(name: str) -> Array:
    """Calls in each ten seconds of a trace as it was published, before its times were rounded."""
    counts = json.loads((Path(__file__).parent / "arrivals.json").read_text())
    return np.array(counts[name], dtype=float)


def smoothed(values: Array, reach: int) -> Array:
    """Mean over ``reach`` values on each side."""
    padded = np.pad(values, (reach, reach), mode="edge")
    return np.convolve(padded, np.ones(2 * reach + 1) / (2 * reach + 1), mode="valid")


def wandering(rng: np.random.Generator, number: int, deviation: float, memory: float) -> Array:
    """An Ornstein-Uhlenbeck process that forgets over ``memory`` steps."""
    keep = np.exp(-1 / memory)
    steps = rng.normal(0, deviation * np.sqrt(1 - keep * keep), number)
    result = np.empty(number)
    value = rng.normal(0, deviation)
    for k in range(number):
        value = keep * value + steps[k]
        result[k] = value
    return result


@dataclass(frozen=True)
class Calls:
    """What became of N calls, each field of shape (N,); times in seconds."""

    at: Array
    latency: Array
    end: Array
    served: Array
    first_token: Array
    per_token: Array
    outputs: Array
    prompts: Array


class Service:
    """How a service is, what it is offered, and what acts on it."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self.name, self.rng = name, rng
        self.trace = str(rng.choice(traces.NAMES, p=[0.5, 0.25, 0.25]))
        self.rate = float(np.exp(rng.uniform(np.log(3.0), np.log(20))))
        self.heavy = 0.0
        """Share of calls whose tokens take many times as long."""
        self.utilisation = rng.uniform(0.3, 0.72)
        self.per_token = float(np.exp(rng.uniform(np.log(0.004), np.log(0.02))))
        self.prefill = rng.uniform(0.02, 0.2) / 1000 * (0.2 if self.trace == "mooncake" else 1)
        self.overhead = rng.uniform(0.03, 0.25)
        self.slowing = rng.uniform(0.1, 1.0)
        """By how much tokens take longer with all slots taken than with none."""
        self.noise = rng.uniform(0.05, 0.25)
        self.wander = rng.uniform(0.004, 0.015)
        fine = rng.random() >= 0.7
        self.bounds = (
            np.unique(np.round(np.geomspace(0.05, 120, rng.integers(22, 40)), 3)) if fine else GENAI_BOUNDS
        )
        self.timeout = np.inf if rng.random() < 0.7 else rng.uniform(60, 180)
        self.window = rng.choice([60.0, 60.0, 120.0])
        self.below: Service | None = None
        """A service that each call waits for."""
        self.shuffled = rng.random() < 0.85
        """Whether lengths are drawn from the trace in any order, not in its own."""
        self.bare = rng.random() < 0.25
        """Whether neither first tokens nor the time per token are measured."""
        self.whole = rng.random() < 0.2
        """Whether answers are not streamed: nothing says how fast tokens come."""
        self.profile = np.ones(PULSES)
        """By which the rate of calls is multiplied."""
        self.forces: list[tuple[Force, int]] = []
        """What acts on calls, each with the change that does it; -1 for none."""

    def draw(self) -> None:
        """Draw calls and all luck."""
        rng = self.rng
        prompts, outputs = traces.load(self.trace).prompt, traces.load(self.trace).output
        counts = arrivals(self.trace)
        shape = smoothed(counts, 3) / counts.mean()
        offset = rng.integers(0, len(shape))
        places = np.linspace(0, len(shape) * rng.uniform(0.6, 1), PULSES) % len(shape)
        stretched = np.interp(places, np.arange(len(shape)), np.roll(shape, offset))
        stretched = 1 + (stretched - 1) * rng.uniform(0.1, 0.5)
        rates = self.rate * stretched / stretched.mean() * self.profile
        rates = np.maximum(rates * np.exp(wandering(rng, PULSES, 0.04, 60)), 0.02)
        numbers = rng.poisson(rates * PULSE)
        self.at = np.sort(np.concatenate([PULSE * k + rng.random(m) * PULSE for k, m in enumerate(numbers)]))
        number = len(self.at)
        drawn = (rng.integers(0, len(prompts)) + np.arange(number)) % len(prompts)
        if self.shuffled:
            drawn = rng.integers(0, len(prompts), number)
        self.prompts, self.outputs = prompts[drawn].copy(), outputs[drawn].copy()
        self.luck = rng.normal(0, 1, number)
        self.rejected, self.in_tail, self.is_heavy, self.share = (rng.random(number) for _ in range(4))
        slow = wandering(rng, PULSES, self.wander, rng.uniform(30, 180))
        self.drift = np.interp(self.at, np.arange(PULSES) * PULSE + PULSE / 2, slow)
        mean = self.overhead + prompts.mean() * self.prefill
        mean += outputs.mean() * self.per_token * (1 + self.slowing * self.utilisation)
        busy = smoothed(rates / self.profile, 30).max()
        self.slots = max(2, int(np.ceil(busy * mean / self.utilisation)))

    def acting(self, skip: int | None) -> dict[str, Array]:
        """All that acts on each call, without the change ``skip``."""
        number = len(self.at)
        result = {name: np.zeros(number) for name in SUMMED}
        result |= {name: np.ones(number) for name in ("per_token", "out", "pre", "ctx", "slots", "times")}
        for force, change in self.forces:
            if skip is not None and change == skip:
                continue
            for name, values in force(self).items():
                if name in SUMMED:
                    result[name] = result[name] + values
                elif name == "times":
                    result[name] = np.maximum(result[name], values)
                else:
                    result[name] = result[name] * values
        return result

    def run(self, skip: int | None = None, below: Calls | None = None) -> Calls:
        """Serve all calls, without the change ``skip``."""
        acting = self.acting(skip)
        prompts = self.prompts * acting["ctx"]
        outputs = np.maximum(np.round(self.outputs * acting["out"]), 1)
        per_token = self.per_token * acting["per_token"] * np.exp(self.noise * self.luck + self.drift)
        per_token = per_token * np.where(self.in_tail < acting["tail"], acting["times"], 1)
        if self.heavy:
            longer = np.minimum((1 - self.share) ** (-1 / 1.6), 15)
            per_token = per_token * np.where(self.is_heavy < self.heavy, longer, 1)
        before = (self.overhead + prompts * self.prefill * acting["pre"]) * np.exp(0.1 * self.luck)
        before = before + acting["over"]
        if below is not None:
            nearest = np.minimum(np.searchsorted(below.at, self.at), len(below.at) - 1)
            before = before + below.latency[nearest]
        slots = np.maximum(np.round(self.slots * acting["slots"]), 1).astype(int)
        let_in = self.rejected >= acting["reject"]
        start, end, running = self.at.copy(), self.at + 0.01, np.zeros(len(self.at), int)
        served = np.zeros(len(self.at), bool)
        queue = _queued(
            self.at[let_in],
            before[let_in],
            (outputs * per_token)[let_in],
            acting["post"][let_in],
            slots[let_in],
            self.slowing,
            self.timeout,
        )
        start[let_in], end[let_in], served[let_in], running[let_in] = queue
        slower = 1 + self.slowing * running / slots
        return Calls(
            at=self.at,
            latency=end - self.at,
            end=end,
            served=served,
            first_token=start - self.at + before,
            per_token=per_token * slower,
            outputs=outputs,
            prompts=prompts,
        )


def _queued(
    at: Array, before: Array, tokens: Array, after: Array, slots: Array, slowing: float, timeout: float
) -> tuple[Array, Array, Array, Array]:
    """When each call starts and ends, whether it is served, and how many run when it starts.

    First in, first out; as many run as there are slots, whose number may change; a call that has waited for
    ``timeout`` seconds is given up.
    """
    start, end = np.empty(len(at)), np.empty(len(at))
    served, running = np.ones(len(at), bool), np.zeros(len(at), int)
    ends: list[float] = []
    last = 0.0
    lists = zip(at.tolist(), before.tolist(), tokens.tolist(), after.tolist(), slots.tolist(), strict=True)
    for k, (arrives, first, rest, late, allowed) in enumerate(lists):
        begins = max(arrives, last)
        while True:
            while ends and ends[0] <= begins:
                heapq.heappop(ends)
            if len(ends) < allowed:
                break
            begins = ends[0]
        running[k] = len(ends)
        if begins - arrives > timeout:
            served[k], start[k], end[k] = False, arrives + timeout, arrives + timeout
            continue
        last = begins
        done = begins + first + rest * (1 + slowing * len(ends) / allowed)
        heapq.heappush(ends, done)
        start[k], end[k] = begins, done + late
    return start, end, served, running
