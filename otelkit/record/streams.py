"""Watches an iterator while the user reads it, and tells the recording how the reading ended.

Sync and async streams differ only in how a chunk is awaited: what happens with a chunk, and at each kind of
end, is written once. Every exit is covered: end, error, ``close``, ``break`` with and without a variable that
still holds the stream, collection, and a stream that is never read.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from functools import lru_cache
from textwrap import indent
from typing import Any, Final, NamedTuple

from otelkit.record import paused
from otelkit.record.recording import Recording

_NOTE: Final = """
stamp(now())
try:
    piece = QUICK
except Exception:
    piece = None
if piece:
    keep(piece)
elif piece is False:
    recording.last_chunk, recording.quiet_ns = chunk, recording.steps.pop()
else:
    recording.observe(chunk)
"""
"""What happens with each chunk; ``QUICK`` is the reader's expression. Written into the functions below, as a
call for each chunk would double the cost."""

_LOOP: Final = """
def loop(watched):
    chunk, recording = None, watched._recording
    if paused:
        resume(recording)
    now, stamp, keep = watched._notes
    try:
        for chunk in watched._inner:
            NOTE
            yield chunk
    except GeneratorExit:
        recording.last_chunk = chunk
        recording.pause()
        raise
    except BaseException as error:
        recording.last_chunk = chunk
        recording.failed(error)
        raise
    recording.last_chunk = chunk
    recording.completed()
"""
"""One ``for`` loop over a stream: a generator takes half the time of a class. It holds ``watched``, which
would count as dropped otherwise."""

_STEP: Final = """
DEF step(watched):
    recording = watched._recording
    try:
        chunk = NEXT
    except END:
        recording.completed()
        raise
    except BaseException as error:
        recording.failed(error)
        raise
    now, stamp, keep = watched._notes
    NOTE
    recording.last_chunk = chunk
    if paused:
        resume(recording)
    return chunk
"""
"""One chunk, where the user asks for each, and of async streams."""
_SYNC: Final = {"DEF": "def", "NEXT": "next(watched._inner)", "END": "StopIteration"}
_ASYNC: Final = {"DEF": "async def", "NEXT": "await watched._inner.__anext__()", "END": "StopAsyncIteration"}


class _Compiled(NamedTuple):
    """The functions for one reader's expression."""

    loop: Callable[[WatchedIterator], Generator[Any, Any, None]]
    step: Callable[[WatchedIterator], Any]
    step_async: Callable[[WatchedAsyncIterator], Coroutine[Any, Any, Any]]


@lru_cache(maxsize=64)
def _compiled(quick: str) -> _Compiled:
    """The functions for a reader's expression, which is a constant of an adapter's source."""
    note = _NOTE.replace("QUICK", quick or "None")
    return _Compiled(
        _function("loop", _LOOP, {}, note),
        _function("step", _STEP, _SYNC, note),
        _function("step", _STEP, _ASYNC, note),
    )


def _function(name: str, source: str, words: dict[str, str], note: str) -> Any:
    for word, meaning in words.items():
        source = source.replace(word, meaning)
    source = re.sub(r"^( *)NOTE$", lambda line: indent(note.strip(), line[1]), source, flags=re.MULTILINE)
    names: dict[str, Any] = {"paused": paused.waiting, "resume": paused.resume}
    exec(compile(source, f"<otelkit {name} of a stream>", "exec"), names)
    return names[name]


class _Watched:
    """Owns a recording for as long as the user holds the stream."""

    __slots__ = ("__weakref__", "_functions", "_inner", "_notes", "_recording")

    def __init__(self, inner: Any, recording: Recording) -> None:
        self._inner = inner
        self._recording = recording
        # The clock, and what takes each chunk's time and text.
        self._notes = recording.runtime.clock.monotonic_ns, recording.steps.append, recording.pieces.append
        self._functions = _compiled(recording.reader.quick)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __del__(self) -> None:
        recording = self._recording
        if recording in recording.runtime.open:  # or it has ended, as most have
            recording.abandon()


class WatchedIterator(_Watched):
    """Takes the place of the iterator inside a provider's own stream object."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        return self._functions.loop(self)

    def __next__(self) -> Any:
        return self._functions.step(self)

    def close(self) -> None:
        """For generators; others have no ``close`` of their own and then raise AttributeError as they would
        unwatched."""
        close = self._inner.close
        self._recording.abandon()
        close()


class WatchedAsyncIterator(_Watched):
    """Takes the place of the async iterator inside a provider's own stream object."""

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Any]:
        paused.resume(self._recording)
        return _AsyncLoop(self)

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._functions.step_async(self)

    async def aclose(self) -> None:
        """For async generators, as ``WatchedIterator.close``."""
        aclose = self._inner.aclose
        self._recording.abandon()
        await aclose()


class _AsyncLoop:
    """One ``async for`` over a watched stream; its end of life is the end of the loop.

    A class, not an async generator: nothing has to be scheduled on an event loop when it is dropped.
    """

    __slots__ = ("_watched",)

    def __init__(self, watched: WatchedAsyncIterator) -> None:
        self._watched = watched

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Any]:
        return self._watched._functions.step_async(self._watched)

    def __del__(self) -> None:
        self._watched._recording.pause()
