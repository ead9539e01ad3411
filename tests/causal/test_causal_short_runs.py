"""Minutes of data, one service, no controls: what a demonstration run looks like."""

from __future__ import annotations

import numpy as np
import pytest
from planted import START, Service, change, demo_service, panel, series, switched

from otelkit.causal import Verdict, explain
from otelkit.causal.engine import prepare
from otelkit.causal.stepwise import finer
from otelkit.causal.windows import cut, windows
from otelkit.errors import DataError


def test_demo_script_is_read_right() -> None:
    """Broken if a planted cause is missed, or an idle change or the one made during a surge is blamed."""
    service, changes = demo_service()
    found: dict[float, list[Verdict]] = {}
    for seed in range(4):
        result = explain(panel(series(service, 330, seed)), "chat", changes)
        for finding in result.findings:
            found.setdefault(finding.change.first_seen - START, []).append(finding.verdict)
            if finding.verdict is Verdict.CAUSAL:
                assert finding.effect is not None and finding.lag_seconds is not None
                assert (finding.effect.value > 0) == (finding.change.new > finding.change.old)
                assert finding.lag_seconds <= 15
    assert found[105.0].count(Verdict.CAUSAL) == 4
    assert found[260.0].count(Verdict.CAUSAL) >= 3
    assert Verdict.CAUSAL not in found[55.0] + found[175.0]


def test_one_minute_is_enough_for_a_large_effect() -> None:
    """Broken if a single large change in the middle of one minute is not seen."""
    service = Service(
        rate=lambda t: 5.0, tokens=switched((30, 24), first=4), seconds_per_token=lambda t: 0.02
    )
    for seed in range(3):
        finding = explain(
            panel(series(service, 60, seed)), "chat", [change(30, "max_tokens", 4, 24)]
        ).findings[0]
        assert finding.verdict is Verdict.CAUSAL
        assert finding.effect is not None and finding.effect.low > 0
        assert finding.p_value is not None and finding.p_value < 0.01


def test_explanation_is_whole() -> None:
    """Broken if a field that the table or the page shows stays empty."""
    service, changes = demo_service()
    data = panel(series(service, 330, 1))
    result = explain(data, "chat", changes)
    assert result.p99_before is not None and result.p99_after is not None and result.moved_at is not None
    assert result.unexplained_seconds is not None
    assert result.counterfactual is not None and result.counterfactual.shape == data.times.shape
    middle = (data.times > START + 140) & (data.times < START + 170)
    seen = np.nanmean(data.services["chat"].quantiles[0.99][middle])
    assert np.nanmean(result.counterfactual[middle]) < 0.8 * seen
    first = result.findings[0]
    assert first.placebo_effects is not None and len(first.placebo_effects) > 3
    assert first.pearson_r is not None and first.q_value is not None and first.reason


def test_same_input_gives_same_answer() -> None:
    """Broken if the order of changes or a second run alters anything."""
    service, changes = demo_service()
    data = panel(series(service, 330, 2))
    first, second = explain(data, "chat", changes), explain(data, "chat", list(reversed(changes)))
    assert [(f.change, f.verdict, f.effect) for f in first.findings] == [
        (f.change, f.verdict, f.effect) for f in second.findings
    ]


def test_unknown_service_is_an_error() -> None:
    """Broken if a misspelt service gives an empty answer instead of a sentence."""
    service, changes = demo_service()
    with pytest.raises(DataError, match="'chta'"):
        explain(panel(series(service, 60, 0)), "chta", changes)


@pytest.mark.parametrize("from_end", [True, False], ids=["end", "start"])
def test_strong_effect_in_the_last_or_first_seconds(from_end: bool) -> None:
    """Broken if a clear step that began just before the data end, or just after they begin, is an error."""
    at = 3600.0
    service = Service(
        rate=lambda t: 8.0, slots=40, tokens=lambda t: 40.0, seconds_per_token=switched((at, 0.3), first=0.02)
    )
    data = panel(series(service, 7200, 1, step=15.0), step=15.0)
    for seconds in np.arange(-60.0, 121.0, 15.0):
        start, end = (-np.inf, START + at + seconds) if from_end else (START + at - seconds, np.inf)
        result = explain(cut(data, start, end), "chat", [change(at)])
        assert len(result.findings) == 1
    window = windows(data, "chat", [change(at)])[0]
    prepared = prepare(window, "chat")
    assert not isinstance(prepared, str)
    last = len(prepared.cells.times) - 0.4
    assert finer(prepared.witness, last) == last
