"""A short hash of a set of parameters: what spans are stamped with, so that they can be split by it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

from otelkit.model import UNSET, ParameterValue, canonical
from otelkit.record import redaction

_MAX_CACHED: Final = 1024
_PLAIN: Final = frozenset({str, int, float, bool, type(None), type(UNSET)})
_rules: Final[list[object]] = [None]
_cache: Final[dict[tuple[object, ...], str]] = {}


def fingerprint(parameters: Mapping[str, ParameterValue]) -> str:
    """12 hexadecimal digits, equal in every process for sets that mean the same; empty for an empty set.

    Parameters that are UNSET do not count. Secrets enter as the text that stands for them, so that the hash
    tells nothing of them. Costs about a microsecond for a set of plain values that was seen before.
    """
    kinds = tuple(map(type, parameters.values()))
    if not _PLAIN.issuperset(kinds):
        return _computed(parameters)
    key = (*parameters, *parameters.values(), *kinds)  # with kinds, as True equals 1
    rules = redaction.rules()
    if rules is not _rules[0]:  # other rules, other forms of the same values
        _cache.clear()
        _rules[0] = rules
    known = _cache.get(key)
    if known is None:
        known = _computed(parameters)
        if len(_cache) >= _MAX_CACHED:
            _cache.clear()
        _cache[key] = known
    return known


def _computed(parameters: Mapping[str, ParameterValue]) -> str:
    given = {name: value for name, value in parameters.items() if value is not UNSET}
    if not given:
        return ""
    text = canonical(redaction.exported_parameters(given))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
