"""``otelkit.instrument()``: everything a service needs, from the standard environment variables."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.util import Finalize, register_after_fork
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.environment_variables import OTEL_SDK_DISABLED
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client import values as prometheus_values
from prometheus_client.multiprocess import mark_process_dead

from otelkit import semconv
from otelkit.emit import notices, server_end, settings
from otelkit.emit.attach import Attachment
from otelkit.emit.input_metrics import InputMetrics
from otelkit.emit.late_spans import LateSpans
from otelkit.emit.metrics import GenerationMetrics
from otelkit.emit.multiprocess import FileMirror
from otelkit.emit.page import MetricsPage, open_page
from otelkit.emit.pipeline import Pipeline
from otelkit.emit.providers import own_providers
from otelkit.emit.scrape import WorkBeforeScrape
from otelkit.emit.selection import StepSelection
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.emit.settings import Settings
from otelkit.emit.settled_metrics import SettledMetrics
from otelkit.emit.sink import QueueSink
from otelkit.record import guard, instrumentation
from otelkit.record.parameters.process import process
from otelkit.record.patches import Patches
from otelkit.record.runtime import UNKNOWN_SERVICE, service_name_from_environment
from otelkit.record.web import startup


@dataclass
class Instrumentation:
    """What ``instrument`` has set up."""

    service: str
    sink: QueueSink
    settings: Settings
    page: MetricsPage | None
    _metrics: GenerationMetrics
    _own: SelfMetrics
    _inputs: InputMetrics
    _settled: SettledMetrics
    _mirror: FileMirror | None
    _before_scrape: WorkBeforeScrape | None
    _late_spans: LateSpans
    _patches: Patches = field(default_factory=Patches)

    @property
    def metrics_url(self) -> str | None:
        """Address of the /metrics page; None when there is none."""
        return None if self.page is None else f"http://{self.settings.metrics_host}:{self.page.port}/metrics"

    def flush(self, timeout: float = 10.0) -> bool:
        """Deliver everything recorded so far; False when that takes longer than ``timeout`` seconds."""
        end = time.monotonic() + timeout
        self._spans_first(end)
        flushed = self.sink.flush(max(0.0, end - time.monotonic()))
        return own_providers.flush(max(0.0, end - time.monotonic())) and flushed

    def end_sink(self, end: float) -> None:
        """Deliver what is left, until ``end`` (monotonic seconds), and take no more."""
        self._spans_first(end)
        self.sink.shutdown(max(0.0, end - time.monotonic()))

    def _spans_first(self, end: float) -> None:
        # Spans that end where their records are built have to be ended before they can be handed over.
        self.sink.work_off(max(0.0, end - time.monotonic()))
        own_providers.spans_first(max(0.0, end - time.monotonic()))

    def close(self) -> None:
        """Deliver what is left, for at most ``settings.shutdown_seconds``, and take everything down but
        providers."""
        self._patches.undo()
        end = time.monotonic() + self.settings.shutdown_seconds
        self.end_sink(end)
        own_providers.flush(max(0.0, end - time.monotonic()))
        if self.page is not None:
            self.page.close()
        self._metrics.unregister()
        self._own.unregister()
        self._inputs.unregister()
        self._settled.unregister()
        if self._mirror is not None:
            self._mirror.unregister()
        if self._before_scrape is not None:
            self._before_scrape.unregister()

    def leave_files(self) -> None:
        """At the end of a process in multiprocess mode: what it is using now is no longer true once it has
        ended. What it has counted, and the changes that it saw, stay."""
        if self._mirror is not None:
            mark_process_dead(os.getpid())  # type: ignore[no-untyped-call]


_UNSEEN_IN_CHILD: Final = (
    "otelkit: this process was forked from one that serves /metrics, and its metrics are not on that page. "
    "Set PROMETHEUS_MULTIPROC_DIR to an empty directory before the start to have all processes on it."
)
_lock: Final = threading.Lock()
_current: Instrumentation | None = None


def instrument(
    *,
    service_name: str | None = None,
    registry: CollectorRegistry = REGISTRY,
    defer_providers: bool = False,
) -> Instrumentation | None:
    """Record every call of a model in this process. Calling it again changes nothing.

    Reads the standard OTEL_* variables and otelkit's own (``settings``). Nothing is exported unless they say
    where to; ``providers`` has the rules. A fault here is logged, and the service goes on without otelkit.

    Args:
        service_name: sets ``OTEL_SERVICE_NAME`` for this process and its children.
        registry: where metrics are registered.
        defer_providers: set OpenTelemetry's providers only when the first call of a model begins, so that a
            program which sets its own at start-up is not pre-empted. For use before the program's own code,
            as in ``otelkit run``.

    Returns:
        What was set up; None when OTEL_SDK_DISABLED is true, or on a fault.
    """
    global _current
    if os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true":
        process.watch_from_environment()  # the service's own parameters are no telemetry
        return None
    with _lock:
        if _current is None:
            if service_name:
                os.environ["OTEL_SERVICE_NAME"] = service_name
            try:
                _current = _set_up(registry, defer_providers)
                instrumentation.install(
                    _current.sink, service=_current.service, late_spans=_current._late_spans
                )
                server_end.deliver_at_the_end(_before_signal, _current._patches)
                startup.start_from_environment()
                _end_before_others()
                # A child of multiprocessing ends without running exit handlers, but runs these.
                register_after_fork(_current, lambda _: Finalize(None, _at_exit, exitpriority=0))
            except Exception:
                guard.fault("set itself up")
        return _current


def uninstrument() -> None:
    """Undo ``instrument``: adapters are taken off, what was recorded is delivered, metrics unregistered.

    Providers that were set stay: OpenTelemetry allows to set them once.
    """
    global _current
    with _lock:
        current, _current = _current, None
        if current is not None:
            atexit.unregister(_at_exit)
            startup.stop()
            instrumentation.uninstall()
            current.close()


def _end_before_others() -> None:
    """Make our end come first at the end of the process: before that of a provider which exists by now."""
    atexit.unregister(_at_exit)
    atexit.register(_at_exit)


def _at_exit() -> None:
    """Deliver what is left; bounded, also when the collector is down."""
    current = _current
    if current is not None:
        end = time.monotonic() + current.settings.shutdown_seconds
        instrumentation.uninstall()
        current.end_sink(end)
        own_providers.shutdown(max(0.0, end - time.monotonic()))
        current.leave_files()


def _before_signal() -> None:
    """Deliver what is left, bounded, before a signal kills the process without running exit handlers."""
    current = _current
    if current is not None:
        instrumentation.flush()
        current.flush(current.settings.shutdown_seconds)
        current.leave_files()


def _set_up(registry: CollectorRegistry, defer_providers: bool) -> Instrumentation:
    chosen, problems = settings.read(os.environ)
    for problem in problems:
        notices.logger.warning("otelkit: %s", problem)
    multiprocess = bool(getattr(prometheus_values.ValueClass, "_multiprocess", False))
    if multiprocess:
        notices.say_once(
            "otelkit: prometheus multiprocess mode keeps no exemplars; metrics go on without them."
        )
    service = _service_name()
    sink: QueueSink
    before_scrape = None if multiprocess else WorkBeforeScrape(registry, lambda wait: sink.work_off(wait))
    own = SelfMetrics(service, registry, pending=None if multiprocess else lambda: sink.pending())
    metrics = GenerationMetrics(
        registry,
        slo_seconds=chosen.slo_seconds,
        label_sets=chosen.label_sets,
        exemplars=not multiprocess,
        multiprocess=multiprocess,
        uncounted=lambda: sink.uncounted(),
    )
    own_providers.configure(chosen, own)
    attachment = Attachment(chosen, own, lambda timeout: sink.flush(timeout), _end_before_others)
    selection = StepSelection(
        chosen.spans_per_second, chosen.spans_per_generation, promoted=attachment.promoted
    )
    prepare: Callable[[], None] | None = None
    if defer_providers:
        own_providers.load()
        prepare = own_providers.set_up
    else:
        own_providers.set_up()
    in_child = "" if multiprocess or chosen.metrics_port is None else _UNSEEN_IN_CHILD
    # A page of many processes can't ask each of them at a scrape.
    asked = CollectorRegistry() if multiprocess else registry
    inputs, settled = InputMetrics(service, process.input_counts, asked), SettledMetrics(asked)
    mirror = FileMirror(asked, registry) if multiprocess else None
    pipeline = Pipeline(
        service,
        metrics,
        own,
        selection,
        attachment,
        prepare=prepare,
        say_in_child=in_child,
        write_files=mirror.write if mirror else None,
    )
    sink = QueueSink(pipeline, chosen.queue_size, count_at_once=multiprocess)
    if not defer_providers:
        attachment.hook()
    page = None
    if chosen.metrics_port is not None:
        page = open_page(chosen.metrics_host, chosen.metrics_port, registry, multiprocess=multiprocess)
        if page is not None:
            chosen = replace(chosen, metrics_port=page.port)
    return Instrumentation(
        service,
        sink,
        chosen,
        page,
        metrics,
        own,
        inputs,
        settled,
        mirror,
        before_scrape,
        LateSpans(sink.has_room, pipeline.take_span, attachment.hook),
    )


def _service_name() -> str:
    """``service.name`` by the environment, else by the provider that the program has set."""
    name = service_name_from_environment()
    resource = getattr(trace.get_tracer_provider(), "resource", None)
    if name == UNKNOWN_SERVICE and resource is not None:
        return str(resource.attributes.get(semconv.SERVICE_NAME, name))
    return name
