"""Durations as Prometheus writes them: ``30s``, ``5m``, ``1h30m``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

_UNITS_MS: Final = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_LONGEST_YEARS: Final = 200
"""Prometheus counts nanoseconds in 64 bits, and refuses what does not fit."""
_PATTERN: Final = "^" + "".join(f"([0-9]+{unit})?" for unit in _UNITS_MS) + "$"


@dataclass(frozen=True, order=True, slots=True)
class Duration:
    """A span of time with Prometheus' resolution of a millisecond; compares by length."""

    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read ``1h30m``.

        Raises:
            ValueError: the text is no duration in Prometheus' notation, is zero, or is too long.
        """
        match = re.match(_PATTERN, text)
        if not text or not match:
            raise ValueError(f"{text!r} is not a duration; write for instance 30s, 5m or 1h30m")
        total = sum(
            int(part[: -len(unit)]) * size
            for part, (unit, size) in zip(match.groups(), _UNITS_MS.items(), strict=True)
            if part
        )
        if total == 0:
            raise ValueError(f"{text!r} is zero; write for instance 30s, 5m or 1h30m")
        if total > _LONGEST_YEARS * _UNITS_MS["y"]:
            raise ValueError(f"{text!r} is longer than Prometheus can count; use {_LONGEST_YEARS}y or less")
        return cls(total)

    @classmethod
    def of(cls, seconds: float) -> Duration:
        """The duration nearest to ``seconds``."""
        return cls(max(1, round(seconds * 1000)))

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000

    def __str__(self) -> str:
        """The shortest text that Prometheus reads back, equal for equal lengths (``60m`` gives ``1h``).

        Weeks and years are written as days, as people do in rule files.
        """
        text, rest = "", self.milliseconds
        for unit, size in _UNITS_MS.items():
            if unit in ("y", "w"):
                continue
            count, rest = divmod(rest, size)
            if count:
                text += f"{count}{unit}"
        return text

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def read(value: object) -> Duration:
            if isinstance(value, Duration):
                return value
            if isinstance(value, str):
                return cls.parse(value)
            raise ValueError(f"{value!r} is not a duration; write for instance 30s, 5m or 1h30m")

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "pattern": _PATTERN, "examples": ["30s", "5m", "1h"]}
