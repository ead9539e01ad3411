"""openai over real HTTP: whatever way a stream ends, there is one span and one record, with the right
outcome."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import openai
import openai_wire
import pytest
from openai import OpenAI
from openai_exits import FAULTS, PIECES, the_one
from wire_server import Exchange, Wire

from otelkit import semconv, testing
from otelkit.model import Outcome
from otelkit.record.clock import SYSTEM_CLOCK
from otelkit.testing import Recorded


@pytest.fixture
def client(wire: Wire) -> Iterator[OpenAI]:
    wire.answer = openai_wire.stream(*PIECES)
    with OpenAI(base_url=wire.url, api_key="k", max_retries=0, timeout=2) as client:
        yield client


def ask(client: OpenAI, **parameters: Any) -> Any:
    return client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "secret"}], stream=True, **parameters
    )


def test_read_to_the_end(client: OpenAI, recorded: Recorded) -> None:
    """Broken: the plain case; role and finish chunks counted as tokens; facts of the response lost."""
    chunks = list(ask(client, max_tokens=9, temperature=0))
    assert [chunk.choices[0].delta.content for chunk in chunks] == ["", *PIECES, None]
    generation = the_one(recorded, Outcome.COMPLETED, 4)
    assert generation.parameters == {"max_tokens": 9, "temperature": 0}
    assert generation.finish_reasons == ("stop",)
    assert generation.response_id == openai_wire.ID
    assert generation.response_model == openai_wire.MODEL
    assert generation.streamed
    assert sorted(generation.step_ns) == list(generation.step_ns)
    attributes = recorded.spans[0].attributes or {}
    assert attributes[semconv.REQUEST_TEMPERATURE] == 0
    assert attributes[semconv.REQUEST_STREAM] is True
    assert "secret" not in str(attributes)


def test_stream_keeps_its_type(client: OpenAI, recorded: Recorded) -> None:
    """Broken: code that checks for, or relies on, the client's own stream object."""
    with ask(client) as stream:
        assert type(stream) is openai.Stream
        assert stream.response.status_code == 200
        list(stream)


