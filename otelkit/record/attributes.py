"""Span attributes of a request's parameters, by the rules for what may leave the process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otelkit import semconv
from otelkit.model import UNSET, ParameterValue, canonical
from otelkit.record import redaction
from otelkit.record.parameters.fingerprint import fingerprint

_ATTRIBUTE_OF: Final[Mapping[str, str]] = {
    "temperature": semconv.REQUEST_TEMPERATURE,
    "top_p": semconv.REQUEST_TOP_P,
    "top_k": semconv.REQUEST_TOP_K,
    "max_tokens": semconv.REQUEST_MAX_TOKENS,
    "stop_sequences": semconv.REQUEST_STOP_SEQUENCES,
    "seed": semconv.REQUEST_SEED,
    "frequency_penalty": semconv.REQUEST_FREQUENCY_PENALTY,
    "presence_penalty": semconv.REQUEST_PRESENCE_PENALTY,
    "choice.count": semconv.REQUEST_CHOICE_COUNT,
    "reasoning_effort": semconv.REQUEST_REASONING_LEVEL,
}
"""Parameters for which the convention has an attribute; the rest go under ``otelkit.request.``."""
_MAX_TEXT: Final = 1024
_MAX_CACHED: Final = 1024
_PLAIN: Final = frozenset({str, int, float, bool, type(None), type(UNSET)})
"""Kinds of values by which requests are told apart at once."""


class Shared(dict[str, Any]):
    """Attributes of all calls that are alike, in one object: who reads them may remember by its identity what
    it has made of them. Not to be changed."""


def request_attributes(
    parameters: Mapping[str, ParameterValue], originals: Mapping[str, ParameterValue]
) -> Mapping[str, Any]:
    """Attributes of the parameters, of the originals of renamed ones, and the fingerprint of the set.

    ``None`` has no attribute; 0 and False have. Sets of plain values that were seen before cost a
    microsecond.
    """
    key = plain_key(parameters)
    if key is None:
        return _computed(parameters, originals)
    return _cache.attributes((*key, *originals), parameters, originals)


def plain_key(values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What tells names and values from others; None where some value is not plain."""
    kinds = tuple(map(type, values.values()))
    if not _PLAIN.issuperset(kinds):
        return None
    return (*values, *values.values(), *kinds)  # with kinds, as True equals 1


class _Cache:
    """Attributes of sets seen before, for as long as the same rules are in force."""

    def __init__(self) -> None:
        self._rules: object = None
        self._known: dict[tuple[Any, ...], Shared] = {}

    def attributes(
        self,
        key: tuple[Any, ...],
        parameters: Mapping[str, ParameterValue],
        originals: Mapping[str, ParameterValue],
    ) -> Shared:
        rules = redaction.rules()
        if rules is not self._rules or len(self._known) >= _MAX_CACHED:
            self._rules, self._known = rules, {}
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Shared(_computed(parameters, originals))
        return known


_cache: Final = _Cache()


def _computed(
    parameters: Mapping[str, ParameterValue], originals: Mapping[str, ParameterValue]
) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for name, value in (*redaction.exported_parameters(parameters).items(), *originals.items()):
        if value is None or value is UNSET or (name == "choice.count" and value == 1):
            continue
        attributes[_ATTRIBUTE_OF.get(name) or semconv.PARAMETER_PREFIX + name] = _attribute_value(value)
    if parameters:
        attributes[semconv.PARAMETERS_FINGERPRINT] = fingerprint(parameters)
    return attributes


def _attribute_value(value: ParameterValue) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return tuple(item[:_MAX_TEXT] for item in value)
    return canonical(value)[:_MAX_TEXT]
