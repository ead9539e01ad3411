"""From a call of the openai SDK to spans in a collector and buckets on a page, through all parts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from emit_collector import HttpCollector
from emit_process import run
from prometheus_client.openmetrics.parser import text_string_to_metric_families

TOKENS = 25
CALLS = 50
LOGPROB = -0.25


@pytest.fixture
def provider() -> Iterator[str]:
    """Base URL of a server that streams chat completions as OpenAI does."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for number in range(TOKENS):
                scored = {"token": "x", "logprob": LOGPROB, "bytes": None, "top_logprobs": []}
                self._send({"delta": {"content": f"t{number} "}, "logprobs": {"content": [scored]}})
                time.sleep(0.001)
            self._send({"delta": {}, "finish_reason": "stop"})
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, choice: dict[str, object]) -> None:
            chunk = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "some-model",
                "choices": [{"index": 0, **choice}],
            }
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def test_a_streamed_chat_is_seen_token_by_token(provider: str) -> None:
    """Otherwise the parts work, each alone, and a user of the openai SDK sees nothing."""
    with HttpCollector() as collector:
        done = run(
            """
            import urllib.request
            handle = otelkit.instrument()
            from openai import OpenAI
            client = OpenAI(base_url=os.environ["PROVIDER"], api_key="x")
            for max_tokens in [64] * 25 + [128] * 25:
                stream = client.chat.completions.create(
                    model="some-model",
                    messages=[{"role": "user", "content": "hello"}],
                    max_tokens=max_tokens,
                    stream=True,
                    logprobs=True,
                )
                assert len([chunk for chunk in stream if chunk.choices[0].delta.content]) == 25
            assert handle.flush()
            accept = {"accept": "application/openmetrics-text"}
            page = urllib.request.urlopen(urllib.request.Request(handle.metrics_url, headers=accept))
            print(page.read().decode(), end="")
            """,
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
                "OTEL_SERVICE_NAME": "chat",
                "PROVIDER": provider,
            },
        )
        assert (done.returncode, done.stderr) == (0, "")

        parents = {span.span_id: span for span in collector.spans() if span.name == "chat some-model"}
        assert len(parents) == CALLS
        steps = collector.steps()
        assert len(steps) == CALLS * TOKENS
        for step in steps:
            parent = parents[step.parent_span_id]
            assert step.trace_id == parent.trace_id
            assert parent.start_time_unix_nano <= step.start_time_unix_nano
            assert step.end_time_unix_nano <= parent.end_time_unix_nano
            numbers = {item.key: item.value for item in step.attributes}
            assert numbers["otelkit.step.logprob"].double_value == LOGPROB
        (event,) = collector.events()
        assert event.event_name == "otelkit.parameter.change"

    families = text_string_to_metric_families(done.stdout)
    found: dict[str, float] = {}
    for family in families:
        for sample in family.samples:
            if sample.name.endswith(("_count", "_total")):
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
    assert found["otelkit_generations_started_total"] == CALLS
    assert found["gen_ai_client_operation_duration_seconds_count"] == CALLS
    assert found["gen_ai_client_operation_time_per_output_chunk_seconds_count"] == CALLS * (TOKENS - 1)
    assert found["otelkit_parameter_changes_total"] == 1
    assert found["otelkit_spans_written_total"] == CALLS * (TOKENS + 1)
    assert found["otelkit_spans_delivered_total"] == CALLS * (TOKENS + 1)
