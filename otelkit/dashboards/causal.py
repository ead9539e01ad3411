"""Dashboard "Causal": which parameter change moved P99, by how much, and through what."""

from __future__ import annotations

from typing import Final

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import CALLS_OF_ONE, CHANGE_AND_VERDICT, ONE_SERVICE, Recorded
from otelkit.spec import Spec

_EFFECT: Final = {
    "effect": semconv.METRIC_CHANGE_EFFECT,
    "low": semconv.METRIC_CHANGE_EFFECT_LOW,
    "high": semconv.METRIC_CHANGE_EFFECT_HIGH,
    "lag": semconv.METRIC_CHANGE_LAG,
    "r": semconv.METRIC_CHANGE_PEARSON_R,
    "q": semconv.METRIC_CHANGE_Q_VALUE,
    "threshold": semconv.METRIC_CHANGE_THRESHOLD,
    "crossed": semconv.METRIC_CHANGE_CROSSED,
}
_COLUMNS: Final = {
    "Value #at": "Changed",
    semconv.LABEL_PARAMETER: "Parameter",
    semconv.LABEL_OLD: "Old",
    semconv.LABEL_NEW: "New",
    semconv.LABEL_VERDICT: "Verdict",
    "Value #effect": "Effect on P99",
    "Value #low": "at least",
    "Value #high": "at most",
    "Value #lag": "Lag",
    "Value #r": "r",
    "Value #q": "q",
    "Value #threshold": "Threshold",
    "Value #crossed": "Crossed",
    semconv.LABEL_SCOPE: "Where",
}


def dashboard(spec: Spec) -> g.Dashboard:
    recorded = Recorded.of(spec)
    return shared.dashboard(
        shared.CAUSAL,
        "otelkit / Causal: parameters against latency",
        "Which parameter change moved this service's P99, by how much and through what. "
        "Start with the verdict table; the curves above it show the same changes in time.",
        [
            *_figures(recorded),
            panels.row("P99 and the changes"),
            _main(recorded),
            _shift(recorded),
            _before_and_after(recorded),
            panels.row("Verdicts"),
            _verdicts(),
            _graph(),
            _mechanism(),
            panels.row("Where to look on"),
            _activity(),
            _exemplars(),
        ],
        variables=[
            shared.service_variable(several=False),
            shared.model_variable(ONE_SERVICE),
            shared.choice_variable(
                "compare", "Compare with", ("3m", "10m", "30m", "1h", "6h", "1d", "7d"), "30m"
            ),
        ],
        annotations=shared.change_marks(ONE_SERVICE, judged=True),
    )


def _figures(recorded: Recorded) -> list[g.Panel]:
    def figure(metric: str) -> str:
        return promql.newest(metric, ONE_SERVICE, promql.BY_SERVICE)

    before, after = figure(semconv.METRIC_P99_BEFORE), figure(semconv.METRIC_P99_AFTER)
    causal = f'{semconv.METRIC_CHANGE_VERDICT}{{{ONE_SERVICE}, verdict="causal"}}'
    grows = ((None, panels.GREEN), (0.05, panels.ORANGE), (0.25, panels.RED))
    return [
        panels.stat(
            "P99 now",
            f"Over the last {recorded.window}. If it is up, the tiles to the right say since when and why.",
            recorded.quantile(0.99, ONE_SERVICE),
            unit="s",
            curve=True,
            no_data="No P99",
        ),
        panels.stat(
            "Before it moved",
            "P99 before its largest movement in the analysed span.",
            before,
            unit="s",
            no_data="Not known",
        ),
        panels.stat(
            "After",
            "P99 after its largest movement in the analysed span.",
            after,
            unit="s",
            no_data="Not known",
        ),
        panels.stat(
            "Movement",
            "Relative movement of P99. Red from a quarter: revert the top change of the table, or raise "
            "capacity.",
            f"({after} - {before}) / {before}",
            unit="percentunit",
            steps=grows,
            no_data="Not known",
        ),
        panels.stat(
            "Causal changes",
            "Changes judged to have moved P99. None although P99 moved: look at load and at the services "
            "called.",
            f"count({causal}) or vector(0)",
            unit="none",
            steps=((None, panels.GREEN), (1, panels.RED)),
            no_data="0",
        ),
        panels.stat(
            "Unexplained",
            "What is left of the movement once causal changes are taken off. "
            "Large: something that otelkit does not see moved P99; compare load, errors and deployments.",
            figure(semconv.METRIC_P99_UNEXPLAINED),
            unit="s",
            no_data="Not known",
        ),
    ]


