"""Steps that lie close to each other, and what is left where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import Service, change, panel, series, switched

from otelkit.causal import Verdict, credit, explain, fitting, lookups, stepwise
from otelkit.causal.engine import prepare
from otelkit.causal.stepwise import again
from otelkit.causal.windows import windows
from otelkit.query.panel import Panel

AT, SECONDS, STEP = 3600.0, 6000, 15.0


def seen(seed: int = 1, **fields: object) -> Panel:
    """Four calls a second, far from saturation, as scraped every 15 seconds."""
    service = Service(**{"rate": lambda t: 4.0, "slots": 20, "tokens": lambda t: 40.0, **fields})  # type: ignore[arg-type]
    return panel(series(service, SECONDS, seed, step=STEP), step=STEP)


def test_a_step_that_others_explain_is_dropped() -> None:
    """Broken if a step stays accepted once another one is known that leaves nothing of it."""
    data = seen(seconds_per_token=switched((AT, 0.04), first=0.028))
    prepared = prepare(windows(data, "chat", [change(AT)])[0], "chat")
    assert not isinstance(prepared, str)
    witness, groups = prepared.witness, prepared.groups
    (real,) = stepwise.find_steps(witness, groups)
    known = witness.knowing([real.movement])
    beside = stepwise.Step(known.movement(real.place - 60), None, 9.0)
    kept = again(witness, groups, [real, beside])
    assert [step.owner for step in kept] == [0]
    assert kept[0].movement.size == pytest.approx(real.movement.size, rel=0.2)


@pytest.mark.parametrize(("made", "owner"), [(AT, 0), (AT + 600, None)])
def test_a_step_that_is_left_to_nobody_goes_to_the_change_that_made_it(
    made: float, owner: int | None
) -> None:
    """Broken if a change that was credited with a step which is dropped in the end does not get its own one,
    or if one that was made after a step gets it."""
    data = seen(seconds_per_token=switched((AT, 0.04), first=0.028))
    prepared = prepare(windows(data, "chat", [change(made)])[0], "chat")
    assert not isinstance(prepared, str)
    witness, groups = prepared.witness, prepared.groups
    place = groups[0].place + (AT - made) / prepared.cells.seconds
    nobodys = stepwise.Step(witness.movement(place), None, 9.0)
    assert [step.owner for step in stepwise.owned(witness, groups, [nobodys])] == [owner]


def test_a_step_is_only_as_free_as_its_paths() -> None:
    """Broken if a step of one path that is taken for granted may be anything on the channels of another."""
    data = seen(tokens=switched((AT, 60.0), first=40.0))
    prepared = prepare(windows(data, "chat", [change(AT)])[0], "chat")
    assert not isinstance(prepared, str)
    found = stepwise.find_steps(prepared.witness, prepared.groups)[0].movement
    free = dict(zip(prepared.witness.fitted.model.channels, found.deviations, strict=True))
    assert free["output_tokens"] > 0.1
    slower = seen(seconds_per_token=switched((AT, 0.042), first=0.028))
    other = prepare(windows(slower, "chat", [change(AT, "model")])[0], "chat")
    assert not isinstance(other, str)
    step = stepwise.find_steps(other.witness, other.groups)[0].movement
    tight = dict(zip(other.witness.fitted.model.channels, step.deviations, strict=True))
    assert tight["output_tokens"] < tight["p99"] / 2


def test_no_effect_states_its_probability() -> None:
    """Broken if an idle change of a quiet service gets no answer, or one that hides how it may be wrong."""
    verdicts = []
    for seed in range(3):
        finding = explain(seen(seed), "chat", [change(AT, "seed")]).findings[0]
        verdicts.append(finding.verdict)
        if finding.verdict is Verdict.NO_EFFECT:
            assert finding.reason.startswith("An effect on P99 of 10% or more is improbable (")
    assert verdicts.count(Verdict.NO_EFFECT) >= 2


def test_queues_after_a_step_are_doubted() -> None:
    """Broken if the minutes after a known step are trusted as those before it are."""
    data = seen(seconds_per_token=switched((AT, 0.04), first=0.028))
    prepared = prepare(windows(data, "chat", [change(AT)])[0], "chat")
    assert not isinstance(prepared, str)
    witness = prepared.witness
    step = stepwise.find_steps(witness, prepared.groups)[0].movement
    known = witness.knowing([step])
    settling = np.asarray(known.settling) - np.asarray(witness.settling)
    assert settling[int(step.place) + 2] > 0.01
    assert settling[int(step.place) - 5] == 0


def test_doubt_about_a_step_does_not_move_it() -> None:
    """Broken if a clear step, beside which load or the fleet moved, is taken to have come some minutes
    earlier, where nothing is in doubt: it would be nobody's then, and its change called idle."""
    data = seen(seconds_per_token=switched((AT, 0.05), first=0.028))
    prepared = prepare(windows(data, "chat", [change(AT)])[0], "chat")
    assert not isinstance(prepared, str)
    witness = prepared.witness
    clear = credit.unknown_scores(witness, [])
    place = int(np.argmax(clear))
    assert abs(place - prepared.groups[0].place) <= 1
    near = np.abs(np.arange(len(clear)) - place) <= 2
    doubted = credit.unknown_scores(replace(witness, queues=np.where(near, 0.2, 0.0)), [])
    assert abs(int(np.argmax(doubted)) - place) <= 1
    assert doubted.max() < clear.max() - 1


