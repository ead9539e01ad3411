"""A span that is made when its generation has ended is the one that the tracer would have made before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import opentelemetry.sdk.trace as sdk
import pytest
from emit_collector import HttpCollector
from emit_deliveries import written
from emit_process import run
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBasedTraceIdRatio,
    Sampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    set_span_in_context,
)

from otelkit import __version__, semconv
from otelkit.emit import late_spans
from otelkit.emit.hook import all_processors, hook_into
from otelkit.emit.otlp.batch import Unwritten
from otelkit.emit.otlp.exporters import BufferedSpanExporter
from otelkit.emit.route import OtlpRoute
from otelkit.emit.sampler import AdaptiveSampler
from otelkit.model import SpanIdentity
from otelkit.record import guard
from otelkit.record import span as spans
from otelkit.record.attributes import Shared

START = 1_700_000_000_000_000_000
ATTRIBUTES: Mapping[str, Any] = {
    "gen_ai.request.model": "ünïcode-" + "x" * 40,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.request.max_tokens": 256,
    "gen_ai.request.stream": True,
    "gen_ai.request.stop_sequences": ("a", "bcdefgh"),
}


class Delivered:
    """In a delivery's place: keeps what it is given."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def put(self, body: bytes | Unwritten, items: int) -> None:
        self.bodies.append(written(body))


def numbered(*, random: bool = False) -> RandomIdGenerator:
    """The SDK's generator, with ids that can be foretold."""
    numbers = itertools.count(1)
    generator = RandomIdGenerator()
    generator.generate_span_id = generator.generate_trace_id = lambda: next(numbers)  # type: ignore[method-assign]
    generator.is_trace_id_random = lambda: random  # type: ignore[method-assign]
    return generator


def own_provider(**settings: Any) -> tuple[TracerProvider, Delivered]:
    """As otelkit sets one up itself, but for the way out."""
    settings.setdefault("id_generator", numbered())
    provider = TracerProvider(
        resource=Resource({"service.name": "chat"}, "https://example.com/schema"),
        shutdown_on_exit=False,
        **settings,
    )
    hook_into(provider)
    delivered = Delivered()
    exporter = BufferedSpanExporter(delivered, 1 << 20)  # type: ignore[arg-type]
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider, delivered


def by_tracer(surrounding: Context, error: str | None, **settings: Any) -> tuple[Any, list[bytes]]:
    provider, delivered = own_provider(**settings)
    items = list(ATTRIBUTES.items())
    span = provider.get_tracer(semconv.SCOPE, __version__).start_span(
        "chat m", surrounding, kind=SpanKind.CLIENT, attributes=dict(items[:2]), start_time=START
    )
    span.set_attributes(dict(items[2:]))
    if error is not None:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end(START + 5)
    provider.shutdown()
    return spans.identity(span), delivered.bodies


def late(surrounding: Context, error: str | None, **settings: Any) -> tuple[Any, list[bytes]]:
    provider, delivered = own_provider(**settings)
    route = OtlpRoute(provider, [delivered], batch_bytes=1 << 20, delay_seconds=60)  # type: ignore[list-item]
    maker = late_spans._judge(provider, all_processors(provider), route.take).maker
    assert maker is not None
    status = Status() if error is None else Status(StatusCode.ERROR, error)
    items = list(ATTRIBUTES.items())
    sent, others = Shared(items[:2]), dict(items[2:])
    identity = maker.make("chat m", surrounding, sent, others, START, START + 5, status)
    route.ship()
    provider.shutdown()
    return identity, delivered.bodies


def taken(span: bytes) -> bool:
    """In a route's place."""
    return True


def judge(provider: TracerProvider) -> late_spans._Judgement:
    return late_spans._judge(provider, all_processors(provider), taken)


def within(*, remote: bool = False, sampled: bool = True, flags: int = 0, state: str = "") -> Context:
    context = SpanContext(
        0xA0000000000000000000000000000001,
        0xB1,
        is_remote=remote,
        trace_flags=TraceFlags(flags | sampled),
        trace_state=TraceState.from_header([state]) if state else None,
    )
    return set_span_in_context(NonRecordingSpan(context), Context())


SURROUNDINGS = {
    "root": Context(),
    "baggage alone": Context({"other": 1}),
    "child": within(),
    "child of a random trace": within(flags=2),
    "remote parent with a state": within(remote=True, state="a=1,b=2"),
    "parent that is not sampled": within(sampled=False, state="a=1"),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "random ids": {"id_generator": numbered(random=True)},
    "always off": {"sampler": ALWAYS_OFF},
    "by ratio": {"sampler": TraceIdRatioBased(0.5)},
    "by ratio, with the parent": {"sampler": ParentBasedTraceIdRatio(1e-18)},
    "few attributes": {"span_limits": SpanLimits(max_span_attributes=3)},
    "no attributes": {"span_limits": SpanLimits(max_span_attributes=0)},
    "short values": {"span_limits": SpanLimits(max_span_attribute_length=4)},
    "no limits": {"span_limits": SpanLimits(max_span_attributes=SpanLimits.UNSET)},
}


