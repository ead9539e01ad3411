"""When a change is looked at, and what is made of each look: one rule for the analyser and for ``explain``.

Judging a change anew every few seconds is a test repeated many times: sooner or later noise looks like an
effect, and the verdict flips back a moment later. So a change has a handful of looks, each at twice the age
of the one before, and the last one decides: its data holds all that an effect may need to begin and to be
measured. A look before that decides only on evidence far stronger than the last one asks for (the boundary
of Haybittle and Peto), and only once whatever else may have moved at that moment would show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from otelkit import semconv
from otelkit.causal import Finding, Verdict
from otelkit.model import ParameterChange

FIRST_SECONDS: Final = 60.0
"""Age of a change at its first look, counted from the end of its rollout."""
FIRST_STEPS: Final = 4
"""Steps of the series that the first look needs after the change."""
LAST_SECONDS: Final = 900.0
"""Age at the last look: an effect begins within five minutes, and is measured over ten."""
EARLY_Q: Final = 0.01
"""False-discovery rate below which a look before the last one calls a change causal; the last asks 0.1."""
SURELY_BEGUN_SECONDS: Final = 480.0
"""Age from which a look before the last one may say that there is no effect, or that something else did it:
an effect would have begun by then and shown for some minutes."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is known of one change so far."""

    change: ParameterChange
    finding: Finding | None = None
    """None while it is too early."""
    judged_at: float | None = None
    """Unix seconds up to which data went into the finding."""
    looked_until: float = -math.inf
    """Unix seconds up to which data was looked at; as ``judged_at`` or later."""

    @property
    def verdict(self) -> str:
        """One of the causal engine's verdicts, or that it is too early."""
        return semconv.VERDICT_TOO_EARLY if self.finding is None else self.finding.verdict.value

    def due(self, step: float) -> float | None:
        """Unix seconds up to which data must be there for the next look; None after the last one."""
        return next((at for at in looks(self.change, step) if at > self.looked_until), None)


def looks(change: ParameterChange, step: float) -> tuple[float, ...]:
    """Unix seconds of all looks at a change, ascending.

    Args:
        step: of the series, seconds.
    """
    first = max(FIRST_SECONDS, FIRST_STEPS * step)
    last = max(LAST_SECONDS, 2 * first)
    ages = [first]
    while 2 * ages[-1] < last:
        ages.append(2 * ages[-1])
    return tuple(change.last_seen + age for age in (*ages, last))


def look(before: Judgement, finding: Finding, until: float, step: float) -> Judgement:
    """What is known after one more look.

    Args:
        before: what was known, with the newest report of the change.
        finding: the causal engine's, from data up to ``until`` (Unix seconds).
        step: of the series, seconds.
    """
    looked = replace(before, looked_until=until)
    if decides(before.change, finding, until, step) and _replaces(before.finding, finding):
        return replace(looked, finding=finding, judged_at=until)
    return looked


def _replaces(before: Finding | None, finding: Finding) -> bool:
    """Whether a finding takes the place of the one that was given: where it says the same of newer data, or
    the contrary."""
    if before is None or before.verdict in (finding.verdict, Verdict.CANNOT_SEPARATE):
        return True
    if finding.verdict is Verdict.CANNOT_SEPARATE:
        # That later data can't tell says nothing against what earlier data told.
        return False
    # Whether P99 moved for another reason or hardly at all: the change did not move it.
    return Verdict.CAUSAL in (before.verdict, finding.verdict)


def looked_back(
    change: ParameterChange, finding_at: Callable[[float], Finding | None], until: float, step: float
) -> Judgement:
    """What looks at a change as its data came in have led to, for whoever asks once and remembers nothing.

    Looks are taken from the newest back, and no further than those that can still matter: of most changes one
    or two.

    Args:
        finding_at: gives the causal engine's finding from data up to the time of a look (Unix seconds); None
            where it has none.
        until: Unix seconds that data reach.
        step: of the series, seconds.
    """
    taken: list[tuple[float, Finding]] = []
    for at in reversed([at for at in looks(change, step) if at <= until]):
        if any(one.verdict in _NOT_CAUSAL for _, one in taken) and not _has_surely_begun(change, at):
            break
        finding = finding_at(at)
        if finding is not None and decides(change, finding, at, step):
            taken.append((at, finding))
            if finding.verdict is Verdict.CAUSAL:
                break
    result = Judgement(change)
    for at, finding in reversed(taken):
        result = look(result, finding, at, step)
    return replace(result, looked_until=until)


def flipped(before: Judgement, after: Judgement) -> bool:
    """Whether a verdict that had been given was replaced by another."""
    return before.finding is not None and before.verdict != after.verdict


def decides(change: ParameterChange, finding: Finding, until: float, step: float) -> bool:
    """Whether a look at data up to ``until`` (Unix seconds) gives a verdict."""
    if until >= looks(change, step)[-1]:
        return True
    if finding.verdict is Verdict.CAUSAL:
        return not finding.too_soon and finding.q_value is not None and finding.q_value < EARLY_Q
    return finding.verdict in _NOT_CAUSAL and _has_surely_begun(change, until)


_NOT_CAUSAL: Final = (Verdict.NO_EFFECT, Verdict.CORRELATED_ONLY)


def _has_surely_begun(change: ParameterChange, at: float) -> bool:
    return at - change.last_seen >= SURELY_BEGUN_SECONDS
