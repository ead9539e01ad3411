"""Every span, attribute, event, metric and label name that otelkit writes or reads, each defined once.

Names under ``gen_ai.`` follow the OpenTelemetry GenAI semantic conventions 1.41; the ``otelkit.`` namespace
is ours, for what no convention covers: token steps, parameter changes, safety settings.
``OTEL_SEMCONV_STABILITY_OPT_IN`` switches to newer names (``NEWER_NAMES``), once, when this is imported: what
writes a name and what reads it see the same one where both run with the same value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

# --- newer names, for those who ask for them ----------------------------------------------------------------
OPT_IN_VARIABLE: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
OPT_IN_LATEST: Final = "gen_ai_latest_experimental"
"""Among the variable's values, which are separated by commas."""
NEWER_NAMES: Final[Mapping[str, str]] = {
    "gen_ai_client_operation_duration_seconds": "gen_ai_client_inference_duration_seconds",
    "gen_ai_client_operation_time_to_first_chunk_seconds": (
        "gen_ai_client_inference_time_to_first_chunk_seconds"
    ),
    "gen_ai_client_operation_time_per_output_chunk_seconds": (
        "gen_ai_client_inference_time_per_output_chunk_seconds"
    ),
    "otelkit.request.reasoning_effort": "gen_ai.request.reasoning.level",
}
"""Name by 1.41, or ours for what 1.41 has none for -> name by the GenAI conventions 0.1.0."""
_LATEST: Final = OPT_IN_LATEST in map(str.strip, os.environ.get(OPT_IN_VARIABLE, "").split(","))


def _named(name: str) -> str:
    return NEWER_NAMES[name] if _LATEST else name


SCOPE: Final = "otelkit"
"""Instrumentation scope name of every span, event and metric."""

# --- resource -----------------------------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"

# --- attributes of the generation span (GenAI conventions 1.41) ---------------------------------------------
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_CHOICE_COUNT: Final = "gen_ai.request.choice.count"
REQUEST_REASONING_LEVEL: Final = _named("otelkit.request.reasoning_effort")
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

# --- what other GenAI instrumentations write, by which their generation spans are recognised ----------------
LEGACY_SYSTEM: Final = "gen_ai.system"
OPENINFERENCE_KIND: Final = "openinference.span.kind"
OPENINFERENCE_LLM: Final = "LLM"

# --- ours: the generation span ------------------------------------------------------------------------------
OUTCOME: Final = "otelkit.generation.outcome"
PARAMETER_PREFIX: Final = "otelkit.request."
"""Request parameters for which the convention has no name: ``otelkit.request.<name>``."""
PARAMETERS_FINGERPRINT: Final = "otelkit.parameters.fingerprint"
TIME_PER_OUTPUT_TOKEN: Final = "otelkit.response.time_per_output_token"
OUTPUT_ENTROPY_MEAN: Final = "otelkit.response.entropy.mean"
OUTPUT_ENTROPY_DEVIATION: Final = "otelkit.response.entropy.stddev"
REPEATED_TOKEN_SHARE: Final = "otelkit.response.repeated_token_share"
STEP_COUNT: Final = "otelkit.response.steps"

# --- ours: the token-step span ------------------------------------------------------------------------------
TOKEN_STEP_SPAN: Final = "token_step"
STEP_INDEX: Final = "otelkit.step.index"
STEP_TOKENS: Final = "otelkit.step.tokens"
STEP_LOGPROB: Final = "otelkit.step.logprob"
STEP_ENTROPY: Final = "otelkit.step.entropy"

