"""Scalars of ``otelkit.yaml`` that people write with a unit: ``800ms``, ``0.1%``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from otelkit.spec.durations import Duration


def _seconds(value: Any) -> Any:
    if isinstance(value, str):
        return Duration.parse(value).seconds
    return value


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
