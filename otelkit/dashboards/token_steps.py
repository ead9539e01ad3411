"""Dashboard "Token steps": how the tokens of streamed calls come, one by one."""

from __future__ import annotations

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import BY_SERVICE, CALLS, SERVICES
from otelkit.spec import Spec

_STEP = semconv.METRIC_TIME_PER_OUTPUT_CHUNK
_NO_STEPS = "No streamed calls"
_NO_LOGPROBS = "No entropy: the provider returns no log probabilities, or they are not asked for"


def dashboard(spec: Spec) -> g.Dashboard:
    return shared.dashboard(
        shared.TOKEN_STEPS,
        "otelkit / Token steps",
        "How the tokens of streamed calls come: their pace, where in the output they slow down, stalls, and "
        "how sure "
        "the model is of them.",
        [
            panels.row("Pace"),
            _steps(),
            _quantiles(),
            _first_token(),
            _stalls(),
            panels.row("Along the output"),
            _by_position(),
            _length(),
            panels.row("What is written"),
            _entropy(),
            _repeated(),
            panels.row("Single calls"),
            _traces(),
        ],
        variables=[
            shared.service_variable(several=True),
            shared.model_variable(SERVICES),
            shared.bound_variable("stall", "Stall from (s)", _STEP, "0.64"),
        ],
        annotations=shared.change_marks(SERVICES),
    )


def _steps() -> g.Panel:
    return panels.heatmap(
        "Time between tokens",
        "Steps per second in each bucket. Two bands: batches of another size, or another model behind one "
        "name. "
        "Points are traces with their token spans.",
        promql.rate(f"{_STEP}_bucket", CALLS, ("le",)),
        unit="s",
        size=(24, 9),
        no_data=_NO_STEPS,
    )


def _quantiles() -> g.Panel:
    return panels.timeseries(
        "Time between tokens: quantiles",
        "P99 up and P50 not: stalls of a few. Both up: the model's server is slower for everybody.",
        panels.queries(
            *(
                (f"P{q * 100:g}", promql.quantile(q, _STEP, CALLS))
                for q in reversed(semconv.RECORDED_QUANTILES)
            ),
            exemplar=True,
        ),
        unit="s",
        size=(8, 8),
        no_data=_NO_STEPS,
        links=[shared.runbook("Tokens come slowly")],
    )


def _first_token() -> g.Panel:
    return panels.heatmap(
        "Time to first token",
        "Streamed calls per second in each bucket. A second band above the first is queueing.",
        promql.rate(f"{semconv.METRIC_TIME_TO_FIRST_CHUNK}_bucket", CALLS, ("le",)),
        unit="s",
        size=(8, 8),
        no_data=_NO_STEPS,
    )


def _stalls() -> g.Panel:
    return panels.timeseries(
        "Stalls: steps slower than $stall s",
        "Share of token steps by service. Readers notice gaps of half a second; a rise without load is the "
        "provider's.",
        panels.queries(("{{service}}", promql.slower_than("$stall", _STEP, CALLS, BY_SERVICE))),
        unit="percentunit",
        size=(8, 8),
        no_data=_NO_STEPS,
        links=[shared.runbook("Tokens come slowly")],
    )


def _by_position() -> g.Panel:
    by = (semconv.LABEL_POSITION,)
    return panels.timeseries(
        "Time per token by position in the output",
        "Mean, by how far into the output a token is. Lines apart: long contexts slow the model down, "
        "so capping output shortens more than in proportion.",
        panels.queries(("tokens {{position}}", promql.mean(semconv.METRIC_TOKEN_STEP, SERVICES, by))),
        unit="s",
        no_data=_NO_STEPS,
    )


def _length() -> g.Panel:
    output = f'{CALLS}, {semconv.LABEL_TOKEN_TYPE}="output"'
    return panels.heatmap(
        "Output tokens per call",
        "Calls per second in each bucket. A hard upper edge is the limit at work: answers are cut off there.",
        promql.rate(f"{semconv.METRIC_TOKEN_USAGE}_bucket", output, ("le",)),
        unit="short",
        no_data="No token counts: the provider does not report usage",
    )


def _entropy() -> g.Panel:
    return panels.timeseries(
        "Entropy of the output",
        "Mean per call, in nats: how undecided the model was. A step at a change of temperature, top_p or "
        "top_k is "
        "that change at work; a rise without one is another prompt or model.",
        panels.queries(
            ("P90", promql.quantile(0.9, semconv.METRIC_OUTPUT_ENTROPY, SERVICES)),
            ("P50", promql.quantile(0.5, semconv.METRIC_OUTPUT_ENTROPY, SERVICES)),
        ),
        unit="short",
        no_data=_NO_LOGPROBS,
    )


def _repeated() -> g.Panel:
    return panels.timeseries(
        "Repeated tokens",
        "Mean share of output tokens that repeat one of the tokens before them. Near 1: the model loops; "
        "raise temperature or a repetition penalty, or cap the output.",
        panels.queries(("{{service}}", promql.mean(semconv.METRIC_REPEATED_TOKENS, SERVICES, BY_SERVICE))),
        unit="percentunit",
        no_data=_NO_STEPS,
    )


def _traces() -> g.Panel:
    return panels.traces(
        "Calls with a stall",
        "Traces with a token step slower than the bound chosen above; the step is a span of its own.",
        f'{{ resource.service.name =~ "$service" && name = "{semconv.TOKEN_STEP_SPAN}"'
        " && duration > ${stall}s }",
    )
