"""Sets up OpenTelemetry's providers from the standard OTEL_* variables, where a program has set none.

What is exported where, by variable:

* ``OTEL_TRACES_EXPORTER`` / ``OTEL_LOGS_EXPORTER`` name exporters; ``none`` means none.
* Where they are not set, OTLP is used if ``OTEL_EXPORTER_OTLP_ENDPOINT`` or the signal's own endpoint is set.
  Without either there is no provider: spans that nobody gets would cost each call, and a program must not log
  connection errors because nobody listens on localhost:4318.
* Where no protocol is set it is ``http/protobuf``, as the specification says, except for port 4317, which is
  gRPC's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import _logs, trace
from opentelemetry._logs import NoOpLoggerProvider
from opentelemetry.environment_variables import (
    OTEL_LOGS_EXPORTER,
    OTEL_PYTHON_ID_GENERATOR,
    OTEL_TRACES_EXPORTER,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.environment_variables import (
    OTEL_EXPORTER_OTLP_ENDPOINT,
    OTEL_EXPORTER_OTLP_LOGS_ENDPOINT,
    OTEL_EXPORTER_OTLP_LOGS_PROTOCOL,
    OTEL_EXPORTER_OTLP_PROTOCOL,
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_PROTOCOL,
    OTEL_TRACES_SAMPLER,
    OTEL_TRACES_SAMPLER_ARG,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from otelkit.emit import notices, self_metrics
from otelkit.emit.hook import hook_into, processors_of
from otelkit.emit.otlp.delivery import DEFAULT_TIMEOUT, Counts, Delivery, shut_down
from otelkit.emit.otlp.discover import sender_like, timeout_of
from otelkit.emit.otlp.exporters import BufferedLogExporter, BufferedSpanExporter
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.emit.settings import Settings

HTTP: Final = "http/protobuf"
GRPC: Final = "grpc"
GRPC_PORT: Final = 4317
_OTLP_NAMES: Final = {"otlp": "", "otlp_proto_http": HTTP, "otlp_proto_grpc": GRPC}
_TRACES: Final = ("traces", OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT)
_LOGS: Final = ("logs", OTEL_LOGS_EXPORTER, OTEL_EXPORTER_OTLP_LOGS_ENDPOINT)
_STANDARD_SAMPLERS: Final = frozenset(
    {
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    }
)


class OwnProviders:
    """The providers that otelkit has set up itself: once for a process, as OpenTelemetry allows no more."""

    def __init__(self) -> None:
        self._settings = Settings()
        self._tracer_provider: TracerProvider | None = None
        self._logger_provider: LoggerProvider | None = None
        self._span_deliveries: list[Delivery] = []
        self._event_deliveries: list[Delivery] = []

    def configure(self, settings: Settings, counts: SelfMetrics) -> None:
        """Say what providers that are set up from now on may take, and who counts from now on."""
        self._settings = settings
        self._counts = counts
        for delivery in self._span_deliveries:
            delivery.counts = counts
        for delivery in self._event_deliveries:
            delivery.counts = EventCounts(counts)

    def load(self) -> None:
        """Load now what ``set_up`` will need: imports take time, and the first request waits."""
        if find_spec("gevent") is not None:
            return  # the program may be about to patch what these imports would bring in unpatched
        for signal, variable, endpoint in (_TRACES, _LOGS):
            for name in _exporters(signal, variable, endpoint):
                _load(f"opentelemetry_{signal}_exporter", name, lambda factory: factory)

    def set_up(self) -> None:
        """Set the providers that are missing; those of the user's program stay."""
        span_exporters, log_exporters = _exporters(*_TRACES), _exporters(*_LOGS)
        if span_exporters and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            self._tracer_provider = self._make_tracer_provider(span_exporters)
            trace.set_tracer_provider(self._tracer_provider)
        if log_exporters and _no_logger_provider():
            self._logger_provider = self._make_logger_provider(log_exporters)
            _logs.set_logger_provider(self._logger_provider)

    def _make_tracer_provider(self, exporters: list[str]) -> TracerProvider:
        # Our own shutdown is bounded; the SDK's, left to itself, waits for a dead collector.
        provider = TracerProvider(
            sampler=_sampler(),
            resource=Resource.create(),
            shutdown_on_exit=False,
            id_generator=_id_generator(),
        )
        hook_into(provider)  # before others: a flush then reaches otelkit first
        for name in exporters:
            exporter = _load("opentelemetry_traces_exporter", name, lambda factory: factory())
            if exporter is None:
                continue
            delivery = self._delivery(exporter, self._counts)
            if delivery is not None:
                self._span_deliveries.append(delivery)
                exporter.shutdown()
                exporter = BufferedSpanExporter(delivery, self._settings.batch_bytes)
            provider.add_span_processor(BatchSpanProcessor(exporter))
        return provider

    def _make_logger_provider(self, exporters: list[str]) -> LoggerProvider:
        provider = LoggerProvider(resource=Resource.create(), shutdown_on_exit=False)
        for name in exporters:
            exporter = _load("opentelemetry_logs_exporter", name, lambda factory: factory())
            if exporter is None:
                continue
            delivery = self._delivery(exporter, EventCounts(self._counts))
            if delivery is not None:
                self._event_deliveries.append(delivery)
                exporter.shutdown()
                exporter = BufferedLogExporter(delivery)
            provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        return provider

    def _delivery(self, exporter: object, counts: Counts) -> Delivery | None:
        sender = sender_like(exporter)
        if sender is None:
            return None
        return Delivery(
            sender,
            counts,
            timeout=timeout_of(exporter, DEFAULT_TIMEOUT),
            buffer_bytes=self._settings.buffer_bytes,
            retry_seconds=self._settings.retry_seconds,
        )

    def flush(self, timeout: float) -> bool:
        """Deliver what the SDK's processors hold; False when that takes longer than ``timeout`` seconds."""
        end = time.monotonic() + timeout
        for provider in (self._tracer_provider, self._logger_provider):
            if provider is not None:
                provider.force_flush(int(timeout * 1e3))
        deliveries = (*self._span_deliveries, *self._event_deliveries)
        flushed = [delivery.flush(max(0.0, end - time.monotonic())) for delivery in deliveries]
        return all(flushed)

    def spans_first(self, timeout: float) -> None:
        """Hand over what the SDK's processors hold, ahead of token steps that are yet to be shipped: where a
        slow collector leaves time for one request, spans of generations matter more than their steps."""
        if self._span_deliveries and self._tracer_provider is not None:
            for processor in processors_of(self._tracer_provider):
                processor.force_flush(int(timeout * 1e3))

    def shutdown(self, timeout: float) -> None:
        """At the end of the process: deliver what is held, within ``timeout`` seconds if all goes to OTLP."""
        for provider in (self._tracer_provider, self._logger_provider):
            if provider is not None:
                provider.shutdown()
        shut_down((*self._span_deliveries, *self._event_deliveries), timeout)

    def after_fork(self) -> None:
        """In the child: what is buffered is the parent's to send."""
        for delivery in (*self._span_deliveries, *self._event_deliveries):
            delivery.after_fork()


