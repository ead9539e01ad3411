"""Watches an iterator while the user reads it, and tells the recording how the reading ended.

Sync and async streams differ only in how a chunk is awaited: what happens with a chunk, and at each kind of
end, is in ``Recording``. Every exit is covered: end, error, ``close``, ``break`` with and without a variable
that still holds the stream, collection, and a stream that is never read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from otelkit.record import paused
from otelkit.record.recording import Recording

_LOOP: Final = """
def loop(watched):
    chunk, recording = None, watched.recording
    now = recording.runtime.clock.monotonic_ns
    stamp, keep, observe = recording.steps.append, recording.pieces.append, recording.observe
    try:
        for chunk in watched.inner:
            stamp(now())
            try:
                piece = QUICK
            except Exception:
                piece = None
            if piece:
                keep(piece)
            else:
                observe(chunk)
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

def note(recording, chunk):
    recording.steps.append(recording.runtime.clock.monotonic_ns())
    try:
        piece = QUICK
    except Exception:
        piece = None
    if piece:
        recording.pieces.append(piece)
    else:
        recording.observe(chunk)
"""
"""What happens with each chunk, in a ``for`` loop and in single steps; ``QUICK`` is the reader's expression.

A generator with the expression inside takes half the time of a class that calls a function for each chunk. It
holds ``watched``, which would count as dropped otherwise.
"""


class _Compiled(NamedTuple):
    loop: Callable[[WatchedIterator], Generator[Any, Any, None]]
    note: Callable[[Recording, Any], None]


@lru_cache(maxsize=64)
def _compiled(quick: str) -> _Compiled:
    """The two functions for a reader's expression, which is a constant of an adapter's source."""
    names: dict[str, Any] = {}
    exec(compile(_LOOP.replace("QUICK", quick or "None"), f"<otelkit stream loop: {quick}>", "exec"), names)
    return _Compiled(names["loop"], names["note"])


class _Watched:
    """Owns a recording for as long as the user holds the stream."""

    __slots__ = ("__weakref__", "inner", "recording")

    def __init__(self, inner: Any, recording: Recording) -> None:
        self.inner = inner
        self.recording = recording

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __del__(self) -> None:
        self.recording.abandon()

    def _note(self, chunk: Any) -> None:
        recording = self.recording
        _compiled(recording.reader.quick).note(recording, chunk)
        recording.last_chunk = chunk
        paused.resume(recording)


class WatchedIterator(_Watched):
    """Takes the place of the iterator inside a provider's own stream object."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        paused.resume(self.recording)
        return _compiled(self.recording.reader.quick).loop(self)

    def __next__(self) -> Any:
        try:
            chunk = next(self.inner)
        except StopIteration:
            self.recording.completed()
            raise
        except BaseException as error:
            self.recording.failed(error)
            raise
        self._note(chunk)
        return chunk

    def close(self) -> None:
        """For generators; others have no ``close`` of their own and then raise AttributeError as they would
        unwatched."""
        close = self.inner.close
        self.recording.abandon()
        close()


class WatchedAsyncIterator(_Watched):
    """Takes the place of the async iterator inside a provider's own stream object."""

    __slots__ = ()

    def __aiter__(self) -> AsyncIterator[Any]:
        paused.resume(self.recording)
        return _AsyncLoop(self)

    async def __anext__(self) -> Any:
        try:
            chunk = await self.inner.__anext__()
        except StopAsyncIteration:
            self.recording.completed()
            raise
        except BaseException as error:
            self.recording.failed(error)
            raise
        self._note(chunk)
        return chunk

    async def aclose(self) -> None:
        """For async generators, as ``WatchedIterator.close``."""
        aclose = self.inner.aclose
        self.recording.abandon()
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

    async def __anext__(self) -> Any:
        return await self._watched.__anext__()

    def __del__(self) -> None:
        self._watched.recording.pause()
