"""What is wrong with the files of an incident bundle, gathered so that it can be told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from otelkit.errors import DataError

_T = TypeVar("_T")
_MOST_PROBLEMS: Final = 100
"""Problems listed; a file of another kind would otherwise fill the screen many times over."""
LATEST_SECONDS: Final = 1e11
"""Unix seconds of the year 5138: a larger number is milliseconds or nanoseconds."""


class Problems:
    """Collects what is wrong, by file and line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lines: list[str] = []

    def add(self, name: str, message: str, line: int | None = None) -> None:
        """Note a problem of a file of the bundle."""
        where = self.directory / name
        self._lines.append(f"{where}:{line}: {message}" if line else f"{where}: {message}")

    def told_by(self, read: Callable[[], _T]) -> _T | None:
        """What a reader with errors of its own reads; None, with its problems noted."""
        try:
            return read()
        except DataError as error:
            self._lines += error.message.split("\n")
            return None

    def text_of(self, name: str) -> str | None:
        """The file's text; None, with a problem noted, where it can't be read."""
        try:
            return (self.directory / name).read_text(encoding="utf-8-sig")
        except OSError as error:
            self.add(name, f"can't be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            self.add(name, f"is not UTF-8 text: {error.reason} at byte {error.start}")
        return None

    def raise_if_any(self) -> None:
        """Tell all problems.

        Raises:
            DataError: there are some.
        """
        if not self._lines:
            return
        shown = self._lines[:_MOST_PROBLEMS]
        if len(self._lines) > len(shown):
            shown.append(f"and {len(self._lines) - len(shown)} more problems")
        raise DataError(
            "\n".join(shown), hint="`otelkit explain --save DIR` writes a bundle to compare with."
        )


def messages(error: ValidationError) -> list[str]:
    """What pydantic found, a line for each key."""
    return [
        ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))
        for problem in error.errors(include_url=False)
    ]
