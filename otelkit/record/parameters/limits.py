"""What values a parameter may take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from otelkit.model import UNSET, ParameterValue
from otelkit.record.stable import stable_text

KINDS: Final[dict[type, str]] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    list: "a list",
    dict: "a mapping",
}


class NotAllowedError(ValueError):
    """A value is outside a parameter's limits; the message goes after the parameter's name."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one parameter; what is None or empty limits nothing."""

    kind: type | None = None
    """One of ``int``, ``float`` (any number), ``bool``, ``str``, ``list``, ``dict``."""
    minimum: float | None = None
    maximum: float | None = None
    choices: Sequence[ParameterValue] = ()
    max_length: int | None = None
    """Most characters of a text, or members of a list or mapping."""

    def __post_init__(self) -> None:
        if self.kind is not None and self.kind not in KINDS:
            raise TypeError(f"kind {self.kind!r} is none of {', '.join(kind.__name__ for kind in KINDS)}")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"the minimum {self.minimum} is above the maximum {self.maximum}")

    def checked(self, value: ParameterValue) -> ParameterValue:
        """``value``, as an int where a whole number is asked for and 5.0 was given.

        Raises:
            NotAllowedError: it is outside the limits.
        """
        value = self._of_kind(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            if isinstance(value, float) and not math.isfinite(value):
                raise NotAllowedError(f"{value} is no finite number")
            if self.minimum is not None and value < self.minimum:
                raise NotAllowedError(f"{_shown(value)} is below the minimum {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise NotAllowedError(f"{_shown(value)} is above the maximum {self.maximum}")
        elif self.minimum is not None or self.maximum is not None:
            raise NotAllowedError(f"{_shown(value)} is no number")
        if (
            self.max_length is not None
            and isinstance(value, str | list | tuple | dict)
            and len(value) > self.max_length
        ):
            raise NotAllowedError(f"its length {len(value)} is above {self.max_length}")
        if self.choices and stable_text(value) not in {stable_text(choice) for choice in self.choices}:
            raise NotAllowedError(f"{_shown(value)} is none of {', '.join(map(_shown, self.choices))}")
        return value

    def _of_kind(self, value: ParameterValue) -> ParameterValue:
        kind = self.kind
        if kind is None:
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        fits = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if kind is list:
            fits = isinstance(value, list | tuple)
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise NotAllowedError(f"{_shown(value)} is not {KINDS[kind]}")
        return value


def kind_of(value: ParameterValue) -> type | None:
    """The kind that a default value suggests: any number for a number."""
    if value is UNSET or value is None:
        return None
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return next((kind for kind in (str, list, dict) if isinstance(value, kind)), None)


def _shown(value: ParameterValue) -> str:
    text = stable_text(value)
    return text if len(text) <= 60 else text[:59] + "…"
