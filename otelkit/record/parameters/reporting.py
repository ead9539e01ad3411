"""Hands declared changes to the sink, and keeps those that come before there is one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import replace
from typing import Final

from otelkit.model import ParameterChange, Sink
from otelkit.record import guard
from otelkit.record.redaction import exported
from otelkit.record.stable import stable_text

MAX_WAITING: Final = 256
"""Changes kept until there is a sink; the oldest go first."""
SAME_CHANGE_SECONDS: Final = 600.0
"""An observed change this close to a declared one of the same values is that one, seen at work."""

logger: Final = logging.getLogger("otelkit.parameters")


class Reporter:
    """Where changes and problems go."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sink: Sink | None = None
        self._service = ""
        self._waiting: deque[ParameterChange] = deque(maxlen=MAX_WAITING)
        self._recent: deque[ParameterChange] = deque(maxlen=MAX_WAITING)

    @property
    def service(self) -> str:
        """``service.name``; empty until there is a sink."""
        return self._service

    def attach(self, sink: Sink, service: str) -> None:
        """Hand everything to ``sink`` from now on, what has waited first."""
        with self._lock:
            self._sink, self._service = sink, service
            waiting = list(self._waiting)
            self._waiting.clear()
        for change in waiting:
            self._hand_over(sink, change)

    def detach(self) -> None:
        """Keep changes until there is a sink again."""
        with self._lock:
            self._sink = None

    def changed(self, change: ParameterChange) -> None:
        """Report a change; the service is filled in here."""
        with self._lock:
            self._recent.append(change)
            sink = self._sink
            if sink is None:
                self._waiting.append(change)
        if sink is not None:
            self._hand_over(sink, change)

    def is_known(self, observed: ParameterChange) -> bool:
        """Whether a change seen at a call site is one that was declared in this process."""
        with self._lock:
            recent = list(self._recent)
        return any(
            declared.parameter == observed.parameter
            and declared.scope in ("", observed.scope)
            and abs(declared.first_seen - observed.first_seen) <= SAME_CHANGE_SECONDS
            and _step(declared) == _step(observed)
            for declared in recent
        )

    def in_use(self, change: ParameterChange, at: float) -> None:
        """Report a change again: a call has used the new value ``at`` (Unix seconds)."""
        used = replace(change, effective_at=at)
        with self._lock:
            sink = self._sink
            if sink is None and change in self._waiting:
                self._waiting[self._waiting.index(change)] = used
        if sink is not None:
            self._hand_over(sink, used)

    def after_fork(self) -> None:
        """In the child: a lock that no other thread holds; what waits is the parent's to report."""
        self._lock = threading.Lock()
        self._waiting.clear()

    def problem(self, text: str) -> None:
        """Say what is wrong with something that came from outside."""
        logger.warning("%s", text)

    def _hand_over(self, sink: Sink, change: ParameterChange) -> None:
        try:
            sink.change(replace(change, service=self._service))
        except Exception:
            guard.fault("report a parameter change")


def _step(change: ParameterChange) -> tuple[str, str]:
    name = change.parameter
    return stable_text(exported(name, change.old)), stable_text(exported(name, change.new))
