"""Every expression parses, with every kind of variable put in."""

from __future__ import annotations

import promql_parser
import pytest

from otelkit.dashboards import documents, unknown_metrics
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview.fetch import Span
from otelkit.dashboards.preview.variables import Variables
from otelkit.spec import Spec

VALUES = {
    "one service": {"service": "chat", "model": "m", "slow": "1.28", "stall": "0.64"},
    "fifty services": {"service": "(" + "|".join(f"s\\\\.{n}" for n in range(50)) + ")", "model": ".*"},
    "a value with quotes": {"service": 'ch\\"at', "parameter": "stop sequences"},
}


@pytest.mark.parametrize("kind", VALUES)
def test_every_expression_parses(kind: str) -> None:
    """A panel would show nothing but an error."""
    defaults = {"compare": "30m", "objective": "0.99", "slow": "1.28", "stall": "0.64", "parameter": "seed"}
    known = Variables({**defaults, "model": "m", **VALUES[kind], **Span(0, 3600, 15).built_in(15)})
    seen = 0
    for document in documents(Spec()).values():
        marks = document.get("annotations", {}).get("list", [])
        targets = [target for panel in panels_of(document) for target in panel.get("targets", [])]
        for target in [*targets, *(mark["target"] for mark in marks)]:
            if "expr" in target:
                promql_parser.parse(known.replace(target["expr"]))
                seen += 1
    assert seen > 100


def test_every_metric_asked_for_has_a_name_of_ours() -> None:
    """A renamed metric would blank its panels."""
    for document in documents(Spec()).values():
        assert unknown_metrics(document) == []
