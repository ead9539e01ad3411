"""Token-step spans take the way of the user's own pipeline, whatever that is."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from emit_collector import HttpCollector
from emit_generations import SITE, generation
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry

from otelkit.emit.attach import Attachment
from otelkit.emit.metrics import GenerationMetrics
from otelkit.emit.pipeline import Pipeline
from otelkit.emit.route import NoRoute, OtlpRoute, TracerRoute
from otelkit.emit.sampler import AdaptiveSampler
from otelkit.emit.selection import StepSelection
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.emit.settings import Settings
from otelkit.emit.sink import QueueSink
from otelkit.model import Generation, Outcome, SpanIdentity


class Service:
    """A sink with all its parts around one tracer provider."""

    def __init__(self, **settings: Any) -> None:
        chosen = Settings(shutdown_seconds=0.5, **settings)
        registry = CollectorRegistry()
        own = SelfMetrics("chat", registry)
        self.attachment = Attachment(chosen, own, lambda timeout: self.sink.flush(timeout))
        selection = StepSelection(
            chosen.spans_per_second, chosen.spans_per_generation, promoted=self.attachment.promoted
        )
        pipeline = Pipeline("chat", GenerationMetrics(registry), own, selection, self.attachment)
        self.sink = QueueSink(pipeline, 1000)
        self.registry = registry

    def call(self, steps: int = 10, outcome: Outcome = Outcome.COMPLETED, **other: Any) -> Generation:
        """One generation, with a span of the global provider as ``record`` makes it."""
        span = trace.get_tracer("otelkit").start_span("chat some-model")
        self.sink.generation_started(lambda: SITE)
        context = span.get_span_context()
        state = context.trace_state.to_header()
        identity = SpanIdentity(context.trace_id, context.span_id, context.trace_flags.sampled, state)
        recorded = generation(steps, span=identity, outcome=outcome, **other)
        span.end()
        self.sink.generation(lambda: recorded)
        return recorded

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"service": "chat", **labels}) or 0.0


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.sink.shutdown(1)


@pytest.fixture
def collector() -> Iterator[HttpCollector]:
    with HttpCollector() as running:
        yield running


UseProvider = Callable[..., TracerProvider]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[UseProvider]:
    """Makes a provider with these processors the global one."""
    made: list[TracerProvider] = []

    def provider(*processors: SpanProcessor, **arguments: Any) -> TracerProvider:
        arguments.setdefault("resource", Resource.create({"service.name": "chat"}))
        new = TracerProvider(shutdown_on_exit=False, **arguments)
        for processor in processors:
            new.add_span_processor(processor)
        monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", new)
        made.append(new)
        return new

    yield provider
    for one in made:
        one.shutdown()


def otlp(collector: HttpCollector, **arguments: Any) -> BatchSpanProcessor:
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces", **arguments))


def step_attributes(spans: Sequence[ReadableSpan]) -> list[dict[str, Any]]:
    return [dict(span.attributes or {}) for span in spans if span.name == "token_step"]


def test_steps_go_where_the_exporter_sends(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise an endpoint or header that a program sets in code would not hold for token steps."""
    provider = use(otlp(collector, headers={"api-key": "x"}))
    recorded = service.call(20)
    assert provider.force_flush()
    assert isinstance(service.attachment.route(), OtlpRoute)
    steps = collector.steps()
    assert len(steps) == 20
    assert recorded.span is not None
    assert {int.from_bytes(step.parent_span_id, "big") for step in steps} == {recorded.span.span_id}
    assert {request.headers["api-key"] for request in collector.received} == {"x"}
    assert service.value("otelkit_spans_written_total") == 20
    assert service.value("otelkit_spans_delivered_total") == 20


