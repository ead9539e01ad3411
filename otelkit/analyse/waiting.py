"""Verdicts of one explanation of data that still grow: those that it is too early for say when they will be
known."""

from __future__ import annotations

from dataclasses import replace

from otelkit.analyse.looks import Judgement, look, looks
from otelkit.causal import Explanation, Finding, Verdict


def with_waiting(explanation: Explanation, step: float) -> Explanation:
    """The explanation with "cannot separate" and a time in place of verdicts that may yet be others.

    The rule is that of the service that looks at changes again and again: before its last look, only what is
    evident is said. Nothing but the data's end counts, so the same data always give the same answer.

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
    if end >= first and look(Judgement(change), finding, end, step).finding is not None:
        return finding
    so_far = finding.reason if finding.verdict is Verdict.CANNOT_SEPARATE else _so_far(finding)
    return replace(
        finding,
        verdict=Verdict.CANNOT_SEPARATE,
        reason=f"So far: {so_far[:1].lower()}{so_far[1:]}",
        known_at=last,
        mechanism={},
    )


def _so_far(finding: Finding) -> str:
    return f"{finding.verdict.value}, which may change. {finding.reason}"
