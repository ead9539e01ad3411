"""Spans on their way into one request, written into memory that is used again.

Fresh memory is mapped page by page at its first use, which costs more than all that is written into it; a
batch of a megabyte has 256 pages.
"""

from __future__ import annotations

from typing import Final

from otelkit.emit.otlp.envelope import Envelope

_ROOM: Final = 4_096
"""Bytes kept free before the spans for what goes before them, which is known last."""
_MOST_LENT: Final = 4
"""Buffers that are taken back; of a longer queue at a slow collector the rest is given up."""


class Batch:
    """A request in the making.

    Args:
        capacity: bytes of spans that it usually takes; more fit.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._lent: list[bytearray] = []
        self.buffer = bytearray()
        """Spans are written into it from ``end`` on."""
        self._clear()

    def _clear(self) -> None:
        self.end = _ROOM
        self.spans = 0

    @property
    def size(self) -> int:
        """Bytes of spans written so far."""
        return self.end - _ROOM

    def added(self, end: int, spans: int) -> None:
        """So many spans were written, up to ``end``."""
        self.end = end
        self.spans += spans

    def prepare(self) -> None:
        """Have memory to write into."""
        if not self.buffer:
            self.buffer = self._returned() or bytearray(_ROOM + self._capacity)

    def take(self, envelope: Envelope) -> bytes | memoryview:
        """The finished request; the next begins empty. A view's memory is used again once it is gone."""
        head, tail = envelope.head(self.size), envelope.tail
        if self.size < self._capacity // 2 or len(head) > _ROOM:
            # A small body in a large buffer would take more memory than it counts for while it waits.
            with memoryview(self.buffer) as view:
                body: bytes | memoryview = b"".join((head, view[_ROOM : self.end], tail))
        else:
            begin, end = _ROOM - len(head), self.end + len(tail)
            self.buffer[begin:_ROOM] = head
            self.buffer[self.end : end] = tail
            body = memoryview(self.buffer)[begin:end]
            if len(self._lent) < _MOST_LENT:
                self._lent.append(self.buffer)
            self.buffer = bytearray()
        self._clear()
        return body

    def _returned(self) -> bytearray | None:
        for number, buffer in enumerate(self._lent):
            try:
                buffer.pop()  # refused as long as a view of it is in use
            except BufferError:
                continue
            buffer.append(0)
            return self._lent.pop(number)
        return None