# --- ours: the parameter-change event (OpenTelemetry log event) ---------------------------------------------
CHANGE_EVENT: Final = "otelkit.parameter.change"
CHANGE_ID: Final = "otelkit.change.id"
CHANGE_PARAMETER: Final = "otelkit.change.parameter"
CHANGE_OLD: Final = "otelkit.change.old"
CHANGE_NEW: Final = "otelkit.change.new"
CHANGE_SOURCE: Final = "otelkit.change.source"
CHANGE_SCOPE: Final = "otelkit.change.scope"
CHANGE_FIRST_SEEN: Final = "otelkit.change.first_seen"
CHANGE_LAST_SEEN: Final = "otelkit.change.last_seen"
CHANGE_ORIGIN: Final = "otelkit.change.origin"
CHANGE_EFFECTIVE_AT: Final = "otelkit.change.effective_at"
CHANGE_SHARE_BEFORE: Final = "otelkit.change.share.before"
"""Share (0 to 1) of requests with the new value; only where shares shifted."""
CHANGE_SHARE_AFTER: Final = "otelkit.change.share.after"

# --- what tells a call's session: baggage entries and span attributes ---------------------------------
REQUEST_ID: Final = "otelkit.request_id"
"""The ``x-request-id`` that the request being served came with; on the span and on its link."""
SESSION_ID: Final = "session.id"
CONVERSATION_ID: Final = "gen_ai.conversation.id"

# --- Prometheus metrics: names as they stand on the /metrics page, without the suffixes the client library
# adds
METRIC_OPERATION_DURATION: Final = _named("gen_ai_client_operation_duration_seconds")
METRIC_TIME_TO_FIRST_CHUNK: Final = _named("gen_ai_client_operation_time_to_first_chunk_seconds")
METRIC_TIME_PER_OUTPUT_CHUNK: Final = _named("gen_ai_client_operation_time_per_output_chunk_seconds")
METRIC_TOKEN_USAGE: Final = "gen_ai_client_token_usage"

METRIC_GENERATIONS_STARTED: Final = "otelkit_generations_started"
"""Counter: calls begun, that is offered load; latency histograms only see calls that have ended."""
METRIC_GENERATIONS_IN_FLIGHT: Final = "otelkit_generations_in_flight"
METRIC_PARAMETER_CHANGES: Final = "otelkit_parameter_changes"
"""Counter by service, parameter and source."""
METRIC_PARAMETER_CHANGE_TIMESTAMP: Final = "otelkit_parameter_change_timestamp_seconds"
"""Gauge, one series a change (bounded): Unix seconds at which the new value was first in use."""
METRIC_PARAMETER_SETTLED: Final = "otelkit_parameter_settled_timestamp_seconds"
"""Gauge by service, scope, parameter and value, one series a parameter of a call site (bounded): Unix seconds
from which this process' requests have had the value; ``VARIES`` where none prevails."""
METRIC_PARAMETER_EVICTIONS: Final = "otelkit_parameter_evictions"
"""Counter by service and kind (``call_site``, ``parameter``, ``value``): what the detection of observed
changes forgot, or did not take, for want of room."""
METRIC_PARAMETER_INPUTS: Final = "otelkit_parameter_inputs"
"""Counter of parameters that came from outside the code, by input (``file``, ``environment``, ``header``,
``flag``) and outcome (``applied``, ``unchanged``, ``refused``)."""
METRIC_SPANS_WRITTEN: Final = "otelkit_spans_written"
"""Counter: spans encoded for export. Once nothing is pending, written = delivered + dropped."""
METRIC_SPANS_DELIVERED: Final = "otelkit_spans_delivered"
METRIC_SPANS_DROPPED: Final = "otelkit_spans_dropped"
"""Counter by reason: spans written that will not be delivered."""
METRIC_STEPS_NOT_SELECTED: Final = "otelkit_steps_not_selected"
"""Counter by reason: token steps for which, on purpose, no span was written."""
METRIC_GENERATIONS_LOST: Final = "otelkit_generations_lost"
"""Counter by reason: finished calls that reached no metric."""
METRIC_EXPORT_FAILURES: Final = "otelkit_export_failures"
METRIC_QUEUE_DEPTH: Final = "otelkit_queue_depth"
METRIC_OVERHEAD: Final = "otelkit_overhead_seconds"
"""Counter by stage: CPU seconds of otelkit's own threads."""

