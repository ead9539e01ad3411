"""A PromQL API over real HTTP that answers as Thanos, Mimir or VictoriaMetrics do: before a real Prometheus,
or from canned answers alone."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

Question = dict[str, str]
"""Parameters of one request, with ``path``."""


@dataclass(frozen=True)
class Reply:
    """What is sent back."""

    status: int = 200
    body: Any = field(
        default_factory=lambda: {"status": "success", "data": {"resultType": "vector", "result": []}}
    )
    """JSON, or text as it is."""
    headers: dict[str, str] = field(default_factory=dict)
    trickle_seconds: float = 0.0
    """Pause between two halves of the body."""


def success(result: Any, **more: Any) -> Reply:
    """An answer of the query API."""
    return Reply(body={"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def error(status: int, message: str, kind: str = "execution") -> Reply:
    """A refusal in the API's own form."""
    return Reply(status, {"status": "error", "errorType": kind, "error": message})


@dataclass
class StandIn:
    """A running stand-in."""

    url: str
    asked: list[Question] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    """Of each request, names in lower case."""


@contextlib.contextmanager
def stand_in(answer: Callable[[Question], Reply]) -> Iterator[StandIn]:
    """Serve ``answer`` on a free port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            question = {name: values[-1] for name, values in parse_qs(parts.query).items()} | {
                "path": parts.path
            }
            running.asked.append(question)
            running.headers.append({name.lower(): value for name, value in self.headers.items()})
            reply = answer(question)
            body = (reply.body if isinstance(reply.body, str) else json.dumps(reply.body)).encode()
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(body)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            # A client that ran out of patience has hung up.
            with contextlib.suppress(ConnectionError):
                middle = len(body) // 2
                self.wfile.write(body[:middle])
                self.wfile.flush()
                time.sleep(reply.trickle_seconds)
                self.wfile.write(body[middle:])

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    running = StandIn(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def forwarded(prometheus: str, question: Question, prefix: str) -> Reply:
    """What a real Prometheus answers to a question that came in under a path prefix."""
    parameters = {name: value for name, value in question.items() if name != "path"}
    answer = httpx.get(prometheus + question["path"].removeprefix(prefix), params=parameters, timeout=60)
    return Reply(answer.status_code, answer.text)
