"""What is said over all changes: how far P99 moved, what stays unexplained, and what the data lacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from otelkit.causal import cells as cell_module
from otelkit.causal import histogram, pooling
from otelkit.causal.cells import Cells
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.causal.fitting import Fitted
from otelkit.causal.mediators import ErrorsPart
from otelkit.model import ParameterChange
from otelkit.query.panel import FloatArray, Panel, ServiceSeries

METHOD: Final = (
    "Steps of log latency quantiles, time per token, output length and time to first token, beside offered "
    "load, prompt length, the fleet and services called, under autocorrelated noise; Bayesian weighing of "
    "paths; credit by onset; p-values from placebo dates; Benjamini-Hochberg over changes."
)
DELAY_SECONDS: Final = 600.0
DELAY_CELLS: Final = 5
DELAY_APART: Final = 0.7
"""Seconds before a change that say how late calls were seen then, how many cells of them must be known, and
how far (log latency) from the usual delay theirs must be to be believed."""
NAMES: Final = {
    "output_length": "output_length",
    "more_tokens": "output_length",
    "time_per_token": "time_per_token",
    "first_token": "first_token",
    "queueing": "queueing",
    "tail": "other",
    "far_tail": "other",
    "outside": "other",
}


def typical_delay(cells: Cells, series: ServiceSeries, before: float | None = None) -> float:
    """Seconds from a call's beginning to the middle of what shows it: calls are seen when they end.

    ``before`` (Unix seconds) asks for that of the minutes before a moment: once a queue is full, latency may
    be a hundred times what it was when a change was made.
    """
    median = cells.channels.get("p50")
    latency = 0.0
    if median is not None and np.isfinite(median).any():
        usual = float(np.nanmedian(median))
        if before is not None:
            then = median[(cells.times > before - DELAY_SECONDS) & (cells.times <= before)]
            then = then[np.isfinite(then)]
            if len(then) >= DELAY_CELLS and abs(float(np.median(then)) - usual) > DELAY_APART:
                usual = float(np.median(then))
        latency = float(np.exp(usual))
    window = series.window_seconds / 2 if cells.counts is None else 0.0
    return latency + window


def cut_off(cells: Cells, place: float, width: int) -> float | None:
    """The last bound (seconds) of the buckets where P99 lies beyond it in most of the ``width`` cells before
    a place and in most of those after, so that nothing can be seen of an effect; None elsewhere."""
    at = int(np.clip(round(place), 0, len(cells.times)))
    sides = [
        cells.hidden[cells.target][side] for side in (slice(max(at - width, 0), at), slice(at, at + width))
    ]
    if not all(len(side) and side.mean() > 0.5 for side in sides):
        return None
    return last_bound(cells)


def last_bound(cells: Cells) -> float:
    """Seconds at which P99 is cut off: the last finite bound, or without buckets the highest P99 there is."""
    if cells.bounds is not None:
        return float(cells.bounds[-2])
    return float(np.exp(np.nanmax(cells.channels[cells.target])))


def inside(change: ParameterChange, cells: Cells) -> bool:
    """Whether there is data on both sides of a change."""
    return bool(cells.times[0] < change.first_seen < cells.times[-1] - cells.seconds)


def outside(change: ParameterChange, cells: Cells) -> Finding:
    """The finding for a change without data on both sides."""
    side = "before the data begins" if change.first_seen <= cells.times[0] else "at or after the data's end"
    return Finding(
        change,
        Verdict.CANNOT_SEPARATE,
        f"The change lies {side}: read a span that has data on both sides of it.",
    )


def calls_around(cells: Cells, place: float, seconds: float) -> tuple[float, float]:
    """Calls that ended within ``seconds`` before and after a place on the grid; infinite where counts are
    unknown."""
    if cells.counts is None:
        return float("inf"), float("inf")
    at = np.arange(len(cells.times))
    near = seconds / cells.seconds
    before = (at < place) & (at >= place - near)
    after = (at >= place) & (at < place + near)
    return float(np.nansum(cells.calls[before])), float(np.nansum(cells.calls[after]))


def p99_between(cells: Cells, since: float, until: float) -> float:
    """P99 in seconds of the calls that ended in (since, until] Unix seconds; NaN where nothing is known."""
    within = (cells.times > since) & (cells.times <= until)
    if cells.counts is not None and cells.bounds is not None:
        known = cells.counts[within & np.isfinite(cells.counts).all(axis=1)]
        return float(histogram.quantiles(cells.bounds, known.sum(axis=0, keepdims=True), (0.99,))[0, 0])
    values = cells.channels[cells.target][within]
    return float(np.exp(np.nanmean(values))) if np.isfinite(values).any() else float("nan")


def pearson(fitted: Fitted, place: float) -> float | None:
    """Correlation of a step with the load-adjusted P99 of the minutes around it. Shown, never deciding."""
    adjusted = fitted.regressions[fitted.model.target].adjusted
    at = np.arange(len(adjusted))
    use = (np.abs(at - place) <= fitted.width) & np.isfinite(adjusted)
    step = (at[use] >= place).astype(float)
    if use.sum() < 4 or step.std() < 1e-9 or adjusted[use].std() < 1e-12:
        return None
    return float(np.corrcoef(step, adjusted[use])[0, 1])


def mechanism(
    model: pooling.Model, effects: FloatArray, noise: FloatArray, errors: ErrorsPart | None = None
) -> dict[str, Interval]:
    """Shares of the effect by path, with 95 % intervals; what errors make is taken off the other paths in
    proportion."""
    paths = pooling.mechanism(model, effects, noise)
    total = sum(mean for mean, _ in paths.values())
    if abs(total) < 1e-6:
        return {}
    gathered: dict[str, tuple[float, float]] = {}
    by_errors = float(np.clip(errors.effect / total, 0.0, 1.0)) if errors is not None else 0.0
    for path, (mean, deviation) in paths.items():
        name = NAMES[path]
        old = gathered.get(name, (0.0, 0.0))
        gathered[name] = (
            old[0] + (1 - by_errors) * mean / total,
            float(np.hypot(old[1], deviation / abs(total))),
        )
    if errors is not None:
        gathered["errors"] = (by_errors, errors.deviation / abs(total))
    return {name: Interval(m, m - 1.96 * d, m + 1.96 * d) for name, (m, d) in gathered.items()}


def data_warnings(cells: Cells) -> list[str]:
    """What a reader must know of the data before trusting a verdict."""
    warnings = list(cells.misread)
    target = cells.channels[cells.target]
    if cells.counts is None:
        warnings.append(
            "No bucket counts: quantile series alone say less, and a range window blurs the onset."
        )
    missing = float(np.mean(~np.isfinite(target))) if len(target) else 1.0
    if missing > 0.02:
        warnings.append(f"{missing:.0%} of the span has no data; gaps are left out, never taken for zero.")
    if cells.counts is None and cells.hidden[cells.target].any():
        warnings.append(
            f"P99 stays at exactly {last_bound(cells):g} s for a while: "
            "most likely that is the last bound of its buckets, and P99 is cut off there."
        )
    if not np.isfinite(cells.arrivals).any():
        warnings.append("Offered load is unknown: a surge of traffic can't be told from an effect.")
    if cells.bounds is not None and cells.counts is not None:
        warnings.extend(_bucket_warnings(cells))
    elif np.isfinite(target).any() and np.nanmedian(np.exp(target)) > 600:
        warnings.append("P99 lies above 600: is the series in milliseconds? Seconds are expected.")
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


def counterfactual(panel: Panel, service: str, causal: Sequence[Finding], ramp: float) -> FloatArray | None:
    """P99 (seconds) on the panel's grid without the effects of causal changes, each of which grows over
    ``ramp`` seconds from its onset."""
    times = np.asarray(panel.times, dtype=float)
    series = panel.services[service]
    seen = series.quantiles.get(0.99)
    if seen is None:
        if series.bucket_counts is None:
            return None
        cells = cell_module.build(panel, series)
        place = np.clip(np.searchsorted(cells.times, times), 0, len(cells.times) - 1)
        seen = np.exp(cells.channels["p99"][place])
    shift = np.zeros(len(times))
    for one in causal:
        since = np.where(np.isfinite(times), times - _onset(one), 0.0)
        shift += _log_effect(one) * np.clip(since / ramp, 0.0, 1.0)
    result: FloatArray = np.asarray(seen, dtype=float) / np.exp(shift)
    return result


def explanation(panel: Panel, service: str, findings: Sequence[Finding]) -> Explanation:
    """Put it all together."""
    series = panel.services[service]
    cells = cell_module.build(panel, series)
    causal = [one for one in findings if one.verdict is Verdict.CAUSAL and one.onset is not None]
    times = np.asarray(panel.times, dtype=float)
    known = times[np.isfinite(times)]
    start = float(known.min()) - panel.step_seconds if len(known) else float("nan")
    end = float(known.max()) if len(known) else float("nan")
    before = after = moved_at = unexplained = None
    if causal:
        # Whoever asks wants to know of a rise; where there is none, of the largest fall.
        largest = max(causal, key=lambda one: (_log_effect(one) > 0, abs(_log_effect(one))))
        moved_at = _onset(largest)
        onsets = [_onset(one) for one in causal]
        since = max([start, moved_at - 3600.0, *(onset for onset in onsets if onset < moved_at)])
        until = min([end, moved_at + 3600.0, *(onset for onset in onsets if onset > moved_at)])
        before, after = p99_between(cells, since, moved_at), p99_between(cells, moved_at, until)
        if np.isfinite(before) and np.isfinite(after):
            unexplained = after - before - after * (1 - float(np.exp(-_log_effect(largest))))
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
        counterfactual=counterfactual(panel, service, causal, cells.seconds),
        method=METHOD,
        warnings=tuple(data_warnings(cells)),
    )


def _onset(finding: Finding) -> float:
    return finding.change.first_seen if finding.onset is None else finding.onset


def _log_effect(finding: Finding) -> float:
    return 0.0 if finding.effect_ratio is None else float(np.log1p(finding.effect_ratio.value))
