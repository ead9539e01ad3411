"""Reads google's GenerateContentConfig, given as an object or as a dict in either spelling."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Final

from otelkit.model import ParameterValue
from otelkit.record.providers.base import request_parameters

_NAMES: Final = {"max_output_tokens": "max_tokens", "candidate_count": "choice.count"}
_NOT_PARAMETERS: Final = frozenset(
    {
        "http_options", "should_return_http_response", "system_instruction", "labels", "cached_content",
        "automatic_function_calling", "continuation_token", "include_all_fields",
    }
)  # fmt: skip
"""Content, transport (whose headers may hold keys), names of the caller, and what the client keeps for
itself."""
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])([A-Z])")


def read_config(config: Any) -> tuple[dict[str, ParameterValue], dict[str, ParameterValue]]:
    """(parameters under the convention's names, originals that were renamed); only what was given."""
    if config is None:
        return {}, {}
    if isinstance(config, Mapping):
        fields: dict[str, Any] = {
            _CAMEL.sub(r"_\1", str(name)).lower(): value for name, value in config.items()
        }
    else:
        fields = {name: getattr(config, name) for name in config.model_fields_set}
    given = {
        name: _plain(value)
        for name, value in fields.items()
        if value is not None and name not in _NOT_PARAMETERS
    }
    if isinstance(given.get("safety_settings"), list):
        given["safety_settings"] = _thresholds(given["safety_settings"])
    return request_parameters(given, _NAMES)


def _plain(value: Any) -> ParameterValue:
    """As JSON: enums by value, objects of the client by the fields that were set, classes by name."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, type):
        return value.__qualname__
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return value


def _thresholds(settings: list[Any]) -> ParameterValue:
    """Safety settings as category -> threshold, whatever their order; in full when they say more."""
    thresholds = {}
    for setting in settings:
        if not isinstance(setting, Mapping) or set(setting) != {"category", "threshold"}:
            return settings
        thresholds[str(setting["category"])] = setting["threshold"]
    return thresholds
