"""google-genai: ``generate_content`` and its stream, on the Gemini API and on Vertex AI.

Each request that the client sends is one generation: where it calls functions by itself and asks the model
again, there are several. A stream is lazy here: one that is never iterated sends nothing, and is recorded as
ended early all the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache, partial
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from otelkit.model import ParameterValue
from otelkit.record.guard import fault
from otelkit.record.location import caller
from otelkit.record.patches import Patches
from otelkit.record.providers.base import GetRuntime
from otelkit.record.providers.google_config import read_config
from otelkit.record.providers.google_reader import GeminiReader
from otelkit.record.recording import Recording
from otelkit.record.request import Request
from otelkit.record.runtime import Runtime
from otelkit.record.streams import WatchedAsyncIterator, WatchedIterator

OPERATION: Final = "generate_content"
_END: Final = object()


class GoogleGenAI:
    """The adapter."""

    module = "google.genai"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        models = module.models
        begin = _beginner(runtime)
        patches.wrap(models.Models, "_generate_content", lambda original: _call(original, begin))
        patches.wrap(models.Models, "_generate_content_stream", lambda original: _stream(original, begin))
        patches.wrap(models.AsyncModels, "_generate_content", lambda original: _call_async(original, begin))
        patches.wrap(
            models.AsyncModels, "_generate_content_stream", lambda original: _stream_async(original, begin)
        )
        patches.wrap(models.Models, "generate_content_stream", lambda original: _lazy_stream(original, begin))
        patches.wrap(
            models.AsyncModels,
            "generate_content_stream",
            lambda original: _lazy_stream_async(original, begin),
        )


Begin = Callable[[Any, Mapping[str, Any], bool], Recording | None]


def _beginner(get_runtime: GetRuntime) -> Begin:
    def begin(models: Any, arguments: Mapping[str, Any], streamed: bool) -> Recording | None:
        runtime = get_runtime()
        try:
            return None if runtime is None else _begin(runtime, models, arguments, streamed)
        except Exception:
            fault("begin a generation")
            return None

    return begin


def _begin(runtime: Runtime, models: Any, arguments: Mapping[str, Any], streamed: bool) -> Recording:
    api = models._api_client
    parameters: dict[str, ParameterValue]
    parameters, originals = read_config(arguments.get("config"))
    address, port = _server(str(getattr(api._http_options, "base_url", None) or ""))
    describe = partial(
        Request,
        provider="gcp.vertex_ai" if api.vertexai else "gcp.gemini",
        operation=OPERATION,
        model=str(arguments.get("model") or "").removeprefix("models/"),
        parameters=parameters,
        originals=originals,
        streamed=streamed,
        location=caller("google"),
        server_address=address,
        server_port=port,
    )
    return Recording(runtime, describe, GeminiReader())


@lru_cache(maxsize=64)
def _server(base_url: str) -> tuple[str, int | None]:
    url = urlsplit(base_url)
    return url.hostname or "", url.port or {"https": 443, "http": 80}.get(url.scheme)


# --- whole answers ------------------------------------------------------------------------------------------


def _call(original: Any, begin: Begin) -> Any:
    def generate_content(models: Any, **arguments: Any) -> Any:
        recording = begin(models, arguments, False)
        if recording is None:
            return original(models, **arguments)
        with recording:
            response = original(models, **arguments)
        recording.answered(response)
        return response

    return generate_content


def _call_async(original: Any, begin: Begin) -> Any:
    async def generate_content(models: Any, **arguments: Any) -> Any:
        recording = begin(models, arguments, False)
        if recording is None:
            return await original(models, **arguments)
        with recording:
            response = await original(models, **arguments)
        recording.answered(response)
        return response

    return generate_content


# --- streams ------------------------------------------------------------------------------------------------


def _stream(original: Any, begin: Begin) -> Any:
    def generate_content_stream(models: Any, **arguments: Any) -> Any:
        # Runs when the consumer asks for the first chunk: the client's own streams are generators around it.
        inner = original(models, **arguments)
        recording = begin(models, arguments, True)
        return inner if recording is None else iter(WatchedIterator(_send(inner, recording), recording))

    return generate_content_stream


def _send(inner: Iterator[Any], recording: Recording) -> Iterator[Any]:
    """The request is sent for the first chunk; only then is the span current."""
    with recording.active():
        first = next(inner, _END)
    if first is not _END:
        yield first
        yield from inner


def _stream_async(original: Any, begin: Begin) -> Any:
    async def generate_content_stream(models: Any, **arguments: Any) -> Any:
        recording = begin(models, arguments, True)
        if recording is None:
            return await original(models, **arguments)
        with recording:
            inner = await original(models, **arguments)
        return WatchedAsyncIterator(inner, recording)

    return generate_content_stream


# --- streams that are never iterated ------------------------------------------------------------------------


class _Unread:
    """Lives in the frame of a stream; records the call if that frame goes without having run."""

    def __init__(self, begin: Begin, models: Any, arguments: Mapping[str, Any]) -> None:
        self._begin = begin
        self._models = models
        self._arguments = arguments
        self.begun = False

    def __del__(self) -> None:
        if not self.begun:
            recording = self._begin(self._models, self._arguments, True)
            if recording is not None:
                recording.abandon()


def _lazy_stream(original: Any, begin: Begin) -> Any:
    def generate_content_stream(models: Any, **arguments: Any) -> Any:
        return _noting(original(models, **arguments), _Unread(begin, models, arguments))

    return generate_content_stream


def _noting(stream: Iterator[Any], unread: _Unread) -> Iterator[Any]:
    unread.begun = True
    yield from stream


def _lazy_stream_async(original: Any, begin: Begin) -> Any:
    async def generate_content_stream(models: Any, **arguments: Any) -> Any:
        return _noting_async(await original(models, **arguments), _Unread(begin, models, arguments))

    return generate_content_stream


async def _noting_async(stream: Any, unread: _Unread) -> AsyncIterator[Any]:
    unread.begun = True
    try:
        async for chunk in stream:
            yield chunk
    finally:
        await stream.aclose()