def test_calls_are_as_late_as_before_the_change() -> None:
    """Broken if a change that fills the queue for good is looked for minutes after it was made, because calls
    are as late as that for most of the data."""
    bounds = np.array([*2.0 ** np.arange(-2.0, 14.0), np.inf])
    service = Service(
        rate=lambda t: 4.0,
        slots=20,
        tokens=lambda t: 40.0,
        seconds_per_token=switched((1500.0, 0.3), first=0.028),
    )
    data = panel(series(service, SECONDS, 1, step=STEP, bounds=bounds), step=STEP)
    (finding,) = explain(data, "chat", [change(1500.0, "model")]).findings
    assert finding.verdict is Verdict.CAUSAL
    assert finding.effect_ratio is not None
    assert finding.effect_ratio.value > 1


def test_what_known_steps_leave_open_is_noise_of_each_channel_alone() -> None:
    """Broken if errors are held to be as alike as ever on two channels of which a known step is free on one
    only: the least trace of it would then pass for another step beside it."""
    cells, noise, known, onset, width, free = 60, 0.25, 30.0, 33.0, 15.0, np.array([3.0, 1e-6])
    at = np.arange(cells)
    products = np.array([(cells - np.maximum(at[:, None], at[None])) / noise] * 2)
    tables = lookups.Tables(products, np.zeros((2, cells)), np.empty((2, cells, 0)))
    tables = lookups.absorb(tables, np.full(2, known), width, free)
    found = lookups.effects_at(tables, np.full((2, 1), onset), width)

    def column(place: float) -> np.ndarray:
        return (at >= place).astype(float)

    # The same by least squares on both channels, whose noise is the same.
    weights, variances = [], []
    for freedom in free:
        covariance = noise * np.eye(cells)
        for place, size in (
            (known, freedom),
            (known + width, min(freedom, lookups.LATER_DEVIATION)),
            (onset + width, lookups.LATER_DEVIATION),
        ):
            covariance += size**2 * np.outer(column(place), column(place))
        solved = np.linalg.solve(covariance, column(onset))
        weights.append(solved / (column(onset) @ solved))
        variances.append(1 / (column(onset) @ solved))
    assert found.variances[:, 0] == pytest.approx(variances, rel=1e-6)
    together = noise * weights[0] @ weights[1] / np.sqrt(variances[0] * variances[1])
    assert fitting.shared(found.inflations.T)[0, 0, 1] == pytest.approx(together, rel=0.15)
    assert together < 0.6