class EventCounts:
    """Counts of a delivery of log events: its failures and cost count, its items are no spans."""

    def __init__(self, own: SelfMetrics) -> None:
        self.export_failed = own.export_failed
        self.overhead = own.overhead

    def written(self, spans: int) -> None:
        """Events are no spans."""

    def delivered(self, spans: int) -> None:
        """Events are no spans."""

    def dropped(self, spans: int, reason: str) -> None:
        if reason == self_metrics.EXPORT_FAILED:
            notices.say_once(
                "otelkit: parameter-change events could not be delivered; metrics still have the changes."
            )


own_providers: Final = OwnProviders()
os.register_at_fork(after_in_child=own_providers.after_fork)


def _no_logger_provider() -> bool:
    provider = _logs.get_logger_provider()
    return isinstance(provider, NoOpLoggerProvider) or type(provider).__name__ == "ProxyLoggerProvider"


def _exporters(signal: str, variable: str, endpoint_variable: str) -> list[str]:
    """Names of the exporters of a signal, as their entry points are called."""
    named = [name.strip().lower() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if not named:
        configured = os.environ.get(endpoint_variable) or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT)
        named = ["otlp"] if configured else []
    return [_entry_point(name, signal, endpoint_variable) for name in named if name != "none"]


def _entry_point(name: str, signal: str, endpoint_variable: str) -> str:
    if name not in _OTLP_NAMES:
        return name
    protocol = _OTLP_NAMES[name] or _protocol(signal, endpoint_variable)
    return "otlp_proto_grpc" if protocol == GRPC else "otlp_proto_http"


def _protocol(signal: str, endpoint_variable: str) -> str:
    own = OTEL_EXPORTER_OTLP_TRACES_PROTOCOL if signal == "traces" else OTEL_EXPORTER_OTLP_LOGS_PROTOCOL
    protocol = (os.environ.get(own) or os.environ.get(OTEL_EXPORTER_OTLP_PROTOCOL) or "").strip().lower()
    if not protocol:
        endpoint = os.environ.get(endpoint_variable) or os.environ.get(OTEL_EXPORTER_OTLP_ENDPOINT) or ""
        return GRPC if _port(endpoint) == GRPC_PORT else HTTP
    if protocol not in (GRPC, HTTP):
        notices.say_once(
            f"otelkit: OTLP protocol {protocol!r} is not one of {GRPC!r} and {HTTP!r}; using {HTTP!r}. "
            f"Set {OTEL_EXPORTER_OTLP_PROTOCOL}."
        )
        return HTTP
    return protocol


def _port(endpoint: str) -> int | None:
    try:
        return urlsplit(endpoint if "//" in endpoint else f"//{endpoint}").port
    except ValueError:
        return None


def _load(group: str, name: str, make: Callable[[Any], Any]) -> Any:
    """What an entry point makes; None, and one warning, when it is missing or fails."""
    found = next(iter(entry_points(group=group, name=name)), None)
    if found is None:
        notices.say_once(
            f"otelkit: no installed package provides {name!r} ({group}); it is left out. "
            "Install the package, or correct the OTEL_* variable that names it."
        )
        return None
    try:
        return make(found.load())
    except Exception as error:
        notices.say_once(f"otelkit: {name!r} ({group}) can't be set up and is left out: {error}")
        return None


def _sampler() -> Sampler | None:
    """A sampler named by OTEL_TRACES_SAMPLER that the SDK has no name for; None: the SDK chooses."""
    name = os.environ.get(OTEL_TRACES_SAMPLER, "").strip()
    if not name or name.lower() in _STANDARD_SAMPLERS:
        return None
    argument = os.environ.get(OTEL_TRACES_SAMPLER_ARG)
    sampler = _load("opentelemetry_traces_sampler", name, lambda factory: factory(argument))
    return sampler if isinstance(sampler, Sampler) else DEFAULT_ON


def _id_generator() -> Any:
    name = os.environ.get(OTEL_PYTHON_ID_GENERATOR, "random").strip()
    return None if name == "random" else _load("opentelemetry_id_generator", name, lambda factory: factory())