def test_whoever_else_looks_at_chunks_sees_them(client: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: what another package has made of the client's stream is passed over."""
    read, seen = openai.Stream.__iter__, []

    def look(stream: openai.Stream[Any]) -> Iterator[Any]:
        for chunk in read(stream):
            seen.append(chunk)
            yield chunk

    monkeypatch.setattr(openai.Stream, "__iter__", look)
    with testing.recording() as recorded:
        assert list(ask(client)) == seen
        the_one(recorded, Outcome.COMPLETED, 4)


def test_break(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a consumer that has read enough makes an error, or no span."""
    for chunk in ask(client):
        if chunk.choices[0].delta.content == " two":
            break
    the_one(recorded, Outcome.ENDED_EARLY, 2)


def test_break_with_the_stream_still_held(client: OpenAI, recorded: Recorded) -> None:
    """Broken: no span as long as a variable holds the stream."""
    stream = ask(client)
    for chunk in stream:
        if chunk.choices[0].delta.content == " two":
            break
    assert len(recorded.spans) == 1
    the_one(recorded, Outcome.ENDED_EARLY, 2)
    stream.close()
    assert len(recorded.generations) == 1


def test_read_on_after_a_break(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a second loop over the same stream is lost, or makes a second record."""
    stream = ask(client)
    for chunk in stream:
        if chunk.choices[0].delta.content == "one":
            break
    rest = [chunk.choices[0].delta.content for chunk in stream]
    assert rest == [*PIECES[1:], None]
    (generation,) = recorded.wait(1)
    assert generation.outcome is Outcome.COMPLETED
    assert len(generation.step_ns) == 4
    assert len(recorded.spans) == 1


def test_close(client: OpenAI, recorded: Recorded) -> None:
    """Broken: no span when the consumer closes the stream and keeps the variable."""
    stream = ask(client)
    next(stream)
    next(stream)
    stream.close()
    the_one(recorded, Outcome.ENDED_EARLY, 1)


def test_with_and_break(client: OpenAI, recorded: Recorded) -> None:
    """Broken: `with` closes after `break` has ended: two spans, or a write after the end."""
    with ask(client) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content == "one":
                break
    the_one(recorded, Outcome.ENDED_EARLY, 1)


def test_exception_in_the_consumer(client: OpenAI, recorded: Recorded) -> None:
    """Broken: the consumer's own error is charged to the provider, or swallowed."""
    with pytest.raises(KeyError, match="mine"), ask(client) as stream:
        for _ in stream:
            raise KeyError("mine")
    the_one(recorded, Outcome.ENDED_EARLY, 0)


def test_abandoned(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a stream that is dropped half read has no span; or otelkit keeps it from being collected."""
    stream = ask(client)
    next(stream)
    next(stream)
    del stream
    gc.collect()  # the client's stream object refers to itself
    the_one(recorded, Outcome.ENDED_EARLY, 1)


@pytest.mark.parametrize("looped", [False, True])
def test_abandoned_after_the_role(client: OpenAI, recorded: Recorded, looped: bool) -> None:
    """Broken: a chunk that only tells the role is passed over, and with it which response it was of which
    model, where no other came."""
    stream = ask(client)
    if looped:
        for _ in stream:
            break
    else:
        next(stream)
    del stream
    gc.collect()
    generation = the_one(recorded, Outcome.ENDED_EARLY, 0)
    assert (generation.response_id, generation.response_model) == (openai_wire.ID, openai_wire.MODEL)
    attributes = recorded.spans[0].attributes or {}
    assert attributes[semconv.RESPONSE_ID] == openai_wire.ID
    assert attributes[semconv.RESPONSE_MODEL] == openai_wire.MODEL


def test_never_iterated(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a stream nobody reads has no span."""
    ask(client)
    gc.collect()
    the_one(recorded, Outcome.ENDED_EARLY, 0)


def test_still_open_when_recording_ends(client: OpenAI, recorded: Recorded) -> None:
    """Broken: streams that a module holds until the process ends are lost."""
    from otelkit.record import instrumentation

    stream = ask(client)
    next(stream)
    next(stream)
    instrumentation.flush()
    the_one(recorded, Outcome.ENDED_EARLY, 1)
    stream.close()


def test_ended_at_the_last_chunk(client: OpenAI) -> None:
    """Broken: the time until a stream is closed or collected counts as latency."""
    with testing.recording(clock=SYSTEM_CLOCK) as recorded:
        stream = ask(client)
        for _ in range(3):
            next(stream)
        time.sleep(0.05)
        stream.close()
    generation = the_one(recorded, Outcome.ENDED_EARLY, 2)
    assert generation.end_ns == generation.step_ns[-1]
    assert generation.start_ns == pytest.approx(time.time_ns(), abs=5e9)


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_the_middle(fault: str, wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a stream that fails half way is exported as OK, without error.type."""
    wire.answer, error_type = FAULTS[fault]
    with pytest.raises(Exception) as raised:
        list(ask(client.with_options(timeout=0.3)))
    assert type(raised.value).__name__ == error_type
    assert the_one(recorded, Outcome.ERROR, 1).error_type == error_type


@pytest.mark.parametrize("marker", ["[DONE]", ""])
def test_cut_cleanly(marker: str, wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a stream that ends without error, but half way, passes for a whole answer."""

    def cut(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(openai_wire.chunk("one"))
        exchange.done(marker)

    wire.answer = cut
    assert len(list(ask(client))) == 1
    assert the_one(recorded, Outcome.ENDED_EARLY, 1).finish_reasons == ()


def test_finish_reason_with_the_last_text(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a whole answer of a server that sends both in one chunk passes for one that was cut off."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(openai_wire.chunk("one"))
        exchange.event(openai_wire.chunk(" two", finish="length"))
        exchange.done()

    wire.answer = answer
    assert len(list(ask(client))) == 2
    assert the_one(recorded, Outcome.COMPLETED, 2).finish_reasons == ("length",)


def test_refused_request(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: an error status before the stream begins has no span, or one that is OK."""
    wire.answer = lambda exchange: exchange.json({"error": {"message": "slow down"}}, status=429)
    with pytest.raises(openai.RateLimitError):
        ask(client)
    the_one(recorded, Outcome.ERROR, 0)


def test_retry_is_one_generation(wire: Wire, recorded: Recorded) -> None:
    """Broken: the client's own retries count as several generations."""

    def fail_once(exchange: Exchange) -> None:
        if len(wire.requests) == 1:
            exchange.json({"error": {"message": "again"}}, status=500)
        else:
            openai_wire.stream(*PIECES)(exchange)

    wire.answer = fail_once
    with OpenAI(base_url=wire.url, api_key="k", max_retries=1) as client:
        list(ask(client))
    the_one(recorded, Outcome.COMPLETED, 4)


def test_not_streamed(wire: Wire, client: OpenAI, recorded: Recorded) -> None:
    """Broken: a plain call has no span, or claims a time to first token."""
    wire.answer = lambda exchange: exchange.json(openai_wire.completion())
    answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
    assert answer.choices[0].message.content == "hello"
    generation = the_one(recorded, Outcome.COMPLETED, 0)
    assert not generation.streamed
    assert (generation.input_tokens, generation.output_tokens) == (5, 2)
    assert generation.time_to_first_chunk_seconds is None
    attributes = recorded.spans[0].attributes or {}
    assert semconv.RESPONSE_TIME_TO_FIRST_CHUNK not in attributes


def test_interleaved_streams(client: OpenAI, recorded: Recorded) -> None:
    """Broken: two streams read in turn mix their steps, or one is lost."""
    streams = [ask(client, seed=seed) for seed in range(2)]
    for chunks in zip(*streams, strict=True):
        assert len(chunks) == 2
    generations = recorded.wait(2)
    assert [len(generation.step_ns) for generation in generations] == [4, 4]
    assert sorted(generation.parameters["seed"] for generation in generations) == [0, 1]


def test_requests_that_are_nearly_alike(client: OpenAI, recorded: Recorded) -> None:
    """Broken: a request is recorded with the values of one before it that are equal, but of another kind, or
    that were sent to another model or place."""
    others = [{"seed": 1}, {"seed": True}, {"seed": 1.0}, {"top_p": 1}, {"seed": 1, "top_p": 1}, {}]
    sent = [{"extra_body": other} for other in others]
    sent += [{**request, "extra_headers": {"x-request-id": "7"}} for request in sent]
    for request in [*sent, *sent]:
        list(ask(client, **request))
    with OpenAI(base_url=str(client.base_url).replace("127.0.0.1", "localhost"), api_key="k") as elsewhere:
        list(ask(elsewhere))
    recorded.wait(2 * len(sent) + 1)
    generations = recorded.generations
    assert [
        [(name, type(value), value) for name, value in generation.parameters.items()]
        for generation in generations
    ] == [[(name, type(value), value) for name, value in other.items()] for other in [*others * 4, {}]]
    attributes = [dict(span.attributes or {}) for span in recorded.spans]
    assert [semconv.REQUEST_ID in of_one for of_one in attributes] == [*[False] * 6, *[True] * 6] * 2 + [
        False
    ]
    assert [of_one[semconv.SERVER_ADDRESS] for of_one in attributes[-2:]] == ["127.0.0.1", "localhost"]
