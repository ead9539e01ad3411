"""Watches an iterator while the user reads it, and tells the recording how the reading ended.

Sync and async streams differ only in how a chunk is awaited: what happens with a chunk, and at each kind of
end, is in ``Recording``. Every exit is covered: end, error, ``close``, ``break`` with and without a variable
that still holds the stream, collection, and a stream that is never read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Iterator
from typing import Any

from otelkit.record import paused
from otelkit.record.recording import Recording


def _loop(watched: WatchedIterator) -> Generator[Any, Any, None]:
    """The quick way, for ``for`` loops: a generator costs less per step than a class with ``__next__``.

    Holds ``watched``, which would count as dropped otherwise.
    """
    chunk, recording = None, watched.recording
    now = recording.runtime.clock.monotonic_ns
    text = recording.reader.text
    stamp, keep, observe = recording.steps.append, recording.pieces.append, recording.observe
    try:
        for chunk in watched.inner:
            at = now()
            piece = text(chunk)
            if piece:
                stamp(at)
                keep(piece)
            else:
                observe(chunk, at)
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
        at = recording.runtime.clock.monotonic_ns()
        piece = recording.reader.text(chunk)
        if piece:
            recording.steps.append(at)
            recording.pieces.append(piece)
        else:
            recording.observe(chunk, at)
        recording.last_chunk = chunk
        paused.resume(recording)


class WatchedIterator(_Watched):
    """Takes the place of the iterator inside a provider's own stream object."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Any]:
        paused.resume(self.recording)
        return _loop(self)

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
