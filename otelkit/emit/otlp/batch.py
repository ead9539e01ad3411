"""Spans on their way into one request, which is written when it is sent.

Until then they take a fifth of the memory. And a request is written into memory that is used for one after
the other: fresh memory is mapped page by page at its first use, and what was written long ago has left the
processor's caches; either costs more than to write a request.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from otelkit.emit.otlp.envelope import Envelope
from otelkit.record import guard

_ROOM: Final = 4_096
"""Bytes kept free before the spans for what goes before them, which is known last."""


class Spans(Protocol):
    """Spans of one resource and scope, each with its tag in ``ScopeSpans``."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def spans(self) -> int:
        """How many."""

    def write(self, into: bytearray, begin: int) -> int:
        """Write them into ``into`` from ``begin`` on; where they end."""


class Encoded(NamedTuple):
    """Spans that are bytes already."""

    encoded: bytes
    spans: int

    @property
    def size(self) -> int:
        return len(self.encoded)

    def write(self, into: bytearray, begin: int) -> int:
        end = begin + len(self.encoded)
        into[begin:end] = self.encoded
        return end


class Unwritten:
    """A request that is complete but for its bytes.

    Args:
        parts: as many spans as ``spans``, which take ``size`` bytes.
    """

    __slots__ = ("_envelope", "_length", "_parts", "_size")

    def __init__(self, envelope: Envelope, parts: list[Spans], size: int) -> None:
        self._envelope, self._parts, self._size = envelope, parts, size
        self._length = len(envelope.head(size)) + size + len(envelope.tail)

    def __len__(self) -> int:
        """Bytes that it will take."""
        return self._length

    def write(self, memory: Memory) -> tuple[bytes | memoryview, int]:
        """Its bytes, until the memory is used again; and the number of spans that could not be written."""
        tail, lost = self._envelope.tail, 0
        buffer = memory.of(_ROOM + self._size + len(tail))
        end = _ROOM
        for part in self._parts:
            try:
                end = part.write(buffer, end)
            except Exception:
                lost += part.spans
                guard.fault("write spans")
        head = self._envelope.head(end - _ROOM)
        if len(head) > _ROOM:
            return b"".join((head, buffer[_ROOM:end], tail)), lost
        begin, stop = _ROOM - len(head), end + len(tail)
        buffer[begin:_ROOM] = head
        buffer[end:stop] = tail
        return memoryview(buffer)[begin:stop], lost


class Memory:
    """What requests are written into, one after the other."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def of(self, size: int) -> bytearray:
        """At least so many bytes. Never longer or shorter, so that somebody may still look at it."""
        if len(self._buffer) < size:
            self._buffer = bytearray(max(size, 2 * len(self._buffer)))
        return self._buffer


class Batch:
    """A request in the making."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._parts: list[Spans] = []
        self.size = 0
        """Bytes of spans so far."""
        self.spans = 0

    def add(self, part: Spans) -> None:
        self._parts.append(part)
        self.size += part.size
        self.spans += part.spans

    def put_first(self, other: Batch) -> None:
        """Take all of another, which is empty then, and put it before the rest."""
        self._parts[:0] = other._parts
        self.size += other.size
        self.spans += other.spans
        other._clear()

    def take(self, envelope: Envelope) -> Unwritten:
        """The request; the next begins empty."""
        taken = Unwritten(envelope, self._parts, self.size)
        self._clear()
        return taken
