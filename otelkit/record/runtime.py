"""What all adapters of a process share: the sink, the tracer, the clock, and the generations that are
open."""

from __future__ import annotations

import atexit
import os
from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry import trace

from otelkit import __version__, semconv
from otelkit.model import CallSite, Generation, Sink
from otelkit.record.clock import SYSTEM_CLOCK, Clock
from otelkit.record.guard import fault
from otelkit.record.late import LateSpans, NeverLate
from otelkit.record.observed import ChangeDetector
from otelkit.record.propagation import baggage_keys

if TYPE_CHECKING:
    from otelkit.record.recording import Recording

UNKNOWN_SERVICE: Final = "unknown_service"


def service_name_from_environment() -> str:
    """``service.name`` by the OpenTelemetry rules: OTEL_SERVICE_NAME wins over OTEL_RESOURCE_ATTRIBUTES."""
    name = os.environ.get("OTEL_SERVICE_NAME", "").strip()
    if name:
        return name
    for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        key, _, value = pair.partition("=")
        if key.strip() == semconv.SERVICE_NAME and value.strip():
            return value.strip()
    return UNKNOWN_SERVICE


class Runtime:
    """Shared state of one installation.

    Args:
        sink: takes generations and changes.
        service: ``service.name`` of this process.
        tracer_provider: makes the generations' spans; None for the global one.
        clock: replaced in tests.
        detector: finds observed parameter changes; None for a fresh one.
        late_spans: says which spans may be made or ended off the request's path, and makes them; None for
            none.
    """

    def __init__(
        self,
        sink: Sink,
        service: str,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        clock: Clock = SYSTEM_CLOCK,
        detector: ChangeDetector | None = None,
        late_spans: LateSpans | None = None,
    ) -> None:
        self.sink = sink
        self.service = service
        self.clock = clock
        self.late_spans = NeverLate() if late_spans is None else late_spans
        self.detector = ChangeDetector() if detector is None else detector
        self.tracer = trace.get_tracer(semconv.SCOPE, __version__, tracer_provider)
        self.baggage_keys = baggage_keys()
        self.open: set[Recording] = set()
        """Held here so that streams nobody finishes still get their span when the process ends."""
        self.unmade: deque[Recording] = deque()
        """Generations that have ended and whose spans are still to be made, off the request's path."""
        self.ends_with_process = False

    def end_with_process(self) -> None:
        """See to it that open generations end with the process. To be called when the first one begins:
        functions registered last run first at exit, and spans must end before the tracer provider shuts down,
        which has registered itself when it was made."""
        self.ends_with_process = True
        atexit.register(self.finish_open)

    def observe(self, generation: Generation) -> None:
        """Look for parameter changes in a finished generation. Off the request's path."""
        try:
            for change in self.detector.observe(
                generation.call_site,
                generation.parameters,
                generation.start_ns / 1e9,
                generation.session_id,
            ):
                self.sink.change(change)
        except Exception:
            fault("look for parameter changes")

    def finish_open(self) -> None:
        """End every open generation at its last step; for the end of the process."""
        for recording in list(self.open):
            recording.abandon()

    def after_fork(self) -> None:
        """In the child: generations of the parent are the parent's to report."""
        self.open.clear()
        self.unmade.clear()


@lru_cache(maxsize=2048)
def call_site(service: str, provider: str, operation: str, model: str, location: str) -> CallSite:
    """One object for equal call sites: building it anew would cost each request a microsecond."""
    return CallSite(service, provider, operation, model, location)
