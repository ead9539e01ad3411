"""Records any iterator that yields what a model generates, where there is no adapter for its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from otelkit.model import ParameterValue
from otelkit.record import instrumentation
from otelkit.record.guard import fault
from otelkit.record.location import caller
from otelkit.record.recording import Recording, Request
from otelkit.record.response import ResponseFacts
from otelkit.record.streams import WatchedAsyncIterator, WatchedIterator

Stream = TypeVar("Stream")


def _item_text(item: Any) -> Any:
    return item if isinstance(item, str) else None


class _ItemReader:
    """Every item is a token step, save empty text and what the user's function finds no text in."""

    def __init__(self, text: Callable[[Any], Any] | None) -> None:
        self.text = _item_text if text is None else _safe(text)
        self._other_items_count = text is None

    def chunk(self, item: Any, facts: ResponseFacts) -> bool:
        facts.piece = None
        return self._other_items_count and not isinstance(item, str)

    def response(self, response: Any, facts: ResponseFacts) -> None:
        """Streams only."""


def _safe(text: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(item: Any) -> Any:
        try:
            return text(item)
        except Exception:
            fault("read the text of an item")
            return None

    return read


def watch(
    stream: Stream,
    *,
    model: str,
    provider: str = "custom",
    operation: str = "text_completion",
    parameters: Mapping[str, ParameterValue] | None = None,
    text: Callable[[Any], Any] | None = None,
) -> Stream:
    """Record the generation that ``stream`` yields, as one span with a step for every item.

        for token in otelkit.watch(engine.stream(prompt, top_k=5), model="tiny", parameters={"top_k": 5}):
            ...

    Args:
        stream: an iterator or async iterator, for instance a generator. The clock starts now.
        model: name of the model.
        provider: value of ``gen_ai.provider.name``.
        operation: value of ``gen_ai.operation.name``.
        parameters: under the convention's names (``max_tokens``, ``temperature`` ...).
        text: an item's text; empty or None for an item that is no token step. Used to see repetition, never
        kept.

    Returns:
        An iterator over the same items with the same attributes and methods; ``stream`` itself while nothing
        records.
    """
    runtime = instrumentation.runtime()
    if runtime is None:
        return stream
    try:
        request = Request(
            provider=provider,
            operation=operation,
            model=model,
            parameters=dict(parameters or {}),
            streamed=True,
            location=caller(""),
        )
        recording = Recording(runtime, request, _ItemReader(text))
        wrapper = WatchedAsyncIterator if hasattr(stream, "__aiter__") else WatchedIterator
        inner: Any = stream.__aiter__() if hasattr(stream, "__aiter__") else iter(stream)  # type: ignore[call-overload]
        return wrapper(inner, recording)  # type: ignore[return-value]
    except Exception:
        fault("watch a stream")
        return stream
