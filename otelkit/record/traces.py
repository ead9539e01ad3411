"""The last generations of a process, kept in memory for debug pages: bounded in number and in token steps."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from otelkit.model import Generation

CAPACITY: Final = 256
"""Generations kept by default."""
MAX_STEPS: Final = 200_000
"""Token steps kept in all; a step takes about 40 bytes."""


class TraceRing:
    """Keeps the newest generations; the oldest go first. Keeps nothing until it is turned on."""

    def __init__(self, max_steps: int = MAX_STEPS) -> None:
        self._lock = threading.Lock()
        self._kept: deque[Generation] = deque()
        self._steps = 0
        self._capacity = 0
        self._max_steps = max_steps

    def turn_on(self, capacity: int = CAPACITY) -> None:
        """Keep the last ``capacity`` generations from now on."""
        self._capacity = capacity

    @property
    def capacity(self) -> int:
        """0 while it is off."""
        return self._capacity

    def add(self, generation: Generation) -> None:
        """Off the request's path."""
        if not self._capacity:
            return
        with self._lock:
            self._kept.append(generation)
            self._steps += len(generation.step_ns)
            while len(self._kept) > self._capacity or (self._steps > self._max_steps and len(self._kept) > 1):
                self._steps -= len(self._kept.popleft().step_ns)

    def find(self, fits: Callable[[Generation], bool]) -> list[Generation]:
        """The generations kept that fit, newest first."""
        with self._lock:
            kept = list(self._kept)
        return [generation for generation in reversed(kept) if fits(generation)]

    def after_fork(self) -> None:
        """In the child: its own lock; the generations of the parent are the parent's."""
        self._lock = threading.Lock()
        self._kept.clear()
        self._steps = 0