METRIC_TOKEN_STEP: Final = "otelkit_token_step_seconds"
"""Histogram of the seconds between one token step and the next, by the step's position in the output."""
METRIC_OUTPUT_ENTROPY: Final = "otelkit_output_entropy_nats"
"""Histogram: mean entropy of a call's token steps, for calls whose provider returns alternatives."""
METRIC_REPEATED_TOKENS: Final = "otelkit_repeated_token_ratio"
"""Histogram: share (0 to 1) of a call's output tokens that repeat one of the tokens before them."""

# --- metrics of the analyser: the verdicts, so that dashboards need nothing but Prometheus ------------------
# All are gauges of the newest analysis. One series a judged change (bounded: the newest changes of each
# service), with the labels in ``LABELS_OF_VERDICTS``; what could not be estimated has no series, only the
# verdict is always there.
METRIC_CHANGE_VERDICT: Final = "otelkit_change_verdict_info"
"""Always 1; there for every judged change, also where no effect could be estimated."""
METRIC_CHANGE_EFFECT: Final = "otelkit_change_effect_seconds"
"""What the change did to P99, seconds; its 95 % interval is in ``_low`` and ``_high``."""
METRIC_CHANGE_EFFECT_LOW: Final = "otelkit_change_effect_low_seconds"
METRIC_CHANGE_EFFECT_HIGH: Final = "otelkit_change_effect_high_seconds"
METRIC_CHANGE_LAG: Final = "otelkit_change_lag_seconds"
METRIC_CHANGE_PEARSON_R: Final = "otelkit_change_pearson_r"
METRIC_CHANGE_P_VALUE: Final = "otelkit_change_p_value"
METRIC_CHANGE_Q_VALUE: Final = "otelkit_change_q_value"
METRIC_CHANGE_THRESHOLD: Final = "otelkit_change_threshold_seconds"
"""Effect on P99 from which a change of this parameter counts as one to act on."""
METRIC_CHANGE_CROSSED: Final = "otelkit_change_threshold_crossed"
"""1 where the change is causal and its effect at least the threshold; 0 where the effect is smaller, or
something else moved P99; none where that can't be said, or no threshold is stated."""
METRIC_CHANGE_MECHANISM: Final = "otelkit_change_mechanism_seconds"
"""The part of the effect that goes through one path, seconds; label ``mechanism`` besides the others. The
path ``not_split`` holds what is left, so that the parts add up to the effect."""
METRIC_P99_BEFORE: Final = "otelkit_p99_before_seconds"
"""By service: P99 before its largest movement; ``_after`` likewise."""
METRIC_P99_AFTER: Final = "otelkit_p99_after_seconds"
METRIC_P99_UNEXPLAINED: Final = "otelkit_p99_unexplained_seconds"
"""By service: what is left of after - before once the effects of causal changes are taken off."""
METRIC_P99_COUNTERFACTUAL: Final = "otelkit_p99_counterfactual_seconds"
"""By service: what P99 would be now without the causal changes."""
METRIC_CAUSAL_NODE: Final = "otelkit_causal_node_seconds"
"""Seconds of effect that pass through a node of the causal graph (of the P99 node: P99 itself). Labels:
service, id, title, subtitle, kind (``parameter``, ``mechanism``, ``service``), verdict (empty unless a
parameter)."""
METRIC_CAUSAL_EDGE: Final = "otelkit_causal_edge_seconds"
"""Seconds of effect along an edge. Labels: service, id, source and target (ids of nodes of that service),
verdict."""
METRIC_CAUSAL_EDGE_CONFIDENCE: Final = "otelkit_causal_edge_confidence_ratio"
"""0 to 1 (1 - q of the change), with the labels of the edge."""

