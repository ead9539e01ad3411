"""Every error otelkit raises on purpose: one tree, each with an exit code and a next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class OtelkitError(Exception):
    """Root of the tree.

    Args:
        message: one sentence that names the file (or address) and the value at fault.
        hint: the next step for the reader, as a sentence; empty when there is none.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(OtelkitError):
    """The command line or the environment asks for something that makes no sense."""

    exit_code = 2


class ConfigError(OtelkitError):
    """One or more problems in a configuration file; all of them are reported at once.

    Args:
        problems: one line each, as ``file:line: key: what is wrong, next step``.
    """

    exit_code = 2

    def __init__(self, problems: Sequence[str], *, hint: str = "") -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = tuple(problems)


class BackendUnreachable(OtelkitError):  # noqa: N818  (states a condition; reads well in `except`)
    """Prometheus, a /metrics page or another backend did not answer, or answered with an error."""

    exit_code = 4


class ModelUnavailable(OtelkitError):  # noqa: N818
    """The language model of the demo can't be fetched, verified or loaded."""


class DataError(OtelkitError):
    """Series or changes that were read can't be used as they are."""
