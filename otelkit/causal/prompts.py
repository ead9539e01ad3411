"""Prompts that a change itself makes longer or shorter: more documents retrieved, another system prompt.

Prompt length is a cause that is adjusted for (``design``), as users ask longer questions now and then.
Where a parameter that makes the prompt was changed, and prompts stepped at that moment, their step is how
the change acts: adjusting for it would explain its effect away. So the step is taken off the prompts that
are adjusted for, and all that it does stays with the change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from otelkit.causal.cells import Cells
from otelkit.causal.confounders import unusual_move
from otelkit.causal.credit import Group
from otelkit.causal.shifts import before_after
from otelkit.query.panel import FloatArray

NAMES: Final = re.compile(
    r"prompt|context|template|system|instruction|retriev|(^|[._-])rag|few.?shot|example|document|chunk|histor"
    r"|memor|tools?$",
    re.IGNORECASE,
)
"""Parameters that make the prompt."""
AT_ONCE: Final = 0.4
"""Share of the movement over minutes that must show in the first cells: users' prompts drift."""
SOON_SECONDS: Final = 90.0
"""How soon that is."""


def without_own(cells: Cells, groups: Sequence[Group], width: int) -> Cells:
    """The cells with the steps taken off prompt length that changes of prompts made.

    Args:
        cells: the service.
        groups: its changes.
        width: cells in the first minutes after a change.
    """
    prompt = cells.covariates.get("input_tokens")
    if prompt is None:
        return cells
    with np.errstate(divide="ignore", invalid="ignore"):
        length = np.where(prompt > 0, np.log(prompt), np.nan)
    for group in groups:
        if any(NAMES.search(change.parameter) for change in group.changes):
            length = length - own_step(cells, length, group, width)
    return replace(cells, covariates={**cells.covariates, "input_tokens": np.exp(length)})


def own_step(cells: Cells, length: FloatArray, group: Group, width: int) -> FloatArray:
    """What one change did to the log of prompt length, shape (N,): nothing, or a step at its moment."""
    soon = max(1, round(SOON_SECONDS / cells.seconds))
    begins, settles = group.place, group.place + group.rollout
    at = int(np.clip(round(begins), 0, len(length) - 1))
    nothing = np.zeros(len(length))
    later = int(np.clip(np.ceil(settles), 0, len(length) - 1))
    moved = unusual_move(length, width, at)
    if not moved:
        return nothing
    # Some count a prompt when its call begins, some when it ends.
    begun = max(0, int(begins - group.delay))
    first = before_after(length, soon)[begun : at + 2] / moved
    # While a change is rolled out prompts move slowly by themselves.
    if group.rollout * cells.seconds < SOON_SECONDS and not np.any(first > AT_ONCE):
        return nothing
    size = _mean(length[later : later + width]) - _mean(length[max(at - width, 0) : at])
    share = np.clip((np.arange(len(length)) + 1 - begins) / max(settles - begins, 1.0), 0.0, 1.0)
    return np.asarray(size * share) if np.isfinite(size) else nothing


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")
