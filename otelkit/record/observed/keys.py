"""Hashable stand-ins for parameter values, equal for values that mean the same only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import eq
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue, canonical
from otelkit.record.redaction import MAX_TEXT
from otelkit.record.stable import digest, normalise

Key = Any
_MAX_CACHED: Final = 1024
_MAX_SHOWN: Final = 1024
_OPEN: Final = object()
"""In the place of a key that is not known yet."""
_cache: Final[dict[str, Key]] = {}
"""Keys of lists and mappings by their short ``repr``, which costs a tenth of the canonical text."""
_digests: Final[dict[tuple[int, int], str]] = {}
"""Digests of long texts by length and hash: the latter costs a fifth."""
_MAX_DEPTH: Final = 8
_OWN_KEY: Final = frozenset({int, type(None), type(UNSET)})
_NUMBERS: Final = frozenset({int, float})
_OWN_BUT_NAN: Final = _OWN_KEY | {float}
_TEXT: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, float, bool, type(None), type(UNSET)})
_CONTAINERS: Final = (list, tuple, dict)


def keys_of(values: Sequence[ParameterValue], known: tuple[ParameterValue, Key] | None) -> Sequence[Key]:
    """``key_of`` for each of some values; quicker where all are plain, or few are different.

    Args:
        known: a value that is likely to be among them, and its key; none that ``needs_key``.
    """
    kinds = set(map(type, values))
    if kinds <= _OWN_KEY:
        return values
    if kinds <= _NUMBERS:
        try:
            total = sum(values)
        except OverflowError:
            total = None
        if total is not None and total == total:  # else there is a NaN among them, or both infinities
            return values
    elif kinds <= _OWN_BUT_NAN:
        if all(map(eq, values, values)):
            return values
    elif kinds == _TEXT:
        if max(map(len, values)) <= MAX_TEXT:
            return values
    elif not kinds.isdisjoint(_CONTAINERS):
        try:
            return _keys_of_containers(values, known)
        except Exception:  # something inside that can't be compared, such as an array
            pass
    return list(map(key_of, values))


def _keys_of_containers(
    values: Sequence[ParameterValue], known: tuple[ParameterValue, Key] | None
) -> list[Key]:
    if known is None:
        keys: list[Key] = [_OPEN] * len(values)
    else:
        like, its_key = known
        keys = [its_key if value == like else _OPEN for value in values]
    others: list[tuple[ParameterValue, Key]] = []
    for index, key in enumerate(keys):
        if key is _OPEN:
            keys[index] = _key_among(values[index], others)
    return keys


def _key_among(value: ParameterValue, others: list[tuple[ParameterValue, Key]]) -> Key:
    """``key_of`` a value, that of an equal one among ``others`` if there is one; else it joins them."""
    for other, its_key in others:
        if value == other:
            return its_key
    key = key_of(value)
    if type(value) in _CONTAINERS and not needs_key(value):
        others.append((value, key))
    return key


def key_of(value: ParameterValue) -> Key:
    """True is not 1, None is not unset, 1 is 1.0, and everything else compares by content. Never raises."""
    kind = type(value)
    if kind is int or value is None or value is UNSET:
        return value
    if kind is str:
        return value if len(value) <= MAX_TEXT else _digest(value)
    if kind is float and value == value:
        return value
    if kind is bool:
        return bool, value
    if kind in _CONTAINERS:
        return _key_of_container(value)
    plain = normalise(
        value
    )  # an enumeration's member or a numpy scalar is the plain value that it stands for
    return _key_of_text(canonical(plain)) if isinstance(plain, _CONTAINERS) else key_of(plain)


def _digest(text: str) -> str:
    place = len(text), hash(text)
    known = _digests.get(place)
    if known is None:
        if len(_digests) >= _MAX_CACHED:
            _digests.clear()
        known = _digests[place] = digest(canonical(normalise(text)))
    return known


def _key_of_container(value: ParameterValue) -> Key:
    try:
        shown = repr(value)
    except Exception:  # of something inside
        return _key_of_text(canonical(normalise(value)))
    key = _cache.get(shown)
    if key is None:
        key = _key_of_text(canonical(normalise(value)))
        if len(shown) <= _MAX_SHOWN:
            if len(_cache) >= _MAX_CACHED:
                _cache.clear()
            _cache[shown] = key
    return key


def _key_of_text(text: str) -> Key:
    return (dict, text) if len(text) <= MAX_TEXT else digest(text)


def value_of(key: Key) -> ParameterValue:
    """The value behind a key; a long one's digest, as nothing else of it is kept."""
    if not isinstance(key, tuple):
        return key
    return key[1] if key[0] is bool else json.loads(key[1])


def lasting(value: ParameterValue, key: Key) -> ParameterValue:
    """What is kept of a value: not a list or mapping that may be written to yet, nor a text of a megabyte."""
    return value if type(value) in _SCALARS - {str} else value_of(key)


def needs_key(value: ParameterValue, depth: int = 0) -> bool:
    """Whether ``==`` does not tell this value, as it is kept, from others: True equals 1, False equals 0,
    also inside; of a long text only a digest is kept; what is no JSON value may equal anything; and what is
    nested deeper may contain itself."""
    if isinstance(value, int | float):
        return value in (0, 1) or type(value) not in _SCALARS
    if isinstance(value, _CONTAINERS):
        members = value.values() if isinstance(value, dict) else value
        return depth >= _MAX_DEPTH or any(needs_key(member, depth + 1) for member in members)
    return len(value) > MAX_TEXT if type(value) is str else type(value) not in _SCALARS
