"""Dashboard "Service overview": load, errors, latency and tokens of the chosen services."""

from __future__ import annotations

from typing import Final

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import BY_SERVICE, CALLS, SERVICES, Recorded
from otelkit.spec import Spec

_BURN_FAST: Final = 14.4
"""Spends 2 % of a 30-day budget in an hour."""
_BURN_SLOW: Final = 6.0
"""Spends 5 % of it in six hours."""


def dashboard(spec: Spec) -> g.Dashboard:
    recorded = Recorded.of(spec)
    objective = shared.choice_variable(
        "objective", "Success objective", ("0.9", "0.99", "0.995", "0.999"), "0.99"
    )
    return shared.dashboard(
        shared.OVERVIEW,
        "otelkit / Service overview",
        "Load, errors, latency and tokens. Pick a service in the table for the causes behind its P99.",
        [
            *_figures(),
            panels.row("Latency"),
            _quantiles(),
            _p99_by_service(recorded),
            _first_token(),
            _per_token(),
            panels.row("Load and errors"),
            _requests(recorded),
            _in_flight(),
            _error_ratio(recorded),
            _errors_by_type(),
            panels.row("Tokens"),
            _tokens(),
            _output_length(),
            panels.row("Objectives"),
            _burn(spec, recorded),
            _slow_share(),
            panels.row("All services"),
            _services(),
            _slowest(),
        ],
        variables=[
            shared.service_variable(several=True),
            shared.model_variable(SERVICES),
            *([] if _has_objectives(spec) else [objective]),
            shared.bound_variable("slow", "Slow from (s)", semconv.METRIC_OPERATION_DURATION, "1.28"),
        ],
        annotations=shared.change_marks(SERVICES),
    )


def _figures() -> list[g.Panel]:
    calls = f"{semconv.METRIC_OPERATION_DURATION}_count"
    failed = promql.rate(calls, f'{CALLS}, {semconv.LABEL_ERROR}!=""')
    ended = promql.rate(calls, CALLS)
    return [
        panels.stat(
            "Calls per second",
            "Calls that ended. A fall with rising in-flight calls is saturation, not less demand.",
            ended,
            unit="reqps",
            curve=True,
            no_data="No calls",
        ),
        panels.stat(
            "Failed",
            "Share of calls that failed. Over 5 %: see errors by type below.",
            f"({failed} or vector(0)) / ({ended} > 0)",
            unit="percentunit",
            curve=True,
            decimals=2,
            steps=((None, panels.GREEN), (0.01, panels.ORANGE), (0.05, panels.RED)),
            no_data="No calls",
        ),
        panels.stat(
            "P99",
            "Of the selection as a whole. Up: open the causal dashboard of the slowest service in the table.",
            promql.quantile(0.99, semconv.METRIC_OPERATION_DURATION, CALLS),
            unit="s",
            curve=True,
            no_data="No calls",
        ),
        panels.stat(
            "First token, P99",
            "Of streamed calls. Up while time per token is not: longer prompts, prefill, or queueing.",
            promql.quantile(0.99, semconv.METRIC_TIME_TO_FIRST_CHUNK, CALLS),
            unit="s",
            curve=True,
            no_data="No streamed calls",
        ),
        panels.stat(
            "Output tokens/s",
            "Of all calls together. Flat at its usual peak while calls queue: the model is at its limit.",
            promql.rate(f"{semconv.METRIC_TOKEN_USAGE}_sum", f'{CALLS}, {semconv.LABEL_TOKEN_TYPE}="output"'),
            unit="short",
            curve=True,
            decimals=0,
            no_data="No token counts",
        ),
        panels.stat(
            "In flight",
            "Calls begun that have not ended. Growing without end: requests arrive faster than they are "
            "served.",
            f"sum({semconv.METRIC_GENERATIONS_IN_FLIGHT}{{{SERVICES}}})",
            unit="none",
            curve=True,
            no_data="No calls",
        ),
    ]


def _quantiles() -> g.Panel:
    return panels.timeseries(
        "Latency of the selection, with traces",
        "From summed buckets of all chosen services. Points are traces of single calls: open one on a peak.",
        panels.queries(
            *(
                (f"P{q * 100:g}", promql.quantile(q, semconv.METRIC_OPERATION_DURATION, CALLS))
                for q in reversed(semconv.RECORDED_QUANTILES)
            ),
            exemplar=True,
        ),
        unit="s",
        no_data=shared.NO_CALLS,
        links=[shared.runbook("P99 moved after a change")],
    )


def _p99_by_service(recorded: Recorded) -> g.Panel:
    return panels.timeseries(
        "P99 by service",
        "Recorded series. One service up alone: its own change. Several together: something they share.",
        panels.queries(("{{service}}", recorded.quantile(0.99, SERVICES))),
        unit="s",
        no_data=shared.NO_RULES,
        links=[shared.open_dashboard(shared.CAUSAL, "What moved its P99")],
    )


