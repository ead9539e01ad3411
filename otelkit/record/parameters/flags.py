"""The feature flags that a process has evaluated, for debug pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from otelkit.model import ParameterValue

MAX_FLAGS: Final = 1000


@dataclass(frozen=True, slots=True)
class FlagValue:
    """What the last evaluation of a flag gave; others may have got another value at the same time."""

    key: str
    domain: str
    value: ParameterValue
    variant: str
    provider: str
    evaluated_at: float
    """Unix seconds."""


class FlagValues:
    """The last value of each flag; of more than ``MAX_FLAGS`` flags, the first ones seen."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], FlagValue] = {}

    def put(self, value: FlagValue) -> None:
        """Needs no lock: one step of a dict."""
        place = (value.domain, value.key)
        if place in self._values or len(self._values) < MAX_FLAGS:
            self._values[place] = value

    def all(self) -> Sequence[FlagValue]:
        """In order of domain and key."""
        return sorted(self._values.copy().values(), key=lambda value: (value.domain, value.key))
