"""CausalImpact as a baseline, where the package ``bsts-causalimpact`` is installed (it is no dependency)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.causal.scoring import Answer
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel

BEFORE = 3600.0
"""Seconds before a change that the model is fitted on."""
AFTER = 600.0
LEVELS = {"causalimpact": 0.01, "causalimpact_tuned": 0.05}
"""Prior deviation of the local level: the package's own, and one that suits P99."""


def available() -> bool:
    return importlib.util.find_spec("causal_impact") is not None


def causal_impact(
    panel: Panel, service: str, changes: Sequence[ParameterChange], *, level: float
) -> list[Answer]:
    """Log P99 with load, prompt length and the other services' P99 as covariates; p below 0.05."""
    from causal_impact import CausalImpact

    response = _log(panel.services[service].quantiles[0.99])
    own = panel.services[service].covariates
    covariates = [_log(own[name]) for name in ("arrivals", "input_tokens") if name in own]
    covariates += [_log(s.quantiles[0.99]) for name, s in sorted(panel.services.items()) if name != service]
    columns = np.column_stack([response, *(c for c in covariates if np.ptp(c) > 1e-9)])
    answers = []
    for change in changes:
        if change.service != service:
            continue
        at = change.first_seen
        use = (panel.times > at - BEFORE) & (panel.times <= at + AFTER)
        first = int((panel.times[use] <= at).sum())
        last = int(use.sum())
        if first < 20 or last - first < 4:
            answers.append(Answer(False, "no effect"))
            continue
        impact = CausalImpact(
            columns[use],
            [0, first - 1],
            [first, last - 1],
            model_args={"prior_level_sd": level, "niter": 600, "nwarmup": 200, "seed": 1},
        )
        found = impact.summary_stats
        size = float(found["point_effect_mean"])
        answer = Answer(
            False,
            "no effect",
            size,
            float(found["ci_lower"]),
            float(found["ci_upper"]),
            p=float(found["p_value"]),
        )
        answers.append(replace(answer, causal=2 * answer.p < 0.05 if answer.p is not None else False))
    return answers


def _log(values: np.ndarray) -> np.ndarray:
    """Logarithm with gaps filled from what is known beside them: the package takes no missing covariates."""
    known = np.isfinite(values) & (values > 0)
    if not known.any():
        return np.zeros(len(values))
    at = np.arange(len(values))
    filled: np.ndarray = np.interp(at, at[known], np.log(values[known]))
    return filled
