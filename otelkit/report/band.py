"""The 95 % band around P99 without the causal changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from otelkit.causal.explanation import Explanation, Verdict
from otelkit.query.panel import FloatArray, Panel


def with_band(explanation: Explanation, panel: Panel) -> Explanation:
    """The explanation with the band, where it has a counterfactual without one.

    The counterfactual is P99 with the causal effects divided out, so it is as uncertain as they are together:
    the intervals of their logarithms, taken for independent, add up as squares.
    """
    middle = explanation.counterfactual
    if middle is None or len(middle) != len(panel.times) or explanation.counterfactual_low is not None:
        return explanation
    below: FloatArray = np.zeros(len(panel.times))
    above: FloatArray = np.zeros(len(panel.times))
    for finding in explanation.findings:
        ratio = finding.effect_ratio
        if (
            finding.verdict is not Verdict.CAUSAL
            or ratio is None
            or not -1 < ratio.low <= ratio.high < np.inf
        ):
            continue
        since = finding.change.first_seen + (finding.lag_seconds or 0.0)
        acts = panel.times >= since - panel.step_seconds
        # Dividing by a larger effect leaves less.
        below += acts * np.log((1 + ratio.high) / (1 + ratio.value)) ** 2
        above += acts * np.log((1 + ratio.value) / (1 + ratio.low)) ** 2
    return replace(
        explanation,
        counterfactual_low=np.asarray(middle * np.exp(-np.sqrt(below))),
        counterfactual_high=np.asarray(middle * np.exp(np.sqrt(above))),
    )
