"""Dashboard "Topology": which service calls which, and which models they call."""

from __future__ import annotations

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import CALLS, SERVICES
from otelkit.spec import Spec

_TO_MODEL = (semconv.LABEL_SERVICE, semconv.LABEL_PROVIDER, semconv.LABEL_MODEL)
_BETWEEN = (semconv.LABEL_CLIENT, semconv.LABEL_SERVER)
_OF_EDGE = (semconv.LABEL_ID, semconv.LABEL_SOURCE, semconv.LABEL_TARGET)
_MARKED_FROM = 0.05
_CALLS = f"{semconv.METRIC_OPERATION_DURATION}_count"
_FAILED = f'{CALLS}, {semconv.LABEL_ERROR}!=""'
_NO_EDGES = "No calls between services: neither calls of models nor Tempo's service graph"


def dashboard(spec: Spec) -> g.Dashboard:
    return shared.dashboard(
        shared.TOPOLOGY,
        "otelkit / Topology",
        "Which service calls which, and which models they call; where calls fail and where time goes. Calls "
        "of models "
        "come from otelkit's metrics, calls between services from Tempo's service graph.",
        [
            _graph(),
            _table(),
            _latency(),
            _errors(),
            _services_latency(),
        ],
        variables=[shared.service_variable(several=True), shared.model_variable(SERVICES)],
        annotations=shared.change_marks(SERVICES),
    )


def _with_ends(expr: str, source: str, *target: str) -> str:
    """Edges from a sum by the labels of its ends: fields id, source and target."""
    ends = promql.joined(promql.copied(expr, source, "source"), "target", "/", *target)
    return promql.joined(ends, semconv.LABEL_ID, " → ", "source", "target")


def _edges(model: str, between: str) -> str:
    """Both kinds of edges as one vector with the labels id, source and target."""
    models = _with_ends(model, semconv.LABEL_SERVICE, semconv.LABEL_PROVIDER, semconv.LABEL_MODEL)
    services = _with_ends(between, semconv.LABEL_CLIENT, semconv.LABEL_SERVER)
    return f"max by ({', '.join(_OF_EDGE)}) ({models} or {services})"


def _between(metric: str, by: tuple[str, ...] = _BETWEEN, over: str = "$__range") -> str:
    either = f'{semconv.LABEL_CLIENT}=~"$service"'
    return promql.rate(metric, either, by, over=over)


def _rates(over: str = "$__range") -> str:
    return _edges(
        promql.rate(_CALLS, CALLS, _TO_MODEL, over=over),
        _between(semconv.METRIC_SERVICE_GRAPH_REQUESTS, over=over),
    )


def _error_ratios(over: str = "$__range") -> str:
    failed = _edges(
        promql.rate(_CALLS, _FAILED, _TO_MODEL, over=over),
        _between(semconv.METRIC_SERVICE_GRAPH_FAILED, over=over),
    )
    rates = _rates(over)
    return f"({failed} or 0 * {rates}) / ({rates} > 0)"


def _p95(over: str = "$__range") -> str:
    model = promql.quantile(0.95, semconv.METRIC_OPERATION_DURATION, CALLS, _TO_MODEL, over=over)
    graph = f"{semconv.METRIC_SERVICE_GRAPH_DURATION}_bucket"
    between = f"histogram_quantile(0.95, {_between(graph, ('le', *_BETWEEN), over)})"
    return _edges(model, between)


def _node(edges: str, end: str) -> str:
    """Nodes from one end of the edges, summed."""
    node = promql.copied(f"sum by ({end}) ({edges})", end, semconv.LABEL_ID)
    titled = promql.copied(node, end, semconv.LABEL_TITLE)
    return f"sum by ({semconv.LABEL_ID}, {semconv.LABEL_TITLE}) ({titled})"


def _graph() -> g.Panel:
    rates, errors = _rates(), _error_ratios()
    nodes = f"{_node(rates, semconv.LABEL_TARGET)} or {_node(rates, semconv.LABEL_SOURCE)}"

    def coloured(expr: str) -> str:
        on = f"on ({semconv.LABEL_ID})"
        failing = promql.labelled(f"({expr}) and {on} ({errors} > {_MARKED_FROM})", "color", panels.RED)
        return f"{failing} or {on} {promql.labelled(expr, 'color', panels.GREY)}"

    return panels.node_graph(
        "Who calls whom",
        f"Calls per second and share of failed calls on each edge, over the span shown. Red: over "
        f"{_MARKED_FROM:.0%} fail; "
        "follow red edges to the last red one, that is where it starts.",
        {
            "nodes": {"mainstat": nodes},
            "edges": {"mainstat": coloured(rates), "secondarystat": coloured(errors)},
        },
        units=(("reqps", ""), ("reqps", "percentunit")),
        size=(24, 13),
        no_data=_NO_EDGES,
        links=[shared.runbook("Calls fail")],
    )


def _table() -> g.Panel:
    return panels.table(
        "Edges",
        "Over the span shown. The slowest edge under a slow service is where to look.",
        [
            panels.at_end(_rates(), "calls", table=True),
            panels.at_end(_error_ratios(), "failed", table=True),
            panels.at_end(_p95(), "p95", table=True),
        ],
        columns={
            semconv.LABEL_SOURCE: "From",
            semconv.LABEL_TARGET: "To",
            "Value #calls": "Calls per second",
            "Value #failed": "Failed",
            "Value #p95": "P95",
        },
        hidden=["Time", semconv.LABEL_ID],
        size=(24, 7),
        no_data=_NO_EDGES,
        sort_by=("P95", True),
        overrides=[
            panels.by_name("Calls per second", unit="reqps", decimals=2),
            panels.by_name(
                "Failed",
                unit="percentunit",
                decimals=2,
                custom__cellOptions={"type": "color-text"},
                thresholds={
                    "mode": "absolute",
                    "steps": [{"color": "text", "value": None}, {"color": panels.RED, "value": _MARKED_FROM}],
                },
            ),
            panels.by_name("P95", unit="s"),
        ],
    )


def _latency() -> g.Panel:
    return panels.timeseries(
        "P95 of each edge",
        "Latency as the caller sees it. An edge that rises with its caller's P99 carries the cause.",
        panels.queries(("{{id}}", _p95("$__rate_interval"))),
        unit="s",
        no_data=_NO_EDGES,
    )


def _errors() -> g.Panel:
    return panels.timeseries(
        "Failed calls on each edge",
        "Share of calls that failed. Over the dashed 5 % an edge is red in the graph.",
        panels.queries(("{{id}}", _error_ratios("$__rate_interval"))),
        unit="percentunit",
        steps=((None, "transparent"), (_MARKED_FROM, panels.RED)),
        no_data=_NO_EDGES,
        links=[shared.runbook("Calls fail")],
    )


def _services_latency() -> g.Panel:
    graph = f"{semconv.METRIC_SERVICE_GRAPH_DURATION}_bucket"
    p95 = f"histogram_quantile(0.95, {_between(graph, ('le', *_BETWEEN), '$__rate_interval')})"
    return panels.timeseries(
        "P95 between services (Tempo's service graph)",
        "As the called service sees it. Much lower than the caller's view of the same edge: the network or "
        "a queue.",
        panels.queries(("{{client}} → {{server}}", p95)),
        unit="s",
        size=(24, 7),
        no_data="No service graph: Tempo's metrics generator does not write to this Prometheus",
    )
