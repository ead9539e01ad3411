"""A generation from before a change and one from after, side by side: what was asked, and the token steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otelkit.causal.explanation import Explanation, Verdict
from otelkit.model import UNSET, Generation
from otelkit.report.wording import milliseconds, printable, value_text

_STEPS_DRAWN: Final = 1500
"""More steps than this can't be told apart on a screen; neighbours are drawn as one."""


@dataclass(frozen=True, slots=True)
class Exemplars:
    """A generation that stands for P99 before the change, and one after it."""

    before: Generation
    after: Generation


@dataclass(frozen=True, slots=True)
class Compared:
    """Two spans that a change divides, without any other change in them; Unix seconds."""

    begin: float
    at: float
    end: float


def compared_spans(explanation: Explanation) -> Compared | None:
    """The spans before and after the change that moved P99 most; None when none did."""
    moved = [one for one in explanation.findings if one.verdict is Verdict.CAUSAL and one.effect]
    if not moved:
        return None
    most = max(moved, key=lambda one: abs(one.effect.value) if one.effect else 0.0)
    at = most.change.first_seen
    times = [one.change.first_seen for one in explanation.findings]
    return Compared(
        begin=max([explanation.start, *(time for time in times if time < at)]),
        at=at,
        end=min([explanation.end, *(time for time in times if time > at)]),
    )


def choose_exemplars(explanation: Explanation, generations: Sequence[Generation]) -> Exemplars | None:
    """The generation at P99 before the change that moved P99 most, and the one after it.

    None when no change moved it, or when there is nothing on one side.
    """
    spans = compared_spans(explanation)
    if spans is None:
        return None
    before = _at_p99([one for one in generations if spans.begin <= one.start_ns / 1e9 < spans.at])
    after = _at_p99([one for one in generations if spans.at <= one.start_ns / 1e9 < spans.end])
    return Exemplars(before, after) if before and after else None


def _at_p99(generations: Iterable[Generation]) -> Generation | None:
    ascending = sorted(generations, key=lambda one: one.duration_seconds)
    return ascending[math.ceil(0.99 * len(ascending)) - 1] if ascending else None


def exemplar_rows(exemplars: Exemplars) -> list[tuple[str, str, str]]:
    """What the page says of the two, in text: (name, before, after), the parameters that differ first."""
    before, after = exemplars.before, exemplars.after
    names = sorted(set(before.parameters) | set(after.parameters))
    rows = [(printable(name), _parameter(before, name), _parameter(after, name)) for name in names]
    rows = [row for row in rows if row[1] != row[2]]
    facts = zip(_facts(before), _facts(after), strict=True)
    return rows + [(name, text_before, text_after) for (name, text_before), (_, text_after) in facts]


def exemplar_data(exemplars: Exemplars) -> list[dict[str, Any]]:
    """What the page draws of each of the two: ends of token steps in ms since the call began."""
    return [_drawn("before", exemplars.before), _drawn("after", exemplars.after)]


def _parameter(generation: Generation, name: str) -> str:
    return value_text(generation.parameters.get(name, UNSET))


def _facts(generation: Generation) -> list[tuple[str, str]]:
    steps = len(generation.step_ns)
    rest = (generation.step_ns[-1] - generation.step_ns[0]) / 1e9 / (steps - 1) if steps > 1 else None
    tokens = generation.output_tokens
    return [
        ("Duration, ms", milliseconds(generation.duration_seconds)),
        ("First token, ms", milliseconds(generation.time_to_first_chunk_seconds)),
        ("Per later step, ms", milliseconds(rest)),
        ("Token steps", str(steps) if steps else "-"),
        ("Output tokens", "-" if tokens is None else str(tokens)),
        ("Ended", generation.outcome.value.replace("_", " ")),
        ("Trace", f"{generation.span.trace_id:032x}" if generation.span else "-"),
    ]


def _drawn(name: str, generation: Generation) -> dict[str, Any]:
    ends = [round((end - generation.start_ns) / 1e6, 3) for end in generation.step_ns]
    stride = max(1, -(-len(ends) // _STEPS_DRAWN))
    if stride > 1:
        # The first step stays by itself: it is the time to first token.
        ends = ends[:1] + ends[stride::stride] + ([ends[-1]] if (len(ends) - 1) % stride else [])
    return {
        "name": name,
        "total": round(generation.duration_seconds * 1e3, 3),
        "ends": ends,
        "stride": stride,
    }
