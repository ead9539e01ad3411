"""What a transport does: send one request, and say what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of one attempt to send a request."""

    delivered: bool
    retryable: bool = False
    """Not delivered, and the OTLP specification allows to send it again."""
    retry_after: float | None = None
    """Seconds that the collector asks to wait before that."""
    rejected: int = 0
    """Delivered, but the collector refused this many spans (partial success); they must not be sent again."""
    message: str = ""
    """Why, for a reader."""


class Sender(Protocol):
    """One endpoint of a collector, for one signal. Used by one thread at a time."""

    @property
    def address(self) -> str:
        """The endpoint, for messages and as the identity of the connection."""

    def send(self, body: bytes, timeout: float) -> Reply:
        """Send one encoded request; takes at most ``timeout`` seconds and doesn't raise."""

    def close(self) -> None:
        """Close the connection; the next ``send`` opens another, as it must in a forked process."""
