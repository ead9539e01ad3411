"""Records any iterator that yields what a model generates, where there is no adapter for its library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from otelkit.model import ParameterValue
from otelkit.record import instrumentation
from otelkit.record.guard import fault
from otelkit.record.location import caller
from otelkit.record.recording import Recording
from otelkit.record.request import Request
from otelkit.record.response import ResponseFacts
from otelkit.record.streams import WatchedAsyncIterator, WatchedIterator

Stream = TypeVar("Stream")


class _ItemReader:
    """Every item is a token step, save empty text."""

    quick = "chunk if chunk.__class__ is str else None"
    says_end = False

    def chunk(self, item: Any, facts: ResponseFacts) -> bool:
        facts.piece = item if isinstance(item, str) else None
        return item != "" if isinstance(item, str) else True

    def response(self, response: Any, facts: ResponseFacts) -> None:
        """Streams only."""


class _TextReader(_ItemReader):
    """An item is a token step if the user's function finds text in it."""

    quick = ""

    def __init__(self, text: Callable[[Any], Any]) -> None:
        self._text = text

    def chunk(self, item: Any, facts: ResponseFacts) -> bool:
        text = self._text(item)
        facts.piece = text if isinstance(text, str) else None
        return bool(text)


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
        describe = partial(
            Request,
            provider=provider,
            operation=operation,
            model=model,
            parameters=dict(parameters or {}),
            streamed=True,
            location=caller(""),
        )
        recording = Recording(runtime, describe, _ItemReader() if text is None else _TextReader(text))
        wrapper = WatchedAsyncIterator if hasattr(stream, "__aiter__") else WatchedIterator
        inner: Any = stream.__aiter__() if hasattr(stream, "__aiter__") else iter(stream)  # type: ignore[call-overload]
        return wrapper(inner, recording)  # type: ignore[return-value]
    except Exception:
        fault("watch a stream")
        return stream
