"""A local HTTP server that speaks providers' wire formats, and misbehaves on request."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[["Exchange"], None]


class Exchange(BaseHTTPRequestHandler):
    """One request; the test's ``answer`` writes the response through this object."""

    protocol_version = "HTTP/1.1"
    server: WireServer
    body: bytes = b""

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.wire.requests.append((self.path, dict(self.headers.items()), self.body))
        try:
            self.server.wire.answer(self)
        except (BrokenPipeError, ConnectionResetError):
            self.server.wire.disconnected.set()
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def request_json(self) -> Any:
        return json.loads(self.body)

    def json(self, document: Any, status: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin_events(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def raw(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def event(self, document: Any, name: str = "") -> None:
        prefix = f"event: {name}\n" if name else ""
        self.raw(f"{prefix}data: {json.dumps(document, ensure_ascii=False)}\n\n".encode())

    def done(self, marker: str = "[DONE]") -> None:
        if marker:
            self.raw(f"data: {marker}\n\n".encode())
        self.wfile.write(b"0\r\n\r\n")

    def reset(self) -> None:
        """Drop the connection with a TCP reset, as a crashed server or a middlebox does."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def stall(self, seconds: float) -> None:
        """Say nothing for a while."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.server.wire.stopping.is_set():
            time.sleep(0.01)


class WireServer(ThreadingHTTPServer):
    daemon_threads = True
    wire: Wire

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # clients hang up on purpose here


@dataclass
class Wire:
    """The server as a test sees it: set ``answer``, then call ``url``."""

    url: str = ""
    answer: Answer = lambda exchange: exchange.json({})
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    disconnected: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serve() -> Iterator[Wire]:
    wire = Wire()
    server = WireServer(("127.0.0.1", 0), Exchange)
    server.wire = wire
    wire.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield wire
    finally:
        wire.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()
