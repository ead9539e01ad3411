"""SIGUSR2 means: read the configuration files again."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from otelkit.record.parameters.reporting import logger


class ReloadSignal:
    """Asks for a reload on SIGUSR2, and then does what the process did on that signal before.

    Python runs a handler between two steps of the main thread, whatever it is doing and whatever locks it
    holds; so the handler only puts a note where the watching thread finds it.
    """

    def __init__(self, request_reload: Callable[[], None]) -> None:
        self._request_reload = request_reload
        self._previous: Any = None
        self._installed = False

    def install(self) -> bool:
        """Take the signal; returns whether it is ours now. Only the main thread may do that."""
        number = getattr(signal, "SIGUSR2", None)
        if number is None:
            return False
        previous = signal.getsignal(number)
        if previous == self._handle:
            return True
        if previous is None:
            logger.warning("SIGUSR2 has a handler that is not Python's; configuration is not reloaded by it")
            return False
        try:
            self._previous = previous
            signal.signal(number, self._handle)
            signal.siginterrupt(number, False)  # no system call of the program ends early because of it
        except ValueError:
            logger.warning(
                "SIGUSR2 can only be taken by the main thread; configuration is not reloaded by it"
            )
            return False
        self._installed = True
        return True

    def uninstall(self) -> None:
        """Give the signal back, unless someone has taken it since."""
        if self._installed and signal.getsignal(signal.SIGUSR2) == self._handle:
            signal.signal(signal.SIGUSR2, self._previous)
        self._installed = False

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._request_reload()
        if callable(self._previous):
            self._previous(number, frame)
