"""When a change is looked at, and which looks decide."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product

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


def test_nothing_is_blamed_before_its_rivals_could_have_shown() -> None:
    """A deploy of everything would be put down to the change beside it, and taken back minutes later."""
    strong = replace(finding(Verdict.CAUSAL, q=0.001), too_soon=True)
    soon = looks.look(Judgement(CHANGE), strong, CHANGE.last_seen + 120, 15)
    assert soon.verdict == "too early"
    later = looks.look(soon, replace(strong, too_soon=False), CHANGE.last_seen + 240, 15)
    assert later.verdict == "causal"


def test_a_verdict_gives_way_only_to_its_contrary() -> None:
    """Two ways of saying that a change did nothing would take turns as P99 moves a little more or less."""
    first = looks.look(Judgement(CHANGE), finding(Verdict.CORRELATED_ONLY), CHANGE.last_seen + 480, 15)
    assert first.verdict == "correlated only"
    for last, verdict in (
        (Verdict.NO_EFFECT, "correlated only"),
        (Verdict.CANNOT_SEPARATE, "correlated only"),
        (Verdict.CAUSAL, "causal"),
    ):
        assert looks.look(first, finding(last), CHANGE.last_seen + 900, 15).verdict == verdict
    newer = looks.look(first, finding(Verdict.CORRELATED_ONLY, effect=0.3), CHANGE.last_seen + 900, 15)
    assert newer.finding is not None and newer.finding.effect == Interval(0.3, 0.15, 0.6)


def test_what_could_not_be_told_gives_way_to_what_can() -> None:
    """A rollout that goes on after the last look would be left at "cannot separate" for ever."""
    unsure = looks.look(Judgement(CHANGE), finding(Verdict.CANNOT_SEPARATE), CHANGE.last_seen + 900, 15)
    longer = replace(unsure, change=replace(CHANGE, last_seen=CHANGE.last_seen + 600))
    after = looks.look(longer, finding(Verdict.NO_EFFECT), CHANGE.last_seen + 1500, 15)
    assert after.verdict == "no effect"


@pytest.mark.parametrize("ages", [(60,), (60, 120, 240), (60, 120, 240, 480, 900)])
def test_who_asks_once_is_told_what_the_looks_led_to(ages: tuple[int, ...]) -> None:
    """`explain` and the analyser would give one change two verdicts."""
    kinds = {
        "causal": finding(Verdict.CAUSAL, q=0.001),
        "weak": finding(Verdict.CAUSAL, q=0.05),
        "soon": replace(finding(Verdict.CAUSAL, q=0.001), too_soon=True),
        "other": finding(Verdict.CORRELATED_ONLY),
        "none": finding(Verdict.NO_EFFECT),
        "unsure": finding(Verdict.CANNOT_SEPARATE),
    }
    for names in product(kinds, repeat=len(ages)):
        found = {CHANGE.last_seen + age: kinds[name] for age, name in zip(ages, names, strict=True)}
        step_by_step = Judgement(CHANGE)
        for at, one in found.items():
            step_by_step = looks.look(step_by_step, one, at, 15)
        at_once = looks.looked_back(CHANGE, found.__getitem__, max(found), 15)
        assert (at_once.finding, at_once.judged_at) == (step_by_step.finding, step_by_step.judged_at), names


def test_who_asks_once_looks_no_further_back_than_needed() -> None:
    """Every verdict would cost five times as much as it has to."""
    for verdict, most in ((Verdict.CAUSAL, 1), (Verdict.NO_EFFECT, 2), (Verdict.CORRELATED_ONLY, 2)):
        asked: list[float] = []

        def found(at: float, verdict: Verdict = verdict, asked: list[float] = asked) -> Finding:
            asked.append(at)
            return finding(verdict, q=0.001)

        looks.looked_back(CHANGE, found, CHANGE.last_seen + 5000, 15)
        assert len(asked) == most


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
