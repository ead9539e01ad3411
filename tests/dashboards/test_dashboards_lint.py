"""The rules that dashboards keep, and that each rule finds what it is there for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from otelkit.dashboards import documents, lint, unknown_metrics
from otelkit.spec import Spec

Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize("uid", documents(Spec()))
def test_dashboards_keep_all_rules(uid: str) -> None:
    """Blank panels, missing units and queries that fail for several services would reach users."""
    assert lint(documents(Spec())[uid]) == []


def _panel(document: dict[str, Any], title: str = "P99 by service") -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in document["panels"] if one["title"] == title)
    return found


def _expr(text: str) -> Change:
    return lambda d: _panel(d)["targets"][0].update(expr=text)


FAULTS: dict[str, tuple[Change, str]] = {
    "no title": (lambda d: _panel(d).update(title=""), "has no title"),
    "no description": (lambda d: _panel(d).pop("description"), "has no description"),
    "no unit": (lambda d: _panel(d)["fieldConfig"]["defaults"].pop("unit"), "has no unit"),
    "no text": (lambda d: _panel(d)["fieldConfig"]["defaults"].pop("noValue"), "says nothing"),
    "no target": (lambda d: _panel(d).update(targets=[]), "has no target"),
    "fixed data source": (
        lambda d: _panel(d)["targets"][0].update(datasource={"uid": "prom-1"}),
        "data source 'prom-1' is not a variable",
    ),
    "two panels of one id": (lambda d: _panel(d).update(id=1), "panel id 1 is used 2 times"),
    "overlap": (lambda d: _panel(d)["gridPos"].update(x=0), "lies over"),
    "too wide": (lambda d: _panel(d)["gridPos"].update(w=20), "reaches beyond"),
    "fixed window": (_expr('sum(rate(x_total{service=~"$service"}[5m]))'), "rate over [5m]"),
    "bare counter": (_expr('sum(x_total{service=~"$service"})'), "is a counter"),
    "unknown variable": (_expr('up{service=~"$servce"}'), "$servce is not a variable"),
    "one value only": (_expr('up{service="$service"}'), "fails for several values"),
    "unused variable": (
        lambda d: d["templating"]["list"].append({"name": "spare", "type": "custom"}),
        "variable 'spare' is not used",
    ),
    "same refId": (lambda d: _panel(d)["targets"].append(_panel(d)["targets"][0]), "is used 2 times"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_rule_finds_its_fault(fault: str) -> None:
    """A rule that never fires would let its fault through for ever."""
    change, finding = FAULTS[fault]
    document = copy.deepcopy(documents(Spec())["otelkit-overview"])
    change(document)
    assert any(finding in one for one in lint(document)), lint(document)


def test_unknown_metric_is_named_with_its_panel_and_a_suggestion() -> None:
    """A user would look at an empty panel without knowing that a name is misspelt."""
    document = copy.deepcopy(documents(Spec())["otelkit-overview"])
    _expr("otelkit_generation_in_flight")(document)
    (finding,) = unknown_metrics(document)
    assert "P99 by service" in finding
    assert "did you mean 'otelkit_generations_in_flight'" in finding


def test_metrics_are_judged_by_a_prometheus_where_one_is_given() -> None:
    """A metric that exists in otelkit but not in the Prometheus at hand would count as known."""
    document = copy.deepcopy(documents(Spec())["otelkit-overview"])
    _expr("otelkit_generations_in_flight")(document)
    findings = unknown_metrics(document, known={"otelkit_queue_depth"})
    assert any("'otelkit_generations_in_flight'" in finding for finding in findings)
