"""Token-step spans are sent over TLS with the user's certificates, client certificates included."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from emit_collector import GrpcCollector, HttpCollector
from emit_generations import generation
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter

from otelkit.emit import token_steps
from otelkit.emit.otlp.discover import sender_like
from otelkit.emit.otlp.envelope import Envelope
from otelkit.emit.otlp.sender import Reply


@dataclass(frozen=True)
class Certificates:
    """A self-signed certificate for 127.0.0.1, which is its own authority, and its key."""

    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl on PATH, to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made = Certificates(folder / "certificate.pem", folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(made.key), "-out", str(made.certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


@pytest.fixture
def https(certificates: Certificates) -> Iterator[HttpCollector]:
    """A collector that wants a certificate of its clients."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.certificate)
    context.load_cert_chain(certificates.certificate, certificates.key)
    context.verify_mode = ssl.CERT_REQUIRED
    with HttpCollector(context) as collector:
        yield collector


def send(exporter: Any) -> Reply:
    sender = sender_like(exporter)
    assert sender is not None
    spans = token_steps.encode(generation(3), (range(3),))
    reply = sender.send(Envelope({}, "", "otelkit", "1").wrap([spans]), 5)
    sender.close()
    exporter.shutdown()
    return reply


def test_http_uses_the_certificates_of_the_variables(
    https: HttpCollector, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise collectors that require TLS or mutual TLS would get generations, but no token steps."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", https.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(certificates.certificate))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", str(certificates.certificate))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(certificates.key))
    assert send(HttpExporter()) == Reply(delivered=True)
    assert len(https.steps()) == 3


def test_http_refuses_a_collector_it_can_not_trust(https: HttpCollector, certificates: Certificates) -> None:
    """Otherwise spans, and the key that goes with them, could be read by anyone on the way."""
    exporter = HttpExporter(endpoint=f"{https.url}/v1/traces")
    assert not send(exporter).delivered
    assert https.steps() == []


def test_grpc_uses_the_certificates_of_the_exporter(certificates: Certificates) -> None:
    """Otherwise gRPC collectors behind TLS would get no token steps."""
    key, certificate = certificates.key.read_bytes(), certificates.certificate.read_bytes()
    credentials = grpc.ssl_server_credentials([(key, certificate)], certificate, require_client_auth=True)
    with GrpcCollector(credentials) as collector:
        client = grpc.ssl_channel_credentials(certificate, key, certificate)
        exporter = GrpcExporter(endpoint=f"https://127.0.0.1:{collector.port}", credentials=client)
        assert send(exporter) == Reply(delivered=True)
        assert len(collector.steps()) == 3
