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


@dataclass(frozen=True, slots=True)
class Preset:
    """The metrics of one kind of service. Fields that are None are unknown for that kind."""

    name: str
    latency: str
    """The latency histogram, without ``_bucket``."""
    service_label: str = semconv.LABEL_SERVICE
    """The label that names the service; recorded series call it ``service`` whatever it is here."""
    unit: str = "s"
    """Unit of the latency histogram: ``s`` or ``ms``."""
    errors: tuple[Matcher, ...] = ()
    """Which calls of the latency histogram failed."""
    arrivals: Series | None = None
    """Counter of calls begun."""
    in_flight: Series | None = None
    """Gauge of calls under way."""
    means: Mapping[str, Series] = field(default_factory=lambda: MappingProxyType({}))
    """Covariate (names as in ``ServiceSeries.covariates``) -> histogram of which it is the mean."""


def _tokens(kind: str) -> Series:
    return Series(semconv.METRIC_TOKEN_USAGE, (Matcher(semconv.LABEL_TOKEN_TYPE, "=", kind),))


GEN_AI: Final = Preset(
    name="gen_ai",
    latency=semconv.METRIC_OPERATION_DURATION,
    errors=(Matcher(semconv.LABEL_ERROR, "!=", ""),),
    arrivals=Series(f"{semconv.METRIC_GENERATIONS_STARTED}_total"),
    in_flight=Series(semconv.METRIC_GENERATIONS_IN_FLIGHT),
    means=MappingProxyType(
        {
            "input_tokens": Series(
                semconv.METRIC_TOKEN_USAGE, (Matcher(semconv.LABEL_TOKEN_TYPE, "=", "input"),)
            ),
            "output_tokens": Series(
                semconv.METRIC_TOKEN_USAGE, (Matcher(semconv.LABEL_TOKEN_TYPE, "=", "output"),)
            ),
            "time_to_first_chunk": Series(semconv.METRIC_TIME_TO_FIRST_CHUNK),
            "time_per_output_chunk": Series(semconv.METRIC_TIME_PER_OUTPUT_CHUNK),
        }
    ),
)

HTTP: Final = Preset(
    name="http",
    latency=semconv.METRIC_HTTP_REQUEST_DURATION,
    errors=(Matcher(semconv.LABEL_HTTP_CODE, "=~", "5.."),),
)

PRESETS: Final[Mapping[str, Preset]] = MappingProxyType({preset.name: preset for preset in (GEN_AI, HTTP)})
