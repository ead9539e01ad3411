"""Replaces functions of providers' clients, and puts them back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

_MARK: Final = "__otelkit_wrapped__"


class Patches:
    """Everything that one installation has replaced."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, Any]] = []

    def wrap(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Replace ``owner.name`` by ``make(original)``, once: a function that is wrapped already stays as it
        is.

        Args:
            owner: a class or module that defines ``name`` itself; if it does not, nothing happens.
            make: takes the original function (or descriptor) and returns its replacement, which must call it.
        """
        original = vars(owner).get(name)
        if original is None or hasattr(original, _MARK):
            return
        replacement = make(original)
        if callable(original):
            functools.update_wrapper(replacement, original)
        setattr(replacement, _MARK, True)
        setattr(owner, name, replacement)
        self._done.append((owner, name, original, replacement))

    def undo(self) -> None:
        """Put everything back, except where someone else has wrapped our replacement since: that one only
        passes through."""
        while self._done:
            owner, name, original, replacement = self._done.pop()
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
