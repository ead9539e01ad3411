"""Which adapters there are: our own, and those of other packages under the ``otelkit.providers`` entry
points.

An entry point's name is the name of the module whose import makes the client usable, so that nothing of an
adapter is loaded before.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otelkit.record.providers.base import Provider

ENTRY_POINTS: Final = "otelkit.providers"

_OWN: Final = {
    "openai": "otelkit.record.providers.openai:OpenAI",
    "transformers.generation.utils": "otelkit.record.providers.transformers:Transformers",
    "google.genai": "otelkit.record.providers.google_genai:GoogleGenAI",
    "anthropic": "otelkit.record.providers.anthropic:Anthropic",
    "vllm.entrypoints.llm": "otelkit.record.providers.vllm:VLLM",
    "vllm.v1.engine.async_llm": "otelkit.record.providers.vllm:AsyncVLLM",
}


def client_modules() -> dict[str, str]:
    """Client's module -> ``module:class`` of its adapter. An entry point replaces our own adapter for that
    module."""
    return _OWN | {entry_point.name: entry_point.value for entry_point in entry_points(group=ENTRY_POINTS)}


def load(reference: str) -> Provider:
    """Make the adapter at ``module:class``.

    Raises:
        ImportError, AttributeError: when there is none.
    """
    module, _, name = reference.partition(":")
    provider: Provider = getattr(import_module(module), name)()
    return provider
