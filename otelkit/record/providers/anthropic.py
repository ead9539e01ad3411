"""anthropic: messages, plain and beta, on Anthropic's own API and on the clouds that offer it through this
client."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Final

from otelkit.record.patches import Patches
from otelkit.record.providers.base import GetRuntime
from otelkit.record.providers.stainless import Endpoint, Stainless
from otelkit.record.response import ResponseFacts

_DELTA_PARTS: Final = ("text", "thinking", "partial_json")


class MessageReader:
    """Reads stream events, and messages."""

    quick = "chunk.delta.text"
    says_end = True

    def __init__(self, body: Mapping[str, Any]) -> None:
        pass

    def chunk(self, event: Any, facts: ResponseFacts) -> bool:
        facts.piece = None
        match getattr(event, "type", None):
            case "content_block_delta":
                delta = getattr(event, "delta", None)
                for part in _DELTA_PARTS:
                    text = getattr(delta, part, None)
                    if text:
                        facts.piece = text
                        return True
            case "message_start":
                self.response(getattr(event, "message", None), facts)
            case "message_delta":
                facts.finished(getattr(getattr(event, "delta", None), "stop_reason", None))
                _note_usage(getattr(event, "usage", None), facts)
            case "error":
                facts.error_type = str(getattr(getattr(event, "error", None), "type", None) or "error")
        return False

    def response(self, message: Any, facts: ResponseFacts) -> None:
        facts.names(getattr(message, "id", None), getattr(message, "model", None))
        facts.finished(getattr(message, "stop_reason", None))
        _note_usage(getattr(message, "usage", None), facts)


def _note_usage(usage: Any, facts: ResponseFacts) -> None:
    """Counts are cumulative within a message. Those of cached input are given apart, and belong to the
    input."""
    counts = [
        getattr(usage, name, None)
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ]
    read = sum(count for count in counts if isinstance(count, int)) if isinstance(counts[0], int) else None
    facts.usage(read, getattr(usage, "output_tokens", None))


_CLOUDS: Final = {"Bedrock": "aws.bedrock", "Vertex": "gcp.vertex_ai", "Foundry": "azure.ai.inference"}


def _provider(client: Any) -> str:
    name = type(client).__name__
    return next((provider for part, provider in _CLOUDS.items() if part in name), "anthropic")


class Anthropic:
    """The adapter."""

    module = "anthropic"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        endpoint = Endpoint("chat", {}, MessageReader)
        # A client that makes a span of its own does so in ``request``, around ``_request``: that span is
        # joined.
        traces_itself = hasattr(module.Anthropic, "open_telemetry")
        client = Stainless(
            package="anthropic",
            endpoints={"/v1/messages": endpoint, "/v1/messages?beta=true": endpoint},
            provider_of=_provider,
            request_method="_request" if traces_itself else "request",
        )
        client.instrument(module.Anthropic, module.AsyncAnthropic, module._streaming, patches, runtime)
