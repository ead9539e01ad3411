"""The rules that dashboards keep, and that each rule finds what it is there for."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from otelkit.dashboards import documents, lint, unknown_metrics
from otelkit.dashboards.queries import metrics_asked
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
    "no PromQL": (_expr('sum(({service=~"$service"})'), "is no PromQL"),
    "a plugin's panel": (lambda d: _panel(d).update(type="acme-panel"), "needs the plugin 'acme-panel'"),
    "a panel of old": (lambda d: _panel(d).update(type="graph"), "use grafanalib's TimeSeries"),
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


@pytest.mark.parametrize(
    ("expr", "fine"),
    [
        ("service:p99_time_to_first_chunk_seconds:quantile_1m", True),
        ("service:latency_seconds:rate30s", True),
        ("service_slo:burn_rate:ratio_1h", True),
        ("service:cpu_seconds:rate5m", True),
        ("node_load1 + my_otelkit_thing", True),
        ('up{x="otelkit_nothing"}', True),
        ("sum by (gen_ai_request_model) (up)", True),
        ("service:p99_latency_secs:quantile_1m", False),
        ("service:error:rate5m", False),
        ("gen_ai_client_operation_duration_secnds_count", False),
    ],
)
def test_only_slips_in_names_of_ours_are_refused(expr: str, fine: bool) -> None:
    """A dashboard over a user's own rules could not be generated, or a slip would be an empty panel."""
    document = copy.deepcopy(documents(Spec())["otelkit-overview"])
    _expr(expr)(document)
    assert (unknown_metrics(document) == []) is fine


@pytest.mark.parametrize(
    ("expr", "names"),
    [
        ("sum by (job) (rate(a_total{b='c'}[5m])) / on (job) group_left (x) d:e:f", {"a_total", "d:e:f"}),
        ("sum(a) by (b) > bool 1e5 and c offset 5m unless d @ end()", {"a", "c", "d"}),
        ('label_replace(a, "b", "$1", "c", "(d)") # e', {"a"}),
        ("max_over_time(vllm:num_requests_running[1h:5m]) * Inf", {"vllm:num_requests_running"}),
        ('{__name__=~"a.*"} + $metric + ${metric:raw}', set()),
    ],
)
def test_metrics_are_told_from_everything_else_in_a_query(expr: str, names: set[str]) -> None:
    """Labels and functions would be reported as metrics that nobody has."""
    assert metrics_asked(expr) == names


@pytest.mark.parametrize(
    "expr",
    ["$metric", "rate($metric[$__rate_interval])", "topk($n, up)", "x offset $ago", "sum(${metric:raw})",
     "1 - $objective", 'x{le="$bound"}', "avg_over_time(x[$__range:$__interval])", "[[metric]] > 1"],
)  # fmt: skip
def test_variables_are_no_faults_of_syntax(expr: str) -> None:
    """Every templated dashboard would be full of findings."""
    document = copy.deepcopy(documents(Spec())["otelkit-overview"])
    _expr(expr)(document)
    assert not any("no PromQL" in finding for finding in lint(document))
