"""A JSON form for any value: the same in every process, and equal exactly where the values mean the same."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import hashlib
import json
import math
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue, canonical

MAX_DEPTH: Final = 32
"""Deeper parts of a value are left out."""
MAX_NODES: Final = 100_000
"""Values of more parts are replaced by a digest of their text."""
_MAX_REPR: Final = 1024
_PLAIN_REPR: Final[object] = object.__repr__
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_AS_TEXT: Final = (
    datetime.date,
    datetime.time,
    datetime.timedelta,
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    pathlib.PurePath,
    complex,
)
_NAMED: Final = (type, FunctionType, BuiltinFunctionType, MethodType)


class _TooManyNodesError(Exception):
    """The value has more parts than are looked at one by one."""


def digest(text: str) -> str:
    """Stands for a text that is too long or too private; differs where the texts differ."""
    return f"sha256:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:16]} ({len(text)} characters)"


def stable_text(value: ParameterValue) -> str:
    """Canonical text of ``normalise(value)``; equal for values that mean the same. Never raises."""
    return canonical(normalise(value))


def normalise(value: ParameterValue) -> ParameterValue:
    """``value`` as a JSON value (UNSET stays); numbers that are equal become the same number. Never raises.

    Iterators are not touched: reading one would take from the user what it yields.
    """
    kind = type(value)
    if value is UNSET or value is None or kind is bool:
        return value
    try:
        return _Walk().visit(value, 0)
    except _TooManyNodesError:
        return digest(_rough_text(value))
    except Exception:  # a user's __repr__, __iter__ or property may do anything
        return f"<{_name(kind)} without a representation>"


def _rough_text(value: Any) -> str:
    try:
        return json.dumps(value, default=_described)
    except Exception:
        return _described(value)


def _name(kind: Any) -> str:
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}".lstrip(".")


def _described(value: Any) -> str:
    return _ADDRESS.sub("", repr(value))


def _number(value: float) -> ParameterValue:
    if math.isfinite(value):
        return int(value) if value.is_integer() and abs(value) < 1 << 53 else value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


class _Walk:
    """One walk through a value, with a bound on the parts it visits."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_NODES

    def visit(self, value: Any, depth: int) -> ParameterValue:
        self._left -= 1
        if self._left < 0:
            raise _TooManyNodesError
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, enum.Enum):
            return "unset" if value is UNSET else self.visit(value.value, depth + 1)
        if isinstance(value, str):
            # A lone surrogate can't be written as UTF-8 anywhere.
            return value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, int):
            return int(value) if value.bit_length() <= 1024 else digest(hex(value))
        if isinstance(value, float):
            return _number(float(value))
        if isinstance(value, _AS_TEXT):
            return str(value)
        return "…" if depth >= MAX_DEPTH else self._compound(value, depth)

    def _compound(self, value: Any, depth: int) -> ParameterValue:
        if isinstance(value, bytes | bytearray | memoryview):
            return self._buffer(value)
        if isinstance(value, Mapping):
            return self._mapping(value.items(), depth)
        if isinstance(value, Set):
            return sorted(self._items(value, depth), key=canonical)
        if isinstance(value, Sequence):
            return self._items(value, depth)
        return self._object(value, depth)

    def _items(self, values: Iterable[Any], depth: int) -> list[ParameterValue]:
        return [self.visit(item, depth + 1) for item in values]

    def _mapping(self, items: Iterable[tuple[Any, Any]], depth: int) -> dict[str, ParameterValue]:
        result: dict[str, ParameterValue] = {}
        for key, item in items:
            plain = self.visit(key, depth + 1)
            result[plain if isinstance(plain, str) else canonical(plain)] = self.visit(item, depth + 1)
        return result

    def _buffer(self, value: Any) -> str:
        view = memoryview(value)
        return f"bytes sha256:{hashlib.sha256(view).hexdigest()[:16]} ({view.nbytes} bytes)"

    def _object(self, value: Any, depth: int) -> ParameterValue:
        kind = type(value)
        if isinstance(value, _NAMED):
            return _name(value)
        if isinstance(value, ModuleType):
            return value.__name__
        if isinstance(value, re.Pattern):
            return self.visit(value.pattern, depth)
        if dataclasses.is_dataclass(kind):
            fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
            return self._mapping(fields, depth)
        if callable(getattr(kind, "model_dump", None)):  # pydantic; what was not given is not there
            return self.visit(value.model_dump(exclude_unset=True), depth + 1)
        if callable(getattr(kind, "ListFields", None)):  # protobuf
            return self._mapping(((field.name, item) for field, item in value.ListFields()), depth)
        if callable(getattr(kind, "item", None)) and getattr(value, "ndim", None) == 0:  # a numpy scalar
            return self.visit(value.item(), depth + 1)
        try:
            return self._buffer(value)
        except (TypeError, ValueError, BufferError):
            pass
        if getattr(kind, "__repr__", None) is _PLAIN_REPR and (state := getattr(value, "__dict__", None)):
            public = ((name, item) for name, item in state.items() if not name.startswith("_"))
            return {"__type__": _name(kind), **self._mapping(public, depth)}
        return _described(value)[:_MAX_REPR]
