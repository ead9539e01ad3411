"""The way of token-step spans out of the process: as bytes to the collector, or through the user's own
pipeline."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from opentelemetry import trace
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.util.types import AttributeValue

from otelkit import __version__, semconv
from otelkit.emit import token_steps
from otelkit.emit.hook import ADAPTED
from otelkit.emit.otlp.batch import Batch, Encoded
from otelkit.emit.otlp.delivery import Delivery
from otelkit.emit.otlp.envelope import Envelope
from otelkit.model import Generation

BYTES_PER_SPAN: Final = 256
"""More than a token-step span takes without a long trace state; sizes pieces of a generation."""


class Route(Protocol):
    """Takes the selected steps of generations. All but ``settle`` is for the background thread alone."""

    def write(self, generation: Generation, steps: Sequence[range]) -> None:
        """Write spans for these steps; they may wait for a batch to fill."""

    def take(self, span: bytes) -> bool:
        """Take the encoded span of a generation of otelkit's own tracer, which may wait as well; False where
        spans don't go out as bytes."""

    def due_in(self) -> float | None:
        """Seconds until what waits should be shipped; None when nothing waits."""

    def ship(self) -> None:
        """Hand on what waits."""

    def settle(self, timeout: float) -> bool:
        """Wait until what was shipped is delivered or dropped; False if ``timeout`` seconds don't suffice."""


