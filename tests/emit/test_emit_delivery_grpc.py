"""Requests reach a real collector over gRPC, by the rules of the OTLP specification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from emit_collector import Answer, GrpcCollector, Kept
from emit_deliveries import Tally, body, deliver_to, partial
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

from otelkit.emit.otlp.delivery import shut_down

pytestmark = pytest.mark.usefixtures("quick_backoff")


@pytest.fixture
def grpc_collector() -> Iterator[GrpcCollector]:
    with GrpcCollector() as collector:
        yield collector


def test_grpc_takes_endpoint_and_metadata_of_the_exporter(
    grpc_collector: GrpcCollector, tally: Tally
) -> None:
    """Otherwise users of the gRPC exporter would get no token-step spans."""
    exporter = GrpcExporter(endpoint=grpc_collector.url, headers={"api-key": "x"})
    delivery = deliver_to(exporter, tally)
    sent = body()
    delivery.put(sent, 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    (request,) = grpc_collector.received
    assert request.path == "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    assert request.headers["api-key"] == "x"
    assert request.body == sent
    assert tally.numbers["delivered"] == 5


def retry_info(seconds: float) -> tuple[str, bytes]:
    from google.rpc.error_details_pb2 import RetryInfo

    info = RetryInfo()
    info.retry_delay.FromNanoseconds(int(seconds * 1e9))
    return "google.rpc.retryinfo-bin", info.SerializeToString()


def status_details(seconds: float) -> tuple[str, bytes]:
    from google.rpc.error_details_pb2 import RetryInfo
    from google.rpc.status_pb2 import Status

    info = RetryInfo()
    info.retry_delay.FromNanoseconds(int(seconds * 1e9))
    status = Status(code=8)
    status.details.add().Pack(info)
    return "grpc-status-details-bin", status.SerializeToString()


def send_over_grpc(collector: Kept, url: str, tally: Tally, *answers: Answer) -> int:
    """Number of requests that it took."""
    collector.answers.extend(answers)
    delivery = deliver_to(GrpcExporter(endpoint=url), tally)
    delivery.put(body(), 5)
    assert delivery.flush(5)
    shut_down([delivery], 1)
    return len(collector.received)


def test_grpc_retries_where_the_specification_allows(grpc_collector: GrpcCollector, tally: Tally) -> None:
    """Otherwise a collector behind gRPC that restarts would cost spans."""
    from grpc import StatusCode

    answers = [
        Answer(code)
        for code in (
            StatusCode.CANCELLED,
            StatusCode.DEADLINE_EXCEEDED,
            StatusCode.ABORTED,
            StatusCode.OUT_OF_RANGE,
            StatusCode.UNAVAILABLE,
            StatusCode.DATA_LOSS,
        )
    ]
    assert send_over_grpc(grpc_collector, grpc_collector.url, tally, *answers) == 7
    assert tally.numbers["delivered"] == 5


@pytest.mark.parametrize("trailer", [retry_info, status_details])
def test_grpc_comes_back_when_an_exhausted_collector_says_so(
    grpc_collector: GrpcCollector, tally: Tally, trailer: Any
) -> None:
    """Otherwise throttling over gRPC would either lose spans or be ignored."""
    from grpc import StatusCode

    answer = Answer(StatusCode.RESOURCE_EXHAUSTED, (trailer(0.5),))
    assert send_over_grpc(grpc_collector, grpc_collector.url, tally, answer) == 2
    first, second = grpc_collector.received
    assert second.at - first.at >= 0.49


def test_grpc_gives_up_where_it_should(grpc_collector: GrpcCollector, tally: Tally) -> None:
    """Otherwise a wrong key, or a collector without room that names no time, would be asked for ever."""
    from grpc import StatusCode

    assert send_over_grpc(grpc_collector, grpc_collector.url, tally, Answer(StatusCode.UNAUTHENTICATED)) == 1
    assert (
        send_over_grpc(grpc_collector, grpc_collector.url, tally, Answer(StatusCode.RESOURCE_EXHAUSTED)) == 2
    )
    assert tally.numbers["export_failed"] == 10


def test_grpc_counts_partial_success(grpc_collector: GrpcCollector, tally: Tally) -> None:
    """Otherwise spans refused over gRPC would count as delivered."""
    from grpc import StatusCode

    send_over_grpc(grpc_collector, grpc_collector.url, tally, Answer(StatusCode.OK, body=partial(4)))
    assert (tally.numbers["delivered"], tally.numbers["rejected_by_collector"]) == (1, 4)
