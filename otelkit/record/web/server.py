"""The debug pages on a port of their own."""

from __future__ import annotations

import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from otelkit.errors import OtelkitError, UsageError
from otelkit.record.web.access import Caller, is_loopback
from otelkit.record.web.pages import PORT_VARIABLE, TOKEN_VARIABLE, DebugPages

HOST_VARIABLE: Final = "OTELKIT_DEBUG_HOST"
REQUEST_SECONDS: Final = 10.0
"""A client that takes longer to send its request is cut off."""


class DebugServer:
    """Serves debug pages in threads of its own until it is closed."""

    def __init__(self, server: ThreadingHTTPServer, host: str) -> None:
        self._server = server
        self._host = host
        self._thread = threading.Thread(target=server.serve_forever, name="otelkit-debug", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """Address that the pages' paths are appended to."""
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{self.port}"

    def close(self) -> None:
        """Stop, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=10)


def serve_debug_pages(
    port: int | None = None,
    *,
    host: str | None = None,
    token: str | None = None,
    pages: DebugPages | None = None,
) -> DebugServer | None:
    """Serve the debug pages on a port of their own.

    Args:
        port: 0 for any free one; None for ``OTELKIT_DEBUG_PORT``, and without it no pages.
        host: None for ``OTELKIT_DEBUG_HOST``, and without it 127.0.0.1.
        token: bearer token that readers must send; None for ``OTELKIT_DEBUG_TOKEN``. Required for any host
            but loopback.
        pages: what to serve; None for the pages of this process.

    Returns:
        None when no port is asked for.

    Raises:
        UsageError: the port is no port, or the host is not loopback and there is no token.
        OtelkitError: the port can't be taken.
    """
    number = _port(port)
    if number is None:
        return None
    address = host or os.environ.get(HOST_VARIABLE, "").strip() or "127.0.0.1"
    served = pages or DebugPages(True, token=token)
    if not served.token and not is_loopback(address):
        raise UsageError(
            f"debug pages on {address!r} without a token would be open to the network",
            hint=f"Set {TOKEN_VARIABLE}, or bind them to 127.0.0.1.",
        )
    try:
        return DebugServer(_server(address, number, served), address)
    except OSError as error:
        raise OtelkitError(
            f"debug pages can't be served on {address}:{number}: {error.strerror or error}",
            hint=f"Choose another port with {PORT_VARIABLE}, or 0 for any free one.",
        ) from error


def _port(port: int | None) -> int | None:
    text = os.environ.get(PORT_VARIABLE, "").strip() if port is None else str(port)
    if not text:
        return None
    if not text.isdecimal() or int(text) > 65535:
        raise UsageError(f"{PORT_VARIABLE}: {text!r} is no port", hint="Give a number from 0 to 65535.")
    return int(text)


def _server(host: str, port: int, pages: DebugPages) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def version_string(self) -> str:
            return "otelkit"

        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            page = pages.answer(self.command, path, query, Caller(self.client_address[0], headers))
            self.send_response(page.status)
            for name, value in page.headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Say nothing: standard error belongs to the service."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that went away."""

    return Server((host, port), Handler)
