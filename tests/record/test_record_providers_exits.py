"""Every provider's client over real HTTP: whatever way a stream ends, one span and one record, with the right
outcome."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from dialects import (
    CANCELLED,
    COMPLETED,
    DIALECTS,
    EARLY,
    ERROR,
    GOOGLE,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    PIECES,
    Dialect,
)
from opentelemetry.trace import StatusCode
from wire_server import Exchange, Wire

from otelkit import semconv, testing
from otelkit.model import Generation, Outcome
from otelkit.record import instrumentation
from otelkit.testing import Recorded

pytestmark = pytest.mark.parametrize("dialect", DIALECTS)


def the_one(recorded: Recorded, dialect: Dialect, outcome: Outcome, steps: int | None) -> Generation:
    """The only record, checked against its span."""
    (generation,) = recorded.wait(1)
    (span,) = recorded.spans
    assert generation.outcome is outcome
    assert steps is None or len(generation.step_ns) == steps
    assert span.name == dialect.span_name
    assert span.attributes is not None
    assert span.attributes[semconv.OUTCOME] == outcome.value
    assert (span.status.status_code is StatusCode.ERROR) == (outcome is ERROR)
    assert bool(span.attributes.get(semconv.ERROR_TYPE)) == (outcome is ERROR)
    assert span.end_time == generation.end_ns
    assert "secret" not in str(span.attributes)
    return generation


def test_read_to_the_end(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: events that are no tokens count as steps; cumulative usage is summed; facts of the response are
    lost."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        assert tuple(text for chunk in dialect.ask(client) if (text := dialect.text(chunk))) == PIECES
    generation = the_one(recorded, dialect, COMPLETED, 4)
    assert (generation.input_tokens, generation.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)
    assert generation.finish_reasons == dialect.finish_reasons
    assert generation.response_id
    assert generation.response_model.endswith("-2026")
    assert ".py:" in generation.call_site.location


def test_break(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a consumer that has read enough makes an error, or no span."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        for chunk in dialect.ask(client):
            if dialect.text(chunk) == " two":
                break
        gc.collect()
    the_one(recorded, dialect, EARLY, 2)


def test_close(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: no span when the consumer closes the stream and keeps the variable; or the end is that of the
    closing."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        stream = dialect.ask(client)
        while dialect.text(next(stream)) != "one":
            pass
        stream.close()
        generation = the_one(recorded, dialect, EARLY, 1)
    assert generation.end_ns == generation.step_ns[-1]


def test_exception_in_the_consumer(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: the consumer's own error is charged to the provider, or swallowed."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client, pytest.raises(KeyError, match="mine"):
        for chunk in dialect.ask(client):
            if dialect.text(chunk) == "one":
                raise KeyError("mine")
    gc.collect()
    the_one(recorded, dialect, EARLY, 1)


def test_abandoned(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a stream that is dropped half read has no span."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        stream = dialect.ask(client)
        while dialect.text(next(stream)) != "one":
            pass
        del stream
        gc.collect()
    the_one(recorded, dialect, EARLY, 1)


def test_never_iterated(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a stream nobody reads has no span."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        dialect.ask(client)
        gc.collect()
    the_one(recorded, dialect, EARLY, 0)


def test_held_until_the_process_ends(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a broken-off stream that a variable still holds has no span."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        stream = dialect.ask(client)
        for chunk in stream:
            if dialect.text(chunk) == "one":
                break
        instrumentation.flush()
        the_one(recorded, dialect, EARLY, 1)
        del stream


def spoil_error(dialect: Dialect, exchange: Exchange) -> None:
    name, document = dialect.error_event
    exchange.event(document, name)
    exchange.done(marker="")


def spoil_reset(dialect: Dialect, exchange: Exchange) -> None:
    exchange.stall(0.05)
    exchange.reset()


def spoil_malformed(dialect: Dialect, exchange: Exchange) -> None:
    name, _ = dialect.piece("one")
    exchange.raw(f"event: {name}\ndata: {{not json\n\n".encode() if name else b"data: {not json\n\n")
    exchange.done(marker="")


def spoil_stall(dialect: Dialect, exchange: Exchange) -> None:
    exchange.stall(3)


SPOILERS: dict[str, Any] = {
    "error event": spoil_error,
    "reset": spoil_reset,
    "malformed chunk": spoil_malformed,
    "stall": spoil_stall,
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_fault_in_the_middle(spoiler: str, dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a stream that fails half way is exported as OK, without error.type."""
    wire.answer = dialect.stream(spoil=lambda exchange: SPOILERS[spoiler](dialect, exchange))
    raised = ""
    with dialect.client(wire.url) as client:
        try:
            list(dialect.ask(client))
        except Exception as error:
            raised = type(error).__qualname__
    generation = the_one(recorded, dialect, ERROR, 1)
    if spoiler == "error event":
        assert generation.error_type in dialect.error_types
    else:
        assert generation.error_type == raised != ""


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_fault_in_the_middle_async(spoiler: str, dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """As above, for the async client."""
    wire.answer = dialect.stream(spoil=lambda exchange: SPOILERS[spoiler](dialect, exchange))

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            with contextlib.suppress(Exception):  # what the client raises is checked above
                async for _ in await dialect.ask_async(client):
                    pass

    asyncio.run(main())
    assert the_one(recorded, dialect, ERROR, 1).error_type


def cut_cleanly(dialect: Dialect) -> Any:
    return dialect.stream(spoil=lambda exchange: exchange.done(marker=""))


def test_cut_cleanly(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a stream that ends without error, but half way, passes for a whole answer."""
    wire.answer = cut_cleanly(dialect)
    with dialect.client(wire.url) as client:
        assert [text for chunk in dialect.ask(client) if (text := dialect.text(chunk))] == ["one"]
    generation = the_one(recorded, dialect, EARLY, 1)
    assert generation.finish_reasons == ()
    assert semconv.RESPONSE_FINISH_REASONS not in (recorded.spans[0].attributes or {})


def test_cut_cleanly_async(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """As above, for the async client."""
    wire.answer = cut_cleanly(dialect)

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            async for _ in await dialect.ask_async(client):
                pass

    asyncio.run(main())
    the_one(recorded, dialect, EARLY, 1)


def test_refused_request(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: an error status before the stream begins has no span, or one that is OK."""
    wire.answer = lambda exchange: exchange.json({"error": {"message": "no", "code": 400}}, status=400)
    with dialect.client(wire.url) as client, pytest.raises(Exception, match="400"):
        list(dialect.ask(client))
    the_one(recorded, dialect, ERROR, 0)


# --- async --------------------------------------------------------------------------------------------------


def test_async_read_to_the_end(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: the async client."""
    wire.answer = dialect.stream()

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            stream = await dialect.ask_async(client)
            assert tuple([text async for chunk in stream if (text := dialect.text(chunk))]) == PIECES

    asyncio.run(main())
    generation = the_one(recorded, dialect, COMPLETED, 4)
    assert (generation.input_tokens, generation.output_tokens) == (INPUT_TOKENS, OUTPUT_TOKENS)


def test_async_break(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: `break` in `async for` logs an error, or has no span."""
    wire.answer = dialect.stream()

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            async for chunk in await dialect.ask_async(client):
                if dialect.text(chunk) == " two":
                    break

    asyncio.run(main())
    gc.collect()
    the_one(recorded, dialect, EARLY, 2)


def test_cancelled_task(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a cancelled consumer has no span, or one that says ERROR."""
    wire.answer = dialect.stream(pause=0.15)

    async def consume(client: Any) -> None:
        async for _ in await dialect.ask_async(client):
            pass

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consume(client), 0.25)

    asyncio.run(main())
    the_one(recorded, dialect, CANCELLED, None)


def test_generator_closed_from_another_task(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a web framework closes the response generator from another task: `Failed to detach context`."""
    wire.answer = dialect.stream()

    async def relay(client: Any) -> AsyncIterator[str]:
        async for chunk in await dialect.ask_async(client):
            if text := dialect.text(chunk):
                yield text

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            generator: Any = relay(client)
            await asyncio.create_task(anext(generator))
            await asyncio.create_task(generator.aclose())

    asyncio.run(main())
    gc.collect()
    the_one(recorded, dialect, EARLY, 1)


def test_async_never_iterated(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: an async stream nobody reads has no span, or prints a traceback when the loop ends."""
    wire.answer = dialect.stream()

    async def main() -> None:
        async with dialect.async_client(wire.url) as client:
            stream = await dialect.ask_async(client)
            response = getattr(stream, "response", None)
            del stream
            gc.collect()
            if response is not None:
                await response.aclose()

    asyncio.run(main())
    gc.collect()
    the_one(recorded, dialect, EARLY, 0)


def test_interleaved_streams(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: two streams read in turn mix their steps, or one is lost."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        streams = [dialect.ask(client), dialect.ask(client)]
        for chunks in zip(*streams, strict=True):
            assert len({dialect.text(chunk) for chunk in chunks}) == 1
    assert [len(generation.step_ns) for generation in recorded.wait(2)] == [4, 4]
    assert len(recorded.spans) == 2


def test_stream_type_is_kept(dialect: Dialect, wire: Wire) -> None:
    """Broken: code that checks for the client's own stream object."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        plain = dialect.ask(client)
        with testing.recording():
            watched = dialect.ask(client)
            assert type(watched) is type(plain)
            list(watched)
        list(plain)


def test_tokens_of_each_step(dialect: Dialect, wire: Wire, recorded: Recorded) -> None:
    """Broken: a chunk of several tokens counts as one token where the provider tells how many there are."""
    wire.answer = dialect.stream()
    with dialect.client(wire.url) as client:
        list(dialect.ask(client))
    generation = recorded.wait(1)[0]
    assert generation.step_tokens == ([2, 2, 2, 2] if dialect is GOOGLE else None)
