"""otelkit's own environment variables. What has a standard OTEL_* variable is not repeated here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

PROMETHEUS_HOST: Final = "OTEL_EXPORTER_PROMETHEUS_HOST"
PROMETHEUS_PORT: Final = "OTEL_EXPORTER_PROMETHEUS_PORT"
LATENCY_SLO: Final = "OTELKIT_LATENCY_SLO_SECONDS"
SPANS_PER_SECOND: Final = "OTELKIT_TOKEN_SPANS_PER_SECOND"
SPANS_PER_GENERATION: Final = "OTELKIT_TOKEN_SPANS_PER_GENERATION"
BUFFER_BYTES: Final = "OTELKIT_EXPORT_BUFFER_BYTES"
BATCH_BYTES: Final = "OTELKIT_EXPORT_BATCH_BYTES"
RETRY_SECONDS: Final = "OTELKIT_EXPORT_RETRY_SECONDS"
QUEUE_SIZE: Final = "OTELKIT_QUEUE_SIZE"
LABEL_SETS: Final = "OTELKIT_MAX_LABEL_SETS"
SHUTDOWN_SECONDS: Final = "OTELKIT_SHUTDOWN_SECONDS"


@dataclass(frozen=True, slots=True)
class Settings:
    """How much otelkit may take of a service, and where its page is."""

    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """None: no /metrics server. 0: any free port."""
    slo_seconds: tuple[float, ...] = ()
    """Latency objectives; histogram bounds are added around each."""
    spans_per_second: float = 2_000.0
    """Budget of token-step spans, ``inf`` for no limit. At about 130 bytes a span, 2,000 are 260 kB/s."""
    spans_per_generation: int = 10_000
    """Of a longer generation the first and the last half of this number are kept."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Spans that wait for a collector which is down or slow, in bytes as they will be encoded: until then
    most take a fifth of that. Beyond it they are dropped and counted."""
    batch_bytes: int = 1024 * 1024
    """Largest request; collectors refuse more than 4 MiB over gRPC by default. Twice that would save a
    fortieth of all work in a service that sends one each second, and be more than some vendors take."""
    retry_seconds: float = 120.0
    """A request that still fails after this long is dropped and counted."""
    queue_size: int = 10_000
    """Finished generations that wait for the background thread."""
    label_sets: int = 200
    """Combinations of service, operation, provider and model that are kept apart in metrics."""
    shutdown_seconds: float = 2.0
    """Longest time that the end of the process waits for the collector."""


def _positive(text: str) -> float:
    value = float(text)
    if math.isnan(value) or value <= 0:
        raise ValueError
    return value


def _count(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise ValueError
    return value


def _objectives(text: str) -> tuple[float, ...]:
    values = tuple(_positive(part) for part in text.split(",") if part.strip())
    if any(math.isinf(value) for value in values):
        raise ValueError
    return values


_VARIABLES: Final[tuple[tuple[str, str, Callable[[str], object], str], ...]] = (
    (PROMETHEUS_HOST, "metrics_host", str, "an address"),
    (PROMETHEUS_PORT, "metrics_port", _port, "a port from 0 to 65535"),
    (LATENCY_SLO, "slo_seconds", _objectives, "seconds, several separated by commas"),
    (SPANS_PER_SECOND, "spans_per_second", _positive, "a positive number, or inf"),
    (SPANS_PER_GENERATION, "spans_per_generation", _count, "a positive whole number"),
    (BUFFER_BYTES, "buffer_bytes", _count, "a positive whole number of bytes"),
    (BATCH_BYTES, "batch_bytes", _count, "a positive whole number of bytes"),
    (RETRY_SECONDS, "retry_seconds", _positive, "a positive number of seconds"),
    (QUEUE_SIZE, "queue_size", _count, "a positive whole number"),
    (LABEL_SETS, "label_sets", _count, "a positive whole number"),
    (SHUTDOWN_SECONDS, "shutdown_seconds", _positive, "a positive number of seconds"),
)


def read(environment: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Settings from environment variables, and one sentence for each variable that makes no sense.

    A service must start whatever its telemetry's variables say, so a bad value leaves the default in force.
    """
    settings, problems = Settings(), []
    for variable, field, parse, expected in _VARIABLES:
        text = environment.get(variable, "").strip()
        if not text:
            continue
        try:
            value = parse(text)
        except ValueError:
            default = getattr(settings, field)
            problems.append(f"{variable}={text!r} is not {expected}; using {default!r} instead.")
            continue
        settings = replace(settings, **{field: value})  # type: ignore[arg-type]
    return settings, problems
