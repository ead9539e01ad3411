"""One explanation by the looks that the analyser would have taken: what it says does not depend on when it is
asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from otelkit.analyse import settled as module
from otelkit.analyse.settled import MOST_LOOKED_BACK, looked_back_since, settled
from otelkit.causal import Explanation, Finding, Interval, Verdict
from otelkit.causal.windows import cut
from otelkit.model import ParameterChange
from otelkit.query import Panel, ServiceSeries
from otelkit.query.panel import FloatArray

STEP = 15.0
START = 1_700_000_000.0
CHANGED = START + 3600.0
Engine = Callable[[ParameterChange, float], Verdict]
"""What the engine says of a change from data up to a Unix time."""


def panel(until: float) -> Panel:
    """A service whose P99 doubles when the change is made."""
    times: FloatArray = START + STEP * np.arange(1, 800, dtype=np.float64)
    p99 = np.where(times > CHANGED, 2.0, 1.0) * np.exp(0.01 * np.sin(times))
    series = ServiceSeries("chat", {0.5: p99 / 2, 0.99: p99}, 60.0)
    return cut(Panel(times, STEP, {"chat": series}), START, until)


def change(at: float = CHANGED, parameter: str = "max_tokens") -> ParameterChange:
    return ParameterChange("chat", parameter, 64, 256, at, at)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], list[float]]:
    """Puts an engine in place of the real one; gives the times up to which it was given data."""

    def put(says: Engine) -> list[float]:
        asked: list[float] = []

        def explain(seen: Panel, service: str, changes: Sequence[ParameterChange]) -> Explanation:
            end = float(seen.times[-1])
            asked.append(end)
            findings = tuple(
                Finding(
                    one,
                    says(one, end),
                    f"From data until {end:.0f}.",
                    effect=Interval(1.0, 0.9, 1.1),
                    effect_ratio=Interval(1.0, 0.9, 1.1),
                    q_value=0.001,
                    onset=one.first_seen,
                )
                for one in changes
            )
            return Explanation(service, float(seen.times[0]) - STEP, end, findings)

        monkeypatch.setattr(module, "explain", explain)
        return asked

    return put


def test_a_verdict_is_the_same_whenever_it_is_asked_for(engine: Callable[[Engine], list[float]]) -> None:
    """An engineer who asks again half an hour later would be told something else, though nothing happened."""
    engine(lambda _, end: Verdict.NO_EFFECT if end < CHANGED + 1000 else Verdict.CAUSAL)
    told = []
    for after in (120, 600, 900, 1200, 3000):
        explanation = settled(panel(CHANGED + after), "chat", [change()])
        (finding,) = explanation.findings
        told.append("too early" if finding.known_at else finding.verdict.value)
        assert finding.known_at in (None, CHANGED + 900)
        assert explanation.moved_at is None and explanation.p99_before is None
    assert told == ["too early", *["no effect"] * 4]


def test_the_summary_goes_by_the_verdicts_that_are_given(engine: Callable[[Engine], list[float]]) -> None:
    """P99 would be moved by a change that is called idle, or not by one that is called causal."""
    engine(lambda _, end: Verdict.CAUSAL if end <= CHANGED + 900 else Verdict.CORRELATED_ONLY)
    explanation = settled(panel(CHANGED + 3000), "chat", [change()])
    assert explanation.findings[0].verdict is Verdict.CAUSAL
    assert explanation.moved_at == CHANGED
    assert (explanation.p99_before, explanation.p99_after) == pytest.approx((1.0, 2.0), rel=0.02)
    assert explanation.counterfactual is not None
    assert explanation.counterfactual[-1] == pytest.approx(1.0, rel=0.02)


def test_the_estimate_of_a_young_verdict_is_the_newest(engine: Callable[[Engine], list[float]]) -> None:
    """The effect of an incident under way would be that of its first minute."""
    asked = engine(lambda *_: Verdict.CAUSAL)
    (young,) = settled(panel(CHANGED + 200), "chat", [change()]).findings
    (old,) = settled(panel(CHANGED + 3000), "chat", [change()]).findings
    assert (young.reason, old.reason) == (
        f"From data until {CHANGED + 195:.0f}.",
        f"From data until {CHANGED + 900:.0f}.",
    )
    assert len(asked) == 4


def test_a_change_beside_the_data_is_left_as_it_is(engine: Callable[[Engine], list[float]]) -> None:
    """A change before the data would wait for data that never come."""
    engine(lambda *_: Verdict.CANNOT_SEPARATE)
    (finding,) = settled(panel(CHANGED), "chat", [change(START - 60)]).findings
    assert finding.known_at is None


def test_only_the_newest_changes_are_looked_back_at(engine: Callable[[Engine], list[float]]) -> None:
    """A service that is changed every minute would be explained for minutes."""
    changes = [change(START + 60.0 * (10 + n), f"p{n}") for n in range(MOST_LOOKED_BACK + 10)]
    end = changes[-1].last_seen + 3000
    asked = engine(lambda _, end: Verdict.CAUSAL)
    assert len(settled(panel(end), "chat", changes).findings) == len(changes)
    assert len(asked) == 1 + MOST_LOOKED_BACK
    oldest = min(one for one in asked)
    assert oldest >= changes[10].last_seen + 900


def test_no_more_are_looked_back_at_where_there_are_many_services() -> None:
    """Broken: an hour's changes of a hundred services keep somebody on call waiting for minutes."""
    many = [
        replace(change(CHANGED + 60 * number), service=f"s{number % 4}")
        for number in range(3 * MOST_LOOKED_BACK)
    ]
    since = looked_back_since(many)
    assert sum(one.first_seen > since for one in many) == MOST_LOOKED_BACK
    assert looked_back_since(many[:MOST_LOOKED_BACK]) < CHANGED
