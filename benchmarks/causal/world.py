"""One scenario: several services, forces on them, changes, what is seen of it, and the truth by simulating
again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.causal import simulator, traces
from benchmarks.causal.simulator import Config, Force, Shape
from otelkit.causal.histogram import quantiles
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel, ServiceSeries

LEVELS = (0.5, 0.95, 0.99)
START = 1_700_000_000.0
HORIZON = 600.0
"""Seconds after a change over which its true effect on P99 is taken."""
REAL = 0.05
"""Smallest true effect, as a share of P99, that counts as real."""


@dataclass(frozen=True)
class Planted:
    """A change and what is known of it beforehand."""

    service: str
    parameter: str
    at: float
    """Seconds from the start."""
    last: float
    confounded: bool = False
    lag: float | None = None
    """Seconds until its effect begins; None where that has no meaning (no effect, gradual)."""
    values: tuple[int, int] | None = None
    """Old and new value, where they matter."""


@dataclass(frozen=True)
class Truth:
    """What a change really did to P99 over the next ten minutes."""

    log_ratio: float
    seconds: float
    p99: float
    """Seconds, with the change."""
    without: simulator.Scrape | None = None
    """What would have been seen of the service without the change; None for changes that do nothing."""

    @property
    def real(self) -> bool:
        return bool(abs(np.expm1(self.log_ratio)) >= REAL)


@dataclass
class World:
    """A scenario being put together."""

    rng: np.random.Generator
    configs: list[Config]
    seconds: float = 10800.0
    step: float = 15.0
    window: float = 60.0
    wander: float = 0.02
    bounds: np.ndarray = field(default_factory=lambda: simulator.CONVENTION)
    profiles: dict[str, np.ndarray] = field(default_factory=dict)
    forces: dict[str, list[Force]] = field(default_factory=dict)
    changes: list[Planted] = field(default_factory=list)
    offset: float = 0.0
    """Seconds by which the clock of the events is ahead of that of the metrics."""
    gaps: bool = False
    controls: bool = True
    admitted_only: bool = False
    """The only load series counts calls that were let in."""

    def config(self, name: str) -> Config:
        return next(c for c in self.configs if c.name == name)

    def alter(self, name: str, **fields: object) -> None:
        self.configs = [replace(c, **fields) if c.name == name else c for c in self.configs]  # type: ignore[arg-type]

    def act(
        self, name: str, path: str, size: float, shape: Shape, change: int = -1, rollout: bool = False
    ) -> None:
        self.forces.setdefault(name, []).append(
            Force(path, size, shape, change, int(self.rng.integers(1, 1000)), rollout)
        )

    def add_change(self, planted: Planted) -> int:
        self.changes.append(planted)
        return len(self.changes) - 1


@dataclass(frozen=True)
class Scenario:
    """What an engine may see (panel, changes) and what it is judged by (the rest)."""

    kind: str
    panel: Panel
    changes: tuple[ParameterChange, ...]
    planted: tuple[Planted, ...]
    truths: tuple[Truth, ...]


def services(rng: np.random.Generator, number: int) -> list[Config]:
    """Unlike services with one to eight calls a second, slots set for a utilisation between 35 and 85 % in
    busy minutes."""
    result = []
    for k in range(number):
        trace = str(rng.choice(traces.NAMES, p=[0.6, 0.15, 0.25]))
        rate = float(np.exp(rng.uniform(np.log(1.0), np.log(8.0))))
        config = Config(
            name=f"service-{k}",
            trace=trace,
            rate=rate,
            slots=1,
            prefill=float(rng.uniform(0.03, 0.25)) * (0.3 if trace == "mooncake" else 1.0),
            per_token=float(rng.uniform(0.010, 0.035)),
            overhead=float(rng.uniform(0.02, 0.2)),
            noise=float(rng.uniform(0.08, 0.3)),
            batching=float(rng.uniform(0.1, 0.8)),
        )
        result.append(sized(config, float(rng.uniform(0.35, 0.85))))
    return result


def mean_service(config: Config, utilisation: float) -> float:
    trace = traces.load(config.trace)
    decode = float(trace.output.mean()) * config.per_token * (1 + config.batching * utilisation)
    return config.overhead + float(trace.prompt.mean()) / 1000 * config.prefill + decode


def sized(config: Config, utilisation: float, extra: float = 0.0) -> Config:
    """With the slots that give about this utilisation in busy minutes; ``extra`` seconds are spent waiting on
    another service."""
    busy = config.rate * traces.peak(config.trace)
    needed = busy * (mean_service(config, utilisation) + extra) / utilisation
    return replace(config, slots=max(2, int(np.ceil(needed))))


def finish(world: World, kind: str) -> Scenario:
    """Simulate, scrape, and simulate again without each change."""
    rng = world.rng
    order = sorted(world.configs, key=lambda c: bool(c.calls))
    done: dict[str, simulator.Calls] = {}
    truths: dict[int, Truth] = {}
    seen: dict[str, simulator.Scrape] = {}
    for config in order:
        profile = world.profiles.get(config.name, np.ones(int(world.seconds)))
        work = traces.work(config.trace, config.rate, world.seconds - 1, profile, rng)
        fate = simulator.luck(config, work, world.seconds, world.wander, rng)
        forces = world.forces.get(config.name, [])
        own = [n for n, c in enumerate(world.changes) if c.service == config.name]
        firsts = {n: int(np.searchsorted(work.at, world.changes[n].at)) for n in own}
        below = done.get(config.calls)
        calls = simulator.run(config, work, fate, forces, below, keep=tuple(firsts.values()))
        done[config.name] = calls
        for n in own:
            truths[n] = _truth(world, config, work, fate, forces, below, calls, n, firsts[n])
        seen[config.name] = simulator.scrape(calls, world.seconds, world.step, world.bounds)
    panel = _panel(world, seen)
    changes = tuple(
        ParameterChange(
            c.service,
            c.parameter,
            *(c.values or (1, 2 + n)),
            START + c.at + world.offset,
            START + c.last + world.offset,
        )
        for n, c in enumerate(world.changes)
    )
    return Scenario(
        kind, panel, changes, tuple(world.changes), tuple(truths[n] for n in range(len(world.changes)))
    )


def _truth(
    world: World,
    config: Config,
    work: traces.Work,
    fate: simulator.Luck,
    forces: list[Force],
    below: simulator.Calls | None,
    calls: simulator.Calls,
    number: int,
    first: int,
) -> Truth:
    """P99 of the calls that end within the horizon, against the same calls without this change."""
    begins = world.changes[number].at
    until = min(begins + HORIZON, world.seconds)
    last = int(np.searchsorted(work.at, until))
    done = calls.at + calls.latency
    inside = np.isfinite(done) & (done > begins) & (done <= until)
    p99 = float(np.quantile(calls.latency[inside], 0.99)) if inside.any() else float("nan")
    without = [f for f in forces if f.change != number]
    if len(without) == len(forces) or not inside.any() or first >= last:
        return Truth(0.0, 0.0, p99)
    again = simulator.run(
        config, work, fate, without, below, first=first, last=last, state=calls.states[first]
    )
    latency = np.concatenate([calls.latency[:first], again.latency])
    ended = np.concatenate([calls.at[:first], again.at]) + latency
    other = latency[np.isfinite(ended) & (ended > begins) & (ended <= until)]
    if not len(other):
        return Truth(0.0, 0.0, p99)
    p99_without = float(np.quantile(other, 0.99))
    shown = simulator.scrape(simulator.spliced(calls, again, first), world.seconds, world.step, world.bounds)
    return Truth(float(np.log(p99 / p99_without)), p99 - p99_without, p99, shown)


def _panel(world: World, seen: dict[str, simulator.Scrape]) -> Panel:
    rng = world.rng
    number = int(world.seconds / world.step)
    width = max(1, int(world.window / world.step))
    all_series = {}
    for config in world.configs:
        shown = seen[config.name]
        counts, covariates = shown.counts.copy(), dict(shown.covariates)
        if world.admitted_only:
            covariates["arrivals"] = covariates["arrivals"] - covariates["errors"]
        if world.gaps:
            _damage(counts, covariates, rng)
        all_series[config.name] = ServiceSeries(
            config.name,
            trailing_quantiles(world.bounds, counts, width),
            world.window,
            world.bounds,
            counts,
            covariates,
        )
    dependencies = {c.name: (c.calls,) for c in world.configs if c.calls}
    times = START + world.step * (1 + np.arange(number))
    if not world.controls:
        treated = {c.service for c in world.changes}
        all_series = {name: s for name, s in all_series.items() if name in treated}
        dependencies = {}
    return Panel(times, world.step, all_series, dependencies)


def trailing_quantiles(bounds: np.ndarray, counts: np.ndarray, width: int) -> dict[float, np.ndarray]:
    """P50, P95 and P99 (seconds) over the last ``width`` steps, of what is known of them, by level; each of
    shape (N,). ``bounds`` end with infinity."""
    padded = np.vstack([np.full((width - 1, counts.shape[1]), np.nan), counts])
    moving = np.stack([padded[k : k + len(counts)] for k in range(width)])
    known = np.isfinite(moving).all(axis=2).any(axis=0)
    total = np.where(known[:, None], np.nansum(moving, axis=0), np.nan)
    return dict(zip(LEVELS, quantiles(bounds, total, LEVELS).T, strict=True))


def _damage(counts: np.ndarray, covariates: dict[str, np.ndarray], rng: np.random.Generator) -> None:
    """Missing scrapes, counter resets and late samples, in place."""
    n = len(counts)
    for _ in range(int(rng.integers(3, 9))):
        first = int(rng.integers(0, n - 20))
        missing = slice(first, first + int(rng.integers(1, 12)))
        counts[missing] = np.nan
        for values in covariates.values():
            values[missing] = np.nan
    for _ in range(int(rng.integers(1, 4))):
        # A process restarts: part of a step's calls were counted by the one that is gone.
        row = int(rng.integers(0, n))
        counts[row] = np.floor(counts[row] * rng.uniform(0, 0.7))
    for _ in range(int(rng.integers(1, 6))):
        # A scrape that came late shows its calls in the next step.
        row = int(rng.integers(0, n - 1))
        moved = np.floor(counts[row] * rng.uniform(0.2, 0.8))
        counts[row + 1] += moved
        counts[row] -= moved