METRIC_CHANGE_JUDGED: Final = "otelkit_change_judged_timestamp_seconds"
"""Unix seconds up to which data went into the verdict; none while it is too early for one."""
METRIC_CHANGE_DUE: Final = "otelkit_change_verdict_due_timestamp_seconds"
"""Unix seconds at which the change is looked at next; none once its verdict is final."""
METRIC_VERDICT_FLIPS: Final = "otelkit_verdict_flips"
"""Counter by service and by the verdict that was given up and the one that took its place (labels ``old``,
``new``)."""
METRIC_CHANGES_EVICTED: Final = "otelkit_changes_evicted"
"""Counter by service: changes that left the page because newer ones need their place."""
METRIC_ANALYSER_ROUNDS: Final = "otelkit_analyser_rounds"
"""Counter by outcome: ``done``, ``unreachable`` (Prometheus), ``failed``."""
METRIC_ANALYSER_ROUND_SECONDS: Final = "otelkit_analyser_round_seconds"
"""How long the newest round took."""
METRIC_ANALYSER_CPU: Final = "otelkit_analyser_cpu_seconds"
"""Counter: CPU time of all rounds."""
METRIC_ANALYSER_DATA_TIMESTAMP: Final = "otelkit_analyser_data_timestamp_seconds"
"""Unix seconds up to which the newest round that was done had data; 0 before the first."""
METRIC_ANALYSER_STALE: Final = "otelkit_analyser_stale"
"""1 while Prometheus does not answer, so that verdicts are those from before; else 0."""
METRIC_ANALYSER_WAITING: Final = "otelkit_analyser_services_waiting"
"""Services with changes to look at that the newest round had no time for."""
METRIC_ANALYSER_FAULTS: Final = "otelkit_analyser_faults"
"""Counter by service: analyses that ended in an error; the log has it."""
METRIC_ANALYSER_ANNOTATIONS: Final = "otelkit_analyser_annotations"
"""Counter by outcome of writing to Grafana: ``created``, ``updated``, ``failed``."""

# --- metrics of others that presets read --------------------------------------------------------------------
METRIC_HTTP_REQUEST_DURATION: Final = "http_request_duration_seconds"
LABEL_HTTP_CODE: Final = "code"
METRIC_SERVER_REQUEST_DURATION: Final = "gen_ai_server_request_duration_seconds"
METRIC_SERVER_TIME_TO_FIRST_TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"
METRIC_SERVER_TIME_PER_OUTPUT_TOKEN: Final = "gen_ai_server_time_per_output_token_seconds"
METRIC_VLLM_LATENCY: Final = "vllm:e2e_request_latency_seconds"
METRIC_VLLM_RUNNING: Final = "vllm:num_requests_running"
METRIC_VLLM_PROMPT_TOKENS: Final = "vllm:request_prompt_tokens"
METRIC_VLLM_GENERATION_TOKENS: Final = "vllm:request_generation_tokens"
METRIC_VLLM_TIME_TO_FIRST_TOKEN: Final = "vllm:time_to_first_token_seconds"
METRIC_VLLM_INTER_TOKEN: Final = "vllm:inter_token_latency_seconds"
LABEL_VLLM_MODEL: Final = "model_name"
METRIC_ISTIO_LATENCY: Final = "istio_request_duration_milliseconds"
LABEL_ISTIO_SERVICE: Final = "destination_service_name"
LABEL_ISTIO_CODE: Final = "response_code"
LABEL_ISTIO_REPORTER: Final = "reporter"
METRIC_ENVOY_LATENCY: Final = "envoy_cluster_upstream_rq_time"
METRIC_ENVOY_ARRIVALS: Final = "envoy_cluster_upstream_rq_total"
METRIC_ENVOY_RESPONSES: Final = "envoy_cluster_upstream_rq_xx"
LABEL_ENVOY_CODE_CLASS: Final = "envoy_response_code_class"
METRIC_ENVOY_ACTIVE: Final = "envoy_cluster_upstream_rq_active"
LABEL_ENVOY_CLUSTER: Final = "envoy_cluster_name"