@pytest.mark.parametrize("surrounding", SURROUNDINGS.values(), ids=SURROUNDINGS)
@pytest.mark.parametrize("named", SETTINGS)
@pytest.mark.parametrize("error", [None, "TimeoutError"])
def test_a_late_span_is_what_the_tracer_makes(surrounding: Context, named: str, error: str | None) -> None:
    """Broken: the provider's sampler, ids, limits or resource do not count for generations, or token steps
    hang on a span that was not exported."""

    def settings() -> dict[str, Any]:
        fresh = {"id_generator": numbered(random=True)} if named == "random ids" else {}
        return {**SETTINGS[named], **fresh}

    identity, bodies = late(surrounding, error, **settings())
    expected, expected_bodies = by_tracer(surrounding, error, **settings())
    assert identity == expected
    assert isinstance(identity, SpanIdentity)
    assert [ExportTraceServiceRequest.FromString(body) for body in bodies] == [
        ExportTraceServiceRequest.FromString(body) for body in expected_bodies
    ]
    assert bool(bodies) is identity.sampled


class OfTheProgram(Sampler):
    """Another class, which may look at anything."""

    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        return ALWAYS_ON.should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return ""


@pytest.mark.parametrize("sampler", [AdaptiveSampler(), OfTheProgram()])
def test_a_sampler_that_may_look_at_the_time_is_asked_at_the_beginning(sampler: Sampler) -> None:
    """Broken: a sampler that counts requests per second, or reads what belongs to the request, decides by
    what is so when a stream has ended."""
    provider, _ = own_provider(sampler=sampler)
    judged = judge(provider)
    assert judged.only_batches
    assert judged.maker is None
    provider.shutdown()


class Telling(RandomIdGenerator):
    """As X-Ray's, whose trace ids begin with the time at which they were made."""


def test_ids_that_may_tell_the_time_are_made_at_the_beginning() -> None:
    """Broken: a trace's id tells the end of a stream for its beginning."""
    provider, _ = own_provider(id_generator=Telling())
    assert judge(provider).maker is None
    provider.shutdown()


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TracerProvider]:
    """In use, for ``LateSpans``."""
    provider, _ = own_provider()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield provider
    provider.shutdown()


def make(lates: late_spans.LateSpans, name: str = "chat m") -> SpanIdentity | None:
    return lates.make(name, Context(), ATTRIBUTES, {}, start_ns=START, end_ns=START + 5, error=None)


@pytest.mark.parametrize("what", ["off", "another sampler"])
def test_a_tracer_that_is_changed_while_the_program_runs(what: str, provider: TracerProvider) -> None:
    """Broken: spans go on after a program has turned them off, or past the sampler that it has put in."""
    lates = late_spans.LateSpans(lambda: True, taken)
    assert lates.can_begin()
    assert make(lates) is not None
    tracer = provider.get_tracer(semconv.SCOPE, __version__)
    if tracer is not provider.get_tracer(semconv.SCOPE, __version__):
        pytest.skip("with this release of OpenTelemetry nobody gets at a tracer that is in use")
    if what == "off":
        provider._set_tracer_configurator(tracer_configurator=sdk._disable_tracer_configurator)
    else:
        tracer.sampler = OfTheProgram()  # type: ignore[attr-defined]
    assert not lates.can_begin()
    assert make(lates) is None


def test_a_provider_s_new_sampler_is_for_new_tracers(provider: TracerProvider) -> None:
    """Broken: generations that have ended lose their spans when a program sets another sampler, which the
    tracer that they began with never asks."""
    lates = late_spans.LateSpans(lambda: True, taken)
    assert lates.can_begin()
    provider.sampler = ALWAYS_OFF
    identity = make(lates)
    assert identity is not None
    assert identity.sampled


def test_a_processor_whose_methods_the_program_has_replaced(provider: TracerProvider) -> None:
    """Broken: a label that the program puts on each span as it begins is missing on generations."""
    all_processors(provider)[1].on_start = lambda span, parent_context=None: None
    lates = late_spans.LateSpans(lambda: True, taken)
    assert not lates.can_begin()
    assert not lates.can_end()


def test_an_exporter_whose_method_the_program_has_replaced(provider: TracerProvider) -> None:
    """Broken: a function that a program has put before otelkit's exporter never sees a generation's span."""
    exporter = all_processors(provider)[1].span_exporter
    exporter.export = lambda spans: type(exporter).export(exporter, spans)
    lates = late_spans.LateSpans(lambda: True, taken)
    assert not lates.can_begin()


