"""The analyser: reads Prometheus again and again, and keeps a verdict for every parameter change on a
/metrics page, so that dashboards and alerts need nothing but Prometheus.

``state`` is what is known, ``looks`` says when a change is looked at and what is made of each look,
``settled`` does the same for whoever asks once; ``reading`` gets the data, ``rounds`` does one round,
``restore`` gets back what an earlier analyser had found, ``graph`` and ``page`` show it, ``serve`` goes
round, ``annotations`` tells Grafana.
"""

from __future__ import annotations

from otelkit.analyse.looks import Judgement
from otelkit.analyse.rounds import Analyser, Limits
from otelkit.analyse.state import State

__all__ = ["Analyser", "Judgement", "Limits", "State"]