# --- metrics of others that dashboards read: Tempo's service graph, Prometheus itself -----------------------
METRIC_SERVICE_GRAPH_REQUESTS: Final = "traces_service_graph_request_total"
METRIC_SERVICE_GRAPH_FAILED: Final = "traces_service_graph_request_failed_total"
METRIC_SERVICE_GRAPH_DURATION: Final = "traces_service_graph_request_server_seconds"
LABEL_CLIENT: Final = "client"
LABEL_SERVER: Final = "server"
METRIC_UP: Final = "up"
METRIC_SCRAPE_DURATION: Final = "scrape_duration_seconds"
METRIC_SCRAPE_SAMPLES: Final = "scrape_samples_scraped"
METRIC_RULE_DURATION: Final = "prometheus_rule_group_last_duration_seconds"
METRIC_RULE_INTERVAL: Final = "prometheus_rule_group_interval_seconds"
METRIC_RULE_FAILURES: Final = "prometheus_rule_evaluation_failures_total"
LABEL_RULE_GROUP: Final = "rule_group"

# --- labels -------------------------------------------------------------------------------------------------
LABEL_SERVICE: Final = "service"
LABEL_OPERATION: Final = "gen_ai_operation_name"
LABEL_PROVIDER: Final = "gen_ai_provider_name"
LABEL_MODEL: Final = "gen_ai_request_model"
LABEL_ERROR: Final = "error_type"
LABEL_TOKEN_TYPE: Final = "gen_ai_token_type"
LABEL_PARAMETER: Final = "parameter"
LABEL_OLD: Final = "old"
LABEL_NEW: Final = "new"
LABEL_SHARES: Final = "shares"
"""Share of requests with the new value before and after (``0.05,0.6``), where shares shifted; else empty."""
LABEL_VALUE: Final = "value"
VARIES: Final = "_VARIES"
"""Stands for the value where requests vary it."""
LABEL_SOURCE: Final = "source"
LABEL_SCOPE: Final = "scope"
LABEL_CHANGE_ID: Final = "change_id"
LABEL_REASON: Final = "reason"
LABEL_STAGE: Final = "stage"
LABEL_POSITION: Final = "position"
"""Where in the output a token step begins, in tokens: one of ``POSITIONS``, whose text sorts like numbers."""
LABEL_VERDICT: Final = "verdict"
LABEL_MECHANISM: Final = "mechanism"
LABEL_ID: Final = "id"
LABEL_TITLE: Final = "title"
LABEL_SUBTITLE: Final = "subtitle"
LABEL_KIND: Final = "kind"
LABEL_TARGET: Final = "target"
VERDICT_TOO_EARLY: Final = "too early"
"""Stands for the verdict while there is too little data after a change; all others are the engine's."""
LABELS_OF_VERDICTS: Final = (
    LABEL_SERVICE,
    LABEL_PARAMETER,
    LABEL_OLD,
    LABEL_NEW,
    LABEL_SCOPE,
    LABEL_CHANGE_ID,
    LABEL_VERDICT,
)
LABEL_INPUT: Final = "input"
LABEL_OUTCOME: Final = "outcome"
LABEL_ORIGIN: Final = "origin"
OTHER: Final = "_OTHER"
"""Stands for every value of a label beyond the number that is kept apart."""
EXEMPLAR_TRACE_ID: Final = "trace_id"
EXEMPLAR_SPAN_ID: Final = "span_id"

# --- bucket bounds (GenAI conventions) ----------------------------------------------------------------------
DURATION_BUCKETS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
SLO_FACTORS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 1.75, 2.0)
"""Bounds added around each latency objective, as multiples of it."""
TOKEN_BUCKETS: Final = tuple(float(4**n) for n in range(14))

# --- bucket bounds (ours) -----------------------------------------------------------------------------------
ENTROPY_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0)
"""Nats. Twenty alternatives, the most that providers return, have 3.0 at most."""
RATIO_BUCKETS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)

