"""A decoder that is not Python's reads what is sent: oteltap's, in Rust, which prints each span as JSON."""

from __future__ import annotations

import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from emit_generations import generation, identity
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from otelkit.emit import token_steps
from otelkit.emit.otlp.discover import sender_like
from otelkit.emit.otlp.envelope import Envelope
from otelkit.model import Generation

pytest.importorskip("oteltap", reason="no oteltap here; it is in the `dev` group of pyproject.toml")


class Tap:
    """oteltap's command in a process of its own."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        command = [sys.executable, "-u", "-m", "oteltap", "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ))
        self._await_port()

    def _await_port(self) -> None:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, "oteltap does not listen"
                time.sleep(0.05)

    def spans(self, count: int) -> list[dict[str, Any]]:
        """The next spans that it prints."""
        assert self._process.stdout is not None
        end, text = time.monotonic() + 20, b""
        descriptor = self._process.stdout.fileno()
        while text.count(b'"spanId"') < count or not text.endswith(b"\n"):
            ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"{text.count(b'spanId')} of {count} spans were printed"
            text += os.read(descriptor, 1 << 16)
        return [json.loads(line) for line in text.decode().splitlines() if line.startswith("{")]

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def tap() -> Iterator[Tap]:
    running = Tap()
    yield running
    running.stop()


def expected(recorded: Generation) -> list[dict[str, Any]]:
    """What the decoder should print of a generation."""
    assert recorded.span is not None
    spans, start = [], recorded.start_ns
    for i, end in enumerate(recorded.step_ns):
        numbers: dict[str, Any] = {"otelkit.step.index": {"intValue": str(i)}}
        if recorded.step_tokens is not None and recorded.step_tokens[i] is not None:
            numbers["otelkit.step.tokens"] = {"intValue": str(recorded.step_tokens[i])}
        for name, column in (
            ("otelkit.step.logprob", recorded.step_logprobs),
            ("otelkit.step.entropy", recorded.step_entropies),
        ):
            if column is not None and column[i] is not None:
                numbers[name] = {"doubleValue": column[i]}
        spans.append(
            {
                "traceId": f"{recorded.span.trace_id:032x}",
                "parentSpanId": f"{recorded.span.span_id:016x}",
                "traceState": recorded.span.trace_state,
                "name": "token_step",
                "kind": 1,
                "startTimeUnixNano": str(start),
                "endTimeUnixNano": str(end),
                "attributes": numbers,
            }
        )
        start = end
    return spans


def printed(span: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    attributes = {item["key"]: item["value"] for item in span["attributes"]}
    return {**{name: span[name] for name in like}, "attributes": attributes}


@pytest.mark.parametrize("seed", range(6))
def test_rust_reads_every_field(tap: Tap, seed: int) -> None:
    """Otherwise the bytes might be what only the library that helped to write them accepts."""
    chance = random.Random(seed)
    size = chance.choice([1, 5, 130, 400])

    def column(draw: Any) -> list[Any] | None:
        holes = chance.choice([0.0, 0.3, 1.0])
        return None if holes == 1.0 else [None if chance.random() < holes else draw() for _ in range(size)]

    recorded = generation(
        size,
        gap_ns=chance.randrange(10**9),
        step_tokens=column(lambda: chance.randrange(1 << chance.choice([1, 8, 30]))),
        step_logprobs=column(lambda: -float(chance.randrange(1, 1000)) / 64),
        step_entropies=column(lambda: float(chance.randrange(1000)) / 64),
        span=identity(trace_state=chance.choice(["", "vendor=x", "a=" + "y" * 150])),
    )
    resource = {"service.name": chance.choice(["chat", "dienst-äöü", "聊天", "💬"]), "numbers": [1, 2]}
    exporter = OTLPSpanExporter(endpoint=f"http://127.0.0.1:{tap.port}/v1/traces")
    sender = sender_like(exporter)
    assert sender is not None
    body = Envelope(resource, "https://example.com/ä", "otelkit", "1").wrap(
        [token_steps.encode(recorded, (range(size),))]
    )
    assert sender.send(body, 10).delivered
    sender.close()
    exporter.shutdown()
    spans = sorted(tap.spans(size), key=lambda span: int(span["attributes"][0]["value"]["intValue"]))
    wanted = expected(recorded)
    assert [printed(span, like) for span, like in zip(spans, wanted, strict=True)] == wanted
    assert len({span["spanId"] for span in spans}) == size
