"""A span that may be made late is made at once for whoever asks for the current span while the request is
sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import openai
import pytest
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.context import Context, get_current
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision, StaticSampler
from opentelemetry.trace import SpanContext

from otelkit.model import CallSite, Generation, ParameterChange, SpanIdentity
from otelkit.record import instrumentation
from otelkit.record.span import RANDOM_TRACE_ID

LATE = SpanIdentity(trace_id=0xA1, span_id=0xB2, sampled=True, trace_state="k=v", random=True)


@dataclass
class Later:
    """A sink whose work is done when the test says so, and whose spans may all be made late.

    Whoever makes a span calls ``while_made`` in the middle.
    """

    builds: list[Callable[[], Generation]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    identity: SpanIdentity | None = field(default_factory=lambda: LATE)
    while_made: Callable[[], object] = lambda: None

    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        pass

    def generation(self, build: Callable[[], Generation]) -> None:
        self.builds.append(build)

    def change(self, change: ParameterChange) -> None:
        pass

    def can_begin(self) -> bool:
        return True

    def can_end(self) -> bool:
        return True

    def make(
        self, name: str, surrounding: Context, sent: Mapping[str, Any], others: Mapping[str, Any], **_: Any
    ) -> SpanIdentity | None:
        self.while_made()
        self.made.append(name)
        return self.identity


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def exporter(later: Later) -> Iterator[InMemorySpanExporter]:
    class Sampling(StaticSampler):
        def should_sample(self, *args: Any, **kwargs: Any) -> Any:
            later.while_made()
            return super().should_sample(*args, **kwargs)

    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=Sampling(Decision.RECORD_AND_SAMPLE), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentation.install(later, service="test", tracer_provider=provider, late_spans=later)
    try:
        yield exporter
    finally:
        instrumentation.uninstall()
        provider.shutdown()


def ask(while_sent: Callable[[], object]) -> None:
    """One call, with something done where an instrumented HTTP client would make its span."""
    http = __import__(openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0])

    def answer(request: object) -> Any:
        while_sent()
        return http.Response(200, json={"id": "1", "object": "chat.completion", "choices": []})

    transport = http.MockTransport(answer)
    with OpenAI(api_key="k", http_client=openai.DefaultHttpxClient(transport=transport)) as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])


def test_nobody_asks(later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: each call pays for a span that nobody wanted to see before its end."""
    ask(lambda: None)
    assert later.builds[0]().span == LATE
    assert later.made == ["chat m"]
    assert not exporter.get_finished_spans()


def test_child(later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: the span of an instrumented HTTP client is no child of the call's, or the call has two."""
    children: list[Any] = []
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("http")
    ask(lambda: children.append(tracer.start_span("POST")))
    generation = later.builds[0]()
    (span,) = exporter.get_finished_spans()
    assert span.name == "chat m"
    assert span.context is not None
    assert children[0].parent.span_id == span.context.span_id
    assert generation.span is not None
    assert generation.span.span_id == span.context.span_id
    assert not later.made


def test_use_of_the_current_span(later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: what a program says of the current span while the request is sent is lost."""

    def use() -> None:
        span = trace.get_current_span()
        assert isinstance(span, Span)
        assert span.is_recording()
        assert span.name == "chat m"
        span.set_attribute("a", 1)
        span.set_attributes({"b": 2})
        span.add_event("sent", {"c": 3})
        span.record_exception(ValueError("retried"))
        span.add_link(span.get_span_context())
        span.update_name("renamed")

    ask(use)
    later.builds[0]()
    (span,) = exporter.get_finished_spans()
    assert span.attributes is not None
    assert (span.attributes["a"], span.attributes["b"]) == (1, 2)
    assert [event.name for event in span.events] == ["sent", "exception"]
    assert len(span.links) == 1
    assert span.name == "renamed"


@pytest.mark.parametrize("when", ["before it is made", "after"])
def test_asked_for_later(when: str, later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: a task that was begun while the request was sent, and outlives the call, has no parent; or the
    call gets a second span."""
    kept: list[Context] = []
    ask(lambda: kept.append(get_current()))
    if when == "after":
        later.builds[0]()
    context = trace.get_current_span(kept[0]).get_span_context()
    if when != "after":
        later.builds[0]()
    ids = {span.context.span_id for span in exporter.get_finished_spans() if span.context is not None}
    assert ids == (set() if when == "after" else {context.span_id})
    assert (context.span_id == LATE.span_id) == (when == "after")
    assert len(later.made) == (when == "after")
    assert context.trace_flags == RANDOM_TRACE_ID | 1


@pytest.mark.parametrize("maker", ["the background", "the background, which has to leave it", "a thread"])
def test_asked_for_while_it_is_made(maker: str, later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: what two threads do at once under a call is not in its trace, or the call's span is lost."""
    kept: list[Context] = []
    got: list[SpanContext] = []
    ask(lambda: kept.append(get_current()))

    def get() -> None:
        got.append(trace.get_current_span(kept[0]).get_span_context())

    def while_made() -> None:
        later.while_made = lambda: None
        second.start()
        second.join(0.05)  # long enough for it to ask, and to get an answer if it doesn't wait

    second = threading.Thread(target=get)
    later.while_made = while_made
    later.identity = None if "leave" in maker else LATE
    if maker == "a thread":
        get()
    generation = later.builds[0]()
    second.join()
    assert generation.span is not None
    assert {context.span_id for context in got} == {generation.span.span_id}
    exported = exporter.get_finished_spans()
    assert [kind.name for kind in exported] == ([] if maker == "the background" else ["chat m"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_the_same_current_span(later: Later, exporter: InMemorySpanExporter) -> None:
    """Broken: what a child does that was forked while a request was sent hangs on a span nobody exports."""
    reading, writing = os.pipe()

    def fork() -> None:
        child = os.fork()
        if not child:
            try:
                os.write(writing, trace.get_current_span().get_span_context().span_id.to_bytes(8, "big"))
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    ask(fork)
    generation = later.builds[0]()
    assert generation.span is not None
    assert os.read(reading, 8) == generation.span.span_id.to_bytes(8, "big")
    os.close(reading)
    os.close(writing)
