"""How often parameters came from outside the code, and what became of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Final

FILE: Final = "file"
ENVIRONMENT: Final = "environment"
HEADER: Final = "header"
FLAG: Final = "flag"

APPLIED: Final = "applied"
UNCHANGED: Final = "unchanged"
REFUSED: Final = "refused"


class InputCounts:
    """Counts by (input, outcome), to be read by whoever writes ``semconv.METRIC_PARAMETER_INPUTS``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, str]] = Counter()

    def after_fork(self) -> None:
        """In the child: a lock that no other thread holds, and nothing counted yet."""
        self._lock = threading.Lock()
        self._counts.clear()

    def add(self, source: str, outcome: str) -> None:
        with self._lock:
            self._counts[source, outcome] += 1

    def read(self) -> Mapping[tuple[str, str], int]:
        """A copy; the numbers only grow."""
        with self._lock:
            return dict(self._counts)
