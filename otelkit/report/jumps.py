"""The other direction, for people and programs: where P99 jumped, and which changes were made before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

from otelkit.causal.jumps import Candidate, Jump
from otelkit.model import UNSET, canonical
from otelkit.report.wording import (
    Clock,
    change_text,
    interval_text,
    percent_text,
    printable,
    seconds_text,
)

VERSION: Final = 1


def render_jumps(
    jumps: Mapping[str, Sequence[Jump]], start: float, end: float, *, zone: tzinfo | None = None
) -> str:
    """A paragraph for each jump: how far P99 went, the changes before it, likeliest first, and the rest.

    Args:
        jumps: by service.
        start, end: Unix seconds of the data.
        zone: time zone of the times shown; None is the machine's own.
    """
    clock = Clock(start, end, zone)
    return "\n\n".join(
        "\n".join(_paragraph(service, jump, clock)) for service, found in jumps.items() for jump in found
    )


def jumps_to_json(jumps: Mapping[str, Sequence[Jump]]) -> dict[str, Any]:
    """Jumps as plain JSON types; times are Unix seconds, durations seconds."""
    return {
        "version": VERSION,
        "jumps": [_document(service, jump) for service, found in jumps.items() for jump in found],
    }


def _paragraph(service: str, jump: Jump, clock: Clock) -> list[str]:
    verb = "rose" if jump.effect_ratio.value > 0 else "fell"
    lines = [
        f"P99 of {printable(service)} {verb} at {clock.text(jump.at)}: "
        f"{interval_text(jump.effect, unit='ms')} ({percent_text(jump.effect_ratio.value, signed=True)})"
    ]
    if jump.candidates:
        rows: list[tuple[str, ...]] = [("change before it", "service", "at", "earlier by", "made it")]
        rows += [_row(one, clock) for one in jump.candidates]
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines += [
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
    else:
        lines.append("  no parameter change was made before it")
    left = jump.effect.value * jump.unexplained
    amount = f", {left * 1e3:+.0f} ms of it" if math.isfinite(left) and abs(left) >= 5e-4 else ""
    lines.append(
        f"  unexplained: {percent_text(jump.unexplained)}{amount} (no change that is on record made it)"
    )
    return lines


def _row(one: Candidate, clock: Clock) -> tuple[str, ...]:
    return (
        change_text(one.change),
        printable(one.change.service),
        clock.text(one.change.first_seen),
        seconds_text(one.lag_seconds),
        percent_text(one.probability),
    )


def _document(service: str, jump: Jump) -> dict[str, Any]:
    return {
        "service": service,
        "at_unix_seconds": jump.at,
        "effect_seconds": _interval(jump.effect.value, jump.effect.low, jump.effect.high),
        "effect_ratio": _interval(jump.effect_ratio.value, jump.effect_ratio.low, jump.effect_ratio.high),
        "candidates": [
            {
                "id": one.change.id,
                "service": one.change.service,
                "parameter": one.change.parameter,
                "old": None if one.change.old is UNSET else canonical(one.change.old),
                "new": None if one.change.new is UNSET else canonical(one.change.new),
                "scope": one.change.scope,
                "first_seen_unix_seconds": one.change.first_seen,
                "probability": one.probability,
                "lag_seconds": one.lag_seconds,
            }
            for one in jump.candidates
        ],
        "unexplained_share": jump.unexplained,
    }


def _interval(value: float, low: float, high: float) -> dict[str, float | None]:
    numbers = {"value": value, "low": low, "high": high}
    return {name: number if math.isfinite(number) else None for name, number in numbers.items()}
