"""The kinds of scenario, each a function that puts forces and changes into a world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from benchmarks.causal import simulator, world
from benchmarks.causal.simulator import Shape
from benchmarks.causal.world import Planted, Scenario, World

IDLE = ("seed", "log_level", "presence_penalty", "user_tag", "cache_ttl", "route_weight", "timeout", "top_k")
PATHS = {"per_token": "model", "output": "max_tokens", "prefill": "prompt_template", "slots": "max_num_seqs"}
TARGET = "service-0"
MINUTE = 60.0


def moment(w: World, low: float = 0.35, high: float = 0.85) -> float:
    return float(w.rng.uniform(low, high) * w.seconds)


def idle(w: World, at: float, confounded: bool = True, service: str = TARGET) -> None:
    w.add_change(Planted(service, str(w.rng.choice(IDLE)), at, at, confounded))


def log_size(w: World, low: float = 0.07, high: float = 0.7) -> float:
    return float(np.exp(w.rng.uniform(np.log(low), np.log(high))))


def real(
    w: World,
    at: float,
    *,
    path: str = "",
    sign: int = 0,
    lag: float = 0.0,
    ramp: float = 0.0,
    ends: float = np.inf,
    fade: float = np.inf,
    service: str = TARGET,
    low: float = 0.07,
    known_lag: bool = True,
    parameter: str = "",
) -> int:
    """A change with an effect through a path."""
    rng = w.rng
    path = path or str(rng.choice(list(PATHS), p=[0.4, 0.35, 0.1, 0.15]))
    sign = sign or (1 if rng.random() < 0.72 else -1)
    size = sign * log_size(w, low)
    if path == "slots":
        size = -sign * log_size(w, 0.1, 0.5)
    if path == "prefill":
        size = sign * log_size(w, 0.3, 1.2)
    rollout = ramp > 0 and rng.random() < 0.6
    number = w.add_change(
        Planted(
            service, parameter or PATHS[path], at, at + ramp, False, lag if known_lag and ramp == 0 else None
        )
    )
    w.act(service, path, size, Shape(at + lag, ramp, ends, fade), number, rollout)
    return number


def no_effect(w: World) -> None:
    idle(w, moment(w), False)


def plain(w: World) -> None:
    real(w, moment(w), sign=1)


def improvement(w: World) -> None:
    real(w, moment(w), sign=-1)


def _surge(w: World, at: float, names: list[str]) -> None:
    factor, span = w.rng.uniform(1.3, 2.2), w.rng.uniform(4, 25) * MINUTE
    for name in names:
        profile = w.profiles[name]
        begin = int(at + w.rng.uniform(-20, 20))
        profile[begin : int(begin + span)] *= factor


def surge(w: World) -> None:
    at = moment(w)
    _surge(w, at, [TARGET])
    idle(w, at)


def surge_everywhere(w: World) -> None:
    at = moment(w)
    _surge(w, at, [c.name for c in w.configs])
    idle(w, at)


def surge_and_effect(w: World) -> None:
    at = moment(w)
    _surge(w, at, [TARGET])
    real(w, at, sign=1, low=0.12)


def two_close_one_real(w: World) -> None:
    at, gap = moment(w), w.rng.uniform(30, 120)
    if w.rng.random() < 0.5:
        real(w, at, low=0.12)
        idle(w, at + gap)
    else:
        idle(w, at)
        real(w, at + gap, low=0.12)


def two_close_both_real(w: World) -> None:
    at, gap = moment(w), w.rng.uniform(30, 120)
    real(w, at, path="per_token", low=0.12)
    real(w, at + gap, path="output", low=0.12)


def slow_ramp(w: World) -> None:
    at = moment(w)
    ramp = w.rng.uniform(15, 60) * MINUTE
    w.act(TARGET, "per_token", log_size(w, 0.15), Shape(at - w.rng.uniform(0, 0.7) * ramp, ramp))
    idle(w, at)


def drift(w: World) -> None:
    w.act(TARGET, "per_token", w.rng.choice([-1, 1]) * log_size(w, 0.15), Shape(0, w.seconds))
    idle(w, moment(w))


def gradual(w: World) -> None:
    real(w, moment(w, 0.35, 0.8), ramp=w.rng.uniform(2, 10) * MINUTE, low=0.15)


def transient(w: World) -> None:
    real(w, moment(w), path="per_token", sign=1, fade=w.rng.uniform(2, 8) * MINUTE, low=0.2)


def transient_before(w: World) -> None:
    at = moment(w)
    begin = at - w.rng.uniform(1, 5) * MINUTE
    w.act(TARGET, "per_token", log_size(w, 0.25), Shape(begin, 0, begin + w.rng.uniform(2, 8) * MINUTE))
    idle(w, at)


def _deploy(w: World, at: float) -> None:
    size = log_size(w, 0.2)
    lasting = w.rng.random() < 0.5
    for config in w.configs:
        shape = Shape(
            at + w.rng.uniform(-10, 10), 0, fade=np.inf if lasting else w.rng.uniform(2, 6) * MINUTE
        )
        w.act(config.name, "per_token", size * w.rng.uniform(0.8, 1.2), shape)


def deploy(w: World) -> None:
    at = moment(w)
    _deploy(w, at)
    for config in w.configs[:3]:
        idle(w, at + w.rng.uniform(0, 10), service=config.name)


def deploy_and_effect(w: World) -> None:
    at = moment(w)
    _deploy(w, at)
    real(w, at, sign=1, low=0.2)
    idle(w, at + 5, service=w.configs[1].name)


def diurnal(w: World) -> None:
    swing = w.rng.uniform(0.2, 0.5)
    wave = 1 + swing * np.sin(2 * np.pi * (np.arange(int(w.seconds)) / w.seconds * 1.3 + w.rng.random()))
    for config in w.configs:
        w.profiles[config.name] *= wave
    at = moment(w)
    if w.rng.random() < 0.5:
        real(w, at)
    else:
        idle(w, at)


def faults(w: World) -> None:
    w.gaps = True
    plain(w) if w.rng.random() < 0.6 else idle(w, moment(w), False)


def low_traffic(w: World) -> None:
    rate = float(np.exp(w.rng.uniform(np.log(0.03), np.log(0.3))))
    w.configs = [world.sized(replace(c, rate=rate), 0.4) if c.name == TARGET else c for c in w.configs]
    real(w, moment(w), low=0.2) if w.rng.random() < 0.6 else idle(w, moment(w), False)


def heavy_tails(w: World) -> None:
    w.alter(TARGET, heavy=float(w.rng.uniform(0.005, 0.03)))
    plain(w) if w.rng.random() < 0.6 else idle(w, moment(w), False)


def delayed(w: World) -> None:
    real(w, moment(w), lag=w.rng.uniform(27, 300), low=0.12)


def revert(w: World) -> None:
    at, span = moment(w, 0.35, 0.75), w.rng.uniform(4, 20) * MINUTE
    sign = 1 if w.rng.random() < 0.7 else -1
    size, path = log_size(w, 0.15), str(w.rng.choice(["per_token", "output"]))
    there = w.add_change(Planted(TARGET, PATHS[path], at, at, False, 0.0, (1, 2)))
    back = w.add_change(Planted(TARGET, PATHS[path], at + span, at + span, False, 0.0, (2, 1)))
    w.act(TARGET, path, sign * size, Shape(at), there)
    w.act(TARGET, path, -sign * size, Shape(at + span), back)


def tail_only(w: World) -> None:
    at = moment(w)
    number = w.add_change(Planted(TARGET, "retry_policy", at, at, False, 0.0))
    w.act(TARGET, "tail", w.rng.uniform(0.004, 0.03), Shape(at), number)


def dependency(w: World) -> None:
    below = w.configs[1]
    extra = world.mean_service(below, 0.6)
    w.configs = [
        world.sized(replace(c, calls=below.name), 0.6, extra * 1.3) if c.name == TARGET else c
        for c in w.configs
    ]
    at = moment(w)
    real(w, at, service=below.name, sign=1, low=0.2)
    idle(w, at + w.rng.uniform(-20, 20))


def storm(w: World) -> None:
    at = moment(w, 0.35, 0.7)
    times = np.sort(at + w.rng.uniform(0, 20, int(w.rng.integers(6, 11))) * MINUTE)
    chosen = set(w.rng.choice(len(times), int(w.rng.integers(1, 3)), replace=False).tolist())
    for number, t in enumerate(times.tolist()):
        real(w, t, low=0.2) if number in chosen else idle(w, t)


def rate_limit(w: World) -> None:
    config = w.config(TARGET)
    w.admitted_only = bool(w.rng.random() < 0.5)
    w.configs = [
        replace(world.sized(c, 0.9), limit=c.rate * w.rng.uniform(1.0, 1.3)) if c.name == TARGET else c
        for c in w.configs
    ]
    at = moment(w)
    number = w.add_change(Planted(TARGET, "rate_limit", at, at, False, 0.0))
    w.act(TARGET, "limit", w.rng.choice([-1, 1]) * log_size(w, 0.15, 0.5), Shape(at), number)
    assert config.name == TARGET


def output_length(w: World) -> None:
    real(w, moment(w), path="output", low=0.1)


def prompt_mix(w: World) -> None:
    at = moment(w)
    w.act(TARGET, "prompt", log_size(w, 0.3, 1.0), Shape(at + w.rng.uniform(-30, 30)))
    idle(w, at)


def no_controls(w: World) -> None:
    w.controls = False
    real(w, moment(w), low=0.1) if w.rng.random() < 0.6 else idle(w, moment(w), False)


def edge(w: World) -> None:
    at = w.rng.uniform(3, 9) * MINUTE
    at = at if w.rng.random() < 0.5 else w.seconds - at
    real(w, at, low=0.15) if w.rng.random() < 0.6 else idle(w, at, False)


def coarse_buckets(w: World) -> None:
    w.bounds = np.array([0.1, 0.5, 2.5, 10.0, 30.0, 60.0, 300.0, np.inf])
    real(w, moment(w), low=0.1) if w.rng.random() < 0.7 else idle(w, moment(w), False)


def clock_offset(w: World) -> None:
    w.offset = float(w.rng.choice([-1, 1]) * w.rng.uniform(10, 45))
    real(w, moment(w), low=0.12, known_lag=False)


KINDS: dict[str, Callable[[World], None]] = {
    function.__name__: function
    for function in (
        no_effect,
        plain,
        improvement,
        surge,
        surge_everywhere,
        surge_and_effect,
        two_close_one_real,
        two_close_both_real,
        slow_ramp,
        drift,
        gradual,
        transient,
        transient_before,
        deploy,
        deploy_and_effect,
        diurnal,
        faults,
        low_traffic,
        heavy_tails,
        delayed,
        revert,
        tail_only,
        dependency,
        storm,
        rate_limit,
        output_length,
        prompt_mix,
        no_controls,
        edge,
        coarse_buckets,
        clock_offset,
    )
}


def scenario(kind: str, seed: int) -> Scenario:
    """One scenario; the same for the same kind and seed."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind)])
    w = World(rng, world.services(rng, int(rng.integers(5, 7))))
    for config in w.configs:
        t = np.arange(int(w.seconds))
        hum = 0.06 * np.sin(2 * np.pi * (t / rng.uniform(1500, 6000) + rng.random()))
        w.profiles[config.name] = (
            1 + hum + 0.05 * np.interp(t, np.arange(0, w.seconds, 300), rng.normal(size=36))
        )
        for _ in range(int(rng.poisson(0.15))):
            # Something goes wrong for a few minutes now and then, whatever anybody changes.
            begin = rng.uniform(0, w.seconds)
            shape = Shape(begin, 0, begin + rng.uniform(1, 4) * MINUTE)
            w.act(config.name, "per_token", rng.uniform(0.15, 0.5), shape)
    if rng.random() < 0.5:
        w.bounds = sharpened(float(np.exp(rng.uniform(np.log(3), np.log(20)))))
    KINDS[kind](w)
    _bystanders(w)
    order = sorted(range(len(w.changes)), key=lambda n: w.changes[n].at)
    place = {old: new for new, old in enumerate(order)}
    w.changes = [w.changes[n] for n in order]
    w.forces = {
        name: [replace(f, change=place.get(f.change, -1)) for f in forces]
        for name, forces in w.forces.items()
    }
    return world.finish(w, kind)


def _bystanders(w: World) -> None:
    """Other changes well away from the one the scenario is about, most of them without effect."""
    rng = w.rng
    for _ in range(int(rng.integers(1, 3))):
        name = TARGET if rng.random() < 0.6 else str(rng.choice([c.name for c in w.configs[1:]]))
        for _ in range(20):
            at = float(rng.uniform(0.08, 0.93) * w.seconds)
            if all(abs(at - c.at) > 20 * MINUTE or c.service != name for c in w.changes):
                if rng.random() < 0.15:
                    real(w, at, service=name)
                else:
                    idle(w, at, False, name)
                break


def sharpened(objective: float) -> np.ndarray:
    """The convention's bounds with more of them around an objective (seconds)."""
    near = objective * np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2])
    return np.unique(np.round(np.concatenate([simulator.CONVENTION, near]), 6))
