"""Long data in pieces: what happened days away says little of a change, and costs as much to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from otelkit.causal.cells import MAX_CELLS, cell_steps, regular
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray, Panel, ServiceSeries

USUAL_CELL_SECONDS: Final = 30.0
FINE: Final = 200
"""Steps of data beyond which cells are of the usual width, not finer: quantiles of more calls are worth more
than the last seconds of an onset."""
BEFORE: Final = 0.5
"""Share of a window that lies before its first change."""
AFTER_SECONDS: Final = 1500.0
"""Data wanted after a window's last change."""


@dataclass(frozen=True)
class Window:
    """A stretch of the panel and the changes that are judged in it."""

    panel: Panel
    steps: int
    """Panel steps in a cell."""
    changes: tuple[ParameterChange, ...]


def windows(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Window]:
    """Cut the panel into windows of at most ``MAX_CELLS`` cells, each around changes near each other.

    Args:
        panel: any time stamps.
        service: whose traffic decides the width of a cell.
        changes: the service's, in order of time.

    Returns:
        One window that holds everything where the data is short; else one or more for the changes, none
        without changes.
    """
    grid, _, length = regular(panel)
    steps = cell_steps(panel.services[service], length, panel.step_seconds)
    steps = max(steps, min(round(USUAL_CELL_SECONDS / panel.step_seconds), 1 + length // FINE))
    if length <= MAX_CELLS * steps * 1.1 or not len(grid):
        return [Window(panel, steps, tuple(changes))]
    span = MAX_CELLS * steps * panel.step_seconds
    result: list[Window] = []
    waiting = list(changes)
    while waiting:
        start = min(max(waiting[0].first_seen - BEFORE * span, float(grid[0])), float(grid[-1]) - span)
        end = start + span
        taken = [c for c in waiting if c is waiting[0] or c.first_seen < end - AFTER_SECONDS]
        waiting = waiting[len(taken) :]
        result.append(Window(cut(panel, start, end), steps, tuple(taken)))
    return result


def whole(panel: Panel, service: str) -> list[Window]:
    """The panel in windows side by side, none of them with changes."""
    grid, _, length = regular(panel)
    first = windows(panel, service, ())
    if first:
        return first
    steps = max(
        cell_steps(panel.services[service], length, panel.step_seconds),
        round(USUAL_CELL_SECONDS / panel.step_seconds),
        1,
    )
    span = MAX_CELLS * steps * panel.step_seconds
    starts = np.arange(float(grid[0]) - panel.step_seconds, float(grid[-1]) - span / 2, span)
    return [Window(cut(panel, start, start + span), steps, ()) for start in starts.tolist()]


def cut(panel: Panel, start: float, end: float) -> Panel:
    """The panel between two times, Unix seconds."""
    times = np.asarray(panel.times, dtype=float)
    rows = np.flatnonzero((times > start) & (times <= end))
    # In order, as they nearly always are, nothing needs to be copied, however many services there are.
    together = len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1
    keep = slice(rows[0], rows[-1] + 1) if together else rows

    def part(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else np.asarray(values)[keep]

    def parts(values: Mapping[object, FloatArray]) -> dict[object, FloatArray]:
        return {name: np.asarray(column)[keep] for name, column in values.items()}

    def series(whole: ServiceSeries) -> ServiceSeries:
        return replace(
            whole,
            quantiles=parts(whole.quantiles),  # type: ignore[arg-type]
            bucket_counts=part(whole.bucket_counts),
            covariates=parts(whole.covariates),  # type: ignore[arg-type]
        )

    return replace(panel, times=times[keep], services={n: series(s) for n, s in panel.services.items()})
