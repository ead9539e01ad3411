"""What all dashboards have in common: uids, variables, links among them, and the marks of parameter
changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attr
from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import grafana, panels, promql
from otelkit.dashboards.runbooks import sections

CAUSAL: Final = "otelkit-causal"
OVERVIEW: Final = "otelkit-overview"
TOKEN_STEPS: Final = "otelkit-token-steps"
PARAMETERS: Final = "otelkit-parameters"
TOPOLOGY: Final = "otelkit-topology"
ITSELF: Final = "otelkit-itself"
RUNBOOK: Final = "otelkit-runbook"
TAG: Final = "otelkit"

NO_CALLS: Final = "No calls: nothing is scraped with these names, or the variables above select nothing"
NO_VERDICTS: Final = "No verdicts: the analyser is not scraped, or has not judged this service yet"
NO_CHANGES: Final = "No parameter change in this span"
NO_RULES: Final = "No recorded series: load the rules that otelkit generate rules writes"

VERDICT_COLOURS: Final = {
    "causal": panels.RED,
    "correlated only": panels.ORANGE,
    "cannot separate": panels.YELLOW,
    "no effect": panels.GREEN,
    semconv.VERDICT_TOO_EARLY: panels.BLUE,
    promql.NOT_JUDGED: panels.GREY,
}


def datasource_variables() -> list[g.Template]:
    """Which Prometheus, and which Tempo traces open in."""
    return [
        variable("datasource", "Prometheus", "prometheus", kind="datasource", default="prometheus"),
        variable("tempo", "Tempo", "tempo", kind="datasource", default="tempo"),
    ]


def service_variable(*, several: bool) -> g.Template:
    """Services that have latency, whatever kind of service they are, or calls of a model."""
    names = f'{{__name__=~"{semconv.recorded_quantile(0.99)}.*|{semconv.METRIC_OPERATION_DURATION}_count"}}'
    return variable("service", "Service", f"label_values({names}, {semconv.LABEL_SERVICE})", several=several)


def model_variable(service: str) -> g.Template:
    calls = f"{semconv.METRIC_OPERATION_DURATION}_count{{{service}}}"
    return variable("model", "Model", f"label_values({calls}, {semconv.LABEL_MODEL})", several=True)


def bound_variable(name: str, label: str, histogram: str, default: str) -> g.Template:
    """A bucket bound of a histogram, in seconds."""
    finite = "/^(?!.*Inf).*$/"
    return attr.evolve(
        variable(name, label, f"label_values({histogram}_bucket, le)", default=default),
        regex=finite,
        sort=g.SORT_NUMERIC_ASC,
    )


def choice_variable(name: str, label: str, options: Sequence[str], default: str) -> g.Template:
    """One of a fixed list."""
    return g.Template(name=name, label=label, query=",".join(options), default=default, type="custom")


def variable(
    name: str,
    label: str,
    query: str,
    *,
    kind: str = "query",
    several: bool = False,
    default: str | None = None,
) -> g.Template:
    template = g.Template(
        name=name,
        label=label,
        query=query,
        type=kind,
        dataSource=panels.DATASOURCE if kind == "query" else None,
        default=default,
        multi=several,
        includeAll=several,
        allValue=".*" if several else None,
        refresh=g.REFRESH_ON_TIME_RANGE_CHANGE if kind == "query" else g.REFRESH_ON_DASHBOARD_LOAD,
    )
    if several:
        template._current = {"text": ["All"], "value": ["$__all"]}
    elif default is None:
        template._current = {}
    else:
        template._current = {"text": default, "value": default}
    return template


def change_marks(service: str, *, judged: bool = False) -> g.Annotations:
    """Parameter changes as annotations.

    Args:
        judged: colour them by the analyser's verdict, for a dashboard of one service.
    """
    if not judged:
        times = promql.newest(
            semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP, service, (semconv.LABEL_SERVICE, *promql.OF_CHANGE)
        )
        return g.Annotations(list=[_mark("Parameter changes", f"1000 * {times}", "blue", "{{service}}")])
    marks = []
    for verdict, colour in VERDICT_COLOURS.items():
        # A filter on the joined label: equality of the verdict's text.
        expr = f"1000 * ({promql.changes_with_verdict(only=verdict)})"
        marks.append(_mark(f"Changes: {verdict}", expr, colour, "{{verdict}}"))
    return g.Annotations(list=marks)


def _mark(name: str, expr: str, colour: str, text: str) -> grafana.PrometheusAnnotation:
    return grafana.PrometheusAnnotation(
        name=name,
        expr=expr,
        dataSource=panels.DATASOURCE,
        titleFormat="{{parameter}} {{old}} → {{new}}",
        textFormat=f"{text} {{{{scope}}}}",
        tagKeys=f"{semconv.LABEL_PARAMETER}",
        iconColor=colour,
        useValueForTime=True,
    )


def links() -> list[g.DashboardLink]:
    """To the other dashboards, for the same service and span."""
    return [
        g.DashboardLink(
            title="otelkit", tags=[TAG], type="dashboards", asDropdown=True, includeVars=True, keepTime=True
        )
    ]


def runbook(section: str) -> g.DataLink:
    """Link to a section of the runbook."""
    panel = list(sections()).index(section) + 1
    return g.DataLink(title=f"Runbook: {section}", linkUrl=f"/d/{RUNBOOK}?viewPanel={panel}")


def open_dashboard(uid: str, title: str, *, service: str = "${__field.labels.service}") -> g.DataLink:
    """Link from a point or cell to another dashboard, for the service that the point belongs to."""
    url = f"/d/{uid}?var-service={service}&var-datasource=${{datasource}}&${{__url_time_range}}"
    return g.DataLink(title=title, linkUrl=url)


def dashboard(
    uid: str,
    title: str,
    description: str,
    content: Sequence[g.Panel],
    *,
    variables: Sequence[g.Template],
    annotations: g.Annotations | None = None,
    span: str = "now-1h",
    refresh: str = "30s",
) -> g.Dashboard:
    return g.Dashboard(
        uid=uid,
        title=title,
        description=description,
        tags=[TAG],
        timezone="browser",
        time=g.Time(span, "now"),
        refresh=refresh,
        graphTooltip=g.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
        links=links(),
        templating=g.Templating(list=[*datasource_variables(), *variables]),
        annotations=annotations or g.Annotations(list=[]),
        panels=panels.placed(content),
    )
