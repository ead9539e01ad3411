"""Scalars of ``otelkit.yaml`` that people write with a unit: ``800ms``, ``0.1%``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from otelkit.spec.durations import Duration

_DECIMAL: Final = re.compile(r"([0-9]*\.[0-9]+)(ms|s|m|h)")


def _seconds(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    decimal = _DECIMAL.fullmatch(value.strip())
    if decimal:
        return round(float(decimal[1]) * Duration.parse(f"1{decimal[2]}").seconds, 9)
    return Duration.parse(value.strip()).seconds


def _share(value: Any) -> Any:
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            # Rounded, so that 0.1% is 0.001 and not 0.001 and a bit: the number goes into rule files.
            return round(float(value.strip()[:-1]) / 100, 12)
        except ValueError:
            raise ValueError(f"{value!r} is not a share; write for instance 0.1% or 0.001") from None
    return value


Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}], "examples": ["800ms"]}
    ),
]
"""A span of time: a number of seconds, or a text such as ``800ms``."""

Share = Annotated[
    float,
    BeforeValidator(_share),
    Field(gt=0, lt=1),
    WithJsonSchema(
        {"anyOf": [{"type": "number"}, {"type": "string", "pattern": "%$"}], "examples": ["0.1%", 0.001]}
    ),
]
"""More than nothing and less than all: a number between 0 and 1, or a percentage."""
