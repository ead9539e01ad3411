"""What callers have asked for by header lately: tells an observed change that comes from them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from otelkit.model import ParameterChange, ParameterValue
from otelkit.record.stable import stable_text

HEADER_ORIGIN: Final = "request header X-Model-Params"
MAX_WISHES: Final = 256
SLACK_SECONDS: Final = 60.0
"""How much earlier than it is first seen in a finished call a value may have been asked for."""


class Wishes:
    """The newest wishes by parameter and value; bounded, the one not repeated for longest goes first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_at: OrderedDict[tuple[str, str], float] = OrderedDict()

    def add(self, wishes: Mapping[str, ParameterValue], at: float) -> None:
        """One request's, at a time in Unix seconds."""
        with self._lock:
            for name, value in wishes.items():
                place = name, stable_text(value)
                self._asked_at[place] = at
                self._asked_at.move_to_end(place)
            while len(self._asked_at) > MAX_WISHES:
                self._asked_at.popitem(last=False)

    def explain(self, change: ParameterChange) -> bool:
        """Whether callers asked for the new value of a change while it was observed."""
        if not self._asked_at:
            return False
        with self._lock:
            at = self._asked_at.get((change.parameter, stable_text(change.new)))
        return at is not None and at >= change.first_seen - SLACK_SECONDS

    def after_fork(self) -> None:
        """In the child: a lock that no other thread holds."""
        self._lock = threading.Lock()
        self._asked_at.clear()
