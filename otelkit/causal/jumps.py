"""The other direction: P99 jumped and nobody knows why. Find the jumps, and rank the changes before each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from otelkit.causal import credit, engine, stepwise, summary
from otelkit.causal.explanation import Interval
from otelkit.causal.verdicts import estimate
from otelkit.causal.windows import whole
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel

OWN_WEIGHT: Final = 1.0
CALLED_WEIGHT: Final = 0.5
OTHER_WEIGHT: Final = 0.02
"""How likely a change of the service itself, of one it calls, or of any other is to move it, relative to each
other."""
LOOK_BACK_SECONDS: Final = 900.0
SMALLEST: Final = 0.01


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change that may have made a jump."""

    change: ParameterChange
    probability: float
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Jump:
    """A step of P99 beyond what load and the rest of the fleet explain."""

    at: float
    """Unix seconds at which the first calls that show it began."""
    effect_ratio: Interval
    """P99 after over P99 before, less one."""
    effect: Interval
    """Seconds."""
    candidates: tuple[Candidate, ...]
    """Likeliest first; those below 1 % are left out."""
    unexplained: float
    """Probability that none of the changes made it."""


def find_jumps(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> tuple[Jump, ...]:
    """Find the jumps of a service's P99, in order of time, and rank the changes of all services before each.

    Args:
        panel: series of the service and, where there are any, of others.
        service: must be in the panel.
        changes: changes of any service. Those of the service itself say where to look more closely; none is
            taken to be a cause beforehand.

    Raises:
        DataError: the service is not in the panel.
    """
    own = engine.check(panel, service, changes)
    jumps: list[Jump] = []
    for window in whole(panel, service):
        # Moments at which something was changed are no quiet ones: a step is likelier there.
        times = window.panel.times
        there = tuple(
            change
            for change in own
            if (times < change.first_seen).any() and (times >= change.first_seen).any()
        )
        prepared = engine.prepare(replace(window, changes=there), service)
        if not isinstance(prepared, str):
            jumps += _jumps(panel, service, changes, prepared)
    return tuple(sorted(jumps, key=lambda jump: jump.at))


def _jumps(
    panel: Panel, service: str, changes: Sequence[ParameterChange], prepared: engine.Prepared
) -> list[Jump]:
    witness, cells = prepared.witness, prepared.cells
    steps = sorted(stepwise.find_steps(witness, prepared.groups), key=lambda step: step.place)
    jumps = []
    for number, step in enumerate(steps):
        others = [s.movement for n, s in enumerate(steps) if n != number]
        evidence = witness.knowing(others).weigh(np.array([step.place]))
        effect = estimate(1.0, evidence.posterior[0], evidence.means[0], evidence.deviations[0])
        log_effect = (effect.mean, effect.quantile(0.025), effect.quantile(0.975))
        if log_effect[1] * log_effect[2] <= 0:
            continue  # something stepped, but P99 itself may not have moved
        ratio = Interval(*(float(np.expm1(v)) for v in log_effect))
        seen = cells.time_of(step.place)
        level = summary.p99_between(cells, seen, seen + LOOK_BACK_SECONDS)
        without = level / np.exp(effect.mean) if np.isfinite(level) else float("nan")
        at = seen - prepared.delay
        ranked, unexplained = _rank(panel, service, changes, at, prepared.delay, cells.seconds)
        seconds = Interval(*(float(without * r) for r in (ratio.value, ratio.low, ratio.high)))
        jumps.append(Jump(at, ratio, seconds, ranked, unexplained))
    return jumps


def _rank(
    panel: Panel,
    service: str,
    changes: Sequence[ParameterChange],
    at: float,
    delay: float,
    cell_seconds: float,
) -> tuple[tuple[Candidate, ...], float]:
    """Odds of each change against a step that nobody recorded: how often changes act, times how soon."""
    called = set(panel.dependencies.get(service, ()))
    blur = max(cell_seconds, delay)
    odds: list[tuple[ParameterChange, float, float]] = []
    for change in engine.unique(changes):
        since = at - change.first_seen
        rollout = change.last_seen - change.first_seen
        if not -blur <= since <= LOOK_BACK_SECONDS + rollout:
            continue
        weight = OTHER_WEIGHT
        if change.service == service:
            weight = OWN_WEIGHT
        elif change.service in called:
            weight = CALLED_WEIGHT
        late = max(since - rollout - blur, 0.0)
        density = credit.lag_density(np.array([late]), blur)[0]
        odds.append((change, weight * credit.EFFECTIVE * float(density), max(since, 0.0)))
    nobody = credit.UNKNOWN_PER_HOUR / 3600.0
    total = nobody + sum(o for _, o, _ in odds)
    ranked = sorted((Candidate(c, o / total, lag) for c, o, lag in odds), key=lambda c: -c.probability)
    return tuple(c for c in ranked if c.probability >= SMALLEST), nobody / total
