"""The receiver that writes OTLP JSON lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otelkit.demo.otlp_receiver import OtlpReceiver
from otelkit.query.traces import read_spans

PROTOBUF = {"content-type": "application/x-protobuf"}


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[OtlpReceiver]:
    with OtlpReceiver(tmp_path) as running:
        yield running


def test_official_exporter_s_spans_are_written_in_otlp_json(receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Broken if ids were not hex, enums not numbers, or a parent not told: other tools could not read the
    file."""
    provider = TracerProvider(resource=Resource({"service.name": "chat"}))
    exporter = OTLPSpanExporter(endpoint=f"{receiver.endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("parent") as parent, tracer.start_as_current_span("child"):
        pass
    provider.shutdown()
    child, root = read_spans(tmp_path / "traces.jsonl")
    assert root["traceId"] == child["traceId"] == f"{parent.get_span_context().trace_id:032x}"
    assert child["parentSpanId"] == root["spanId"] == f"{parent.get_span_context().span_id:016x}"
    assert "parentSpanId" not in root
    assert root["kind"] == 1
    assert isinstance(root["startTimeUnixNano"], str) and int(root["startTimeUnixNano"]) > 1e18


def test_compressed_requests_are_read(receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Broken if OTEL_EXPORTER_OTLP_COMPRESSION=gzip lost everything."""
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add().event_name = "something"
    body = gzip.compress(request.SerializeToString())
    answer = httpx.post(
        f"{receiver.endpoint}/v1/logs", content=body, headers={**PROTOBUF, "content-encoding": "gzip"}
    )
    assert answer.status_code == 200
    assert '"eventName":"something"' in (tmp_path / "logs.jsonl").read_text()


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/traces", b"\xff\xff not protobuf", PROTOBUF, 400),
        ("/v1/traces", b"not gzip", {**PROTOBUF, "content-encoding": "gzip"}, 400),
        ("/v1/traces", b"{}", {"content-type": "application/json"}, 415),
        ("/v1/profiles", b"", PROTOBUF, 404),
    ],
)
def test_bad_requests_are_refused_and_not_written(
    receiver: OtlpReceiver, tmp_path: Path, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    """Broken if a malformed request were acknowledged, or spoilt the file for those that follow."""
    with httpx.Client() as client:
        assert client.post(receiver.endpoint + path, content=body, headers=headers).status_code == status
        assert client.post(f"{receiver.endpoint}/v1/traces", content=b"", headers=PROTOBUF).status_code == 200
    assert (tmp_path / "traces.jsonl").read_text() == "{}\n"


def test_lines_stay_whole_under_concurrent_requests(receiver: OtlpReceiver, tmp_path: Path) -> None:
    """Broken if two exporters' lines ran into each other."""
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add().event_name = "x" * 5000
    body = request.SerializeToString()

    def post(_: int) -> int:
        return httpx.post(f"{receiver.endpoint}/v1/logs", content=body, headers=PROTOBUF).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(post, range(40))) == {200}
    lines = (tmp_path / "logs.jsonl").read_text().splitlines()
    assert len(lines) == 40 and all(json.loads(line) for line in lines)
