"""Dashboard "Runbook": what to do, by symptom, where panels' links lead to without leaving Grafana."""

from __future__ import annotations

import attr
from grafanalib import core as g

from otelkit.dashboards import panels, shared
from otelkit.dashboards.runbooks import sections
from otelkit.spec import Spec


def dashboard(spec: Spec) -> g.Dashboard:
    return shared.dashboard(
        shared.RUNBOOK,
        "otelkit / Runbook",
        "What to do, by symptom. Panels of the other dashboards link to these sections.",
        [
            # Links name a section by its panel's id.
            attr.evolve(panels.text(title, content, size=(12, 10)), id=number)
            for number, (title, content) in enumerate(sections().items(), 1)
        ],
        variables=[],
        refresh="",
    )