# --- values of ``LABEL_POSITION`` ---------------------------------------------------------------------------
POSITION_BOUNDS: Final = (16, 64, 256, 1024, 4096)
"""The last token of each position but the open one at the end."""
POSITIONS: Final = (
    *(f"{last + 1:04}-{bound:04}" for last, bound in pairwise((0, *POSITION_BOUNDS))),
    f"{POSITION_BOUNDS[-1] + 1:04}+",
)

# --- recorded series ----------------------------------------------------------------------------------------
RECORDED_P99: Final = "service:p99_latency_seconds:quantile"
"""The rule users know, over the spec's base window; companions over window ``w`` are
``service:p99_latency_seconds:quantile_w`` (for instance ``quantile_1m``), likewise for p95 and p50."""
RECORDED_LATENCY: Final = "latency_seconds"
RECORDED_LATENCY_MS: Final = "latency_milliseconds"
RECORDED_FIRST_TOKEN: Final = "time_to_first_chunk_seconds"
RECORDED_TOKEN_TIME: Final = "time_per_output_chunk_seconds"
RECORDED_QUANTILES: Final = (0.5, 0.95, 0.99)


def recorded_quantile(quantile: float, window: str = "", metric: str = RECORDED_LATENCY) -> str:
    """Name of a recorded quantile: over the base window where ``window`` is empty, else over that window."""
    name = f"service:{quantile_text(quantile)}_{metric}:quantile"
    return f"{name}_{window}" if window else name


def quantile_text(quantile: float) -> str:
    """``p99`` for 0.99, ``p999`` for 0.999."""
    return "p" + f"{quantile * 100:g}".replace(".", "")


def recorded_split(label: str, window: str) -> str:
    """Name of the recorded P99 by service and another label, whose name may hold what no series' name can."""
    plain = "".join(one if one.isascii() and one.isalnum() else "_" for one in label)
    return f"service_{plain}:p99_{RECORDED_LATENCY}:quantile_{window}"


def recorded_bucket_rate(window: str, metric: str = RECORDED_LATENCY) -> str:
    """Name of the recorded rate of each latency bucket, summed by service: what quantiles are computed
    from."""
    return f"service_le:{metric}_bucket:rate{window}"


def recorded_histogram_rate(window: str, metric: str = RECORDED_LATENCY) -> str:
    """The same where histograms are native: one series a service."""
    return f"service:{metric}:rate{window}"


def recorded_burn_rate(window: str) -> str:
    """How many times faster than sustainable a service's error budget burnt over a window."""
    return f"service_slo:burn_rate:ratio_{window}"


def recorded_broken_calls(window: str) -> str:
    """How many calls broke an objective over a window."""
    return f"service_slo:broken_calls:increase_{window}"


RECORDED_BROKEN: Final = "service_slo:broken_calls:rate5m"
"""Calls per second that broke an objective."""
RECORDED_BUDGET_USE: Final = "service_slo:budget_use:rate5m"
"""Calls per second that broke an objective, divided by the share that may: burn rates are ratios of its
means."""
LABEL_SLO: Final = "slo"
LABEL_SLO_WINDOW: Final = "slo_window"
LABEL_BURN_ALERTS: Final = "burn_alerts"
LABEL_MIN_CALLS: Final = "min_calls"
RECORDED_REQUESTS: Final = "service:requests:rate"
"""Calls that ended, per second; the window follows (``service:requests:rate1m``), as in the next ones."""
RECORDED_ERRORS: Final = "service:errors:rate"
RECORDED_ERROR_RATIO: Final = "service:error_ratio:rate"
RECORDED_INPUT_TOKENS: Final = "service:input_tokens:rate"
RECORDED_OUTPUT_TOKENS: Final = "service:output_tokens:rate"
RECORDED_CHANGES: Final = "service_parameter:changes:count5m"
"""Parameter changes of the last five minutes by service and parameter; several workers' reports count
once."""
