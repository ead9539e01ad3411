"""A change that makes the prompts longer acts through them; users who ask longer questions are another
cause."""

from __future__ import annotations

import pytest
from planted import START, Service, change, panel, series

from otelkit.causal import Finding, Verdict, explain

AT = 1500.0
SEEN = frozenset({"arrivals", "completions", "output_tokens", "input_tokens"})


def longer(t: float) -> float:
    return 300.0 if t < AT else 2400.0


def drifting(t: float) -> float:
    """Longer over ten minutes, as users change what they ask for."""
    return 300.0 + 2100.0 * min(max((t - AT + 300) / 600, 0.0), 1.0)


def verdict(prompt: object, parameter: str) -> Finding:
    service = Service(prompt=prompt, rate=lambda t: 2.0, slots=8, covariates=SEEN)  # type: ignore[arg-type]
    (finding,) = explain(
        panel(series(service, 3000, 3, step=5.0), step=5.0), "chat", [change(AT, parameter, 5, 40)]
    ).findings
    return finding


@pytest.mark.parametrize("parameter", ["retrieval.top_k", "system_prompt", "few_shot_examples"])
def test_prompts_that_a_change_makes_longer_are_its_doing(parameter: str) -> None:
    """Broken: the change that put more documents into the prompt is cleared, for "prompt length moved"."""
    finding = verdict(longer, parameter)
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    assert finding.effect_ratio is not None
    assert finding.effect_ratio.value > 0.1
    assert finding.onset is not None
    assert abs(finding.onset - START - AT) < 60


def test_prompts_that_grow_beside_another_change_are_not() -> None:
    """Broken: a change that can't touch the prompt is blamed for what longer prompts do."""
    assert verdict(longer, "log_level").verdict is not Verdict.CAUSAL


def test_prompts_that_drift_are_nobodys_step() -> None:
    """Broken: a change of the prompt gets everything that prompts do in that hour."""
    assert verdict(drifting, "system_prompt").verdict is not Verdict.CAUSAL
