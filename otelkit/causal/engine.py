"""``explain``: from a panel and a list of changes to a verdict per change.

The steps, one module each: ``cells`` evens the data out; ``design`` says what else moves latency; ``measure``
estimates each change's step beside the others and beside load, through ``gls`` (autocorrelated noise) and
``pooling`` (one effect on P99 from several quantiles); ``placebo`` asks how large an effect the same
measurement finds where nothing was changed; ``verdicts`` decides; ``summary`` adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from otelkit.causal import cells as cell_module
from otelkit.causal import measure, placebo, summary, verdicts
from otelkit.causal.cells import Cells
from otelkit.causal.explanation import Explanation
from otelkit.errors import DataError
from otelkit.model import ParameterChange
from otelkit.query.panel import Panel

MARGIN: Final = 0.10
"""Changes of P99 smaller than this share count as no effect."""
FEWEST_CELLS: Final = 12


def explain(
    panel: Panel, service: str, changes: Sequence[ParameterChange], *, seed: int = 0, margin: float = MARGIN
) -> Explanation:
    """Say which of ``changes`` moved the P99 latency of ``service``, and by how much.

    Args:
        panel: series of the service and, where there are any, of others.
        service: the service to explain; must be in the panel.
        changes: changes of any service, in any order; those of other services are not judged.
        seed: makes every random choice repeatable.
        margin: an effect whose 95 % interval lies within plus or minus this share of P99 is "no effect".

    Raises:
        DataError: the service is not in the panel.
    """
    if service not in panel.services:
        known = ", ".join(sorted(panel.services)) or "none"
        raise DataError(
            f"service {service!r} is not among the series read ({known})", hint="Check the service's name."
        )
    own = unique(change for change in changes if change.service == service)
    cells = cell_module.build(panel, panel.services[service])
    warnings = summary.data_warnings(cells, own)
    known_cells = np.isfinite(cells.channels).all(axis=1)
    if known_cells.sum() < FEWEST_CELLS:
        why = "There is too little data to compare before with after: read a longer span."
        return summary.nothing_known(panel, service, own, warnings, why)
    if np.std(cells.channels[known_cells], axis=0).max() < 1e-9:
        why = "The latency series is constant: it looks cut off or stale, nothing can be learnt from it."
        return summary.nothing_known(panel, service, own, warnings, why)
    delay = summary.typical_latency(cells)
    groups = measure.grouped([c for c in own if _inside(c, cells)], cells, delay)
    fitted, measured = measure.measure(cells, groups)
    null = placebo.null_effects(cells, fitted, [g.begins for g in groups])
    levels = [
        summary.p99_between(cells, *summary.in_force(groups, number, cells, measure.HORIZON))
        for number in range(len(groups))
    ]
    findings = verdicts.judge(cells, own, groups, measured, null, levels, delay=delay, margin=margin)
    return summary.explanation(panel, service, cells, findings, groups, measured, warnings)


def unique(changes: Iterable[ParameterChange]) -> list[ParameterChange]:
    """In order of time, each change once."""
    seen: dict[tuple[str, str, str], ParameterChange] = {}
    for change in sorted(changes, key=lambda c: c.first_seen):
        seen.setdefault((change.id, change.scope, change.parameter), change)
    return list(seen.values())


def _inside(change: ParameterChange, cells: Cells) -> bool:
    return bool(cells.times[0] < change.first_seen < cells.times[-1] - cells.seconds)
