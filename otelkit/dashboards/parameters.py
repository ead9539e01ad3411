"""Dashboard "Parameter explorer": latency, first token, output length and entropy by a parameter's values."""

from __future__ import annotations

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import BY_SERVICE, CALLS_OF_ONE, ONE_SERVICE, Recorded
from otelkit.spec import Spec

_OUTPUT = f'{CALLS_OF_ONE}, {semconv.LABEL_TOKEN_TYPE}="output"'
_NO_VALUES = "This parameter did not change in this span: choose another or a longer span"


def dashboard(spec: Spec) -> g.Dashboard:
    recorded = Recorded.of(spec)
    p99 = recorded.quantile(0.99, ONE_SERVICE)
    first = promql.quantile(0.99, semconv.METRIC_TIME_TO_FIRST_CHUNK, CALLS_OF_ONE, BY_SERVICE)
    output = promql.mean(semconv.METRIC_TOKEN_USAGE, _OUTPUT, BY_SERVICE)
    entropy = promql.mean(semconv.METRIC_OUTPUT_ENTROPY, ONE_SERVICE, BY_SERVICE)
    return shared.dashboard(
        shared.PARAMETERS,
        "otelkit / Parameter explorer",
        "What the service was like at each value of one parameter. Values follow one another in time, so "
        "load may "
        "differ between them: the causal dashboard takes that off, this one does not.",
        [
            _values(),
            panels.row("By value over time"),
            _over_time(
                "P99",
                "A colour a value. Compare levels, and whether they changed with the colour.",
                p99,
                "s",
                shared.NO_RULES,
            ),
            _over_time(
                "First token, P99",
                "Moves with prompt length and queueing, not with sampling parameters.",
                first,
                "s",
                _NO_VALUES,
            ),
            _over_time(
                "Output tokens per call",
                "Mean. Where this follows the value, latency will too.",
                output,
                "short",
                _NO_VALUES,
            ),
            _over_time(
                "Entropy of the output",
                "Mean, in nats. Where it does not move with the value, the parameter is not at work.",
                entropy,
                "short",
                "No entropy: the provider returns no log probabilities, or the parameter did not change",
            ),
            panels.row("By value over the whole span"),
            _table(p99, first, output),
            _knee(p99, output),
        ],
        variables=[
            shared.service_variable(several=False),
            shared.model_variable(ONE_SERVICE),
            shared.variable(
                "parameter",
                "Parameter",
                f"label_values({semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP}{{{ONE_SERVICE}}}, "
                f"{semconv.LABEL_PARAMETER})",
            ),
        ],
        annotations=shared.change_marks(ONE_SERVICE),
        span="now-3h",
    )


def _values() -> g.Panel:
    return panels.state_timeline(
        "Value of $parameter in effect",
        "A lane a value, coloured while the service ran with it.",
        [panels.query(promql.in_effect(), "{{value}}")],
        steps=((None, "transparent"), (1, panels.BLUE)),
        size=(24, 5),
        no_data=_NO_VALUES,
    )


def _over_time(title: str, description: str, expr: str, unit: str, no_data: str) -> g.Panel:
    return panels.timeseries(
        f"{title} by $parameter",
        description,
        panels.queries(("{{value}}", promql.by_value(expr))),
        unit=unit,
        no_data=no_data,
    )


def _average(expr: str) -> str:
    """Mean by value over the span shown; steps without traffic (NaN) are left out."""
    return f"avg_over_time(({promql.by_value(f'({expr}) >= 0')})[$__range:$__rate_interval])"


def _table(p99: str, first: str, output: str) -> g.Panel:
    calls = promql.rate(f"{semconv.METRIC_OPERATION_DURATION}_count", CALLS_OF_ONE, BY_SERVICE)
    columns = {"p99": p99, "first": first, "output": output, "calls": calls}
    return panels.table(
        "By value",
        "Means over the time that each value was in effect. Mind the load column: values seen at different "
        "load "
        "are not comparable.",
        [panels.at_end(_average(expr), ref, table=True) for ref, expr in columns.items()],
        columns={
            "value": "Value",
            "Value #p99": "P99",
            "Value #first": "First token, P99",
            "Value #output": "Output tokens per call",
            "Value #calls": "Calls per second",
        },
        hidden=["Time", semconv.LABEL_SERVICE],
        size=(12, 9),
        no_data=_NO_VALUES,
        overrides=[
            panels.by_name("P99", unit="s"),
            panels.by_name("First token, P99", unit="s"),
            panels.by_name("Output tokens per call", unit="short", decimals=1),
            panels.by_name("Calls per second", unit="reqps", decimals=2),
        ],
    )


def _knee(p99: str, output: str) -> g.Panel:
    return panels.trend(
        "The knee: what a higher value buys, and what it costs",
        "For parameters that are numbers. Output tokens per call (left) and P99 (right) over the value. "
        "Where the left "
        "curve flattens, answers end by themselves: more max tokens buys nothing but a longer tail.",
        [
            panels.at_end(_average(output), "output", table=True),
            panels.at_end(_average(p99), "p99", table=True),
        ],
        x="value",
        unit="short",
        size=(12, 9),
        no_data=_NO_VALUES,
        transformations=[
            {"id": "merge", "options": {}},
            {
                "id": "convertFieldType",
                "options": {
                    "conversions": [{"targetField": "value", "destinationType": "number"}],
                    "fields": {},
                },
            },
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "value"}]}},
            panels.organize(
                {
                    "value": "value",
                    "Value #output": "Output tokens per call",
                    "Value #p99": "P99",
                },
                ["Time", semconv.LABEL_SERVICE],
            ),
        ],
        overrides=[
            panels.by_name("P99", unit="s", custom__axisPlacement="right", color=panels.fixed(panels.RED))
        ],
    )
