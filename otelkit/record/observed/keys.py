"""Hashable stand-ins for parameter values, equal for values that mean the same only."""

from __future__ import annotations

import json
import marshal
from collections.abc import Sequence
from operator import eq
from typing import Any, Final

from otelkit.model import UNSET, ParameterValue, canonical
from otelkit.record.redaction import MAX_TEXT
from otelkit.record.stable import digest, normalise

Key = Any
Known = tuple[ParameterValue, Key]
_MAX_CACHED: Final = 1024
_MAX_SHOWN: Final = 1024
_MAX_KNOWN: Final = 4
_NONE: Final = object()
_cache: Final[dict[str | bytes, Key]] = {}
"""Keys of lists and mappings of plain values by their marshalled bytes, which cost a thirtieth of the
canonical text; of others by their short ``repr``, a tenth."""
_digests: Final[dict[tuple[int, int], str]] = {}
"""Digests of long texts by length and hash: the latter costs a fifth."""
_FORMAT: Final = 2
"""Version of marshal's format: in later ones a value's bytes depend on who else holds what is inside."""
_MAX_DEPTH: Final = 8
_OWN_KEY: Final = frozenset({int, type(None), type(UNSET)})
_NUMBERS: Final = frozenset({int, float})
_OWN_BUT_NAN: Final = _OWN_KEY | {float}
_TEXT: Final = frozenset({str})
_SCALARS: Final = frozenset({str, int, float, bool, type(None), type(UNSET)})
_CONTAINERS: Final = (list, tuple, dict)
_WRITABLE: Final = (list, dict)


def keys_of(values: Sequence[ParameterValue], known: list[Known]) -> Sequence[Key]:
    """``key_of`` for each of some values; quicker where all are plain, or few are different.

    Args:
        known: values that are likely to be among them, with their keys, the likeliest one first; none that
            ``needs_key``. Further lists and mappings are added, up to a few.
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
            likeliest, its_key = known[0] if known else (_NONE, None)
            return [its_key if value == likeliest else _key_among(value, known) for value in values]
        except Exception:  # something inside that can't be compared, such as an array
            pass
    return list(map(key_of, values))


def _key_among(value: ParameterValue, known: list[Known]) -> Key:
    for like, its_key in known:
        if value == like:
            return its_key
    key = key_of(value)
    if len(known) < _MAX_KNOWN and type(value) in _WRITABLE and type(key) is tuple and not needs_key(value):
        kept = value_of(key)  # not itself, which may be written to
        if kept == value:
            known.append((kept, key))
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
    shown: str | bytes
    try:
        shown = marshal.dumps(value, _FORMAT)
        key = _cache.get(shown)
        if key is not None:
            return key
        is_plain = _is_plain(value)
    except ValueError:  # not plain, or contains itself
        is_plain = False
    if not is_plain:
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


def _is_plain(value: ParameterValue) -> bool:
    if type(value) is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return all(map(_is_plain, value)) if type(value) in _CONTAINERS else type(value) in _SCALARS


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