def test_a_provider_that_can_not_be_read(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: with a release of OpenTelemetry that is built otherwise, no call is recorded."""
    monkeypatch.setattr(late_spans, "_is_plain", lambda tracer: tracer.is_no_more)
    monkeypatch.setattr(guard, "is_testing", lambda: False)
    lates = late_spans.LateSpans(lambda: True, taken)
    assert not lates.can_begin()
    assert make(lates) is None
    assert guard.faults.pop("look at the tracer provider: AttributeError") == 1


def test_attributes_of_one_name(provider: TracerProvider) -> None:
    """Broken: where baggage has the name of a request's attribute, a span has the name twice, which no
    receiver expects; or what many requests share is altered for all of them."""
    written: list[bytes] = []
    lates = late_spans.LateSpans(lambda: True, lambda span: not written.append(span))
    sent = Shared({"a": 1, "b": 2})
    for others in ({"c": 4, "a": 3}, {}):
        lates.make("chat m", Context(), sent, others, start_ns=START, end_ns=START + 5, error=None)
    assert [
        {one.key: one.value.int_value for one in ScopeSpans.FromString(span).spans[0].attributes}
        for span in written
    ] == [{"a": 3, "b": 2, "c": 4}, {"a": 1, "b": 2}]
    assert ScopeSpans.FromString(written[0]).spans[0].attributes[0].key == "a"
    assert len(ScopeSpans.FromString(written[0]).spans[0].attributes) == 3


def test_text_that_is_no_unicode_costs_its_span_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: half a surrogate pair in a name costs other generations their spans, or is not counted."""
    provider, delivered = own_provider()
    exporter = all_processors(provider)[1].span_exporter
    given_up: list[bool] = []
    monkeypatch.setattr(exporter, "_give_up", lambda: given_up.append(True))
    route = OtlpRoute(provider, [delivered], batch_bytes=1 << 20, delay_seconds=60)  # type: ignore[list-item]
    maker = late_spans._judge(provider, all_processors(provider), route.take).maker
    assert maker is not None
    for name in ("good", "\ud800", "good as well"):
        maker.make(name, Context(), Shared({"a": 1}), {}, START, START + 5, Status())
    route.ship()
    provider.shutdown()
    assert given_up == [True]
    (body,) = delivered.bodies
    spans = ExportTraceServiceRequest.FromString(body).resource_spans[0].scope_spans[0].spans
    assert [span.name for span in spans] == ["good", "good as well"]


def test_processors_get_an_ordinary_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: an exporter that reads more of a span than ours does fails at one that was made late, where
    spans no longer go out as bytes."""
    provider, _ = own_provider()
    maker = late_spans._judge(provider, all_processors(provider), lambda span: False).maker
    assert maker is not None
    seen: list[ReadableSpan] = []
    monkeypatch.setattr(all_processors(provider)[0], "on_end", seen.append)
    maker.make("chat m", within(), ATTRIBUTES, {}, START, START + 5, Status())
    (span,) = seen
    assert encode_spans([span]).resource_spans[0].scope_spans[0].spans[0].name == "chat m"
    assert '"chat m"' in span.to_json()
    assert span.attributes is not None
    assert dict(span.attributes) == dict(ATTRIBUTES)
    provider.shutdown()


@pytest.fixture
def collector() -> Iterator[HttpCollector]:
    with HttpCollector() as running:
        yield running


def test_a_processor_added_while_a_stream_is_read_sees_its_span(collector: HttpCollector) -> None:
    """Broken: the spans of streams that are open when a program sets up its own export are never seen
    there."""
    done = run(
        """
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        handle = otelkit.instrument()
        exporter = InMemorySpanExporter()
        early, late = (otelkit.watch(iter("abc"), model=model) for model in ("early", "late"))
        list(early)  # waits to be built
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        list(late)
        assert "text_completion late" in [span.name for span in exporter.get_finished_spans()]
        handle.flush()
        print(sorted(span.name for span in exporter.get_finished_spans() if span.name != "token_step"))
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
    )
    assert done.stdout.splitlines() == ["['text_completion early', 'text_completion late']"], done.stderr
    names = [span.name for span in collector.spans()]
    assert sorted(name for name in names if name != "token_step") == [
        "text_completion early",
        "text_completion late",
    ]


def test_baggage_session_and_request_id_are_those_of_the_beginning(collector: HttpCollector) -> None:
    """Broken: a span carries the tenant, the session or the request id of whatever runs when it is made."""
    done = run(
        """
        from opentelemetry import baggage, context
        from otelkit.record.propagation import with_request_id
        from otelkit.record.session import session
        handle = otelkit.instrument()
        for tenant in ("one", "two"):
            around = baggage.set_baggage("tenant-id", tenant)
            if tenant == "two":
                around = with_request_id("r-2", around)
            with session(f"session {tenant}"):
                token = context.attach(around)
                stream = otelkit.watch(iter("abc"), model=tenant)
                context.detach(token)
            list(stream)
        handle.flush()
        """,
        {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTELKIT_BAGGAGE_KEYS": "tenant-id"},
    )
    assert done.returncode == 0, done.stderr
    found = {
        span.name.split()[-1]: {a.key: a.value.string_value for a in span.attributes}
        for span in collector.spans()
        if span.name != "token_step"
    }
    for model in ("one", "two"):
        assert found[model]["tenant-id"] == model
        assert found[model][semconv.SESSION_ID] == f"session {model}"
    assert semconv.REQUEST_ID not in found["one"]
    assert found["two"][semconv.REQUEST_ID] == "r-2"
