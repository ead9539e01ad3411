"""What goes in which request: spans of generations, token steps, or both."""

from __future__ import annotations

import time

import pytest
from emit_deliveries import written
from emit_generations import generation
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span
from opentelemetry.sdk.trace import TracerProvider

from otelkit.emit.otlp.batch import Unwritten
from otelkit.emit.route import OtlpRoute
from otelkit.model import Generation, SpanIdentity


class Requests:
    """In a delivery's place: names of the spans in each request."""

    def __init__(self) -> None:
        self.names: list[list[str]] = []
        self.sizes: list[int] = []

    def put(self, body: bytes | Unwritten, items: int) -> None:
        (resource,) = ExportTraceServiceRequest.FromString(written(body)).resource_spans
        (scope,) = resource.scope_spans
        assert scope.scope.name == "otelkit"
        self.names.append([span.name for span in scope.spans])
        self.sizes.append(len(body))
        assert items == len(scope.spans)


def encoded(name: str) -> bytes:
    return ScopeSpans(spans=[Span(name=name)]).SerializeToString()


def recorded(steps: int) -> Generation:
    return generation(steps, span=SpanIdentity(1, 2, True))


@pytest.fixture
def requests() -> Requests:
    return Requests()


def route_to(requests: Requests, batch_bytes: int = 100_000, delay: float = 60) -> OtlpRoute:
    provider = TracerProvider(shutdown_on_exit=False)
    return OtlpRoute(provider, [requests], batch_bytes=batch_bytes, delay_seconds=delay)  # type: ignore[list-item]


@pytest.mark.parametrize("count", [3, 300])
def test_two_endpoints_get_the_same_spans(count: int, requests: Requests) -> None:
    """Otherwise a span that two backends know, or one backend by two ways, has two ids."""
    bodies: list[bytes] = []
    requests.put = lambda body, items: bodies.append(written(body))  # type: ignore[method-assign]
    provider = TracerProvider(shutdown_on_exit=False)
    twice = [requests, requests]
    route = OtlpRoute(provider, twice, batch_bytes=100_000, delay_seconds=60)  # type: ignore[arg-type]
    route.write(recorded(count), [range(count)])
    route.ship()
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]


def test_a_generation_and_its_steps_go_in_one_request(requests: Requests) -> None:
    """Otherwise a service with few calls would send twice as many requests as it needs."""
    route = route_to(requests)
    assert route.take(encoded("one"))
    route.write(recorded(2), [range(2)])
    assert route.take(encoded("two"))
    route.ship()
    route.ship()
    assert requests.names == [["one", "two", "token_step", "token_step"]]


def test_spans_of_generations_go_first_where_they_do_not_fit(requests: Requests) -> None:
    """Otherwise a slow collector gets steps in place of the generations that they belong to."""
    route = route_to(requests, batch_bytes=1_000)
    route.write(recorded(7), [range(7)])
    for number in range(20):
        route.take(encoded(f"{number:20}"))
    route.ship()
    assert [set(names) == {"token_step"} for names in requests.names] == [False, True]
    assert sum(map(len, requests.names)) == 27


def test_a_batch_full_of_steps_goes_alone(requests: Requests) -> None:
    """Otherwise a busy service sends a request for the few spans of generations with each batch of steps."""
    route = route_to(requests, batch_bytes=10_000)
    route.take(encoded("one"))
    for _ in range(30):
        route.write(recorded(50), [range(50)])
    assert len(requests.names) > 5
    assert all(set(names) == {"token_step"} for names in requests.names)
    route.ship()
    assert "one" in requests.names[-1]


def test_requests_of_generations_alone_are_bounded_in_bytes(requests: Requests) -> None:
    """Otherwise thousands of generations that end at once, and get no spans for steps, make a request that
    collectors refuse, or take memory without bound."""
    route = route_to(requests, batch_bytes=10_000)
    for number in range(1_000):
        route.take(encoded(f"{number:90}"))
    assert sum(map(len, requests.names)) > 800
    route.ship()
    assert sum(map(len, requests.names)) == 1_000
    assert max(requests.sizes) < 11_000


@pytest.mark.parametrize("steps", [0, 3])
def test_a_span_that_waits_is_due_in_time(steps: int, requests: Requests) -> None:
    """Otherwise spans of generations without steps wait until the process ends."""
    route = route_to(requests, delay=0.05)
    assert route.due_in() is None
    route.take(encoded("one"))
    due = route.due_in()
    assert due is not None
    assert due <= 0.05
    time.sleep(0.06)
    route.write(recorded(steps), [range(steps)])
    assert route.due_in() == 0
    route.ship()
    assert route.due_in() is None
