"""Small HTTP services for the demo's tests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """``app`` on a free port; its URL."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


class FakeModel:
    """A model server that notes what it is asked, and answers with as many tokens as it may."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.status = 200

    def app(self) -> Starlette:
        """The server."""
        return Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])])

    async def _complete(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        self.asked.append(asked)
        if self.status != 200:
            return JSONResponse({"error": {"message": "no"}}, status_code=self.status)
        tokens = asked.get("max_tokens", 1)
        lines = [_line({"content": "hi "}, None) for _ in range(tokens)]
        lines += [_line({}, "length"), "data: [DONE]\n\n"]
        return StreamingResponse(iter(lines), media_type="text/event-stream")


def _line(delta: dict[str, str], finish_reason: str | None) -> str:
    chunk = {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
    }
    return f"data: {json.dumps(chunk)}\n\n"
