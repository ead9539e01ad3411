"""A collector for benchmarks, in a process of its own so that its CPU time is nobody else's.

    python benchmarks/collector.py [--port PORT]

Prints its port, takes OTLP/HTTP requests, and counts spans when asked: ``GET /count`` answers with one JSON
object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

CHUNK = 64


class _Counts:
    """Spans taken so far; requests are decoded in pieces, so that memory stays flat."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        """Held from taking a request until it is answered, so that none is cut off between the two."""
        self._bodies: list[bytes] = []
        self._totals = {"requests": 0, "bytes": 0, "spans": 0, "steps": 0}

    def add(self, body: bytes) -> None:
        self._bodies.append(body)
        if len(self._bodies) >= CHUNK:
            self._decode()

    def totals(self) -> dict[str, int]:
        with self.lock:
            self._decode()
            return dict(self._totals)

    def _decode(self) -> None:
        for body in self._bodies:
            self._totals["requests"] += 1
            self._totals["bytes"] += len(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    self._totals["spans"] += len(scope.spans)
                    self._totals["steps"] += sum(span.name == "token_step" for span in scope.spans)
        self._bodies.clear()


def serve(port: int) -> None:
    """Run until terminated; then print the totals as one JSON object."""
    counts = _Counts()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            with counts.lock:
                counts.add(body)
                self._answer(b"")

        def do_GET(self) -> None:
            self._answer(json.dumps(counts.totals()).encode())

        def _answer(self, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    def end(number: int, frame: object) -> None:
        with counts.lock:
            print(json.dumps(counts.totals()), flush=True)
            os._exit(0)

    signal.signal(signal.SIGTERM, end)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


class Collector:
    """The collector as a child process; ``stop`` and ``start`` play an outage on the same port."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[str] | None = None
        self._before: Counter[str] = Counter()
        """What earlier incarnations had taken."""
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, str(Path(__file__)), "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def totals(self) -> Counter[str]:
        """Everything taken so far, before outages too."""
        if self._process is None:
            return self._before
        with urllib.request.urlopen(f"{self.url}/count", timeout=120) as answer:
            return self._before + Counter(json.load(answer))

    def stop(self) -> None:
        """End it after the request that it is answering."""
        if self._process is not None:
            self._process.terminate()
            last, _ = self._process.communicate()
            self._before += Counter(json.loads(last))
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    serve(parser.parse_args().port)