class OtlpRoute:
    """Spans as bytes, in batches bounded in bytes and age, to every OTLP endpoint of the provider.

    Spans of generations are kept apart from those of their steps, and go first: where a slow collector leaves
    time for little, they matter more. What is due goes in one request where it fits.

    Args:
        provider: its resource, id generator and span limits are honoured.
        deliveries: one per endpoint.
        batch_bytes: largest request.
        delay_seconds: longest time that a span waits for its batch to fill.
    """

    def __init__(
        self,
        provider: TracerProvider,
        deliveries: Sequence[Delivery],
        *,
        batch_bytes: int,
        delay_seconds: float,
    ) -> None:
        self._provider = provider
        self._deliveries = deliveries
        self._batch_bytes = batch_bytes
        self._delay = delay_seconds
        self._resource: object = None
        self._envelope: Envelope
        self._batch = Batch()
        self._taken: list[bytes] = []
        self._taken_bytes = 0
        self._batch_at = self._taken_at = 0.0
        """When the first of each was added, by ``time.monotonic``."""
        limits: SpanLimits | None = getattr(provider, "_span_limits", None)
        limit = None if limits is None else limits.max_span_attributes
        self._attribute_limit = token_steps.DEFAULT_ATTRIBUTE_LIMIT if limit is None else limit
        self._span_ids = _span_ids(provider)

    def write(self, generation: Generation, steps: Sequence[range]) -> None:
        most = max(1, self._batch_bytes // BYTES_PER_SPAN)
        for chosen in steps:
            for start in range(chosen.start, chosen.stop, most):
                self._write(generation, range(start, min(start + most, chosen.stop)))

    def take(self, span: bytes) -> bool:
        if self._taken_bytes + len(span) > self._batch_bytes:
            self._ship(self._all_taken())
        if not self._taken:
            self._taken_at = time.monotonic()
        self._taken.append(span)
        self._taken_bytes += len(span)
        return True

    def _write(self, generation: Generation, piece: range) -> None:
        batch = self._batch
        steps = token_steps.StepSpans(
            generation, piece, span_ids=self._span_ids, attribute_limit=self._attribute_limit
        )
        if batch.size + steps.size > self._batch_bytes:
            self._ship(batch)
        if not batch.spans:
            self._batch_at = time.monotonic()
        batch.add(steps)

    def due_in(self) -> float | None:
        waiting = ((self._batch.spans, self._batch_at), (len(self._taken), self._taken_at))
        first = min((at for spans, at in waiting if spans), default=None)
        return None if first is None else max(0.0, first + self._delay - time.monotonic())

    def ship(self) -> None:
        taken = self._all_taken()
        if taken.size + self._batch.size <= self._batch_bytes:
            self._batch.put_first(taken)
        self._ship(taken)
        self._ship(self._batch)

    def _all_taken(self) -> Batch:
        """The spans of generations that wait, which wait here no longer."""
        batch = Batch()
        if self._taken:
            batch.add(Encoded(b"".join(self._taken), len(self._taken)))
            self._taken, self._taken_bytes = [], 0
        return batch

    def _ship(self, batch: Batch) -> None:
        spans = batch.spans
        if not spans:
            return
        body = batch.take(self._its_envelope())
        for delivery in self._deliveries:
            delivery.put(body, spans)

    def _its_envelope(self) -> Envelope:
        resource = self._provider.resource
        if resource is not self._resource:  # a fork or a detector may replace it
            self._resource = resource
            self._envelope = Envelope(resource.attributes, resource.schema_url, semconv.SCOPE, __version__)
        return self._envelope

    def settle(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        done = [delivery.flush(max(0.0, end - time.monotonic())) for delivery in self._deliveries]
        return all(done)


class TracerRoute:
    """Spans through a tracer of the user's provider: no sampler, processor or exporter of it is bypassed.

    About fifty times the cost of ``OtlpRoute``, in the background thread.
    """

    def __init__(
        self, provider: trace.TracerProvider, flush_others: Callable[[float], bool] | None = None
    ) -> None:
        self._tracer = provider.get_tracer(semconv.SCOPE, __version__)
        self._flush_others = flush_others

    def write(self, generation: Generation, steps: Sequence[range]) -> None:
        span = generation.span
        if span is None:
            return
        parent = SpanContext(
            span.trace_id,
            span.span_id,
            is_remote=False,
            trace_flags=TraceFlags(TraceFlags.SAMPLED),  # or its steps had not been selected
            trace_state=TraceState.from_header([span.trace_state]) if span.trace_state else None,
        )
        context = trace.set_span_in_context(NonRecordingSpan(parent))
        times = generation.step_ns
        for chosen in steps:
            for i in chosen:
                step = self._tracer.start_span(
                    semconv.TOKEN_STEP_SPAN,
                    context,
                    kind=SpanKind.INTERNAL,
                    start_time=times[i - 1] if i else generation.start_ns,
                    attributes=_attributes(generation, i),
                )
                step.end(end_time=times[i])

    def take(self, span: bytes) -> bool:
        return False

    def due_in(self) -> float | None:
        return None

    def ship(self) -> None:
        """Nothing waits here; the user's processors batch."""

    def settle(self, timeout: float) -> bool:
        return self._flush_others(timeout) if self._flush_others is not None else True


class NoRoute:
    """For a process whose spans go nowhere: no provider, or one that exports nothing."""

    def write(self, generation: Generation, steps: Sequence[range]) -> None:
        """Nothing: nobody would get it."""

    def take(self, span: bytes) -> bool:
        return False

    def due_in(self) -> float | None:
        return None

    def ship(self) -> None:
        """Nothing waits."""

    def settle(self, timeout: float) -> bool:
        return True


def _attributes(generation: Generation, i: int) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {semconv.STEP_INDEX: i}
    columns: tuple[tuple[str, Sequence[float | None] | None], ...] = (
        (semconv.STEP_TOKENS, generation.step_tokens),
        (semconv.STEP_LOGPROB, generation.step_logprobs),
        (semconv.STEP_ENTROPY, generation.step_entropies),
    )
    for name, values in columns:
        value = values[i] if values is not None and i < len(values) else None
        if value is not None:
            attributes[name] = value
    return attributes


def _span_ids(provider: TracerProvider) -> token_steps.SpanIds:
    """The provider's id generator where it is a special one; the SDK's random one is replaced by a quicker
    one."""
    generator = provider.id_generator
    if type(generator) is RandomIdGenerator:
        return token_steps.numbered_span_ids

    def generate(count: int) -> token_steps.Columns:
        ids = [generator.generate_span_id().to_bytes(8, "big") for _ in range(count)]
        return token_steps.columns_of(b"".join(ids))

    return generate


def exporters_of(processors: Sequence[object]) -> list[object] | None:
    """The exporters behind processors that do nothing but export; None when one of them does more."""
    exporters: list[object] = []
    for processor in processors:
        if (
            type(processor) not in (BatchSpanProcessor, SimpleSpanProcessor)
            or ADAPTED & vars(processor).keys()
        ):
            return None
        exporters.append(processor.span_exporter)  # type: ignore[attr-defined]
    return exporters
