"""When a change is looked at, and which looks decide."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from otelkit.analyse import looks
from otelkit.analyse.looks import Judgement
from otelkit.causal import Finding, Interval, Verdict
from otelkit.model import ParameterChange

CHANGE = ParameterChange("chat", "max_tokens", 64, 256, 1000.0, 1030.0)


def finding(verdict: Verdict, q: float = 0.5, effect: float = 0.2) -> Finding:
    return Finding(CHANGE, verdict, "because", effect=Interval(effect, effect / 2, 2 * effect), q_value=q)


@pytest.mark.parametrize("step", [1.0, 15.0, 60.0, 300.0])
def test_looks_follow_the_rollout_and_end(step: float) -> None:
    """A change would be judged on too little, be judged for ever, or be judged before its rollout ended."""
    every = looks.looks(CHANGE, step)
    ages = [at - CHANGE.last_seen for at in every]
    assert ages[0] >= max(60, 4 * step)
    assert ages[-1] >= 900
    assert all(later >= 1.5 * earlier for earlier, later in pairwise(ages))
    assert len(ages) <= 5


def test_weak_evidence_waits_for_the_last_look() -> None:
    """A verdict that the next minute takes back would be shown."""
    early = CHANGE.last_seen + 120
    for weak in (
        finding(Verdict.CAUSAL, q=0.04),
        finding(Verdict.NO_EFFECT),
        finding(Verdict.CORRELATED_ONLY),
        finding(Verdict.CANNOT_SEPARATE),
    ):
        after = looks.look(Judgement(CHANGE), weak, early, 15)
        assert after.verdict == "too early"
        assert after.due(15) == CHANGE.last_seen + 240
        last = looks.look(after, weak, CHANGE.last_seen + 900, 15)
        assert last.verdict == weak.verdict.value
        assert last.due(15) is None
        assert last.judged_at == CHANGE.last_seen + 900


def test_strong_evidence_decides_at_once_and_weak_does_not_take_it_back() -> None:
    """An incident would have to wait a quarter of an hour for its cause, or the cause would come and go."""
    early = looks.look(Judgement(CHANGE), finding(Verdict.CAUSAL, q=0.001), CHANGE.last_seen + 60, 15)
    assert early.verdict == "causal"
    between = looks.look(early, finding(Verdict.CANNOT_SEPARATE), CHANGE.last_seen + 240, 15)
    assert between.verdict == "causal"
    assert between.judged_at == CHANGE.last_seen + 60
    assert not looks.flipped(early, between)
    unsure = looks.look(between, finding(Verdict.CANNOT_SEPARATE), CHANGE.last_seen + 900, 15)
    assert (unsure.verdict, unsure.due(15)) == ("causal", None)
    last = looks.look(between, finding(Verdict.CORRELATED_ONLY), CHANGE.last_seen + 900, 15)
    assert last.verdict == "correlated only"
    assert looks.flipped(between, last)


def test_no_effect_is_said_once_an_effect_would_have_begun() -> None:
    """ "No effect" would be claimed of an effect that begins four minutes after its change."""
    for age, verdict in ((240, "too early"), (480, "no effect")):
        after = looks.look(Judgement(CHANGE), finding(Verdict.NO_EFFECT), CHANGE.last_seen + age, 15)
        assert after.verdict == verdict


def test_a_rollout_that_goes_on_reopens_the_question() -> None:
    """A change that reached most processes only later would be judged by the first few alone."""
    done = looks.look(Judgement(CHANGE), finding(Verdict.NO_EFFECT), CHANGE.last_seen + 900, 15)
    longer = replace(done, change=replace(CHANGE, last_seen=CHANGE.last_seen + 300))
    assert longer.due(15) == CHANGE.last_seen + 300 + 900
    assert longer.verdict == "no effect"
