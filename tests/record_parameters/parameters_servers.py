"""Real servers for the tests: uvicorn for ASGI, wsgiref for WSGI, each in a thread, and an HTTP client."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def get(port: int, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
    """Ask 127.0.0.1; headers are sent as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
    finally:
        connection.close()


@contextmanager
def uvicorn_server(app: Any) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        listener.close()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


class _Threaded(ThreadingMixIn, WSGIServer):
    daemon_threads = True


@contextmanager
def wsgiref_server(app: Any) -> Iterator[int]:
    with make_server("127.0.0.1", 0, app, _Threaded, _Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join(timeout=20)