def _main(recorded: Recorded) -> g.Panel:
    counterfactual = promql.newest(semconv.METRIC_P99_COUNTERFACTUAL, ONE_SERVICE, promql.BY_SERVICE)
    changes = f"sum by ({semconv.LABEL_PARAMETER}) ({semconv.RECORDED_CHANGES}{{{ONE_SERVICE}}})"
    bars = {
        "unit": "short",
        "custom__drawStyle": "bars",
        "custom__fillOpacity": 35,
        "custom__lineWidth": 0,
        "custom__axisPlacement": "right",
        "custom__axisLabel": "changes in 5 min",
        "custom__stacking": {"mode": "normal", "group": "changes"},
        "decimals": 0,
        "min": 0,
        "custom__axisSoftMax": 4,
    }
    return panels.timeseries(
        "P99 against parameter changes",
        "Latency on the left axis, changes per parameter over five minutes on the right; a mark for each "
        "change "
        "says old → new and its verdict. P99 that leaves the dashed line did so because of causal changes.",
        panels.queries(
            ("P99", recorded.quantile(0.99, ONE_SERVICE)),
            ("P95", recorded.quantile(0.95, ONE_SERVICE)),
            ("P50", recorded.quantile(0.5, ONE_SERVICE)),
            ("P99 without causal changes", counterfactual),
            ("{{parameter}}", changes),
        ),
        unit="s",
        size=(24, 11),
        no_data=shared.NO_RULES,
        overrides=[
            panels.by_query("A", color=panels.fixed(panels.RED), custom__lineWidth=3),
            panels.by_query("B", color=panels.fixed(panels.ORANGE)),
            panels.by_query("C", color=panels.fixed(panels.BLUE)),
            panels.by_query(
                "D",
                color=panels.fixed(panels.RED),
                custom__lineStyle={"fill": "dash", "dash": [8, 8]},
                custom__fillOpacity=0,
            ),
            panels.by_query("E", **bars),
        ],
        links=[shared.runbook("P99 moved after a change")],
    )


def _shift(recorded: Recorded) -> g.Panel:
    # P99 is NaN while no call ends; one NaN would make the mean of three minutes NaN.
    known = f"({recorded.quantile(0.99, ONE_SERVICE)} >= 0)[3m:{recorded.step}]"
    shift = f"avg_over_time({known} offset -3m) - avg_over_time({known})"
    return panels.timeseries(
        "Shift of P99 within ±3 minutes",
        "At each moment: mean P99 of the three minutes after it less that of the three minutes before. "
        "A peak at a mark is a shift at that change; a peak without a mark is not a parameter change.",
        panels.queries(("after - before", shift)),
        unit="s",
        no_data=shared.NO_RULES,
        axisSoftMin=None,
        overrides=[panels.by_query("A", color=panels.fixed("purple"))],
        links=[shared.runbook("P99 moved after a change")],
    )


def _before_and_after(recorded: Recorded) -> g.Panel:
    p99 = recorded.quantile(0.99, ONE_SERVICE)
    return panels.timeseries(
        "P99 now and before",
        "The same curve, as it was the chosen time ago (Compare with) and as it is now: put the change "
        "between them.",
        panels.queries(("now", p99), ("$compare ago", f"{p99} offset $compare")),
        unit="s",
        no_data=shared.NO_RULES,
        overrides=[
            panels.by_query("A", color=panels.fixed(panels.RED)),
            panels.by_query("B", color=panels.fixed(panels.GREY)),
        ],
    )


def _verdicts() -> g.Panel:
    targets = [panels.at_end(f"1000 * ({promql.changes_with_verdict()})", "at", table=True)]
    targets += [
        panels.at_end(promql.newest(metric, ONE_SERVICE, CHANGE_AND_VERDICT), ref, table=True)
        for ref, metric in _EFFECT.items()
    ]
    seconds = {"unit": "s"}
    return panels.table(
        "Verdict on each change",
        "Causal: it moved P99; revert it or accept the price. Correlated only: something else did, do not "
        "revert. "
        "No effect: one as large as the margin is improbable. Cannot separate: repeat one change at a time. "
        "q is the false-discovery rate, r is shown but never decides. Crossed: this change "
        "moved P99 by the threshold for its kind; empty where that can't be said.",
        targets,
        columns=_COLUMNS,
        hidden=["Time", semconv.LABEL_CHANGE_ID],
        no_data=shared.NO_CHANGES,
        sort_by=("Effect on P99", True),
        overrides=[
            panels.by_name("Changed", unit="dateTimeAsIso"),
            panels.by_name(
                "Verdict",
                custom__cellOptions={"type": "color-text"},
                mappings=panels.values(shared.VERDICT_COLOURS),
            ),
            panels.by_name("Effect on P99", **seconds),
            panels.by_name("at least", **seconds),
            panels.by_name("at most", **seconds),
            panels.by_name("Threshold", **seconds),
            panels.by_name("Lag", unit="s", decimals=0),
            panels.by_name("r", decimals=2),
            panels.by_name("q", decimals=3),
            panels.by_name(
                "Crossed",
                mappings=[
                    {
                        "type": "value",
                        "options": {
                            "0": {"text": "no", "index": 0},
                            "1": {"text": "yes", "color": panels.RED, "index": 1},
                        },
                    }
                ],
                custom__cellOptions={"type": "color-text"},
            ),
        ],
        links=[
            g.DataLink(
                title="Latency by this parameter's values",
                linkUrl=f"/d/{shared.PARAMETERS}?var-service=${{service}}"
                "&var-parameter=${__data.fields.Parameter}&${__url_time_range}",
            )
        ],
    )


