"""What could be found at all: an oracle that knows each change's moment and what it did to every series.

It still has to tell that from the noise. Its signal-to-noise ratio is that of a matched filter: the change's
true effect on all channels, found by simulating again without it, against the noise that the engine measures.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import special

from benchmarks.causal.world import START, Scenario
from otelkit.causal import cells as cell_module
from otelkit.causal import engine, fitting
from otelkit.causal.windows import windows

THRESHOLD = 2.6
"""Deviations from which on the oracle speaks: one null in a hundred would pass."""


def chance(scenario: Scenario, number: int) -> float | None:
    """Probability that the oracle finds a real change; None where the truth was not kept."""
    truth, change = scenario.truths[number], scenario.changes[number]
    if truth.without is None:
        return None
    ratio = signal_to_noise(scenario, number, change.service)
    return float(special.ndtr(ratio - THRESHOLD))


def signal_to_noise(scenario: Scenario, number: int, service: str) -> float:
    """Of the matched filter over all channels; 0 where the engine cannot fit the service."""
    panel, change, without = scenario.panel, scenario.changes[number], scenario.truths[number].without
    assert without is not None
    for window in windows(panel, service, engine.check(panel, service, [change])):
        prepared = engine.prepare(window, service)
        if isinstance(prepared, str):
            return 0.0
        fitted = prepared.witness.fitted
        cells = fitted.cells
        series = panel.services[service]
        same = (
            np.isfinite(series.bucket_counts).all(axis=1) if series.bucket_counts is not None else slice(None)
        )
        counts = np.where(np.atleast_1d(same)[:, None], without.counts, np.nan)
        other = replace(series, bucket_counts=counts, covariates={**series.covariates, **without.covariates})
        again = cell_module.build(
            replace(panel, services={service: other}), other, steps=round(cells.seconds / panel.step_seconds)
        )
        place = (START + scenario.planted[number].at - float(cells.times[0])) / cells.seconds + 1
        at = np.arange(len(cells.times))
        effect = []
        for name, late in zip(fitted.model.channels, fitted.delays.tolist(), strict=True):
            span = (at >= place + late) & (at < place + late + fitted.width)
            moved = (cells.channels[name] - again.channels[name])[span]
            effect.append(float(np.nanmean(moved)) if np.isfinite(moved).any() else 0.0)
        _, noise = fitting.effects_at(fitted, np.array([place + prepared.delay / cells.seconds]))
        size = np.array(effect)
        return float(np.sqrt(size @ np.linalg.solve(noise[0], size)))
    return 0.0
