"""The kinds of scenarios: what is changed, and what else moves at that moment."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.causal.world import Planted, Scenario, Truth
from benchmarks.causal_elsewhere import scrapes
from benchmarks.causal_elsewhere.effects import World, factor, step
from benchmarks.causal_elsewhere.services import Array, Calls, Service
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel

START = 1.75e9
APART = 1000.0
"""Seconds that further changes are away from all others, where there is room."""

Plant = Callable[[World, Service, np.random.Generator, float], object]
KINDS: dict[str, Plant] = {}
"""Each plants its changes in a world, for one of its services, about one moment."""


def kind(plant: Plant) -> Plant:
    KINDS[plant.__name__] = plant
    return plant


@kind
def no_effect(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.idle(t, at)


@kind
def surge_one(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.surge(t, at + r.uniform(-20, 20), r.uniform(1.3, 1.9), r.uniform(300, 1500))
    w.idle(t, at, confounded=True)


@kind
def surge_all(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    lasts = r.uniform(300, 1500)
    for service in w.services:
        w.surge(service, at + r.uniform(-20, 20), r.uniform(1.2, 1.7), lasts)
    w.idle(t, at, confounded=True)


@kind
def surge_effect(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.surge(t, at + r.uniform(-20, 20), r.uniform(1.2, 1.6), r.uniform(300, 1500))
    w.effect(t, at, up=True)


@kind
def close_one_real(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    second = at + r.uniform(30, 120)
    if r.random() < 0.5:
        w.effect(t, at)
        w.idle(t, second, confounded=True)
    else:
        w.idle(t, at, confounded=True)
        w.effect(t, second)


@kind
def close_both_real(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at)
    w.effect(t, at + r.uniform(30, 120))


@kind
def slow_ramp(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    ramp = factor("per_token", r.uniform(1.2, 1.6), step(at - r.uniform(600, 1500), r.uniform(2000, 3600)))
    t.forces.append((ramp, -1))
    w.idle(t, at, confounded=True)


@kind
def drift(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    t.forces.append((factor("per_token", r.uniform(1.2, 1.7), step(0, 10800)), -1))
    w.idle(t, at, confounded=True)


@kind
def gradual(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, lasts=r.uniform(180, 900), only=r.choice(["tpt", "out"]))


@kind
def transient(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, ends=at + r.uniform(240, 700), up=True)


@kind
def transient_before(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    size = r.uniform(1.3, 1.8)
    pulse = step(at - r.uniform(180, 420), 0, at + r.uniform(-60, 90))
    t.forces.append((factor("per_token", size, pulse), -1))
    w.idle(t, at, confounded=True)


@kind
def deploy_all(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.fleet(at + r.uniform(-15, 15), r.uniform(1.2, 1.6), r.uniform(200, 1800))
    w.idle(t, at, confounded=True)


@kind
def deploy_effect(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.fleet(at + r.uniform(-15, 15), r.uniform(1.15, 1.4), r.uniform(200, 1800))
    w.effect(t, at, up=True)


@kind
def diurnal(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    phase = r.uniform(0, 6.28)
    for service in w.services:
        day = np.arange(len(service.profile)) * 5 / 10800 * 6.28
        service.profile = service.profile * (1 + 0.35 * np.sin(day * r.uniform(0.6, 1) + phase))
    if r.random() < 0.5:
        w.effect(t, at)
    else:
        w.idle(t, at, confounded=True)


@kind
def faults(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.faults = True
    w.effect(t, at)


@kind
def low_traffic(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    t.rate = r.uniform(0.12, 0.4)
    if r.random() < 0.6:
        w.effect(t, at, size=r.uniform(1.3, 2.2))
    else:
        w.idle(t, at)


@kind
def heavy_tails(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    t.heavy = r.uniform(0.01, 0.04)
    if r.random() < 0.6:
        w.effect(t, at)
    else:
        w.idle(t, at)


@kind
def delayed(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, delay=r.uniform(27, 300))


@kind
def revert(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    back = at + r.uniform(300, 900)
    there = w.effect(t, at, ends=back, only=r.choice(["tpt", "out", "limit"]))
    made = w.changes[there]
    again = w.change(t, (made.parameter, made.new, made.old), back, lag=0.0)
    whole, _ = t.forces.pop()

    def part(since: float, inverse: bool) -> Callable[[Service], dict[str, Array]]:
        """The effect, or what takes it back, from a moment on: each change does its own."""

        def force(service: Service) -> dict[str, Array]:
            inside = (service.at >= at) & (service.at < back)
            sizes = {n: v[inside][0] if inside.any() else 1.0 for n, v in whole(service).items()}
            return {
                n: np.where(service.at >= since, 1 / size if inverse else size, 1.0)
                for n, size in sizes.items()
            }

        return force

    t.forces += [(part(at, False), there), (part(back, True), again)]


@kind
def tail_only(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, only="tail")


@kind
def improvement(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, up=False, only=r.choice(["tpt", "out", "limit"]))


@kind
def dependency(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    below = w.services[1] if w.services[0] is t else w.services[0]
    t.below, below.rate = below, max(below.rate, 2.0)
    w.dependencies[t.name] = (below.name,)
    if r.random() < 0.6:
        w.effect(below, at, size=r.uniform(1.3, 2.0))
        w.idle(t, at + r.uniform(-5, 5), confounded=True)
    else:
        w.effect(t, at)
        w.idle(below, at + r.uniform(-30, 30), confounded=True)


@kind
def storm(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    number = r.integers(4, 7)
    real = r.integers(number)
    for k in range(number):
        when = at + k * r.uniform(20, 90)
        if k == real:
            w.effect(t, when)
        else:
            w.idle(t, when, confounded=True)


@kind
def mediator_rate_limit(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, only=r.choice(["reject", "limit"]))


@kind
def mediator_output(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.effect(t, at, only="out")


@kind
def mix_shift(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    longer, lasts = r.uniform(2, 5), r.uniform(300, 2400)
    more = r.uniform(1, 1.3)

    def force(service: Service) -> dict[str, Array]:
        other = (service.at > at) & (service.at < at + lasts)
        return {
            "ctx": np.where(other, longer, 1.0),
            "pre": np.full(len(service.at), 2.0),
            "out": np.where(other, more, 1.0),
        }

    t.forces.append((force, -1))
    w.idle(t, at, confounded=True)


@kind
def no_controls(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.controls = False
    w.effect(t, at)


@kind
def edge(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    near = float(r.choice([r.uniform(200, 500), r.uniform(10100, 10500)]))
    w.effect(t, near, size=r.uniform(1.3, 1.9))


@kind
def coarse(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    t.bounds = np.array([0.5, 1, 2.5, 5, 10, 30, 60, 120.0])
    w.effect(t, at)


@kind
def clock_offset(w: World, t: Service, r: np.random.Generator, at: float) -> None:
    w.offset = r.uniform(-40, 40)
    w.effect(t, at)


def further(w: World, t: Service, number: int) -> None:
    """More changes that do nothing, of this service and others, away from the rest."""
    taken = [change.at for change in w.changes]
    for _ in range(number):
        own = w.rng.random() < 0.55
        service = t if own else w.services[w.rng.integers(len(w.services))]
        for _ in range(200):
            at = float(w.rng.uniform(900, 10000))
            if all(abs(at - other) > APART for other in taken):
                break
        taken.append(at)
        w.idle(service, at)


def scenario(name: str, number: int, seed: int) -> Scenario:
    """One scenario of a kind with what is seen of it and what its changes really did."""
    rng = np.random.default_rng([seed, number, sorted(KINDS).index(name)])
    count = rng.integers(5, 7)
    services = [Service(f"svc-{k}", np.random.default_rng(rng.integers(1 << 60))) for k in range(count)]
    world = World(rng, services)
    treated = services[rng.integers(len(services))]
    at = float(rng.uniform(2400, 7800))
    for service in services:
        service.draw()  # an effect's size goes by how long calls are
    KINDS[name](world, treated, rng, at)
    further(world, treated, int(rng.integers(1, 3)))
    for service in services:
        service.draw()
    done: dict[str, Calls] = {}
    seen = {}
    for service in sorted(services, key=lambda s: s.below is not None):
        done[service.name] = service.run(below=_below(service, done))
        hurt = world.faults and service is treated
        seen[service.name] = scrapes.scraped(service, done[service.name], rng, hurt)
    changes, planted, truths = [], [], []
    for k, change in enumerate(world.changes):
        own, name_of = change.service, change.service.name
        real = (0.0, 0.0, float("nan"))
        if any(by == k for _, by in own.forces):
            without = own.run(skip=k, below=_below(own, done))
            real = scrapes.truth(done[name_of], without, change.at)
        begins, last = (START + world.offset + seconds for seconds in (change.at, change.last))
        changes.append(ParameterChange(name_of, change.parameter, change.old, change.new, begins, last))
        planted.append(
            Planted(name_of, change.parameter, change.at, change.last, change.confounded, change.lag)
        )
        truths.append(Truth(*real))
    if not world.controls:
        seen = {n: s for n, s in seen.items() if any(c.service == n for c in changes)}
    times = START + scrapes.STEP * (1 + np.arange(scrapes.STEPS))
    panel = Panel(times, scrapes.STEP, seen, world.dependencies)
    return Scenario(name, panel, tuple(changes), tuple(planted), tuple(truths))


def _below(service: Service, done: dict[str, Calls]) -> Calls | None:
    return done[service.below.name] if service.below is not None else None
