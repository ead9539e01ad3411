"""What an adapter is, and how the process finds them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final, Protocol

from otelkit.model import ParameterValue
from otelkit.record.patches import Patches
from otelkit.record.runtime import Runtime

GetRuntime = Callable[[], Runtime | None]
"""The installation in force; None once it is uninstalled: wrappers that outlive it then only pass calls
through."""


class Provider(Protocol):
    """An adapter: our own, under an ``otelkit.providers`` entry point of another package, or passed to
    ``install``."""

    @property
    def module(self) -> str:
        """Module whose import makes the client usable."""

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        """Wrap the client's functions. ``module`` is imported."""


CONTENT: Final = frozenset(
    {
        "messages", "input", "prompt", "suffix", "system", "instructions", "contents", "prediction",
        "documents", "tools", "functions", "metadata", "user", "safety_identifier", "prompt_cache_key",
        "audio", "container", "conversation", "previous_response_id", "thread_id", "background", "context",
        "model", "stream", "stream_options",
    }
)  # fmt: skip
"""Parts of a request that are not parameters: content, who asked, and what the span says elsewhere."""


MUTABLE: Final = (list, dict)
"""Kinds of values that are copied when they are read."""


def request_parameters(
    given: Mapping[str, Any], names: Mapping[str, str]
) -> tuple[dict[str, ParameterValue], dict[str, ParameterValue]]:
    """Sort a request's fields into parameters under the convention's names, and originals that were renamed.

    Args:
        given: the request; it is only read.
        names: provider's name -> convention's name.
    """
    parameters: dict[str, ParameterValue] = {}
    originals: dict[str, ParameterValue] = {}
    for name, value in given.items():
        if name in CONTENT:
            continue
        renamed = names.get(name)
        if isinstance(value, MUTABLE):
            value = value.copy()  # the user may reuse it for the next request
        elif renamed == "stop_sequences" and isinstance(value, str):
            value = [value]
        if renamed is None:
            parameters[name] = value
        else:
            parameters[renamed] = value
            if renamed != name:
                originals[name] = value
    return parameters, originals


_PARAMETER_HEADERS: Final = {"anthropic-beta": "anthropic_beta", "openai-beta": "openai_beta"}
_MODEL_PARAMETERS: Final = "x-model-params"


def header_parameters(headers: Any) -> dict[str, ParameterValue]:
    """Parameters that a request carries in its headers: features switched on, and ``X-Model-Params`` for a
    gateway."""
    found: dict[str, ParameterValue] = {}
    if not isinstance(headers, Mapping):
        return found
    for name, value in headers.items():
        lowered = name.lower()
        if lowered in _PARAMETER_HEADERS:
            found[_PARAMETER_HEADERS[lowered]] = str(value)
        elif lowered == _MODEL_PARAMETERS:
            found.update(_decoded(str(value)))
    return found


def _decoded(text: str) -> dict[str, ParameterValue]:
    """A JSON object, or base64 of one; whatever else it is carries nothing."""
    for read in (str.encode, lambda encoded: base64.b64decode(encoded, altchars=b"-_")):
        try:
            document = json.loads(read(text))
        except ValueError:
            continue
        if isinstance(document, dict):
            return {name: value for name, value in document.items() if name not in CONTENT}
    return {}
