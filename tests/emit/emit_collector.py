"""Collectors for tests: real servers on loopback that keep what they get and answer as they are told."""

from __future__ import annotations

import gzip
import ssl
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True)
class Answer:
    """What to answer one request with: an HTTP status or a gRPC status, as the collector speaks."""

    status: Any
    headers: tuple[tuple[str, Any], ...] = ()
    body: bytes = b""
    delay: float = 0.0
    """Seconds until it comes."""
    closes: bool = False
    """Whether the connection is closed after it, over HTTP."""


@dataclass(frozen=True)
class Received:
    """One request as it came in, and as it reads once decompressed."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: bytes
    at: float


class Kept:
    """What a collector was sent."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.answers: deque[Answer] = deque()
        """Given to the next requests in turn; after them, success."""

    def requests(self, path: str = "traces") -> list[Received]:
        return [request for request in self.received if path in request.path.lower()]

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests()
            for resource in ExportTraceServiceRequest.FromString(request.body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def steps(self) -> list[Span]:
        return [span for span in self.spans() if span.name == "token_step"]

    def events(self) -> list[Any]:
        return [
            record
            for request in self.requests("logs")
            for resource in ExportLogsServiceRequest.FromString(request.body).resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]


class HttpCollector(Kept):
    """An OTLP/HTTP endpoint; ``stop`` and ``start`` on the same port play an outage."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.port = 0
        self.closed = 0
        """Connections that were, by either side."""
        self._tls = tls
        self._server: ThreadingHTTPServer | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        keeper = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                encoding = self.headers.get("content-encoding", "")
                body = {"gzip": gzip.decompress, "deflate": zlib.decompress}.get(encoding, bytes)(raw)
                answer = keeper.answers.popleft() if keeper.answers else Answer(200)
                lower = {name.lower(): value for name, value in self.headers.items()}
                keeper.received.append(Received(self.path, lower, raw, body, time.monotonic()))
                time.sleep(answer.delay)
                self.send_response(answer.status)
                for name, value in answer.headers:
                    self.send_header(name, value)
                self.send_header("content-length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)
                self.close_connection = answer.closes

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """Quiet about clients that go away."""

            def shutdown_request(self, request: Any) -> None:
                super().shutdown_request(request)
                keeper.closed += 1

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        if self._tls is not None:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.stop()


class GrpcCollector(Kept):
    """An OTLP/gRPC endpoint for traces and logs."""

    def __init__(self, credentials: Any = None) -> None:
        import grpc

        super().__init__()
        self._server = grpc.server(futures.ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self._handler(grpc),))
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        self._server.start()

    def _handler(self, grpc: Any) -> Any:
        keeper = self

        class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
            def service(self, details: Any) -> Any:
                def export(body: bytes, context: Any) -> bytes:
                    headers = {name: str(value) for name, value in context.invocation_metadata()}
                    keeper.received.append(Received(details.method, headers, body, body, time.monotonic()))
                    answer = keeper.answers.popleft() if keeper.answers else None
                    if answer is not None and answer.status is not grpc.StatusCode.OK:
                        context.set_trailing_metadata(answer.headers)
                        context.abort(answer.status, "told to")
                    return b"" if answer is None else answer.body

                return grpc.unary_unary_rpc_method_handler(export)

        return Handler()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._server.stop(None).wait()


def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError("waited in vain")
        time.sleep(0.005)
