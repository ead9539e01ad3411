"""Verdicts of one explanation of data that still grow: those that it is too early for say when they will be
known."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otelkit.analyse.looks import EARLY_Q, looks
from otelkit.causal import Explanation, Finding, Verdict

EARLY_STEPS: Final = 20
"""Steps of the series after a change before which nothing is given: a surge or a deploy beside it must have
had time to show."""


def with_waiting(explanation: Explanation, step: float) -> Explanation:
    """The explanation with "cannot separate" and a time in place of verdicts that may yet be others.

    Before the last look that the analyser would take, only a cause beyond doubt is named. Nothing but the
    data's end counts, so the same data always give the same answer.

    Args:
        step: of the series, seconds.
    """
    findings = tuple(_waiting(one, explanation.start, explanation.end, step) for one in explanation.findings)
    return replace(explanation, findings=findings)


def _waiting(finding: Finding, start: float, end: float, step: float) -> Finding:
    change = finding.change
    first, *_, last = looks(change, step)
    if not start < change.first_seen or not end < last:
        return finding
    if end >= max(first, change.last_seen + EARLY_STEPS * step) and _is_beyond_doubt(finding):
        return finding
    so_far = finding.reason if finding.verdict is Verdict.CANNOT_SEPARATE else _so_far(finding)
    return replace(
        finding,
        verdict=Verdict.CANNOT_SEPARATE,
        reason=f"So far: {so_far[:1].lower()}{so_far[1:]}",
        known_at=last,
        mechanism={},
    )


def _is_beyond_doubt(finding: Finding) -> bool:
    ratio, q = finding.effect_ratio, finding.q_value
    if finding.verdict is not Verdict.CAUSAL or ratio is None or q is None:
        return False
    return q < EARLY_Q and ratio.low * ratio.high > 0


def _so_far(finding: Finding) -> str:
    return f"{finding.verdict.value}, which may change. {finding.reason}"
