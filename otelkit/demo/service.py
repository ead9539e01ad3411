"""The demo's service: an OpenAI-style streaming endpoint in front of a language model.

It stands for any user's service. It knows nothing of otelkit and imports none of it: it is run by its
file's path, and whatever is recorded of it is recorded by auto-instrumentation of the ``openai`` SDK it
calls the model with.

Its generation parameters are in a JSON file of its own, read again whenever the file changes::

    {"max_tokens": 8, "temperature": 0.7, "top_p": 0.95, "presence_penalty": 0.0, "seed": 1}

``max_tokens`` is a cap: a caller may ask for less. Keys that are left out are not sent to the model.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import openai
import uvicorn
from openai.types.chat import ChatCompletionChunk
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

logger = logging.getLogger("chat-service")

PARAMETERS: Final = ("max_tokens", "temperature", "top_p", "presence_penalty", "seed")


class Settings:
    """The generation parameters in ``path``, as fresh as the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at_mtime_ns = -1
        self._values: dict[str, Any] = {}

    def current(self) -> dict[str, Any]:
        """The values now in force; those read last stay in force while the file can't be read."""
        try:
            mtime_ns = self._path.stat().st_mtime_ns
            if mtime_ns != self._read_at_mtime_ns:
                values = json.loads(self._path.read_text(encoding="utf-8"))
                self._values = {name: values[name] for name in PARAMETERS if name in values}
                self._read_at_mtime_ns = mtime_ns
        except (OSError, ValueError) as error:
            logger.warning("%s: keeping the settings read last: %s", self._path, error)
        return self._values


class Chat:
    """The endpoint's handler."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, settings: Settings) -> None:
        self._client = client
        self._model = model
        self._settings = settings

    async def complete(self, request: Request) -> Response:
        """Answer a chat completion request with the model's stream."""
        try:
            body = await request.json()
            messages = body["messages"]
            wish = body.get("max_tokens")
        except (ValueError, KeyError, AttributeError) as error:
            return _failure(400, f"not a chat completion request: {error!r}")
        parameters = dict(self._settings.current())
        if isinstance(wish, int):
            parameters["max_tokens"] = min(wish, parameters.get("max_tokens", wish))
        try:
            chunks = await self._client.chat.completions.create(
                model=self._model,
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                **parameters,
            )
        except openai.APIStatusError as error:
            return _failure(error.status_code, str(error))
        except openai.APIConnectionError as error:
            return _failure(502, str(error))
        return StreamingResponse(_events(chunks), media_type="text/event-stream")


async def _events(chunks: openai.AsyncStream[ChatCompletionChunk]) -> AsyncIterator[str]:
    async for chunk in chunks:
        yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
    yield "data: [DONE]\n\n"


def _failure(status: int, message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=status)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok"})


def create_app(chat: Chat) -> Starlette:
    """The service as an ASGI application."""
    return Starlette(
        routes=[
            Route("/v1/chat/completions", chat.complete, methods=["POST"]),
            Route("/health", _health, methods=["GET"]),
        ]
    )


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="A chat service in front of a language model.")
    parser.add_argument("--model-url", required=True, help="base URL of an OpenAI-compatible model server")
    parser.add_argument("--model", required=True, help="the model's name on that server")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of generation parameters")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    client = openai.AsyncOpenAI(base_url=arguments.model_url, api_key="not-needed", timeout=60.0)
    app = create_app(Chat(client, arguments.model, Settings(arguments.settings)))
    # uvicorn shuts down and then lets the signal do what it did before: by default, skip all exit handlers.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    uvicorn.run(
        app, host=arguments.host, port=arguments.port, log_level="warning", timeout_graceful_shutdown=5
    )


if __name__ == "__main__":
    main()