def _graph() -> g.Panel:
    node = promql.newest(semconv.METRIC_CAUSAL_NODE, ONE_SERVICE, promql.NODE_LABELS)
    edge = promql.newest(semconv.METRIC_CAUSAL_EDGE, ONE_SERVICE, promql.EDGE_LABELS)
    confidence = promql.newest(semconv.METRIC_CAUSAL_EDGE_CONFIDENCE, ONE_SERVICE, promql.EDGE_LABELS)
    share = f"abs({edge}) / on () group_left () max(abs({edge}))"
    # One label more on the edges' first query only would keep the three from merging, so the colour is on
    # each.
    coloured = [_edge_colour(expr, edge, confidence) for expr in (edge, confidence, f"1 + 9 * {share}")]
    return panels.node_graph(
        "Causal graph",
        "From parameters through mechanisms to P99. An edge's number is the part of the effect that goes "
        "through it, "
        "its thickness the size, its colour how sure and which way: red slows down, green speeds up, grey "
        "is unsure.",
        {
            "nodes": {"mainstat": _node_colour(node)},
            "edges": dict(zip(("mainstat", "secondarystat", "thickness"), coloured, strict=True)),
        },
        units=(("s", ""), ("s", "percentunit")),
        size=(14, 13),
        no_data=shared.NO_VERDICTS,
        links=[shared.runbook("P99 moved after a change")],
    )


def _edge_colour(expr: str, edge: str, confidence: str) -> str:
    on = f"on ({semconv.LABEL_ID})"
    sure = f"({expr}) and {on} ({confidence} >= 0.95)"
    slower = promql.labelled(f"({sure}) and {on} ({edge} > 0)", "color", panels.RED)
    faster = promql.labelled(f"({sure}) and {on} ({edge} <= 0)", "color", panels.GREEN)
    return f"{slower} or {on} {faster} or {on} {promql.labelled(expr, 'color', panels.GREY)}"


def _node_colour(node: str) -> str:
    coloured = node
    for (label, value), colour in {
        (semconv.LABEL_KIND, "parameter"): panels.GREY,
        (semconv.LABEL_KIND, "mechanism"): "purple",
        (semconv.LABEL_KIND, "service"): panels.BLUE,
        (semconv.LABEL_VERDICT, "causal"): panels.RED,
        (semconv.LABEL_VERDICT, "correlated only"): panels.ORANGE,
        (semconv.LABEL_VERDICT, "no effect"): panels.GREEN,
        (semconv.LABEL_VERDICT, "cannot separate"): panels.YELLOW,
    }.items():
        coloured = f'label_replace({coloured}, "color", "{colour}", "{label}", "{value}")'
    return coloured


def _mechanism() -> g.Panel:
    by = (semconv.LABEL_PARAMETER, semconv.LABEL_OLD, semconv.LABEL_NEW, semconv.LABEL_MECHANISM)
    parts = f'sum by ({", ".join(by)}) ({semconv.METRIC_CHANGE_MECHANISM}{{{ONE_SERVICE}, verdict="causal"}})'
    values = promql.joined(parts, "values", " → ", semconv.LABEL_OLD, semconv.LABEL_NEW)
    change = promql.joined(values, "change", " ", semconv.LABEL_PARAMETER, "values")
    return panels.bar_chart(
        "Through what: effect of causal changes by mechanism",
        "Longer outputs: cap them. Slower tokens or queueing: capacity. Later first token: prompt length or "
        "prefill. "
        "Not split: the part for which no path was found.",
        [panels.at_end(f"sum by (change, {semconv.LABEL_MECHANISM}) ({change})", table=True)],
        transformations=[
            {
                "id": "groupingToMatrix",
                "options": {
                    "columnField": semconv.LABEL_MECHANISM,
                    "rowField": "change",
                    "valueField": "Value",
                },
            }
        ],
        stacked=True,
        unit="s",
        size=(10, 13),
        overrides=[panels.by_name("not_split", color=panels.fixed(panels.GREY))],
        no_data="No causal change, or its effect could not be split",
    )


def _activity() -> g.Panel:
    return panels.state_timeline(
        "Parameter activity",
        "A lane a parameter, coloured while it changed in the last five minutes. Overlapping colours: "
        "changes that may not be separable.",
        [
            panels.query(
                f"sum by ({semconv.LABEL_PARAMETER}) ({semconv.RECORDED_CHANGES}{{{ONE_SERVICE}}})",
                "{{parameter}}",
            )
        ],
        steps=((None, "transparent"), (1, panels.BLUE), (2, panels.ORANGE), (5, panels.RED)),
        size=(12, 8),
        no_data=shared.NO_CHANGES,
    )


def _exemplars() -> g.Panel:
    by = (semconv.LABEL_MODEL,)
    p99 = promql.quantile(0.99, semconv.METRIC_OPERATION_DURATION, CALLS_OF_ONE, by)
    return panels.timeseries(
        "P99 by model, with traces",
        "From the raw histogram, so that its exemplars open traces: pick one before a change and one after "
        "it.",
        [panels.query(p99, "{{gen_ai_request_model}}", exemplar=True)],
        unit="s",
        no_data=shared.NO_CALLS,
    )
