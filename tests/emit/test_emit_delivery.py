"""Requests reach a real collector, above all over HTTP, by the rules of the OTLP specification."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from emit_collector import Answer, HttpCollector, until
from emit_deliveries import Tally, body, deliver_to, partial
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from otelkit.emit.otlp.delivery import Delivery, shut_down
from otelkit.emit.otlp.discover import sender_like, timeout_of
from otelkit.emit.otlp.http import retry_after_seconds

pytestmark = pytest.mark.usefixtures("quick_backoff")


@pytest.fixture
def http() -> Iterator[HttpCollector]:
    with HttpCollector() as collector:
        yield collector


def http_delivery(collector: HttpCollector, tally: Tally, **limits: Any) -> Delivery:
    return deliver_to(HttpExporter(endpoint=f"{collector.url}/v1/traces"), tally, **limits)


@pytest.mark.parametrize("compression", list(Compression))
def test_http_takes_endpoint_headers_and_compression_of_the_exporter(
    http: HttpCollector, tally: Tally, compression: Compression
) -> None:
    """Otherwise token-step spans would miss the authentication header, or the tenant's path."""
    exporter = HttpExporter(
        endpoint=f"{http.url}/tenant/v1/traces",
        headers={"Authorization": "Bearer x"},
        compression=compression,
    )
    delivery = deliver_to(exporter, tally)
    sent = body()
    delivery.put(sent, 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    (request,) = http.received
    assert request.path == "/tenant/v1/traces"
    assert request.headers["authorization"] == "Bearer x"
    assert request.headers["content-type"] == "application/x-protobuf"
    assert request.headers.get("content-encoding", "none") == compression.value
    assert request.body == sent
    assert tally.numbers["delivered"] == 5
    assert tally.balanced()


def test_http_takes_the_standard_variables(
    http: HttpCollector, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise OTEL_EXPORTER_OTLP_TRACES_* would configure generation spans but not token steps."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{http.url}/only/traces")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=s%20t")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "3")
    exporter = HttpExporter()
    assert timeout_of(exporter, 10.0) == 3.0
    delivery = deliver_to(exporter, tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    (request,) = http.received
    assert request.path == "/only/traces"
    assert request.headers["api-key"] == "s t"
    assert request.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_http_retries_where_the_specification_allows(http: HttpCollector, tally: Tally, status: int) -> None:
    """Otherwise a collector that restarts or throttles would cost spans."""
    http.answers.extend([Answer(status), Answer(status)])
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert len(http.received) == 3
    assert len({request.body for request in http.received}) == 1
    assert tally.numbers["failures"] == 2
    assert tally.numbers["delivered"] == 5


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500])
def test_http_gives_up_where_it_does_not(http: HttpCollector, tally: Tally, status: int) -> None:
    """Otherwise a request that can never succeed would be sent for ever, and hold up all after it."""
    http.answers.append(Answer(status, (("location", "/elsewhere"),)))
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    delivery.put(body(3), 3)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert len(http.received) == 2
    assert tally.numbers["export_failed"] == 5
    assert tally.numbers["delivered"] == 3
    assert tally.balanced()


def test_http_waits_as_long_as_the_collector_asks(http: HttpCollector, tally: Tally) -> None:
    """Otherwise an overloaded collector would be hammered."""
    http.answers.append(Answer(429, (("retry-after", "1"),)))
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    first, second = http.received
    assert second.at - first.at >= 0.99


def test_retry_after_reads_seconds_and_dates() -> None:
    """Otherwise one of the two forms that HTTP allows would be ignored."""
    assert retry_after_seconds("7") == 7.0
    assert retry_after_seconds("-3") == 0.0
    assert retry_after_seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert (retry_after_seconds("Wed, 21 Oct 2099 07:28:00 GMT") or 0) > 1e9
    assert retry_after_seconds("soon") is None
    assert retry_after_seconds("nan") is None
    assert retry_after_seconds(None) is None


