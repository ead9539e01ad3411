"""Planted causes must be found, and what only looks like one must not be called a cause."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from planted import START, Service, change, panel, series, switched

from otelkit.causal import Explanation, Verdict, explain, find_jumps
from otelkit.query.panel import Panel

SECONDS, STEP, AT = 6000, 15.0, 3600.0


def steady(**fields: object) -> Service:
    """Four calls a second, far from saturation."""
    return Service(**{"rate": lambda t: 4.0, "slots": 12, "tokens": lambda t: 40.0, **fields})  # type: ignore[arg-type]


def seen(*services: Service, seed: int = 1, **dependencies: tuple[str, ...]) -> Panel:
    """The services as scraped every 15 seconds."""
    data = [series(s, SECONDS, seed + n, step=STEP) for n, s in enumerate(services)]
    return panel(*data, step=STEP, **dependencies)


def ramped(t: float) -> float:
    return 0.028 * (1 + 0.4 * t / SECONDS)


PLANTED = {
    "slower tokens": (steady(seconds_per_token=switched((AT, 0.04), first=0.028)), 1, 0.0),
    "improvement": (steady(seconds_per_token=switched((AT, 0.02), first=0.028)), -1, 0.0),
    "longer outputs": (steady(tokens=switched((AT, 60.0), first=40.0)), 1, 0.0),
    "delayed": (steady(seconds_per_token=switched((AT + 90, 0.042), first=0.028)), 1, 90.0),
    "transient": (steady(seconds_per_token=switched((AT, 0.045), (AT + 420, 0.028), first=0.028)), 1, 0.0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_cause_is_found(name: str) -> None:
    """Broken if a plain effect is missed, has the wrong sign, or is timed wrong."""
    service, sign, lag = PLANTED[name]
    finding = explain(seen(service), "chat", [change(AT)]).findings[0]
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    assert finding.effect is not None and finding.effect.value * sign > 0
    assert finding.effect.low <= finding.effect.value <= finding.effect.high
    assert finding.lag_seconds is not None and abs(finding.lag_seconds - lag) <= 30


QUIET: dict[str, Service] = {
    "nothing": steady(),
    "surge": steady(rate=switched((AT, 7.0), (AT + 900, 4.0), first=4.0), slots=9),
    "transient before": steady(seconds_per_token=switched((AT - 240, 0.045), (AT + 200, 0.028), first=0.028)),
    "drift": steady(seconds_per_token=ramped),
    "diurnal": steady(rate=lambda t: 4.0 + 2.0 * np.sin(t / 900)),
    "low traffic": steady(rate=lambda t: 0.05),
    "heavy tails": steady(spread=0.9),
}


@pytest.mark.parametrize("name", QUIET)
def test_idle_change_is_not_blamed(name: str) -> None:
    """Broken if something that happens beside an idle change makes it a cause."""
    finding = explain(seen(QUIET[name]), "chat", [change(AT, "seed")]).findings[0]
    assert finding.verdict is not Verdict.CAUSAL, finding.reason
    assert finding.reason.endswith(".")


def test_fleet_wide_movement_is_not_blamed_on_a_change() -> None:
    """Broken if a deploy of everything is read as the effect of one service's change."""
    names = ("chat", "search", "code", "voice", "mail")
    services = [steady(name=n, seconds_per_token=switched((AT, 0.036), first=0.028)) for n in names]
    finding = explain(seen(*services), "chat", [change(AT, "log_level")]).findings[0]
    assert finding.verdict is Verdict.CORRELATED_ONLY
    assert "other services" in finding.reason


def test_effect_beyond_the_fleet_is_found() -> None:
    """Broken if taking the fleet's movement off takes the service's own effect off too."""
    names = ("search", "code", "voice", "mail")
    others = [steady(name=n) for n in names]
    service = steady(seconds_per_token=switched((AT, 0.045), first=0.028))
    assert explain(seen(service, *others), "chat", [change(AT)]).findings[0].verdict is Verdict.CAUSAL


def fading(begins: float) -> Callable[[float], float]:
    """Seconds per token of a service that a deploy makes slower for some minutes."""
    return lambda t: 0.028 * (1 + 0.6 * np.exp(-(t - begins) / 240) * (t >= begins))


DEPLOYED = ("chat", "search", "code", "voice", "mail")


