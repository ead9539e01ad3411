"""The engine and the baselines, each from a panel and the changes of one service to one answer per change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from benchmarks.causal.scoring import Answer
from otelkit.causal import Verdict, explain
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel

Method = Callable[[Panel, str, Sequence[ParameterChange]], list[Answer]]
NEAR = 180.0
SPAN = 600.0


def otelkit(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """The engine with all that the panel has."""
    findings = {id(f.change): f for f in explain(panel, service, changes).findings}
    answers = []
    for change in changes:
        if change.service != service:
            continue
        f = findings[id(change)]
        ratio = f.effect_ratio
        answers.append(
            Answer(
                f.verdict is Verdict.CAUSAL,
                f.verdict.value,
                *(
                    (float(np.log1p(v)) for v in (ratio.value, ratio.low, ratio.high))
                    if ratio
                    else (None,) * 3
                ),
                f.lag_seconds,
                f.p_value,
            )
        )
    return answers


def otelkit_quantiles_only(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """The engine without bucket counts and with no covariates but load, errors and tokens."""
    kept = ("arrivals", "completions", "errors", "input_tokens", "output_tokens")
    bare = {
        name: replace(
            s,
            bucket_bounds=None,
            bucket_counts=None,
            covariates={k: v for k, v in s.covariates.items() if k in kept},
        )
        for name, s in panel.services.items()
    }
    return otelkit(replace(panel, services=bare), service, changes)


def _own(
    panel: Panel, service: str, changes: Sequence[ParameterChange]
) -> list[tuple[float, np.ndarray, np.ndarray]]:
    p99 = panel.services[service].quantiles[0.99]
    return [(c.first_seen, panel.times, p99) for c in changes if c.service == service]


def pearson(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """Correlation of the step with P99 within three minutes above 0.8."""
    answers = []
    for at, times, p99 in _own(panel, service, changes):
        use = (np.abs(times - at) <= NEAR) & np.isfinite(p99)
        step = (times[use] > at).astype(float)
        r = (
            np.corrcoef(step, p99[use])[0, 1]
            if use.sum() > 4 and step.std() > 0 and p99[use].std() > 0
            else 0.0
        )
        answers.append(_plain(times, p99, at, abs(r) > 0.8))
    return answers


def mean_shift(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """Mean P99 over ten minutes moved by more than 5 %."""
    answers = []
    for at, times, p99 in _own(panel, service, changes):
        answer = _plain(times, p99, at, False)
        answers.append(
            replace(answer, causal=answer.log_ratio is not None and abs(np.expm1(answer.log_ratio)) > 0.05)
        )
    return answers


def mann_whitney(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """Kayenta's test: ten minutes before against ten after, at 2 % and 5 % of change."""
    answers = []
    for at, times, p99 in _own(panel, service, changes):
        before, after = _sides(times, p99, at)
        p = float(stats.mannwhitneyu(before, after).pvalue) if min(len(before), len(after)) > 3 else 1.0
        answer = _plain(times, p99, at, False)
        large = answer.log_ratio is not None and abs(np.expm1(answer.log_ratio)) > 0.05
        answers.append(replace(answer, causal=p < 0.02 and large, p=p))
    return answers


def pelt(panel: Panel, service: str, changes: Sequence[ParameterChange]) -> list[Answer]:
    """A change point of log P99 (PELT, least squares, penalty from the noise) within three minutes."""
    answers = []
    points: np.ndarray | None = None
    for at, times, p99 in _own(panel, service, changes):
        if points is None:
            known = np.isfinite(p99) & (p99 > 0)
            points = times[known][_change_points(np.log(p99[known]))]
        near = points[np.abs(points - at) <= NEAR]
        answer = _plain(times, p99, at, len(near) > 0)
        lag = float(near[np.argmin(np.abs(near - at))] - at) if len(near) else None
        answers.append(replace(answer, lag=lag))
    return answers


def _change_points(y: np.ndarray, shortest: int = 8) -> list[int]:
    """PELT on the mean, with a penalty that allows for autocorrelation."""
    n = len(y)
    if n < 2 * shortest:
        return []
    noise = float(np.median(np.abs(np.diff(y)))) / 0.954
    centred = y - y.mean()
    rho = float((centred[1:] * centred[:-1]).sum() / max((centred**2).sum(), 1e-12))
    penalty = 3 * np.log(n) * max(noise, 1e-6) ** 2 * (1 + rho) / max(1 - rho, 0.05)
    first, second = np.concatenate([[0], np.cumsum(y)]), np.concatenate([[0], np.cumsum(y**2)])
    cost = np.full(n + 1, np.inf)
    cost[0] = -penalty
    last = np.zeros(n + 1, dtype=int)
    candidates = np.array([0])
    for end in range(shortest, n + 1):
        length = end - candidates
        loss = (
            second[end] - second[candidates] - (first[end] - first[candidates]) ** 2 / np.maximum(length, 1)
        )
        total = cost[candidates] + loss + penalty
        total[length < shortest] = np.inf
        best = int(np.argmin(total))
        cost[end], last[end] = total[best], candidates[best]
        keep = (cost[candidates] + loss <= cost[end]) | (length < shortest)
        candidates = np.append(candidates[keep], end - shortest + 1)
    points, end = [], n
    while last[end] > 0:
        end = int(last[end])
        points.append(end)
    return points


def _sides(times: np.ndarray, p99: np.ndarray, at: float) -> tuple[np.ndarray, np.ndarray]:
    known = np.isfinite(p99)
    return p99[known & (times <= at) & (times > at - SPAN)], p99[known & (times > at) & (times <= at + SPAN)]


def _plain(times: np.ndarray, p99: np.ndarray, at: float, causal: bool) -> Answer:
    """Difference of mean log P99 before and after, with the textbook interval."""
    before, after = (np.log(side[side > 0]) for side in _sides(times, p99, at))
    if min(len(before), len(after)) < 2:
        return Answer(False, "no effect")
    moved = float(after.mean() - before.mean())
    wide = 1.96 * float(np.sqrt(before.var() / len(before) + after.var() / len(after)))
    return Answer(causal, "no effect", moved, moved - wide, moved + wide)


BASELINES: dict[str, Method] = {
    "pearson": pearson,
    "mean_shift": mean_shift,
    "mann_whitney": mann_whitney,
    "pelt": pelt,
}