def test_partial_success_is_counted_and_not_sent_again(
    http: HttpCollector, tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise refused spans would count as delivered, or be sent for ever."""
    http.answers.append(Answer(200, body=partial(2)))
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert len(http.received) == 1
    assert (tally.numbers["delivered"], tally.numbers["rejected_by_collector"]) == (3, 2)
    assert "too old" in caplog.text


def test_an_unreadable_reply_is_taken_as_success(http: HttpCollector, tally: Tally) -> None:
    """Otherwise a proxy that answers 200 with a page of its own would make every request fail."""
    http.answers.append(Answer(200, body=b"<html>fine</html>"))
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert tally.numbers["delivered"] == 5


def test_an_outage_loses_nothing_that_the_buffer_holds(
    http: HttpCollector, tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a restart of the collector would leave a hole; and the log would fill up meanwhile."""
    delivery = http_delivery(http, tally)
    http.stop()
    for _ in range(10):
        delivery.put(body(), 5)
    until(lambda: tally.numbers["failures"] >= 2)
    http.start()
    assert delivery.flush(10)
    shut_down([delivery], 1)
    assert tally.numbers["delivered"] == 50
    assert len(http.spans()) == 50
    assert caplog.text.count("can't deliver") == 1
    assert caplog.text.count("again") == 1
    assert all(record.levelname == "WARNING" for record in caplog.records)


def test_the_buffer_is_bounded_in_bytes(http: HttpCollector, tally: Tally) -> None:
    """Otherwise a collector that is down would cost the service its memory."""
    http.stop()
    one = body(100)
    delivery = http_delivery(http, tally, buffer_bytes=10 * len(one))
    for _ in range(50):
        delivery.put(one, 100)
    assert tally.numbers["buffer_full"] >= 3900
    shut_down([delivery], 0.1)
    assert tally.balanced()


def test_requests_that_keep_failing_are_dropped_after_a_while(http: HttpCollector, tally: Tally) -> None:
    """Otherwise the spans of an outage would push out those of now for as long as it lasts."""
    http.stop()
    delivery = http_delivery(http, tally, retry_seconds=0.2)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert tally.numbers["export_failed"] == 5


def test_shutdown_is_bounded_when_the_collector_is_down(http: HttpCollector, tally: Tally) -> None:
    """Otherwise a script would hang at its end for as long as retries last."""
    http.stop()
    delivery = http_delivery(http, tally)
    for _ in range(5):
        delivery.put(body(), 5)
    began = time.monotonic()
    shut_down([delivery], 0.3)
    assert time.monotonic() - began < 1.5
    assert tally.balanced()
    assert tally.numbers["delivered"] == 0


def test_shutdown_is_bounded_when_the_collector_hangs(tally: Tally) -> None:
    """Otherwise an address that swallows packets would hold up the end of the process by its full timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        exporter = HttpExporter(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        delivery = deliver_to(exporter, tally)
        delivery.put(body(), 5)
        time.sleep(0.1)
        began = time.monotonic()
        shut_down([delivery], 0.3)
        assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("how", ["flush", "shut_down"])
def test_all_is_delivered_where_no_thread_can_be_started(
    how: str, http: HttpCollector, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.12 starts no thread at the end of a program. Broken: a program that ends before its first
    spans were due, as short ones do, loses all of them."""

    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "otelkit-export":
            raise RuntimeError("can't create new thread at interpreter shutdown")
        start(thread)  # the collector's

    monkeypatch.setattr(threading.Thread, "start", refuse)
    delivery = http_delivery(http, tally)
    for _ in range(3):
        delivery.put(body(), 5)
    if how == "flush":
        assert delivery.flush(10.0)
    else:
        shut_down([delivery], 10.0)
    assert tally.numbers["delivered"] == len(http.spans()) == 15


def test_a_collector_that_is_down_delays_no_end_where_no_thread_can_be_started(
    http: HttpCollector, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise such a program would end only after two minutes of retries."""
    http.stop()
    delivery = http_delivery(http, tally)
    monkeypatch.setattr(Delivery, "_start", lambda self: None)
    for _ in range(3):
        delivery.put(body(), 5)
    start = time.monotonic()
    shut_down([delivery], 0.5)
    assert time.monotonic() - start < 5.0
    assert tally.balanced()
    assert tally.numbers["delivered"] == 0


def test_what_comes_after_the_shutdown_is_counted(http: HttpCollector, tally: Tally) -> None:
    """Otherwise spans that end late would vanish without a trace."""
    delivery = http_delivery(http, tally)
    shut_down([delivery], 0.3)
    delivery.put(body(), 5)
    assert tally.numbers["shut_down"] == 5


def test_flush_says_when_it_ran_out_of_time(http: HttpCollector, tally: Tally) -> None:
    """Otherwise a caller would believe that all was delivered."""
    http.stop()
    delivery = http_delivery(http, tally)
    delivery.put(body(), 5)
    assert not delivery.flush(0.1)
    shut_down([delivery], 0.1)


def test_a_proxy_is_not_passed_by(http: HttpCollector, tally: Tally, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise spans of a service that reaches its collector by a proxy alone get nowhere."""
    monkeypatch.setenv("http_proxy", http.url)
    delivery = deliver_to(HttpExporter(endpoint="http://collector.invalid:4318/v1/traces"), tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    assert [request.path for request in http.received] == ["http://collector.invalid:4318/v1/traces"]


def test_a_connection_that_the_collector_has_closed_is_opened_anew(
    http: HttpCollector, tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise each quiet time of a service costs a failed request, and a line in its log."""
    http.answers.append(Answer(200, closes=True))
    delivery = http_delivery(http, tally)
    for _ in range(2):
        delivery.put(body(), 5)
        assert delivery.flush(5)
        until(lambda: http.closed == 1)
    shut_down([delivery], 1)
    assert len(http.received) == 2
    assert not tally.numbers["failures"]
    assert not caplog.messages


def test_an_answer_that_comes_before_all_is_sent_is_read(tally: Tally) -> None:
    """Otherwise a request that is too large for a collector is sent again and again."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
                connection.shutdown(socket.SHUT_WR)
                time.sleep(0.2)

        threading.Thread(target=refuse, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/traces"
        sender = sender_like(HttpExporter(endpoint=url))
        assert sender is not None
        reply = sender.send(bytes(1 << 25), 5)
        sender.close()
    assert (reply.delivered, reply.retryable) == (False, False)
    assert "413" in reply.message


def test_exporters_of_other_kinds_are_not_guessed_at() -> None:
    """Otherwise spans would bypass what a user's own exporter does with them."""

    class Filtering(HttpExporter):
        pass

    exporter = Filtering()
    assert sender_like(exporter) is None
    assert sender_like(object()) is None
    exporter.shutdown()
