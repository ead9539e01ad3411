"""A cause has a direction: what may as well have been the other way is not called one."""

from __future__ import annotations

import numpy as np
import pytest

from otelkit.causal import Verdict
from otelkit.causal.credit import Claim, Group
from otelkit.causal.verdicts import Estimate, decide
from otelkit.model import ParameterChange

GROUP = Group((ParameterChange("chat", "model", "a", "b", 0.0, 0.0),), 100.0, 0.0, 0.2, frozenset())
CLAIM = Claim(
    log_bayes=20.0,
    net=15.0,
    probability=0.99,
    rival=None,
    rival_probability=0.0,
    unknown_probability=0.0,
    unknown_place=0.0,
    onset=100.0,
)


def verdict(up: float, size: float = 0.4) -> tuple[Verdict, Estimate]:
    """On a step that is certain, and with probability ``up`` a rise."""
    effect = Estimate(
        np.array([0.01, 0.99 * up, 0.99 * (1 - up)]),
        np.array([0.0, size, -size]),
        np.array([0.01, 0.05, 0.05]),
    )
    return decide([GROUP], GROUP, CLAIM, effect, 0.001, [], (500.0, 500.0), 0.10)[0], effect


@pytest.mark.parametrize("up", [0.95, 0.9, 0.1, 0.02])
def test_a_clear_direction_is_a_cause(up: float) -> None:
    """Broken if a small doubt about its sign hides a certain step."""
    assert verdict(up)[0] is Verdict.CAUSAL


@pytest.mark.parametrize("up", [0.3, 0.5, 0.7, 0.75])
def test_a_step_either_way_is_none(up: float) -> None:
    """Broken if something that certainly stepped is called a cause though P99 may have gone up or down: its
    interval would reach as far on the other side."""
    said, effect = verdict(up)
    low, high = effect.interval
    assert low < -0.2 < 0.2 < high
    assert said is Verdict.CANNOT_SEPARATE
