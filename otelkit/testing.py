"""For users' tests: what a program records, in memory, with ids and times that are the same in every run.

    from otelkit import testing

    def test_answer():
        with testing.recording() as recorded:
            answer(client)
        (generation,) = recorded.generations
        assert generation.outcome is Outcome.COMPLETED

Needs nothing to be set up, and leaves the global tracer provider alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from otelkit import semconv
from otelkit.model import CallSite, Generation, ParameterChange
from otelkit.record import instrumentation
from otelkit.record.clock import Clock
from otelkit.record.providers.base import Provider

EPOCH_NS: Final = 1_700_000_000_000_000_000
TICK_NS: Final = 1_000_000


class SequentialIds(IdGenerator):
    """Trace and span ids 1, 2, 3 ..."""

    def __init__(self) -> None:
        self._traces, self._spans = count(1), count(1)

    def generate_trace_id(self) -> int:
        return next(self._traces)

    def generate_span_id(self) -> int:
        return next(self._spans)


def ticking_clock(tick_ns: int = TICK_NS) -> Clock:
    """A clock that moves by ``tick_ns`` at every reading, so that steps are evenly spaced."""
    ticks = count(tick_ns, tick_ns)
    return Clock(monotonic_ns=lambda: next(ticks), wall_ns=lambda: EPOCH_NS)


@dataclass
class Recorded:
    """What was recorded, in order. Also the sink that takes it."""

    tracer_provider: TracerProvider
    """For the program's own spans, where a test looks at these too."""
    started: list[CallSite] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    changes: list[ParameterChange] = field(default_factory=list)
    _exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    _arrival: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """Finished spans, those of the program's own instrumentation included when it uses
        ``tracer_provider``."""
        return self._exporter.get_finished_spans()

    def wait(self, generations: int, timeout: float = 5.0) -> list[Generation]:
        """Generations once there are that many.

        Raises:
            TimeoutError: there were fewer after ``timeout`` seconds.
        """
        with self._arrival:
            if not self._arrival.wait_for(lambda: len(self.generations) >= generations, timeout):
                raise TimeoutError(f"{len(self.generations)} of {generations} generations after {timeout} s")
            return self.generations

    # --- the sink -------------------------------------------------------------------------------------------
    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        self.started.append(call_site())

    def generation(self, build: Callable[[], Generation]) -> None:
        built = build()
        with self._arrival:
            self.generations.append(built)
            self._arrival.notify_all()

    def change(self, change: ParameterChange) -> None:
        self.changes.append(change)


@contextmanager
def recording(
    *,
    providers: Sequence[Provider] | None = None,
    service: str = "test",
    clock: Clock | None = None,
    sampler: Sampler = ALWAYS_ON,
) -> Iterator[Recorded]:
    """Record in memory while the block runs.

    Args:
        providers: adapters to install; None for all.
        service: ``service.name``.
        clock: None for one that ticks; ``otelkit.record.clock.SYSTEM_CLOCK`` for the real one.
        sampler: of the tracer provider.
    """
    provider = TracerProvider(
        resource=Resource({semconv.SERVICE_NAME: service}),
        sampler=sampler,
        id_generator=SequentialIds(),
        shutdown_on_exit=False,
    )
    recorded = Recorded(provider)
    provider.add_span_processor(SimpleSpanProcessor(recorded._exporter))
    instrumentation.install(
        recorded,
        providers,
        service=service,
        tracer_provider=provider,
        clock=ticking_clock() if clock is None else clock,
    )
    try:
        yield recorded
    finally:
        instrumentation.uninstall()
        provider.shutdown()