def _first_token() -> g.Panel:
    return panels.timeseries(
        "Time to first token",
        "Of streamed calls. It grows with prompt length and queueing, not with output length.",
        panels.queries(
            ("P99", promql.quantile(0.99, semconv.METRIC_TIME_TO_FIRST_CHUNK, CALLS)),
            ("P50", promql.quantile(0.5, semconv.METRIC_TIME_TO_FIRST_CHUNK, CALLS)),
            exemplar=True,
        ),
        unit="s",
        no_data=shared.NO_CALLS,
        links=[shared.runbook("The first token comes late")],
    )


def _per_token() -> g.Panel:
    return panels.timeseries(
        "Time per token",
        "Between one token step and the next. Up for all services of a model: the model's server is short "
        "of capacity.",
        panels.queries(
            ("P99", promql.quantile(0.99, semconv.METRIC_TIME_PER_OUTPUT_CHUNK, CALLS)),
            ("P50", promql.quantile(0.5, semconv.METRIC_TIME_PER_OUTPUT_CHUNK, CALLS)),
            exemplar=True,
        ),
        unit="s",
        no_data=shared.NO_CALLS,
        links=[shared.open_dashboard(shared.TOKEN_STEPS, "Token steps", service="${service}")],
    )


def _requests(recorded: Recorded) -> g.Panel:
    return panels.timeseries(
        "Calls per second by service",
        "Calls that ended, recorded. A step here at the time of a latency change: look at load before "
        "parameters.",
        panels.queries(("{{service}}", recorded.per_second(semconv.RECORDED_REQUESTS, SERVICES))),
        unit="reqps",
        no_data=shared.NO_RULES,
    )


def _in_flight() -> g.Panel:
    return panels.timeseries(
        "In flight by service",
        "Calls begun that have not ended. Latency times rate, when all is steady; a ramp is a queue that "
        "grows.",
        panels.queries(
            (
                "{{service}}",
                f"sum by ({semconv.LABEL_SERVICE}) ({semconv.METRIC_GENERATIONS_IN_FLIGHT}{{{SERVICES}}})",
            )
        ),
        unit="short",
        no_data=shared.NO_CALLS,
        links=[shared.runbook("Calls queue up")],
    )


def _error_ratio(recorded: Recorded) -> g.Panel:
    return panels.timeseries(
        "Failed calls by service",
        "Share of calls that failed, recorded. Over the dashed 5 %: see which errors beside it.",
        panels.queries(("{{service}}", recorded.per_second(semconv.RECORDED_ERROR_RATIO, SERVICES))),
        unit="percentunit",
        steps=((None, "transparent"), (0.05, panels.RED)),
        no_data=shared.NO_RULES,
        links=[shared.runbook("Calls fail")],
    )


def _errors_by_type() -> g.Panel:
    by = (semconv.LABEL_SERVICE, semconv.LABEL_ERROR)
    errors = promql.rate(
        f"{semconv.METRIC_OPERATION_DURATION}_count", f'{CALLS}, {semconv.LABEL_ERROR}!=""', by
    )
    return panels.timeseries(
        "Errors by type",
        "Failed calls per second. Rate limits: fewer retries or a higher limit. Timeouts: latency came "
        "first.",
        panels.queries(("{{service}} {{error_type}}", errors)),
        unit="reqps",
        no_data="No call failed in this span",
        links=[shared.runbook("Calls fail")],
    )


def _tokens() -> g.Panel:
    by = (semconv.LABEL_TOKEN_TYPE,)
    return panels.timeseries(
        "Tokens per second",
        "Input and output tokens of the selection. What the model's server has to work through.",
        panels.queries(
            ("{{gen_ai_token_type}}", promql.rate(f"{semconv.METRIC_TOKEN_USAGE}_sum", CALLS, by))
        ),
        unit="short",
        no_data="No token counts: the provider does not report usage",
    )


def _output_length() -> g.Panel:
    output = f'{CALLS}, {semconv.LABEL_TOKEN_TYPE}="output"'
    return panels.timeseries(
        "Output tokens per call",
        "Mean by service. Longer answers are the commonest reason for a higher P99 after a parameter change.",
        panels.queries(("{{service}}", promql.mean(semconv.METRIC_TOKEN_USAGE, output, BY_SERVICE))),
        unit="short",
        no_data="No token counts: the provider does not report usage",
        links=[shared.open_dashboard(shared.PARAMETERS, "By parameter value")],
    )


