"""The verdicts as a table for the terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from datetime import tzinfo
from io import StringIO
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from otelkit.causal.explanation import Explanation, Finding, Verdict
from otelkit.report.headline import movement_text
from otelkit.report.wording import (
    Clock,
    by_importance,
    change_text,
    correlation_text,
    interval_text,
    mechanism_text,
    milliseconds,
    printable,
    probability_text,
    seconds_text,
    threshold_text,
    verdict_text,
)

_NATURAL_WIDTH: Final = 10_000
"""Wide enough that nothing wraps: what is piped to a file or to grep keeps one line a change."""
_TABLE_MINIMUM: Final = 100
"""Columns below which a table would break every cell; each change then gets its own few lines."""
_STYLES: Final = {
    Verdict.CAUSAL: "bold red",
    Verdict.CANNOT_SEPARATE: "yellow",
    Verdict.CORRELATED_ONLY: "cyan",
    Verdict.NO_EFFECT: "dim",
}


def render_table(
    explanations: Sequence[Explanation],
    *,
    width: int | None = None,
    color: bool | None = None,
    zone: tzinfo | None = None,
) -> str:
    """Render verdicts for a terminal.

    Args:
        width: columns; None takes the terminal's, and wraps nothing when stdout is no terminal.
        color: None colours only a terminal, and honours ``NO_COLOR``.
        zone: time zone of the times shown; None is the machine's own.

    Returns:
        Lines without blanks at their ends and without a last newline; empty for no explanations.
    """
    terminal = sys.stdout.isatty()
    if width is None:
        width = shutil.get_terminal_size().columns if terminal else _NATURAL_WIDTH
    if color is None:
        color = terminal and not os.environ.get("NO_COLOR")
    out = StringIO()
    console = Console(
        file=out,
        width=max(width, 20),
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    for position, explanation in enumerate(explanations):
        if position:
            console.print()
        if len(explanations) > 1:
            console.print(Text(f"service {printable(explanation.service)}", style="bold"))
        for part in _parts(explanation, width, zone):
            console.print(part)
    # Rich pads cells to the column's width; nobody wants the blanks at the end of a line.
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _parts(explanation: Explanation, width: int, zone: tzinfo | None) -> list[RenderableType]:
    clock = Clock(explanation.start, explanation.end, zone)
    parts: list[RenderableType] = [Text(f"P99  {movement_text(explanation, clock)}", style="bold")]
    findings = by_importance(explanation)
    if not findings:
        parts.append(Text("no parameter change was seen in this span"))
    elif width >= _TABLE_MINIMUM:
        parts.append(_table(findings, clock))
    else:
        parts.extend(_stacked(findings, clock))
    if explanation.unexplained_seconds is not None:
        parts.append(Text(f"unexplained: {milliseconds(explanation.unexplained_seconds)} ms"))
    parts.extend(Text(f"note: {printable(warning)}", style="dim") for warning in explanation.warnings)
    return parts


def _table(findings: Sequence[Finding], clock: Clock) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("change", ratio=2, min_width=16, overflow="fold")
    for name in ("at", "effect ms", "lag", "r", "q"):
        table.add_column(name, no_wrap=True)
    thresholds = any(finding.threshold is not None for finding in findings)
    if thresholds:
        table.add_column("threshold", no_wrap=True)
    table.add_column("verdict", ratio=3, min_width=20, overflow="fold")
    for finding in findings:
        table.add_row(
            Text(_label(finding)),
            Text(clock.text(finding.change.first_seen)),
            Text(interval_text(finding.effect)),
            Text(seconds_text(finding.lag_seconds)),
            Text(correlation_text(finding.pearson_r)),
            Text(probability_text(finding.q_value)),
            *([Text(threshold_text(finding))] if thresholds else []),
            _verdict(finding, clock),
        )
    return table


def _stacked(findings: Sequence[Finding], clock: Clock) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for finding in findings:
        effect = interval_text(finding.effect)
        known = [
            f"{effect} ms" if effect != "-" else "no estimate",
            f"at {clock.text(finding.change.first_seen)}",
            *(
                f"{name} {text}"
                for name, text in (
                    ("lag", seconds_text(finding.lag_seconds)),
                    ("r", correlation_text(finding.pearson_r)),
                    ("q", probability_text(finding.q_value)),
                    ("threshold", threshold_text(finding)),
                )
                if text != "-"
            ),
        ]
        lines.append(Text(_label(finding)))
        lines.append(Padding(_verdict(finding, clock), (0, 0, 0, 2)))
        lines.append(Padding(Text(", ".join(known)), (0, 0, 0, 2)))
    return lines


def _label(finding: Finding) -> str:
    scope = finding.change.scope
    return change_text(finding.change) + (f" ({printable(scope)})" if scope else "")


def _verdict(finding: Finding, clock: Clock) -> Text:
    """The verdict, then what an engineer asks next: through what, or why not."""
    text = Text(verdict_text(finding), style=_STYLES[finding.verdict])
    if finding.known_at is not None:
        text.append(f", known at {clock.text(finding.known_at)}", style="default not bold not dim")
    why = mechanism_text(finding) if finding.verdict is Verdict.CAUSAL else ""
    why = why or printable(finding.reason)
    if why:
        text.append(f": {why}", style="default not bold not dim")
    return text
