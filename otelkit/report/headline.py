"""The answer in one or two sentences: what P99 did, and which change did it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeGuard

from otelkit.causal.explanation import Explanation, Finding, Verdict
from otelkit.report.wording import (
    Clock,
    by_importance,
    change_text,
    interval_text,
    milliseconds,
    percent_text,
)

_ONSET_SLACK_SECONDS: Final = 300.0
"""A change later than the movement by more than this can't be its cause; windows blur the movement's time."""


@dataclass(frozen=True, slots=True)
class Headline:
    movement: str
    """What P99 did, a whole sentence."""
    cause: str
    """What did it, or that nothing here did, a whole sentence."""
    attributed: bool
    """Whether the movement is put down to a change."""


def headline(explanation: Explanation, clock: Clock, *, arrow: str = "->", p99_read: bool = True) -> Headline:
    """Answer the question in plain words.

    Args:
        clock: renders times of day.
        arrow: between a change's old and new value.
        p99_read: whether there is any P99 in the data.
    """
    causal = [finding for finding in by_importance(explanation) if finding.verdict is Verdict.CAUSAL]
    main = [finding for finding in causal if _fits(finding, explanation)][:1]
    cause = _cause(explanation, causal, main, clock, arrow)
    if not p99_read:
        movement = f"The P99 of {explanation.service} is not known for this span."
    elif causal and not _known(explanation.p99_before):
        movement = f"The P99 of {explanation.service} moved."
    else:
        movement = _movement(explanation, clock)
    return Headline(movement, cause, attributed=bool(main))


def movement_text(explanation: Explanation, clock: Clock, *, arrow: str = "->") -> str:
    """``412 ms -> 655 ms (+59 %) at 14:03``; says so when P99 did not move, or not by a change."""
    before, after = explanation.p99_before, explanation.p99_after
    if not _known(before) or not _known(after):
        return "no movement put down to a change"
    if explanation.moved_at is None:
        return f"{milliseconds(before)} ms, did not move"
    change = f" ({percent_text(after / before - 1, signed=True)})" if before else ""
    at = clock.text(explanation.moved_at)
    return f"{milliseconds(before)} ms {arrow} {milliseconds(after)} ms{change} at {at}"


def _known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def _movement(explanation: Explanation, clock: Clock) -> str:
    before, after = explanation.p99_before, explanation.p99_after
    if not _known(before) or not _known(after):
        return f"No change is found to have moved the P99 of {explanation.service}."
    if explanation.moved_at is None:
        return f"P99 of {explanation.service} did not move: {milliseconds(before)} ms."
    verb = "rose" if after > before else "fell"
    change = f" ({percent_text(after / before - 1, signed=True)})" if before else ""
    at = clock.text(explanation.moved_at)
    return f"P99 {verb} from {milliseconds(before)} ms to {milliseconds(after)} ms{change} at {at}."


def _cause(
    explanation: Explanation, causal: list[Finding], main: list[Finding], clock: Clock, arrow: str
) -> str:
    if not explanation.findings:
        return "No parameter change was seen in this span."
    if not causal:
        return _nothing_causal(explanation, clock, arrow)
    if not main:
        also = _effects(causal, clock, arrow)
        return f"No change explains that movement; at other times {also}."
    rest = [finding for finding in causal if finding is not main[0]]
    sentence = _effects(main, clock, arrow)
    if len(rest) == 1:
        sentence += f"; {_effects(rest, clock, arrow)}"
    elif rest:
        sentence += f"; {len(rest)} more changes moved it as well"
    return f"{sentence}."


def _fits(finding: Finding, explanation: Explanation) -> bool:
    """Whether the finding can be the cause of the movement that the headline speaks of."""
    before, after, moved_at = explanation.p99_before, explanation.p99_after, explanation.moved_at
    if moved_at is None or finding.effect is None or not _known(before) or not _known(after):
        return True
    same_direction = (finding.effect.value > 0) == (after > before)
    return same_direction and finding.change.first_seen <= moved_at + _ONSET_SLACK_SECONDS


def _effects(findings: list[Finding], clock: Clock, arrow: str) -> str:
    """At most two effects spelled out; the rest counted."""
    parts = []
    for finding in findings[:2]:
        effect = finding.effect
        amount = (
            f" {interval_text(effect, unit='ms')}" if effect is not None else " a movement of unknown size"
        )
        at = clock.text(finding.change.first_seen)
        parts.append(f"{change_text(finding.change, arrow=arrow)} ({at}) caused{amount}")
    more = len(findings) - len(parts)
    if more:
        parts.append(
            f"{more} more changes moved it as well" if more > 1 else "1 more change moved it as well"
        )
    return ", ".join(parts)


def _nothing_causal(explanation: Explanation, clock: Clock, arrow: str) -> str:
    ranked = by_importance(explanation)
    one = len(ranked) == 1
    early = [finding for finding in ranked if finding.known_at is not None]
    if early:
        names = " and ".join(change_text(finding.change, arrow=arrow) for finding in early[:2])
        more = f" and {len(early) - 2} more" if len(early) > 2 else ""
        latest = clock.text(max(finding.known_at or 0.0 for finding in early))
        return f"It is too early to judge {names}{more}; it will be known at {latest}."
    for verdict, sentence in (
        (Verdict.CANNOT_SEPARATE, "The data can't rule out {}."),
        (Verdict.CORRELATED_ONLY, "It moved near {}, but for another reason."),
    ):
        found = [finding for finding in ranked if finding.verdict is verdict]
        if found:
            names = " and ".join(change_text(finding.change, arrow=arrow) for finding in found[:2])
            return sentence.format(f"{names} and {len(found) - 2} more" if len(found) > 2 else names)
    if explanation.moved_at is not None:
        return (
            "The one change does not explain it."
            if one
            else f"None of the {len(ranked)} changes explains it."
        )
    return "The one change had no effect." if one else f"All {len(ranked)} changes had no effect."
