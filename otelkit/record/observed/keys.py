"""Hashable stand-ins for parameter values, equal for equal values only."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue, canonical

MAX_TEXT: Final = 1024
"""Characters up to which a text is its own key."""

Key = Any
_MAX_CACHED: Final = 1024
_cache: Final[dict[str, Key]] = {}
"""Keys of lists and mappings by their short ``repr``, which costs a tenth of the canonical text."""


def key_of(value: ParameterValue) -> Key:
    """True is not 1, None is not unset, 1 is 1.0, and lists and mappings compare by content."""
    kind = type(value)
    if kind is int or value is None or value is UNSET:
        return value
    if kind is str:
        return value if len(value) <= MAX_TEXT else (str, len(value), hash(value))
    if kind is float and value == value:
        return value
    if kind is bool:
        return bool, value
    shown = repr(value)
    key = _cache.get(shown)
    if key is None:
        key = _key_of_text(canonical(value))
        if len(shown) <= MAX_TEXT:
            if len(_cache) >= _MAX_CACHED:
                _cache.clear()
            _cache[shown] = key
    return key


def _key_of_text(text: str) -> Key:
    if len(text) > MAX_TEXT:
        return dict, None, hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return dict, text


def value_of(key: Key) -> ParameterValue:
    """The value behind a key; a long one's digest, as nothing else of it is kept."""
    if not isinstance(key, tuple):
        return key
    if len(key) > 2:
        return f"#{key[2]}"
    if key[0] is bool:
        return key[1]
    try:
        return json.loads(key[1])
    except ValueError:
        return key[1]


def is_ambiguous(value: ParameterValue) -> bool:
    """Whether ``==`` takes a value of another kind for this one: True for 1, False for 0, also inside."""
    if isinstance(value, int | float):
        return value in (0, 1)
    if isinstance(value, list | tuple):
        return any(map(is_ambiguous, value))
    if isinstance(value, dict):
        return any(map(is_ambiguous, value.values()))
    return False
