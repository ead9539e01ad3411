"""How values, times and the answer are put into words."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation, Interval, Verdict
from otelkit.model import UNSET
from otelkit.report import wording
from otelkit.report.headline import headline


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (256, "256"),
        (0, "0"),
        (None, "null"),
        (UNSET, "not set"),
        ("fast", "fast"),
        ("256", '"256"'),
        ("null", '"null"'),
        ("not set", '"not set"'),
        ("", '""'),
        (" a ", '" a "'),
        ([1, "x"], '[1,"x"]'),
        ("a\nb", "a\\u000ab"),
    ],
)
def test_values_that_differ_read_differently(value: object, text: str) -> None:
    """The text 256 and the number 256 are different settings; so are null and not given."""
    assert wording.value_text(value) == text


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (Interval(0.221, 0.18, 0.262), "+221 [180, 262]"),
        (Interval(0.0000001, -0.0001, 0.0001), "0 [-0.10, 0.10]"),
        (Interval(-0.0042, -0.0081, 0.0003), "-4.2 [-8.1, 0.3]"),
        (Interval(0.0, -0.02, 0.02), "0 [-20, 20]"),
        (Interval(-0.0001, -0.02, 0.02), "0 [-20, 20]"),
        (Interval(math.nan, -1, 1), "-"),
        (Interval(0.05, math.nan, math.nan), "+50"),
        (None, "-"),
    ],
)
def test_intervals_keep_one_precision_and_no_nan(interval: Interval | None, text: str) -> None:
    """An estimate and its ends must compare at a glance; nan is no number for a reader."""
    assert wording.interval_text(interval) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (27, "27 s"),
        (0, "0 s"),
        (0.25, "250 ms"),
        (250, "4 min 10 s"),
        (21600, "6 h"),
        (90061, "1 d 1 h"),
        (None, "-"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    """A lag of 250 s is read as minutes."""
    assert wording.seconds_text(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "<0.001"), (0.0, "<0.001"), (0.003, "0.003"), (0.71, "0.71"), (1.0, "1.00"), (None, "-")],
)
def test_probabilities_are_never_a_false_zero(value: float | None, text: str) -> None:
    """p = 0.000 claims more than any test can."""
    assert wording.probability_text(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.59, "+59 %"), (-0.006, "-0.6 %"), (0.0004, "0 %"), (-0.0, "0 %"), (None, "-")]
)
def test_shares_have_no_negative_zero(share: float | None, text: str) -> None:
    """-0.0 % reads as if something had been found."""
    assert wording.percent_text(share, signed=True) == text


def test_clock_keeps_one_offset_and_the_precision_the_span_needs() -> None:
    """A report over the end of daylight saving must not show the same hour twice."""
    berlin = ZoneInfo("Europe/Berlin")
    start = 1793488800.0  # 2026-10-31, winter time
    assert wording.Clock(start, start + 600, berlin).offset_text == "UTC+01:00"
    before_switch = (
        1792886400.0  # 2026-10-25 00:00 UTC; at 01:00 UTC Berlin's clocks go from 03:00 back to 02:00
    )
    clock = wording.Clock(before_switch, before_switch + 3 * 3600, berlin)
    assert [clock.text(before_switch + hour * 3600) for hour in range(3)] == ["02:00", "03:00", "04:00"]
    india = timezone(timedelta(hours=5, minutes=30))
    assert wording.Clock(start, start + 600, india).offset_text == "UTC+05:30"
    assert wording.Clock(sample.START, sample.START + 300, UTC).text(sample.START + 7) == "14:00:07"
    assert wording.Clock(sample.START, sample.START + 7200, UTC).text(sample.START + 7) == "14:00"
    assert wording.Clock(sample.START, sample.START + 90000, UTC).text(sample.START) == "2026-11-30 14:00"


def answer(explanation: Explanation) -> str:
    """Both sentences."""
    said = headline(explanation, wording.Clock(explanation.start, explanation.end, UTC))
    return f"{said.movement} {said.cause}"


def test_headline_names_the_cause_with_its_interval() -> None:
    """The first sentence is the whole product for a reader in a hurry."""
    assert answer(sample.sample_explanation()) == (
        "P99 rose from 412 ms to 655 ms (+59 %) at 14:02:22. "
        "max_tokens 256 -> 1024 (14:01:52) caused +221 ms [180, 262]."
    )


def test_headline_does_not_blame_a_change_that_came_later_or_pulled_the_other_way() -> None:
    """A causal change of another moment is no cause of this movement."""
    causal = sample.sample_findings()[1]
    reverted = replace(causal, effect=Interval(-0.2, -0.25, -0.15))
    said = answer(sample.sample_explanation(findings=(reverted,)))
    assert "No change explains that movement; at other times max_tokens 256 -> 1024" in said
    late = replace(causal, change=sample.change("max_tokens", 256, 1024, 142 + 301))
    assert "No change explains that movement" in answer(sample.sample_explanation(findings=(late,)))


def test_headline_without_a_cause_says_what_is_known() -> None:
    """Nothing found, nothing separable, nothing changed and nothing measured are four different answers."""
    findings = sample.sample_findings()
    only_null = sample.sample_explanation(findings=(findings[0], findings[4]))
    assert answer(only_null).endswith("None of the 2 changes explains it.")
    unclear = sample.sample_explanation(findings=findings[2:3])
    assert "The data can't rule out system_prompt_version" in answer(unclear)
    surge = sample.sample_explanation(findings=findings[3:], p99_before=None, p99_after=None, moved_at=None)
    assert answer(surge) == (
        "No change is found to have moved the P99 of chat. "
        "It moved near top_p 1.0 -> 0.95, but for another reason."
    )
    steady = sample.sample_explanation(findings=findings[:1], moved_at=None, p99_after=0.412)
    assert answer(steady) == "P99 of chat did not move: 412 ms. The one change had no effect."
    assert answer(Explanation("chat", 0, 60, ())) == (
        "No change is found to have moved the P99 of chat. No parameter change was seen in this span."
    )


def test_headline_stays_short_when_many_changes_moved_p99() -> None:
    """The first line is read in five seconds: one cause in full, the others in the table."""
    causal = sample.sample_findings()[1]
    others = [replace(causal, effect=Interval(size, 0, 1)) for size in (0.01, 0.02, -0.03)]
    said = answer(sample.sample_explanation(findings=(*others, causal)))
    assert said.endswith("caused +221 ms [180, 262]; 3 more changes moved it as well.")


def test_mechanism_is_worded_by_direction() -> None:
    """A change that lowered P99 through length did so through shorter outputs."""
    finding = replace(
        sample.sample_findings()[1],
        effect=Interval(-0.2, -0.25, -0.15),
        mechanism={"output_length": Interval(0.9, 0.8, 1), "queueing": Interval(0.01, 0, 0.02)},
    )
    assert wording.mechanism_text(finding) == "90 % shorter outputs"


def test_most_important_first() -> None:
    """The culprit stands in the first row, however late it came."""
    verdicts = [finding.verdict for finding in wording.by_importance(sample.sample_explanation())]
    assert verdicts[0] is Verdict.CAUSAL
    assert verdicts[-1] is Verdict.NO_EFFECT
