"""One clock for a generation: monotonic readings per step, anchored once to the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """A pair of clocks. Steps are read from the monotonic one, so that an adjusted system time never reorders
    them."""

    monotonic_ns: Callable[[], int]
    """Never goes back; its zero means nothing."""
    wall_ns: Callable[[], int]
    """Nanoseconds since the Unix epoch."""

    def anchor(self) -> tuple[int, int]:
        """(monotonic now, what to add to a monotonic reading to get wall-clock time), in ns."""
        now = self.monotonic_ns()
        return now, self.wall_ns() - now


SYSTEM_CLOCK: Final = Clock(time.perf_counter_ns, time.time_ns)
