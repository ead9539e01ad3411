"""Generations whose consumer left a loop but may still hold the stream and read on in another loop.

Most such streams are dropped at once, some are read on, a few are kept by a variable and never touched again.
The last kind is reported after ``GRACE_SECONDS`` by a short-lived daemon thread, which only exists while
there are any.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, Protocol

GRACE_SECONDS = 1.0


class Pausable(Protocol):
    def abandon(self) -> None: ...


waiting: Final[dict[Pausable, float]] = {}
"""Monotonic seconds at which each is reported."""
_lock = threading.Lock()
_timer: threading.Timer | None = None


def add(recording: Pausable) -> None:
    """Report ``recording`` as abandoned unless it is read on, or ends, within the grace time."""
    global _timer
    waiting[recording] = time.monotonic() + GRACE_SECONDS
    with _lock:
        if _timer is None:
            _timer = _start_timer(GRACE_SECONDS)


def resume(recording: Pausable) -> None:
    """The consumer reads on."""
    if waiting:
        waiting.pop(recording, None)


def _start_timer(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, _expire)
    timer.daemon = True
    timer.start()
    return timer


def _expire() -> None:
    global _timer
    now = time.monotonic()
    for recording, deadline in list(waiting.items()):
        if deadline <= now and waiting.pop(recording, None) is not None:
            recording.abandon()
    with _lock:
        _timer = _start_timer(max(0.01, min(waiting.values()) - now)) if waiting else None


def _after_fork() -> None:
    global _timer, _lock
    waiting.clear()
    _timer, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
