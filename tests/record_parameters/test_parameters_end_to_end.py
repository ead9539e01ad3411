"""A whole service process: files from the environment, a reload, /metrics, debug pages and log events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from prometheus_client.parser import text_string_to_metric_families

SERVICE = """
    import otelkit, signal, sys, time
    handle = otelkit.instrument()
    from otelkit import parameters
    parameters.register("max_tokens", 256, kind=int, minimum=1, maximum=4096)

    def chunks():
        yield from ("a", "b", "c")

    def call():
        limit = parameters.get("max_tokens")
        list(otelkit.watch(chunks(), model="tiny", parameters={"max_tokens": limit}))

    with __import__("otelkit.record.session", fromlist=["session"]).session("s-1"):
        for _ in range(10):
            call()
        print(handle.page.port, otelkit.record.web.startup._servers[0].port, flush=True)
        for line in sys.stdin:
            for _ in range(20):
                call()
            handle.flush()
            print("called", flush=True)
"""


@contextmanager
def collector() -> Iterator[tuple[int, list[bytes]]]:
    """Takes OTLP/HTTP log requests."""
    received: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/logs":
                received.append(body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, received
        server.shutdown()


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as response:
        return str(response.read().decode())


def samples(page: str, name: str) -> list[tuple[dict[str, str], float]]:
    return [
        (sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def test_a_reload_is_on_the_metrics_page_in_the_log_and_on_the_debug_pages_once(tmp_path: Path) -> None:
    """If this fails, the parts work alone and a service that uses them shows nothing."""
    file = tmp_path / "chat.yaml"
    file.write_text("max_tokens: 512\n")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL", "PYTEST", "PROMETHEUS"))}
    with collector() as (port, requests):
        service = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(SERVICE)],
            env={
                **clean,
                "OTEL_SERVICE_NAME": "chat",
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
                "OTELKIT_PARAMETERS_FILE": str(file),
                "OTELKIT_DEBUG_PORT": "0",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert service.stdin is not None and service.stdout is not None
        try:
            page, debug = (int(part) for part in service.stdout.readline().split())
            variables = f"http://127.0.0.1:{debug}/debug/vars"

            def entry() -> Any:
                (one,) = json.loads(read(variables))["parameters"]
                return one

            assert (entry()["value"], entry()["source"]) == (512, "config_file")
            file.write_text("max_tokens: 1024\n")
            service.send_signal(signal.SIGUSR2)
            end = time.monotonic() + 20
            while entry()["value"] != 1024:
                assert time.monotonic() < end
                time.sleep(0.01)
            assert entry()["in_use"] is False, "loaded, but no call has used it yet"
            service.stdin.write("go\n")
            service.stdin.flush()
            assert service.stdout.readline() == "called\n"
            assert entry()["in_use"] is True and entry()["effective_at"] > entry()["loaded_at"]

            metrics = read(f"http://127.0.0.1:{page}/metrics")
            ((labels, at),) = samples(metrics, "otelkit_parameter_change_timestamp_seconds")
            assert (labels["parameter"], labels["old"], labels["new"]) == ("max_tokens", "512", "1024")
            assert (labels["source"], labels["service"]) == ("config_file", "chat")
            assert abs(at - entry()["loaded_at"]) < 1
            inputs = samples(metrics, "otelkit_parameter_inputs_total")
            assert ({"service": "chat", "input": "file", "outcome": "applied"}, 2.0) in inputs

            timelines = json.loads(read(f"http://127.0.0.1:{debug}/debug/trace?session_id=s-1"))[
                "generations"
            ]
            assert timelines[0]["parameters"] == {"max_tokens": 1024}
            assert len(timelines[0]["timeline"]["end_seconds"]) == 3
        finally:
            service.stdin.close()
            service.wait(timeout=30)
            service.stdout.close()
    assert service.returncode == 0
    events = [
        {attribute.key: attribute.value for attribute in record.attributes}
        for body in requests
        for resource in ExportLogsServiceRequest.FromString(body).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name == "otelkit.parameter.change"
    ]
    loaded, used = events
    assert loaded["otelkit.change.id"] == used["otelkit.change.id"]
    assert loaded["otelkit.change.id"].string_value == labels["change_id"]
    assert str(file) in loaded["otelkit.change.origin"].string_value
    assert "otelkit.change.effective_at" in used and "otelkit.change.effective_at" not in loaded
