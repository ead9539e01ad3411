"""A small OTLP/HTTP receiver that writes what it gets as OTLP JSON lines: one request a line, a file per
signal.

The lines are those of OpenTelemetry's file exporter: camelCase keys, ids in hex, 64-bit integers as
strings. Any tool that reads such files, the Collector's ``otlpjsonfile`` receiver among them, reads these.
"""

from __future__ import annotations

import base64
import gzip
import json
import threading
import zlib
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from google.protobuf.json_format import MessageToDict, ParseError
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otelkit.compose.machine import HOST

TRACES_FILE: Final = "traces.jsonl"
_PROTOBUF: Final = "application/x-protobuf"
_MOST_BYTES: Final = 64 * 1024 * 1024
_SIGNALS: Final[Mapping[str, tuple[type[Message], str]]] = {
    "/v1/traces": (ExportTraceServiceRequest, TRACES_FILE),
    "/v1/logs": (ExportLogsServiceRequest, "logs.jsonl"),
    "/v1/metrics": (ExportMetricsServiceRequest, "metrics.jsonl"),
}
_ID_KEYS: Final = frozenset({"traceId", "spanId", "parentSpanId"})


class OtlpReceiver:
    """Receives until its ``with`` block is left; everything acknowledged is in the files by then."""

    def __init__(self, directory: Path, *, port: int = 0) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._server = _Server((HOST, port), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="otlp-receiver", daemon=True)

    @property
    def endpoint(self) -> str:
        """For ``OTEL_EXPORTER_OTLP_ENDPOINT``."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, path: str, body: bytes) -> None:
        """Append one export request to its file.

        Raises:
            DecodeError: ``body`` is no such request.
        """
        kind, filename = _SIGNALS[path]
        request = kind()
        request.ParseFromString(body)
        line = json.dumps(to_otlp_json(request), separators=(",", ":"), ensure_ascii=False)
        with self._lock, (self._directory / filename).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def to_otlp_json(request: Message) -> dict[str, Any]:
    """An export request in OTLP's JSON form, which differs from protobuf's own in its ids and enums."""
    document: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    _ids_to_hex(document)
    return document


def _ids_to_hex(node: Any) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in _ID_KEYS and isinstance(value, str):
                node[key] = base64.b64decode(value).hex()
            else:
                _ids_to_hex(value)
    elif isinstance(node, list):
        for value in node:
            _ids_to_hex(value)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Exporters keep their connection open; leaving must not wait for them.
    block_on_close = False


def _handler(receiver: OtlpReceiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            if self.path not in _SIGNALS or not 0 <= length <= _MOST_BYTES:
                self.close_connection = True
                return self._answer(404 if self.path not in _SIGNALS else 413)
            body = self.rfile.read(length)
            if self.headers.get_content_type() != _PROTOBUF:
                return self._answer(415)
            try:
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, body)
            except (DecodeError, ParseError, OSError, EOFError, zlib.error):
                return self._answer(400)
            # An empty body is the protobuf form of "all accepted".
            return self._answer(200)

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Type", _PROTOBUF)
            self.send_header("Content-Length", "0")
            if self.close_connection:
                # A client that is not told sends its next request on a connection that is gone.
                self.send_header("Connection", "close")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the demo's stderr is for its user."""

    return Handler
