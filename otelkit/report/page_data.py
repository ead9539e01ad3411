"""What the page's charts draw, as JSON-safe numbers: milliseconds, and null where there is a gap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from otelkit.causal.explanation import Explanation, Finding, Verdict
from otelkit.query.panel import FloatArray, Panel, ServiceSeries
from otelkit.report.wording import (
    Clock,
    change_text,
    interval_text,
    path_name,
    printable,
    seconds_text,
    shorten,
    verdict_text,
)

POINTS_DRAWN: Final = 4000
"""A curve with more points than this is thinned; the extremes of every stretch stay."""
_GRAPH_CHANGES: Final = 8
_SHARE_DRAWN: Final = 0.02
"""Paths of a smaller share of an effect are left out of the graph; the table has them."""
_HISTOGRAM_BINS: Final = 31
_OUTSIDE_DRAWN: Final = 0.05
"""A change that lies outside the data by more than this share of its span is not drawn."""

VERDICT_KEYS: Final = {
    Verdict.CAUSAL: "causal",
    Verdict.CORRELATED_ONLY: "correlated",
    Verdict.CANNOT_SEPARATE: "unclear",
    Verdict.NO_EFFECT: "none",
}
"""Verdict -> the class name that its colour and mark go by in the page."""

_LOAD_NAMES: Final = {"arrivals": "calls begun per second", "completions": "calls ended per second"}


def why_empty(explanation: Explanation, panel: Panel) -> str:
    """Why no P99 can be drawn, as a sentence; empty when it can."""
    series = panel.services.get(explanation.service)
    if series is None:
        known = ", ".join(sorted(panel.services)) or "none"
        return f"The data holds no series of service {explanation.service!r}; services in it: {known}."
    if not len(panel.times):
        return "The data holds no points in this span."
    if 0.99 not in series.quantiles:
        held = ", ".join(f"P{quantile * 100:g}" for quantile in sorted(series.quantiles)) or "none"
        return f"The data holds no P99 of service {explanation.service!r}; quantiles in it: {held}."
    if not np.isfinite(series.quantiles[0.99]).any():
        return (
            f"All {len(panel.times)} points of P99 in this span are empty: no call of service "
            f"{explanation.service!r} ended, or its histogram was not scraped."
        )
    return ""


def curves(explanation: Explanation, panel: Panel, clock: Clock) -> dict[str, Any] | None:
    """Series over time on one thinned grid; None where there is no P99 to draw.

    Raises:
        ValueError: the counterfactual is not on the panel's grid.
    """
    if why_empty(explanation, panel):
        return None
    series = panel.services[explanation.service]
    p99 = series.quantiles[0.99]
    load_key, load = _load(series, panel.step_seconds)
    keep = _extremes([p99] if load is None else [p99, load])
    offset = clock.offset.total_seconds()
    drawn: dict[str, Any] = {
        "t": [round((time + offset) * 1e3) for time in panel.times[keep]],
        "p99": _rounded(p99[keep] * 1e3),
        "total": len(panel.times),
    }
    for key, quantile in (("p95", 0.95), ("p50", 0.5)):
        values = series.quantiles.get(quantile)
        if values is not None and np.isfinite(values).any():
            drawn[key] = _rounded(values[keep] * 1e3)
    if load is not None:
        drawn["load"] = _rounded(load[keep])
        drawn["loadName"] = f"{_LOAD_NAMES[load_key]}, mean over {seconds_text(series.window_seconds)}"
    drawn |= _counterfactual(explanation, panel, keep)
    return drawn


def _counterfactual(explanation: Explanation, panel: Panel, keep: FloatArray) -> dict[str, Any]:
    onsets = [
        finding.change.first_seen for finding in explanation.findings if finding.verdict is Verdict.CAUSAL
    ]
    if explanation.counterfactual is None or not onsets:
        return {}
    lines = {
        "counterfactual": explanation.counterfactual,
        "low": explanation.counterfactual_low,
        "high": explanation.counterfactual_high,
    }
    drawn = {}
    for name, values in lines.items():
        if values is None:
            continue
        if len(values) != len(panel.times):
            raise ValueError(f"{name} has {len(values)} points, the panel has {len(panel.times)}")
        # Before the first causal change it is P99 itself: drawing it twice only hides the measured curve.
        later = np.where(panel.times >= min(onsets) - panel.step_seconds, values, np.nan)
        drawn[name] = _rounded(later[keep] * 1e3)
    return drawn


def _load(series: ServiceSeries, step_seconds: float) -> tuple[str, FloatArray | None]:
    """Load over the window that P99 has as well: calls of single steps are noise that hides a surge."""
    for key in _LOAD_NAMES:
        values = series.covariates.get(key)
        if values is not None and np.isfinite(values).any():
            return key, _trailing_mean(values, max(1, round(series.window_seconds / step_seconds)))
    return "", None


def _trailing_mean(values: FloatArray, steps: int) -> FloatArray:
    """Mean of what is known of the last ``steps`` values; a gap stays a gap."""
    known = np.isfinite(values)
    sums = np.cumsum(np.concatenate(([0.0], np.where(known, values, 0.0))))
    counts = np.cumsum(np.concatenate(([0], known)))
    last = np.arange(1, len(values) + 1)
    first = np.maximum(0, last - steps)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums[last] - sums[first]) / (counts[last] - counts[first])
    return np.where(known, means, np.nan)


def _extremes(arrays: Sequence[FloatArray]) -> Any:
    """Indices that keep each array's smallest and largest value, and a gap, in every stretch of the grid."""
    length = len(arrays[0])
    if length <= POINTS_DRAWN:
        return np.arange(length)
    kept = {0, length - 1}
    for stretch in np.array_split(np.arange(length), POINTS_DRAWN // (3 * len(arrays))):
        for array in arrays:
            values = array[stretch]
            known = np.isfinite(values)
            if not known.all():
                kept.add(int(stretch[np.argmin(known)]))
            if known.any():
                kept |= {int(stretch[np.nanargmin(values)]), int(stretch[np.nanargmax(values)])}
    return np.array(sorted(kept))


def _rounded(values: FloatArray) -> list[float | None]:
    """Four significant digits are more than a screen shows."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values]


def marks(numbered: Sequence[tuple[int, Finding]], panel: Panel, clock: Clock) -> list[dict[str, Any]]:
    """The changes as the time chart marks them; those far outside the data would only squeeze it."""
    if not len(panel.times):
        return []
    offset = clock.offset.total_seconds()
    first, last = float(panel.times[0]), float(panel.times[-1])
    reach = _OUTSIDE_DRAWN * (last - first)
    return [
        {
            "n": number,
            "label": change_text(finding.change, arrow="→", length=18),
            "parameter": shorten(printable(finding.change.parameter), 30),
            "verdict": VERDICT_KEYS[finding.verdict],
            "word": verdict_text(finding),
            "from": round((finding.change.first_seen + offset) * 1e3),
            "to": round((finding.change.last_seen + offset) * 1e3),
            "effect": interval_text(finding.effect),
        }
        for number, finding in numbered
        if first - reach <= finding.change.first_seen <= last + reach
    ]


def placebo(finding: Finding) -> dict[str, Any] | None:
    """Histogram of the effects at dates without a change, and the change's own; None where there is none."""
    if finding.placebo_effects is None or finding.effect is None or not np.isfinite(finding.effect.value):
        return None
    effects = finding.placebo_effects[np.isfinite(finding.placebo_effects)] * 1e3
    if not len(effects):
        return None
    low, high = float(effects.min()), float(effects.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    bins = min(_HISTOGRAM_BINS, max(7, round(len(effects) ** 0.5)))
    counts, edges = np.histogram(effects, bins=bins, range=(low, high))
    ends = (finding.effect.value, finding.effect.low, finding.effect.high)
    value, below, above = (float(end * 1e3) if np.isfinite(end) else None for end in ends)
    return {
        "edges": [round(float(edge), 4) for edge in edges],
        "counts": counts.tolist(),
        "effect": value,
        "low": below,
        "high": above,
        "total": len(effects),
        "asLarge": int((np.abs(effects) >= abs(finding.effect.value * 1e3)).sum()),
    }


def graph(numbered: Sequence[tuple[int, Finding]], service: str) -> dict[str, Any] | None:
    """Parameters -> paths -> P99, in ms, of the causal changes whose effect was split; None without any."""
    split = [
        (number, finding)
        for number, finding in numbered
        if finding.verdict is Verdict.CAUSAL and finding.mechanism and finding.effect is not None
    ][:_GRAPH_CHANGES]
    if not split:
        return None
    edges: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    through: dict[str, float] = {}
    for number, finding in split:
        assert finding.effect is not None
        effect = finding.effect.value * 1e3
        node = {
            "id": f"change-{number}",
            "name": change_text(finding.change, arrow="→", length=18),
            "ms": effect,
        }
        changes.append(node)
        shares = {
            path_name(path, share.value, effect): share.value for path, share in finding.mechanism.items()
        }
        shares["not split"] = 1 - sum(shares.values())
        for name, share in shares.items():
            if abs(share) >= _SHARE_DRAWN:
                edges.append({"from": node["id"], "to": name, "ms": share * effect})
                through[name] = through.get(name, 0.0) + share * effect
    ordered = sorted(through, key=lambda name: (name == "not split", -abs(through[name])))
    return {
        "changes": changes,
        "paths": [{"id": name, "name": name, "ms": through[name]} for name in ordered],
        "target": {
            "id": "p99",
            "name": f"P99 of {printable(service)}",
            "ms": sum(node["ms"] for node in changes),
        },
        "edges": edges + [{"from": name, "to": "p99", "ms": through[name]} for name in ordered],
    }
