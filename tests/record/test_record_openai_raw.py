"""openai's raw and streaming-response variants: what the user gets is untouched, and the whole answer is
recorded."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import openai
import openai_wire
import pytest
from openai import AsyncOpenAI, OpenAI
from wire_server import Exchange, Wire

from otelkit import testing
from otelkit.model import Outcome
from otelkit.testing import Recorded

PIECES = ("one", " two", " three", " four")
MESSAGES: Any = [{"role": "user", "content": "secret"}]


@pytest.fixture
def client(wire: Wire) -> Iterator[OpenAI]:
    wire.answer = openai_wire.stream(*PIECES, usage=(7, 4))
    with OpenAI(base_url=wire.url, api_key="k", max_retries=0, timeout=2) as client:
        yield client


def check(recorded: Recorded, outcome: Outcome, steps: int) -> None:
    (generation,) = recorded.wait(1)
    (span,) = recorded.spans
    assert generation.outcome is outcome
    assert len(generation.step_ns) == steps
    assert span.end_time == generation.end_ns
    if outcome is Outcome.COMPLETED:
        assert generation.finish_reasons == ("stop",)
        assert (generation.input_tokens, generation.output_tokens) == (7, 4)


def test_raw_parsed(client: OpenAI, recorded: Recorded) -> None:
    """Broken: the span of `with_raw_response` ends when the headers come, before the last chunk."""
    raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
    assert raw.headers["content-type"] == "text/event-stream"
    assert not recorded.generations
    stream = raw.parse()
    assert type(stream) is openai.Stream
    assert len(list(stream)) == 7
    check(recorded, Outcome.COMPLETED, 4)


def test_raw_lines(client: OpenAI, recorded: Recorded) -> None:
    """Broken: raw lines read by the user are not seen."""
    raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
    lines = list(raw.http_response.iter_lines())
    assert lines[-2] == "data: [DONE]"
    check(recorded, Outcome.COMPLETED, 4)


def test_raw_lines_cut_cleanly(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a stream that ends half way, without error, passes for a whole answer where the program reads
    its lines."""

    def cut(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(openai_wire.chunk("one"))
        exchange.done(marker="")

    wire.answer = cut
    raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
    assert len([line for line in raw.http_response.iter_lines() if line]) == 1
    check(recorded, Outcome.ENDED_EARLY, 1)


def test_raw_abandoned(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a raw response that is dropped unread has no span."""
    client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES, stream=True)
    gc.collect()
    check(recorded, Outcome.ENDED_EARLY, 0)


def test_raw_not_streamed(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: usage of a raw plain response is lost, or the user's body is read up."""
    wire.answer = lambda exchange: exchange.json(openai_wire.completion(prompt=7, tokens=4))
    raw = client.chat.completions.with_raw_response.create(model="m", messages=MESSAGES)
    assert raw.parse().choices[0].message.content == "hello"
    check(recorded, Outcome.COMPLETED, 0)


def read_lines(response: Any) -> None:
    assert len([line for line in response.iter_lines() if line]) == 8


def read_parsed(response: Any) -> None:
    assert len(list(response.parse())) == 7


@pytest.mark.parametrize("read", [read_lines, read_parsed])
def test_streaming_response(read: Callable[[Any], None], client: OpenAI, recorded: Recorded) -> None:
    """Broken: `with_streaming_response` ends its span before the last chunk."""
    with client.chat.completions.with_streaming_response.create(
        model="m", messages=MESSAGES, stream=True
    ) as response:
        assert not recorded.generations
        read(response)
    check(recorded, Outcome.COMPLETED, 4)


def test_streaming_response_left_early(client: OpenAI, recorded: Recorded) -> None:
    """Broken: leaving the block half way counts as completed, or as an error."""
    with client.chat.completions.with_streaming_response.create(
        model="m", messages=MESSAGES, stream=True
    ) as response:
        for line in response.iter_lines():
            if "one" in line:
                break
    (generation,) = recorded.wait(1)
    assert generation.outcome is Outcome.ENDED_EARLY
    assert len(recorded.spans) == 1


def test_streaming_response_of_a_plain_call(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a JSON body that the user reads piece by piece gives no usage."""
    wire.answer = lambda exchange: exchange.json(openai_wire.completion(prompt=7, tokens=4))
    with client.chat.completions.with_streaming_response.create(model="m", messages=MESSAGES) as response:
        assert b"hello" in b"".join(response.iter_bytes(10))
    check(recorded, Outcome.COMPLETED, 0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [({"message": "m", "code": "full"}, "full"), ({"type": "server_error"}, "server_error"), ("no", "error")],
)
@pytest.mark.parametrize("how", ["lines", "lines until then", "answer"])
def test_an_error_under_status_200(
    how: str, error: Any, kind: str, wire: Wire, client: OpenAI, recorded: Recorded
) -> None:
    """Broken: an error that the client leaves to the program, among raw lines or in place of an answer, is
    exported as OK."""

    def fail(exchange: Exchange) -> None:
        if how == "answer":
            exchange.json({"error": error})
            return
        exchange.begin_events()
        exchange.event(openai_wire.chunk("one"))
        exchange.event({"error": error})
        exchange.done()

    wire.answer = fail
    chat = client.chat.completions
    if how == "answer":
        assert chat.create(model="m", messages=MESSAGES).choices is None
    else:
        with chat.with_streaming_response.create(model="m", messages=MESSAGES, stream=True) as response:
            lines = response.iter_lines()
            assert any('"error"' in line for line in (lines if how == "lines until then" else list(lines)))
    check(recorded, Outcome.ERROR, int(how != "answer"))
    assert recorded.generations[0].error_type == kind
    assert not recorded.spans[0].status.is_ok


def test_reset_while_reading_lines(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a raw stream that breaks off is exported as OK."""

    def reset(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(openai_wire.chunk("one"))
        exchange.stall(0.05)
        exchange.reset()

    wire.answer = reset
    with (
        pytest.raises(Exception, match=r"reset|peer"),
        client.chat.completions.with_streaming_response.create(
            model="m", messages=MESSAGES, stream=True
        ) as response,
    ):
        list(response.iter_lines())
    check(recorded, Outcome.ERROR, 1)


def test_stream_helper(client: OpenAI, recorded: Recorded) -> None:
    """Broken: the event helper `chat.completions.stream`, read to its end."""
    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        assert stream.get_final_completion().choices[0].message.content == "".join(PIECES)
    check(recorded, Outcome.COMPLETED, 4)


def test_stream_helper_left_early(client: OpenAI, recorded: Recorded) -> None:
    """Broken: the helper closes the HTTP response past its stream; the span waits for the collector."""
    with client.chat.completions.stream(model="m", messages=MESSAGES) as stream:
        for event in stream:
            if event.type == "content.delta" and event.delta:
                break
    check(recorded, Outcome.ENDED_EARLY, 1)


@pytest.mark.parametrize("how", ["lines", "parsed", "left early"])
def test_async_streaming_response(how: str, wire: Wire, recorded: Recorded) -> None:
    """As above, for the async client."""
    wire.answer = openai_wire.stream(*PIECES, usage=(7, 4))

    async def main() -> None:
        async with (
            AsyncOpenAI(base_url=wire.url, api_key="k", max_retries=0) as client,
            client.chat.completions.with_streaming_response.create(
                model="m", messages=MESSAGES, stream=True
            ) as response,
        ):
            if how == "lines":
                assert len([line async for line in response.iter_lines() if line]) == 8
            elif how == "parsed":
                assert len([chunk async for chunk in await response.parse()]) == 7
            else:
                async for _ in response.iter_lines():
                    break

    asyncio.run(main())
    if how == "left early":
        assert recorded.wait(1)[0].outcome is Outcome.ENDED_EARLY
        assert len(recorded.spans) == 1
    else:
        check(recorded, Outcome.COMPLETED, 4)


# --- the user's bytes ---------------------------------------------------------------------------------------


def random_body(rng: random.Random) -> list[bytes]:
    """Parts of a stream, some of them malformed."""

    def part() -> bytes:
        document = openai_wire.chunk(rng.choice(["a", "ü", "\n", "", "data: x"]))
        match rng.randrange(12):
            case 0:
                return b"data: {broken\n\n"
            case 1:
                return bytes(rng.randrange(256) for _ in range(rng.randrange(40)))
            case 2:
                return b": comment\n\n"
            case 3:
                return b'data: {"choices": null, "usage": 3}\n\n'
            case 4:
                return b'data: {"choices": [{"delta": null}, 7], "id": [], "model": {}}\n\n'
            case 5:
                return b"data: [1, 2]\n\ndata: null\n\n"
            case 6:
                return b'data: {"choices": [{"delta": {"content": {"a": []}}, "finish_reason": 4}]}\n\n'
            case _:
                return f"data: {json.dumps(document)}\r\n\r\n".encode()

    whole = b"".join(part() for _ in range(rng.randrange(1, 12)))
    if rng.random() < 0.7:
        whole += b"data: [DONE]\n\n"
    cuts = sorted(rng.randrange(len(whole) + 1) for _ in range(rng.randrange(6)))
    return [
        piece for piece in (whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)) if piece
    ]


def read_everything(client: OpenAI, variant: int) -> Any:
    """What a consumer sees: every chunk, or the error that ended it."""
    seen: list[Any] = []
    try:
        if variant == 0:
            seen.extend(
                chunk.to_json()
                for chunk in client.chat.completions.create(model="m", messages=MESSAGES, stream=True)
            )
        else:
            create = client.chat.completions.with_streaming_response.create
            with create(model="m", messages=MESSAGES, stream=True) as response:
                if variant == 1:
                    seen.extend(response.iter_bytes())
                else:
                    seen.extend(response.iter_lines())
    except Exception as error:
        seen.append((type(error), str(error)))
    return b"".join(seen) if variant == 1 and all(isinstance(part, bytes) for part in seen) else seen


@pytest.mark.parametrize("seed", range(30))
def test_malformed_streams_reach_the_user_unchanged(seed: int, wire: Wire, client: OpenAI) -> None:
    """Broken: otelkit changes, drops, reorders or fails on what a strange server sends."""
    parts = random_body(random.Random(seed))

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        for part in parts:
            exchange.raw(part)
        exchange.done(marker="")

    wire.answer = answer
    for variant in range(3):
        plain = read_everything(client, variant)
        with testing.recording() as recorded:
            watched = read_everything(client, variant)
        assert watched == plain
        assert len(recorded.generations) == len(recorded.spans) == 1


def test_request_is_sent_as_given(wire: Wire, client: OpenAI) -> None:
    """Broken: otelkit adds to a request, for instance `include_usage`, or changes its headers."""
    body: Any = {"top_k": 3, "stop": ["x"]}
    for _ in range(2):
        list(
            client.chat.completions.create(
                model="m", messages=MESSAGES, stream=True, temperature=0, stop=["a"], extra_body=body
            )
        )
        if len(wire.requests) == 1:
            with testing.recording():
                list(
                    client.chat.completions.create(
                        model="m", messages=MESSAGES, stream=True, temperature=0, stop=["a"], extra_body=body
                    )
                )
    first, watched, last = ((path, {**headers, "Host": ""}, data) for path, headers, data in wire.requests)
    for name in ("idempotency-key", "Idempotency-Key"):
        for _, headers, _ in (first, watched, last):
            headers.pop(name, None)
    assert first == watched == last
    assert body == {"top_k": 3, "stop": ["x"]}
