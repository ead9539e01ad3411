"""Requests go over sessions like the one that the program has given to its exporter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from emit_collector import HttpCollector
from emit_deliveries import Tally, body, deliver_to
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from otelkit.emit.otlp.delivery import shut_down


@pytest.fixture
def http() -> Iterator[HttpCollector]:
    with HttpCollector() as collector:
        yield collector


def test_a_session_of_another_class_signs_each_request(http: HttpCollector, tally: Tally) -> None:
    """Otherwise sessions that renew a token, as clouds' client libraries have, would be sent without it."""

    class Signing(requests.Session):
        signed = 0

        def request(self, *arguments: Any, **named: Any) -> requests.Response:
            self.signed += 1
            named["headers"] = {**named["headers"], "x-token": str(self.signed)}
            return super().request(*arguments, **named)

    session = Signing()
    exporter = HttpExporter(endpoint=f"{http.url}/v1/traces", session=session)
    delivery = deliver_to(exporter, tally)
    delivery.put(body(), 5)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert [request.headers["x-token"] for request in http.received] == ["1", "2"]


def test_credentials_and_hooks_of_a_session_see_each_request(http: HttpCollector, tally: Tally) -> None:
    """Otherwise a token that is made anew for each request would be sent once and again, or none at all; and
    a hook that looks at answers would get none."""
    statuses: list[int] = []
    signed: list[requests.PreparedRequest] = []

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        signed.append(request)
        request.headers["x-token"] = str(len(signed))
        return request

    def look(response: requests.Response, **options: Any) -> None:
        statuses.append(response.status_code)

    callable_auth, hooked = requests.Session(), requests.Session()
    callable_auth.auth = sign
    hooked.hooks["response"].append(look)
    for session in (callable_auth, hooked):
        delivery = deliver_to(HttpExporter(endpoint=f"{http.url}/v1/traces", session=session), tally)
        delivery.put(body(), 5)
        delivery.put(body(), 5)
        assert delivery.flush(5)
        shut_down([delivery], 1)
    assert [request.headers.get("x-token") for request in http.received] == ["1", "2", None, None]
    assert statuses == [200, 200]


def test_adapters_of_a_session_see_each_request(http: HttpCollector, tally: Tally) -> None:
    """Otherwise what a program has mounted for its collector, such as a signature or a socket of its own, is
    passed by."""

    class Signing(requests.adapters.HTTPAdapter):
        signed = 0

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:  # type: ignore[override]
            Signing.signed += 1
            request.headers["x-token"] = str(self.signed)
            return super().send(request, **options)

    session = requests.Session()
    session.mount(http.url, Signing())
    delivery = deliver_to(HttpExporter(endpoint=f"{http.url}/v1/traces", session=session), tally)
    delivery.put(body(), 5)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert [request.headers.get("x-token") for request in http.received] == ["1", "2"]
