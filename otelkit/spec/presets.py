"""What is known of each kind of service: which metrics hold its latency, errors, tokens and load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from otelkit import semconv
from otelkit.spec.matchers import Matcher


@dataclass(frozen=True, slots=True)
class Series:
    """A metric, limited to some of its series."""

    metric: str
    """Counter, gauge, or a histogram without its ``_bucket``, ``_count`` and ``_sum``."""
    matchers: tuple[Matcher, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Preset:
    """The metrics of one kind of service. Fields that are None are unknown for that kind."""

    name: str
    latency: str
    """The latency histogram, without ``_bucket``."""
    service_label: str = semconv.LABEL_SERVICE
    """The label that names the service; recorded series call it ``service`` whatever it is here."""
    unit: str = "s"
    """Unit of the latency histogram: ``s`` or ``ms``."""
    buckets: tuple[float, ...] | None = None
    """Finite bounds that the histogram is known to have, in its unit."""
    errors: tuple[Matcher, ...] = ()
    """Which calls of the latency histogram failed."""
    failures: Series | None = None
    """Counter of calls that failed, where the latency histogram does not tell them apart."""
    arrivals: Series | None = None
    """Counter of calls begun."""
    in_flight: Series | None = None
    """Gauge of calls under way."""
    means: Mapping[str, Series] = field(default_factory=lambda: MappingProxyType({}))
    """Covariate (names as in ``ServiceSeries.covariates``) -> histogram of which it is the mean."""
    always: tuple[Matcher, ...] = ()
    """Pick the series to count where one call is told twice, for instance by both of its ends."""


def _tokens(kind: str) -> Series:
    return Series(semconv.METRIC_TOKEN_USAGE, (Matcher(semconv.LABEL_TOKEN_TYPE, "=", kind),))


GEN_AI: Final = Preset(
    name="gen_ai",
    latency=semconv.METRIC_OPERATION_DURATION,
    buckets=semconv.DURATION_BUCKETS,
    errors=(Matcher(semconv.LABEL_ERROR, "!=", ""),),
    arrivals=Series(f"{semconv.METRIC_GENERATIONS_STARTED}_total"),
    in_flight=Series(semconv.METRIC_GENERATIONS_IN_FLIGHT),
    means=MappingProxyType(
        {
            "input_tokens": _tokens("input"),
            "output_tokens": _tokens("output"),
            "time_to_first_chunk": Series(semconv.METRIC_TIME_TO_FIRST_CHUNK),
            "time_per_output_chunk": Series(semconv.METRIC_TIME_PER_OUTPUT_CHUNK),
        }
    ),
)

GEN_AI_SERVER: Final = Preset(
    name="gen_ai_server",
    latency=semconv.METRIC_SERVER_REQUEST_DURATION,
    buckets=semconv.DURATION_BUCKETS,
    errors=(Matcher(semconv.LABEL_ERROR, "!=", ""),),
    means=MappingProxyType(
        {
            "time_to_first_chunk": Series(semconv.METRIC_SERVER_TIME_TO_FIRST_TOKEN),
            "time_per_output_chunk": Series(semconv.METRIC_SERVER_TIME_PER_OUTPUT_TOKEN),
        }
    ),
)

HTTP: Final = Preset(
    name="http",
    latency=semconv.METRIC_HTTP_REQUEST_DURATION,
    # What the Go and the Python client have in common by default.
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    errors=(Matcher(semconv.LABEL_HTTP_CODE, "=~", "5.."),),
)

_VLLM_SECONDS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip

VLLM: Final = Preset(
    name="vllm",
    latency=semconv.METRIC_VLLM_LATENCY,
    service_label=semconv.LABEL_VLLM_MODEL,
    buckets=_VLLM_SECONDS,
    in_flight=Series(semconv.METRIC_VLLM_RUNNING),
    means=MappingProxyType(
        {
            "input_tokens": Series(semconv.METRIC_VLLM_PROMPT_TOKENS),
            "output_tokens": Series(semconv.METRIC_VLLM_GENERATION_TOKENS),
            "time_to_first_chunk": Series(semconv.METRIC_VLLM_TIME_TO_FIRST_TOKEN),
            "time_per_output_chunk": Series(semconv.METRIC_VLLM_INTER_TOKEN),
        }
    ),
)

# Istio and Envoy share the bounds of Envoy's statistics.
_ENVOY_MS: Final = (
    0.5, 1.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0, 60000.0,
    300000.0, 600000.0, 1800000.0, 3600000.0,
)  # fmt: skip

ISTIO: Final = Preset(
    name="istio",
    latency=semconv.METRIC_ISTIO_LATENCY,
    service_label=semconv.LABEL_ISTIO_SERVICE,
    unit="ms",
    buckets=_ENVOY_MS,
    errors=(Matcher(semconv.LABEL_ISTIO_CODE, "=~", "5.."),),
    always=(Matcher(semconv.LABEL_ISTIO_REPORTER, "=", "destination"),),
)

ENVOY: Final = Preset(
    name="envoy",
    latency=semconv.METRIC_ENVOY_LATENCY,
    service_label=semconv.LABEL_ENVOY_CLUSTER,
    unit="ms",
    buckets=_ENVOY_MS,
    failures=Series(semconv.METRIC_ENVOY_RESPONSES, (Matcher(semconv.LABEL_ENVOY_CODE_CLASS, "=", "5"),)),
    arrivals=Series(semconv.METRIC_ENVOY_ARRIVALS),
    in_flight=Series(semconv.METRIC_ENVOY_ACTIVE),
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType(
    {preset.name: preset for preset in (GEN_AI, GEN_AI_SERVER, HTTP, VLLM, ISTIO, ENVOY)}
)