def _burn(spec: Spec, recorded: Recorded) -> g.Panel:
    """By the spec's objectives where it states any, else by the one chosen in the dashboard."""
    windows = ("5m", "1h", "6h")
    if _has_objectives(spec):
        by = f"max by ({semconv.LABEL_SERVICE}, {semconv.LABEL_SLO})"
        pairs = [
            (
                f"{{{{service}}}} {{{{slo}}}} over {window}",
                f"{by} ({semconv.recorded_burn_rate(window)}{{{SERVICES}}})",
            )
            for window in windows
        ]
    else:
        pairs = [
            (f"over {window}", f"max(({recorded.error_share(SERVICES, window)}) / (1 - $objective))")
            for window in windows
        ]
    return panels.timeseries(
        "Burn rate of the error budget",
        "How many times faster than the objective allows the budget is spent (without objectives in "
        "otelkit.yaml: "
        "of the worst service, by the objective chosen above); 1 spends exactly all of it. "
        f"Over {_BURN_FAST:g} in 5 min and 1 h: act now. Over {_BURN_SLOW:g} in 6 h: act today.",
        panels.queries(*pairs),
        unit="short",
        steps=((None, "transparent"), (_BURN_SLOW, panels.ORANGE), (_BURN_FAST, panels.RED)),
        no_data=shared.NO_RULES,
        links=[shared.runbook("Calls fail")],
    )


def _has_objectives(spec: Spec) -> bool:
    return bool(spec.slos) or any(service.slos for service in spec.services)


def _slow_share() -> g.Panel:
    slow = promql.slower_than("$slow", semconv.METRIC_OPERATION_DURATION, CALLS, BY_SERVICE)
    return panels.timeseries(
        "Calls slower than $slow s",
        "Share by service, exact since it is a bucket bound. Choose the bound nearest to your objective "
        "above.",
        panels.queries(("{{service}}", slow)),
        unit="percentunit",
        no_data=shared.NO_CALLS,
        links=[shared.open_dashboard(shared.CAUSAL, "What moved its P99")],
    )


def _services() -> g.Panel:
    span = "$__range"
    calls = f"{semconv.METRIC_OPERATION_DURATION}_count"
    ended = promql.rate(calls, CALLS, BY_SERVICE, over=span)
    failed = promql.rate(calls, f'{CALLS}, {semconv.LABEL_ERROR}!=""', BY_SERVICE, over=span)
    output = f'{CALLS}, {semconv.LABEL_TOKEN_TYPE}="output"'
    changes = promql.newest(
        semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP, SERVICES, (*BY_SERVICE, semconv.LABEL_CHANGE_ID)
    )
    return panels.table(
        "Services",
        "Over the whole span shown. Click a service for the causes behind its P99.",
        [
            panels.at_end(ended, "calls", table=True),
            panels.at_end(f"({failed} or 0 * {ended}) / ({ended} > 0)", "failed", table=True),
            panels.at_end(
                promql.quantile(0.99, semconv.METRIC_OPERATION_DURATION, CALLS, BY_SERVICE, over=span),
                "p99",
                table=True,
            ),
            panels.at_end(
                promql.quantile(0.99, semconv.METRIC_TIME_TO_FIRST_CHUNK, CALLS, BY_SERVICE, over=span),
                "first",
                table=True,
            ),
            panels.at_end(
                promql.mean(semconv.METRIC_TOKEN_USAGE, output, BY_SERVICE, over=span), "output", table=True
            ),
            panels.at_end(
                f"count by ({semconv.LABEL_SERVICE}) ({changes} > time() - $__range_s)", "changes", table=True
            ),
        ],
        columns={
            semconv.LABEL_SERVICE: "Service",
            "Value #calls": "Calls per second",
            "Value #failed": "Failed",
            "Value #p99": "P99",
            "Value #first": "First token, P99",
            "Value #output": "Output tokens per call",
            "Value #changes": "Parameter changes",
        },
        hidden=["Time"],
        no_data=shared.NO_CALLS,
        sort_by=("P99", True),
        overrides=[
            panels.by_name("Calls per second", unit="reqps", decimals=2),
            panels.by_name("Failed", unit="percentunit", decimals=2),
            panels.by_name("P99", unit="s"),
            panels.by_name("First token, P99", unit="s"),
            panels.by_name("Output tokens per call", unit="short", decimals=1),
            panels.by_name("Parameter changes", unit="none", noValue="0"),
        ],
        links=[
            shared.open_dashboard(shared.CAUSAL, "What moved its P99", service="${__data.fields.Service}")
        ],
    )


def _slowest() -> g.Panel:
    return panels.traces(
        "Slow calls",
        "Traces of calls slower than the bound chosen above. A trace has a span for each token step.",
        f'{{ resource.service.name =~ "$service" && span.{semconv.OPERATION_NAME} != nil'
        " && duration > ${slow}s }",
    )