def test_resource_and_scope_are_those_of_the_generation(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise backends would show token steps as another service's, or under another library."""
    resource = Resource.create({"service.name": "chät", "numbers": [1, 2]}, "https://example.com/schema")
    provider = use(otlp(collector), resource=resource)
    service.call()
    provider.force_flush()
    seen = {
        (
            r.schema_url,
            tuple((item.key, item.value.SerializeToString()) for item in r.resource.attributes),
            s.scope.name,
        )
        for request in collector.requests()
        for r in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for s in r.scope_spans
    }
    assert len(seen) == 1


def test_trace_state_and_ids_are_the_providers(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise vendors' routing by trace state fails, and id generators with a meaning are bypassed."""

    class Counting(RandomIdGenerator):
        numbers = itertools.count(1)

        def generate_span_id(self) -> int:
            return next(self.numbers)

    provider = use(otlp(collector), id_generator=Counting())
    state = trace.TraceState([("vendor", "x")])
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    parent = trace.SpanContext(1, 2, is_remote=True, trace_flags=flags, trace_state=state)
    with trace.use_span(trace.NonRecordingSpan(parent)):
        service.call(3)
    provider.force_flush()
    steps = collector.steps()
    assert {step.trace_state for step in steps} == {"vendor=x"}
    assert {int.from_bytes(step.span_id, "big") for step in steps} == {2, 3, 4}


def test_span_limits_of_the_provider_hold(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise a limit that protects a backend would not hold for the most numerous spans."""
    provider = use(otlp(collector), span_limits=SpanLimits(max_span_attributes=1))
    service.call(3, step_tokens=[1, 1, 1])
    provider.force_flush()
    assert {len(step.attributes) for step in collector.steps()} == {1}


def test_several_endpoints_get_all_steps(service: Service, use: UseProvider) -> None:
    """Otherwise only one of two collectors would have complete traces."""
    with HttpCollector() as one, HttpCollector() as other:
        provider = use(otlp(one), otlp(other))
        service.call(5)
        provider.force_flush()
        assert len(one.steps()) == len(other.steps()) == 5


def test_other_pipelines_get_readable_spans(service: Service, use: UseProvider) -> None:
    """Otherwise a user's redaction, filter or exporter of another kind would be bypassed."""
    memory = InMemorySpanExporter()
    provider = use(BatchSpanProcessor(memory), span_limits=SpanLimits(max_span_attributes=2))
    recorded = service.call(3, step_tokens=[1, 2, 3], step_logprobs=[-0.5, None, -0.1])
    assert provider.force_flush()
    assert isinstance(service.attachment.route(), TracerRoute)
    spans = memory.get_finished_spans()
    assert step_attributes(spans) == [
        {"otelkit.step.tokens": 1, "otelkit.step.logprob": -0.5},
        {"otelkit.step.index": 1, "otelkit.step.tokens": 2},
        {"otelkit.step.tokens": 3, "otelkit.step.logprob": -0.1},
    ]
    steps = [span for span in spans if span.name == "token_step"]
    assert [span.end_time for span in steps] == list(recorded.step_ns)
    assert steps[0].start_time == recorded.start_ns
    assert all(
        span.parent and recorded.span and span.parent.span_id == recorded.span.span_id for span in steps
    )


def test_a_processor_that_does_more_than_export_is_not_bypassed(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise spans would reach the collector without what a processor adds to them."""

    class Stamp(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            span.set_attribute("stamped", True)

        def force_flush(self, timeout_millis: int = 30_000) -> bool:
            return True

    provider = use(Stamp(), otlp(collector))
    service.call(3)
    assert provider.force_flush()
    assert {item.key for step in collector.steps() for item in step.attributes} >= {"stamped"}
    assert len(collector.steps()) == 3


@pytest.mark.parametrize("method", ["on_end", "export"])
def test_a_method_replaced_on_one_processor_or_exporter_is_not_bypassed(
    method: str, collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise spans would reach the collector past a function that a program has put there to look at them,
    as OpenLLMetry does."""
    processor = otlp(collector)
    adapted: Any = processor if method == "on_end" else processor.span_exporter
    seen: list[Any] = []
    original = getattr(adapted, method)

    def replacement(spans: Any) -> Any:
        seen.extend([spans] if method == "on_end" else spans)
        return original(spans)

    setattr(adapted, method, replacement)
    provider = use(processor)
    service.call(3)
    assert provider.force_flush()
    assert [span.name for span in seen].count("token_step") == len(collector.steps()) == 3


def test_nothing_is_written_when_nothing_is_exported(service: Service, use: UseProvider) -> None:
    """Otherwise a service without an exporter would pay for spans that nobody gets."""
    provider = use()
    service.call(3)
    assert provider.force_flush()
    assert isinstance(service.attachment.route(), NoRoute)
    assert service.value("otelkit_spans_written_total") == 0


def test_nothing_is_written_for_parents_that_are_not_sampled(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise sampling, which users set to save money, would not apply to most of the spans."""
    provider = use(otlp(collector), sampler=ALWAYS_OFF)
    service.call(3)
    provider.force_flush()
    assert collector.spans() == []
    assert service.value("otelkit_steps_not_selected_total", reason="parent_not_sampled") == 3
    assert service.value("gen_ai_client_operation_duration_seconds_count") == 0  # has more labels
    assert sum(
        m.value for f in service.registry.collect() for m in f.samples if "duration_seconds_count" in m.name
    )


def test_a_provider_or_processor_that_is_set_late_is_used(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise instrumenting before the program's own set-up would lose its spans for good."""
    service.call(3)
    service.sink.flush(5)
    provider = use()
    service.call(3)
    service.sink.flush(5)
    provider.add_span_processor(otlp(collector))
    service.call(4)
    assert provider.force_flush()
    assert len(collector.steps()) == 4


def test_batches_are_bounded_in_bytes(collector: HttpCollector, use: UseProvider) -> None:
    """Otherwise a 50,000-token stream would make a request that collectors refuse."""
    service = Service(batch_bytes=100_000, spans_per_generation=100_000, spans_per_second=1e9)
    provider = use(otlp(collector))
    service.call(50_000)
    for _ in range(5):
        service.call(7)
    assert provider.force_flush()
    service.sink.shutdown(1)
    assert len(collector.steps()) == 50_035
    assert max(len(request.body) for request in collector.received) <= 101_000


def test_a_trace_that_was_not_chosen_is_exported_when_it_fails(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise the adaptive sampler would leave out the very traces that are looked for."""
    provider = use(otlp(collector), sampler=AdaptiveSampler(0))
    tracer = trace.get_tracer("app")
    with tracer.start_as_current_span("GET /quiet"):
        service.call(3)
    with tracer.start_as_current_span("GET /broken"):
        failed = service.call(4, outcome=Outcome.ERROR)
        service.sink.flush(5)
    assert provider.force_flush()
    names = sorted(span.name for span in collector.spans())
    assert names == ["GET /broken", "chat some-model", *["token_step"] * 4]
    assert failed.span is not None
    assert {int.from_bytes(span.trace_id, "big") for span in collector.spans()} == {failed.span.trace_id}


def test_an_error_in_any_span_promotes_its_trace(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise an error outside of the model call would leave its trace out."""
    provider = use(otlp(collector), sampler=AdaptiveSampler(0))
    service.attachment.hook()
    with pytest.raises(LookupError), trace.get_tracer("app").start_as_current_span("GET /broken"):
        with trace.get_tracer("app").start_as_current_span("fine"):
            pass
        raise LookupError("on purpose")
    with trace.get_tracer("app").start_as_current_span("quiet"):
        service.call(1)
    assert provider.force_flush()
    assert sorted(span.name for span in collector.spans()) == ["GET /broken", "fine"]


def test_record_only_spans_of_other_samplers_stay_unexported(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise spans that a user's sampler records for other purposes would be exported by us."""
    from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

    class RecordOnly(Sampler):
        def should_sample(self, *arguments: Any, **named: Any) -> SamplingResult:
            return SamplingResult(Decision.RECORD_ONLY)

        def get_description(self) -> str:
            return "record only"

    provider = use(otlp(collector), sampler=RecordOnly())
    service.call(3, outcome=Outcome.ERROR)
    assert provider.force_flush()
    assert collector.spans() == []


def test_simple_processors_are_plain_otlp_as_well(
    collector: HttpCollector, service: Service, use: UseProvider
) -> None:
    """Otherwise development set-ups would fall back to the slow way."""
    provider = use(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")))
    service.call(3)
    assert provider.force_flush()
    assert isinstance(service.attachment.route(), OtlpRoute)
    assert len(collector.steps()) == 3
