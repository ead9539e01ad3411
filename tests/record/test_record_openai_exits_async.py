"""openai's async client over real HTTP: whatever way a stream ends, there is one span and one record, with
the right outcome."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import openai
import openai_wire
import pytest
from openai import AsyncOpenAI
from openai_exits import FAULTS, PIECES, the_one
from wire_server import Wire

from otelkit.model import Outcome
from otelkit.testing import Recorded


@pytest.fixture
def async_client(wire: Wire) -> AsyncOpenAI:
    wire.answer = openai_wire.stream(*PIECES)
    return AsyncOpenAI(base_url=wire.url, api_key="k", max_retries=0, timeout=2)


def ask_async(client: AsyncOpenAI, **parameters: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "secret"}], stream=True, **parameters
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_middle_async(
    fault: str, wire: Wire, async_client: AsyncOpenAI, recorded: Recorded
) -> None:
    """As above, for the async client."""
    wire.answer, error_type = FAULTS[fault]

    async def main() -> None:
        async with async_client.with_options(timeout=0.3) as client:
            with pytest.raises(Exception) as raised:
                async for _ in await ask_async(client):
                    pass
            assert type(raised.value).__name__ == error_type

    asyncio.run(main())
    assert the_one(recorded, Outcome.ERROR, 1).error_type == error_type


def run(coroutine: Any) -> None:
    """Run in a loop of its own; leftovers such as pending tasks and unclosed generators come out as
    errors."""
    asyncio.run(coroutine, debug=False)


def test_async_read_to_the_end(async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: the async client."""

    async def main() -> None:
        async with async_client as client:
            stream = await ask_async(client)
            assert type(stream) is openai.AsyncStream
            contents = [chunk.choices[0].delta.content async for chunk in stream]
            assert contents == ["", *PIECES, None]

    run(main())
    the_one(recorded, Outcome.COMPLETED, 4)


def test_async_break(async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: `break` in `async for` logs an error, or leaves the span to the collector."""

    async def main() -> None:
        async with async_client as client:
            stream = await ask_async(client)
            async for chunk in stream:
                if chunk.choices[0].delta.content == " two":
                    break
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(recorded.spans) == 1
            await stream.close()

    run(main())
    the_one(recorded, Outcome.ENDED_EARLY, 2)


def test_async_close(async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: no span when an async stream is closed half read."""

    async def main() -> None:
        async with async_client as client:
            stream = await ask_async(client)
            await anext(stream)
            await anext(stream)
            await stream.close()
            the_one(recorded, Outcome.ENDED_EARLY, 1)

    run(main())


def test_async_with_and_break(async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: `async with` and `break` together."""

    async def main() -> None:
        async with async_client as client, await ask_async(client) as stream:
            async for chunk in stream:
                if chunk.choices[0].delta.content == "one":
                    break

    run(main())
    the_one(recorded, Outcome.ENDED_EARLY, 1)


def test_cancelled_task(wire: Wire, async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: a cancelled consumer has no span, or one that says ERROR; the context is detached elsewhere."""
    wire.answer = openai_wire.stream(*PIECES, pause=0.1)

    async def consume(client: AsyncOpenAI) -> None:
        async for _ in await ask_async(client):
            pass

    async def main() -> None:
        async with async_client as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consume(client), 0.25)

    run(main())
    (generation,) = recorded.wait(1)
    the_one(recorded, Outcome.CANCELLED, len(generation.step_ns))


def test_cancelled_before_the_first_byte(wire: Wire, async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: cancelling while the request is sent."""
    wire.answer = lambda exchange: exchange.stall(5)

    async def main() -> None:
        async with async_client as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ask_async(client), 0.1)

    run(main())
    the_one(recorded, Outcome.CANCELLED, 0)


def test_generator_closed_from_another_task(
    wire: Wire, async_client: AsyncOpenAI, recorded: Recorded
) -> None:
    """Broken: a web framework closes the response generator from another task: `Failed to detach context`."""

    async def relay(client: AsyncOpenAI) -> AsyncIterator[str]:
        async for chunk in await ask_async(client):
            yield chunk.choices[0].delta.content or ""

    async def main() -> None:
        async with async_client as client:
            generator = relay(client)
            await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
            await asyncio.create_task(anext(generator))  # type: ignore[arg-type]
            await asyncio.create_task(generator.aclose())  # type: ignore[attr-defined]

    run(main())
    the_one(recorded, Outcome.ENDED_EARLY, 1)


def test_async_abandoned_and_never_iterated(async_client: AsyncOpenAI, recorded: Recorded) -> None:
    """Broken: dropped async streams have no span, or print a traceback when the loop ends."""

    async def main() -> None:
        async with async_client as client:
            half_read = await ask_async(client)
            await anext(half_read)
            await anext(half_read)
            never_read = await ask_async(client)
            responses = [half_read.response, never_read.response]
            del half_read, never_read
            gc.collect()
            for response in responses:
                await response.aclose()

    run(main())
    first, second = recorded.wait(2)
    assert {first.outcome, second.outcome} == {Outcome.ENDED_EARLY}
    assert sorted(len(generation.step_ns) for generation in (first, second)) == [0, 1]
    assert len(recorded.spans) == 2