def test_a_deploy_that_fades_is_not_blamed_on_a_change() -> None:
    """Broken if a deploy that passes, or reaches this service some seconds beside the others, is read as the
    effect of a change."""
    services = [
        steady(name=name, seconds_per_token=fading(AT + (15.0 if name == "chat" else 0.0)))
        for name in DEPLOYED
    ]
    finding = explain(seen(*services), "chat", [change(AT, "log_level")]).findings[0]
    assert finding.verdict is not Verdict.CAUSAL, finding.reason


def test_an_effect_beside_a_deploy_is_found() -> None:
    """Broken if a deploy of everything hides that outputs became longer in one service alone."""
    services = [steady(name=name, seconds_per_token=fading(AT)) for name in DEPLOYED[1:]]
    service = steady(tokens=switched((AT, 60.0), first=40.0), seconds_per_token=fading(AT + 10))
    finding = explain(seen(service, *services), "chat", [change(AT, "max_tokens")]).findings[0]
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    assert finding.effect is not None and finding.effect.value > 0


def test_one_of_two_close_changes() -> None:
    """Broken if the idle one of two changes, two minutes apart, gets the credit."""
    service = steady(seconds_per_token=switched((AT, 0.045), first=0.028))
    result = explain(seen(service), "chat", [change(AT - 120, "seed"), change(AT, "model")])
    assert [f.verdict is Verdict.CAUSAL for f in result.findings] == [False, True]


def test_changes_at_one_moment_cannot_be_separated() -> None:
    """Broken if one of two changes made together is blamed by a guess."""
    service = steady(seconds_per_token=switched((AT, 0.045), first=0.028))
    result = explain(seen(service), "chat", [change(AT, "seed"), change(AT + 1, "model")])
    assert {f.verdict for f in result.findings} == {Verdict.CANNOT_SEPARATE}
    assert "one at a time" in result.findings[0].reason


def test_revert_is_two_effects() -> None:
    """Broken if a change and its taking back are not both seen, with opposite signs."""
    service = steady(tokens=switched((2400, 70.0), (3900, 40.0), first=40.0))
    result = explain(seen(service), "chat", [change(2400, old=40, new=70), change(3900, old=70, new=40)])
    assert [f.verdict for f in result.findings] == [Verdict.CAUSAL] * 2
    values = [f.effect_ratio.value for f in result.findings if f.effect_ratio]
    assert values[0] > 0 > values[1]


def test_mechanism_names_the_path() -> None:
    """Broken if longer outputs are explained by something else, or adjusted away."""
    service = steady(tokens=switched((AT, 70.0), first=40.0))
    shares = explain(seen(service), "chat", [change(AT)]).findings[0].mechanism
    assert shares["output_length"].value > 0.6
    assert sum(s.value for s in shares.values()) == pytest.approx(1.0, abs=0.01)


def test_jump_is_found_without_being_told() -> None:
    """Broken if a jump is not found, or its likeliest cause is not ranked first."""
    service = steady(seconds_per_token=switched((AT, 0.045), first=0.028))
    jumps = find_jumps(seen(service), "chat", [change(AT - 2000, "seed"), change(AT, "model")])
    largest = max(jumps, key=lambda jump: abs(jump.effect_ratio.value))
    assert abs(largest.at - START - AT) < 60
    assert largest.candidates[0].change.parameter == "model"
    assert largest.unexplained < 0.3


def damaged(spoil: Callable[[np.ndarray], None]) -> Explanation:
    """A planted effect seen through broken counts."""
    data = seen(steady(seconds_per_token=switched((AT, 0.045), first=0.028)))
    counts = data.services["chat"].bucket_counts
    assert counts is not None
    spoil(counts)
    return explain(data, "chat", [change(AT)])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda counts: counts.__setitem__(slice(100, 130), np.nan),
        lambda counts: counts.__setitem__(slice(60, 61), -5.0),
        lambda counts: counts.__setitem__(slice(None, None, 7), np.nan),
    ],
    ids=["gap", "reset", "missing scrapes"],
)
def test_gaps_and_resets_are_not_zeros(spoil: Callable[[np.ndarray], None]) -> None:
    """Broken if missing data hides an effect or is read as quiet."""
    assert damaged(spoil).findings[0].verdict is Verdict.CAUSAL
