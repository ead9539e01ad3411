"""Watches the body of an HTTP response: all that is left where the user takes raw or streaming responses from
a client.

The body's stream object is replaced by one that passes the bytes through. Where the client's own stream
object reads the body, only ``close`` is looked at here; where the user reads it (lines, bytes, text),
server-sent events and JSON are read on the way.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from types import TracebackType
from typing import Any, Final

from otelkit.model import Outcome
from otelkit.record.guard import fault
from otelkit.record.recording import Recording

_MAX_BUFFER: Final = 1 << 20
"""Bytes of an unfinished line, or of a JSON body, that are kept for reading; beyond it the body only passes
through."""
_DATA: Final = b"data:"


class Lenient(dict[str, Any]):
    """JSON object whose members are attributes, like the clients' own types; a missing one is None."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def parse_json(body: bytes) -> Any:
    """The document as nested ``Lenient``; None if it is no JSON."""
    try:
        return json.loads(body, object_hook=Lenient)
    except ValueError:
        return None


class _Body:
    """What is known of a body while it is read, and what takes the place of its stream."""

    _buffer = b""
    _events = _legible = False

    def __init__(self, recording: Recording, response: Any, reading: Any) -> None:
        self.inner = response.stream
        self.recording = recording
        self.reading = reading
        """The client's own iterator over the body, if there is one."""
        self._headers = response.headers

    def begin(self) -> None:
        """The user reads the body."""
        self._events = self._headers.get("content-type", "").startswith("text/event-stream")
        self._legible = self._headers.get("content-encoding", "identity") == "identity"

    def __del__(self) -> None:
        if self.reading is None:
            self.recording.abandon()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def feed(self, data: bytes) -> None:
        try:
            self.recording.opened()
            if not self._legible:
                return
            self._buffer += data
            if self._events:
                *lines, self._buffer = self._buffer.splitlines(keepends=True) if data else [b""]
                if self._buffer.endswith((b"\n", b"\r")):
                    lines.append(self._buffer)
                    self._buffer = b""
                for line in lines:
                    self._line(line)
            self._legible = len(self._buffer) <= _MAX_BUFFER
        except Exception:
            fault("read a response body")

    def _line(self, line: bytes) -> None:
        if not line.startswith(_DATA):
            return
        chunk = parse_json(line[len(_DATA) :])
        if isinstance(chunk, Lenient):
            self.recording.steps.append(self.recording.runtime.clock.monotonic_ns())
            self.recording.observe(chunk)

    def end(self) -> None:
        if not self._legible:
            self.recording.finish(Outcome.COMPLETED)  # whether it says so can't be told
        elif not self._events:
            self.recording.answered(parse_json(self._buffer))
        self.recording.completed()

    def closing(self) -> None:
        """The response is being closed: by the consumer, unless the client's iterator is in the middle of
        reading."""
        if not (getattr(self.reading, "gi_running", False) or getattr(self.reading, "ag_running", False)):
            self.recording.abandon()


def is_watchable(response: Any) -> bool:
    """Whether this is an HTTP response of httpx, or of a library with the same interface."""
    return hasattr(response, "stream") and hasattr(response, "iter_raw") and hasattr(response, "is_closed")


def recording_of(response: Any) -> Recording | None:
    """The recording that ``watch_bytes`` tied to this response."""
    body = getattr(response, "stream", None)
    return body.recording if isinstance(body, _Body) else None


def watch_bytes(response: Any, recording: Recording, *, reading: Any = None) -> None:
    """Follow the response's body.

    Args:
        response: an open ``httpx.Response``: one that ``is_watchable``.
        recording: told how the body ends.
        reading: the client's own iterator over the body, which reports steps and ends itself.
    """
    body = response.stream
    if isinstance(body, _Body):
        body.reading = reading
        return
    kind: Any = type(body)
    watching = _watching(kind)
    if watching is not None:
        response.stream = watching(recording, response, reading)


@lru_cache(maxsize=64)
def _watching(kind: Any) -> Any:
    """What takes the place of a body's stream of this type; None for one that is not the library's."""
    bases = (base for base in kind.__mro__ if base.__name__ in ("SyncByteStream", "AsyncByteStream"))
    base = next(bases, None)
    return None if base is None else _stream_type(base)


@lru_cache(maxsize=8)
def _stream_type(base: Any) -> Any:
    """A subclass of the library's own stream type, which it insists on."""

    class WatchedBytes(_Body, base):  # type: ignore[misc]
        if base.__name__ == "SyncByteStream":

            def __iter__(self) -> Iterator[bytes]:
                return _read(self) if self.reading is None else iter(self.inner)

            def close(self) -> None:
                self.closing()
                self.inner.close()

        else:

            def __aiter__(self) -> AsyncIterator[bytes]:
                inner: AsyncIterator[bytes] = self.inner.__aiter__()
                return _read_async(self, inner) if self.reading is None else inner

            async def aclose(self) -> None:
                self.closing()
                await self.inner.aclose()

    return WatchedBytes


def _read(body: _Body) -> Iterator[bytes]:
    with _Reading(body):
        for data in body.inner:
            body.feed(data)
            yield data


async def _read_async(body: _Body, inner: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with _Reading(body):
        async for data in inner:
            body.feed(data)
            yield data


class _Reading:
    """The user's reading of a body; tells the recording how it ended."""

    __slots__ = ("_body",)

    def __init__(self, body: _Body) -> None:
        self._body = body

    def __enter__(self) -> None:
        self._body.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._body.end()
        elif kind is GeneratorExit:
            self._body.recording.pause()
        else:
            self._body.recording.failed(error)
