"""What is said over all changes: how far P99 moved, what stays unexplained, and what the data lacked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from otelkit.causal import cells as cell_module
from otelkit.causal import histogram
from otelkit.causal.cells import Cells
from otelkit.causal.design import step
from otelkit.causal.explanation import Explanation, Finding, Verdict
from otelkit.causal.measure import Group, Measured
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray, Panel

METHOD = (
    "Joint generalised least squares of log latency quantiles on offered load and on a step per change, "
    "under autocorrelated noise; p-values from placebo dates; Benjamini-Hochberg over changes."
)


def typical_latency(cells: Cells) -> float:
    """Median latency in seconds, over all cells; calls are seen that much after they began."""
    if 0.5 not in cells.levels:
        return 0.0
    median = cells.channels[:, cells.levels.index(0.5)]
    return float(np.exp(np.nanmedian(median))) if np.isfinite(median).any() else 0.0


def p99_between(cells: Cells, since: float, until: float) -> float:
    """P99 in seconds of the calls that ended in (since, until]; NaN where nothing is known."""
    inside = (cells.times > since) & (cells.times <= until)
    if cells.counts is not None and cells.bounds is not None:
        known = cells.counts[inside & np.isfinite(cells.counts).all(axis=1)]
        return float(histogram.quantiles(cells.bounds, known.sum(axis=0, keepdims=True), (0.99,))[0, 0])
    values = cells.channels[inside, -1]
    return float(np.exp(np.nanmean(values))) if np.isfinite(values).any() else float("nan")


def in_force(groups: Sequence[Group], number: int, cells: Cells, horizon: float) -> tuple[float, float]:
    """Span (Unix seconds) over which a group's new values were in force, up to ``horizon`` seconds and to the
    next group."""
    begins = groups[number].begins
    ahead = [g.begins for g in groups if g.begins > begins]
    return begins, min([begins + horizon, float(cells.times[-1]), *ahead])


def data_warnings(cells: Cells, own: Sequence[ParameterChange]) -> list[str]:
    """What a reader must know of the data before trusting a verdict."""
    warnings = []
    if cells.counts is None:
        warnings.append(
            "No bucket counts: quantile series alone say less, and a range window blurs the onset."
        )
    missing = float(np.mean(~np.isfinite(cells.channels).all(axis=1))) if len(cells.times) else 1.0
    if missing > 0.02:
        warnings.append(f"{missing:.0%} of the span has no data; gaps are left out, never taken for zero.")
    if not np.isfinite(cells.arrivals).any():
        warnings.append("Offered load is unknown: a surge of traffic can't be told from an effect.")
    if cells.bounds is not None and cells.counts is not None:
        warnings.extend(_bucket_warnings(cells))
    elif len(cells.times) and np.nanmedian(np.exp(cells.channels[:, -1])) > 600:
        warnings.append("P99 lies above 600: is the series in milliseconds? Seconds are expected.")
    if len({c.id for c in own}) < len(own):
        warnings.append("Some changes are listed more than once with one id.")
    return warnings


def _bucket_warnings(cells: Cells) -> list[str]:
    assert cells.bounds is not None and cells.counts is not None
    total = np.nansum(cells.counts, axis=0)
    if total.sum() <= 0:
        return []
    warnings = []
    if len(cells.bounds) > 1 and total[-1] > 0.01 * total.sum():
        warnings.append(
            f"More than 1 % of calls exceed the last finite bucket ({cells.bounds[-2]:g} s): "
            "P99 is cut off there."
        )
    p99 = float(histogram.quantiles(cells.bounds, total[None], (0.99,))[0, 0])
    place = int(np.searchsorted(cells.bounds, p99))
    if 0 < place < len(cells.bounds) - 1 and cells.bounds[place] / cells.bounds[place - 1] > 1.6:
        low, high = cells.bounds[place - 1], cells.bounds[place]
        warnings.append(
            f"P99 lies in a wide bucket ({low:g} to {high:g} s): its value inside is interpolated. "
            "Bounds nearer to it would help."
        )
    return warnings


def counterfactual(
    panel: Panel, service: str, cells: Cells, causal: Sequence[tuple[Group, float]]
) -> FloatArray | None:
    """P99 (seconds) on the panel's grid without the given effects on log P99."""
    times = np.asarray(panel.times, dtype=float)
    seen = panel.services[service].quantiles.get(0.99)
    if seen is None:
        if cells.counts is None or not len(cells.times):
            return None
        place = np.clip(np.searchsorted(cells.times, times), 0, len(cells.times) - 1)
        seen = np.exp(cells.channels[place, -1])
    shift = np.zeros(len(cells.times))
    for group, effect in causal:
        shift += effect * step(cells, group.begins, group.settles)
    known = np.isfinite(times)
    at = np.interp(np.where(known, times, cells.times[0]), cells.times, shift)
    result: FloatArray = np.asarray(seen, dtype=float) / np.exp(at)
    return result


def explanation(
    panel: Panel,
    service: str,
    cells: Cells,
    findings: Sequence[Finding],
    groups: Sequence[Group],
    measured: Sequence[Measured],
    warnings: Sequence[str],
) -> Explanation:
    """Put it all together."""
    by_change = {id(f.change): f for f in findings}
    causal = [
        (group, m.effect)
        for group, m in zip(groups, measured, strict=True)
        if any(f.verdict is Verdict.CAUSAL for c in group.changes if (f := by_change.get(id(c))))
    ]
    before = after = moved_at = unexplained = None
    start, end = float(cells.times[0] - cells.seconds), float(cells.times[-1])
    if causal:
        largest, effect = max(causal, key=lambda pair: abs(pair[1]))
        moved_at = largest.begins
        edges = [start, *(g.begins for g in groups), end]
        since = max(e for e in edges if e < moved_at)
        until = min([e for e in edges if e > moved_at] or [end])
        before, after = p99_between(cells, since, moved_at), p99_between(cells, moved_at, until)
        if np.isfinite(before) and np.isfinite(after):
            unexplained = after - before - after * (1 - float(np.exp(-effect)))
        else:
            before = after = None
    return Explanation(
        service=service,
        start=start,
        end=end,
        findings=tuple(findings),
        p99_before=before,
        p99_after=after,
        moved_at=moved_at,
        unexplained_seconds=unexplained,
        counterfactual=counterfactual(panel, service, cells, causal),
        method=METHOD,
        warnings=tuple(warnings),
    )


def nothing_known(
    panel: Panel, service: str, own: Sequence[ParameterChange], warnings: Sequence[str], why: str
) -> Explanation:
    """The answer where the data can't be judged at all."""
    grid, _, length = cell_module.regular(panel)
    start = float(grid[0] - panel.step_seconds) if length else float("nan")
    findings = tuple(Finding(change, Verdict.CANNOT_SEPARATE, why) for change in own)
    return Explanation(
        service=service,
        start=start,
        end=float(grid[-1]) if length else float("nan"),
        findings=findings,
        method=METHOD,
        warnings=tuple(warnings),
    )
