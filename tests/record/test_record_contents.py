"""What is read of requests and answers, provider by provider: parameters completely, content never."""

from __future__ import annotations

import asyncio
import base64
import json
from math import log
from typing import Any

import openai_wire
import pytest
from dialects import GOOGLE, OPENAI_RESPONSES, PIECES
from openai import AzureOpenAI, OpenAI
from opentelemetry import baggage, context, trace
from wire_server import Exchange, Wire

from otelkit import semconv, testing
from otelkit.model import Outcome
from otelkit.record import generic
from otelkit.record.propagation import RequestIdPropagator, request_link
from otelkit.testing import Recorded

MESSAGES: Any = [{"role": "user", "content": "secret"}]


def attributes_of(recorded: Recorded) -> dict[str, Any]:
    (span,) = recorded.spans
    return dict(span.attributes or {})


# --- openai -------------------------------------------------------------------------------------------------


def test_openai_parameters(wire: Wire, recorded: Recorded) -> None:
    """Broken: parameters are missed, renamed ones lose their original, None or 0 are confused, content gets
    in."""
    wire.answer = openai_wire.stream(*PIECES)
    with OpenAI(base_url=wire.url, api_key="k") as client:
        list(
            client.chat.completions.create(
                model="m", messages=MESSAGES, stream=True, temperature=0, max_completion_tokens=16,
                stop="END", seed=7, n=1, top_p=None, reasoning_effort="low",
                logit_bias={"5": -100}, user="someone",
                extra_body={"top_k": 40, "guided_choice": ["a", "b"], "prompt": "secret"},
                extra_headers={
                    "OpenAI-Beta": "feature=v2",
                    "X-Request-ID": "req-1",
                    "X-Model-Params": base64.b64encode(b'{"min_p": 0.1}').decode(),
                },
            )
        )  # fmt: skip
    (generation,) = recorded.wait(1)
    assert generation.parameters == {
        "temperature": 0, "max_tokens": 16, "stop_sequences": ["END"], "seed": 7, "choice.count": 1,
        "top_p": None, "reasoning_effort": "low", "logit_bias": {"5": -100}, "top_k": 40,
        "guided_choice": ["a", "b"],
        "openai_beta": "feature=v2", "min_p": 0.1,
    }  # fmt: skip
    attributes = attributes_of(recorded)
    assert attributes[semconv.REQUEST_TEMPERATURE] == 0
    assert attributes[semconv.REQUEST_MAX_TOKENS] == 16
    assert attributes["otelkit.request.max_completion_tokens"] == 16
    assert attributes[semconv.REQUEST_STOP_SEQUENCES] == ("END",)
    assert attributes[semconv.REQUEST_TOP_K] == 40
    assert attributes["otelkit.request.logit_bias"] == '{"5":-100}'
    assert semconv.REQUEST_TOP_P not in attributes
    assert semconv.REQUEST_CHOICE_COUNT not in attributes
    assert attributes[semconv.SERVER_ADDRESS] == "127.0.0.1"
    assert attributes[semconv.SERVER_PORT] == int(wire.url.rpartition(":")[2])
    assert attributes[semconv.REQUEST_ID] == "req-1"
    assert len(attributes[semconv.PARAMETERS_FINGERPRINT]) == 12
    assert "secret" not in str(attributes) + str(generation)
    assert "someone" not in str(attributes) + str(generation)


def test_secrets_in_parameters_stay_here(wire: Wire, recorded: Recorded) -> None:
    """Broken: a key that is passed as a parameter is exported."""
    wire.answer = openai_wire.stream(*PIECES)
    with OpenAI(base_url=wire.url, api_key="k") as client:
        list(
            client.chat.completions.create(
                model="m", messages=MESSAGES, stream=True,
                extra_body={"upstream_api_key": "abcdef", "note": "sk-abcdefghijklmnopqrstuvwxyz"},
            )
        )  # fmt: skip
    exported = str(attributes_of(recorded))
    assert "abcdef" not in exported
    assert "redacted" in exported


def test_azure(wire: Wire, recorded: Recorded) -> None:
    """Broken: Azure's client rewrites the path, and its first chunk has no choices."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event({**openai_wire.chunk(), "choices": [], "prompt_filter_results": []})
        exchange.event(openai_wire.chunk("hi"))
        exchange.event(openai_wire.chunk(finish="stop"))
        exchange.done()

    wire.answer = answer
    with AzureOpenAI(azure_endpoint=wire.url, api_key="k", api_version="2025-01-01") as client:
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert "/deployments/m/" in wire.requests[0][0]
    (generation,) = recorded.wait(1)
    assert generation.call_site.provider == "azure.ai.openai"
    assert len(generation.step_ns) == 1


def test_openai_several_choices_tools_and_usage_on_the_last_text(wire: Wire, recorded: Recorded) -> None:
    """Broken: choices other than the first, tool calls, or a finish reason that comes along with text are
    lost."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(openai_wire.chunk("a"))
        exchange.event(openai_wire.chunk("b", index=1))
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
        exchange.event(openai_wire.chunk(index=1, delta={"tool_calls": [call]}))
        exchange.event(openai_wire.chunk(finish="tool_calls", index=1))
        last = openai_wire.chunk("c", finish="length")
        usage = openai_wire.usage_chunk(3, 4)["usage"]
        exchange.event({**last, "usage": usage, "timings": {"prompt_ms": 20.0, "predicted_ms": 300.0}})
        exchange.done()

    wire.answer = answer
    with OpenAI(base_url=wire.url, api_key="k") as client:
        for count in (1, 2):
            list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True, n=count))
    one, two = recorded.wait(2)
    assert len(one.step_ns) == len(two.step_ns) == 4
    assert two.finish_reasons == ("tool_calls", "length")
    for generation in (one, two):
        assert generation.finish_reasons[-1] == "length"
        assert (generation.input_tokens, generation.output_tokens) == (3, 4)
        assert generation.phase_seconds == {"prefill": 0.02, "decode": 0.3}


def test_logprobs(wire: Wire, recorded: Recorded) -> None:
    """Broken: log probability and entropy of steps, and entropy of the output, where the provider returns
    scores."""

    def scored(text: str, *logprobs: float) -> dict[str, Any]:
        top = [{"token": "t", "logprob": logprob, "bytes": None} for logprob in logprobs]
        content = (
            [{"token": text, "logprob": logprobs[0], "bytes": None, "top_logprobs": top}] if logprobs else []
        )
        return openai_wire.chunk(text, logprobs={"content": content, "refusal": None})

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        exchange.event(scored("a", log(0.5), log(0.5)))
        exchange.event(scored("b"))
        exchange.event(scored("a", log(0.9), log(0.1)))
        exchange.event(openai_wire.chunk(finish="stop"))
        exchange.done()

    wire.answer = answer
    with OpenAI(base_url=wire.url, api_key="k") as client:
        list(
            client.chat.completions.create(
                model="m", messages=MESSAGES, stream=True, logprobs=True, top_logprobs=2
            )
        )
    (generation,) = recorded.wait(1)
    assert generation.step_tokens == [1, None, 1]
    assert generation.step_logprobs == [pytest.approx(log(0.5)), None, pytest.approx(log(0.9))]
    low = -(0.9 * log(0.9) + 0.1 * log(0.1))
    assert generation.step_entropies == [pytest.approx(log(2)), None, pytest.approx(low)]
    assert generation.repeated_token_share == pytest.approx(1 / 3)
    attributes = attributes_of(recorded)
    assert attributes[semconv.OUTPUT_ENTROPY_MEAN] == pytest.approx((log(2) + low) / 2)
    assert attributes[semconv.OUTPUT_ENTROPY_DEVIATION] == pytest.approx((log(2) - low) / 2)
    assert attributes[semconv.REPEATED_TOKEN_SHARE] == pytest.approx(1 / 3)


def test_completions(wire: Wire, recorded: Recorded) -> None:
    """Broken: the older completions API, streamed and not."""
    choice = {"index": 0, "text": "hi", "finish_reason": "stop", "logprobs": {"token_logprobs": [-0.5]}}
    document = {"id": "c", "object": "text_completion", "created": 1, "model": "m-2026", "choices": [choice]}

    def answer(exchange: Exchange) -> None:
        if not exchange.request_json.get("stream"):
            exchange.json(document)
            return
        exchange.begin_events()
        exchange.event(document)
        exchange.done()

    wire.answer = answer
    with OpenAI(base_url=wire.url, api_key="k") as client:
        list(client.completions.create(model="m", prompt="secret", stream=True, logprobs=1))
        client.completions.create(model="m", prompt="secret")
    streamed, plain = recorded.wait(2)
    assert [span.name for span in recorded.spans] == ["text_completion m"] * 2
    assert streamed.step_logprobs == [-0.5]
    assert streamed.finish_reasons == plain.finish_reasons == ("stop",)


def test_openai_responses_plain_and_failed(wire: Wire, recorded: Recorded) -> None:
    """Broken: a whole response's usage; a stream that says it failed counts as completed."""
    _, completed = OPENAI_RESPONSES.closing[-1]
    failed = {**completed["response"], "status": "failed", "error": {"code": "rate_limit", "message": "m"}}

    def answer(exchange: Exchange) -> None:
        if not exchange.request_json.get("stream"):
            exchange.json(completed["response"])
            return
        exchange.begin_events()
        exchange.event(
            {"type": "response.failed", "sequence_number": 1, "response": failed}, "response.failed"
        )
        exchange.done(marker="")

    wire.answer = answer
    with OpenAI(base_url=wire.url, api_key="k") as client:
        client.responses.create(model="m", input="secret", instructions="secret", max_output_tokens=9)
        list(client.responses.create(model="m", input="secret", stream=True))
    plain, stream = recorded.wait(2)
    assert plain.parameters == {"max_tokens": 9}
    assert (plain.input_tokens, plain.output_tokens) == (11, 8)
    assert (stream.outcome, stream.error_type) == (Outcome.ERROR, "rate_limit")


# --- google -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dict", "camelCase", "object"])
def test_google_config(form: str, wire: Wire, recorded: Recorded) -> None:
    """Broken: parts of GenerateContentConfig, safety settings above all, are not recorded in every form it
    may have."""
    from google.genai import types

    wire.answer = lambda exchange: exchange.json(GOOGLE.closing[0][1])
    config: Any = {
        "temperature": 0.0, "top_k": 40, "max_output_tokens": 16, "candidate_count": 1,
        "stop_sequences": ["x"], "response_mime_type": "application/json", "seed": 3,
        "system_instruction": "secret",
        "thinking_config": {"thinking_budget": 128},
        "safety_settings": [
            {"category": "HARM_CATEGORY_HATE_SPEECH", "threshold": "BLOCK_NONE"},
            {"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_ONLY_HIGH"},
        ],
    }  # fmt: skip
    if form == "camelCase":
        config = json.loads(
            types.GenerateContentConfig(**config).model_dump_json(by_alias=True, exclude_none=True)
        )
    elif form == "object":
        config = types.GenerateContentConfig(**config)
    with GOOGLE.client(wire.url) as client:
        client.models.generate_content(model="models/gemini-test", contents="secret", config=config)
    (generation,) = recorded.wait(1)
    assert generation.parameters == {
        "temperature": 0.0, "top_k": 40, "max_tokens": 16, "choice.count": 1, "stop_sequences": ["x"],
        "response_mime_type": "application/json", "seed": 3, "thinking_config": {"thinking_budget": 128},
        "safety_settings": {
            "HARM_CATEGORY_HATE_SPEECH": "BLOCK_NONE", "HARM_CATEGORY_HARASSMENT": "BLOCK_ONLY_HIGH"
        },
    }  # fmt: skip
    assert generation.call_site.model == "gemini-test"
    assert generation.call_site.provider == "gcp.gemini"
    assert generation.finish_reasons == ("STOP",)
    attributes = attributes_of(recorded)
    assert attributes["otelkit.request.max_output_tokens"] == 16
    assert "BLOCK_NONE" in attributes["otelkit.request.safety_settings"]
    assert "secret" not in str(attributes)


# --- any iterator -------------------------------------------------------------------------------------------


def test_any_iterator(recorded: Recorded) -> None:
    """Broken: an engine without an adapter can't be recorded, or its iterator loses what it can do."""

    def engine() -> Any:
        received = yield "a"
        assert received is None
        yield ""
        yield "b"

    stream = generic.watch(engine(), model="tiny", provider="own", parameters={"top_k": 5})
    assert list(stream) == ["a", "", "b"]
    (generation,) = recorded.wait(1)
    assert generation.call_site.location == "test_record_contents.py:test_any_iterator"
    assert len(generation.step_ns) == 2
    assert generation.parameters == {"top_k": 5}
    stream = generic.watch(engine(), model="tiny")
    for _ in stream:
        break
    stream.close()
    assert recorded.wait(2)[1].outcome is Outcome.ENDED_EARLY


def test_attributes_of_an_iterator(recorded: Recorded) -> None:
    """Broken: a watched stream hides what the program reads from its own."""

    class Engine:
        inner, recording, step = "i", True, 3

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> str:
            raise StopIteration

    stream = generic.watch(Engine(), model="tiny")
    assert (stream.inner, stream.recording, stream.step) == ("i", True, 3)
    assert list(stream) == []


def test_any_async_iterator_of_objects(recorded: Recorded) -> None:
    """Broken: async engines, items that are no text, a user's own function for the text, an error in the
    engine."""

    async def engine() -> Any:
        yield {"token": "a"}
        yield {"token": None}
        yield {"token": "a"}
        raise RuntimeError("out of memory")

    async def main() -> None:
        with pytest.raises(RuntimeError, match="memory"):
            async for _ in generic.watch(engine(), model="tiny", text=lambda item: item["token"]):
                pass
        with pytest.raises(RuntimeError, match="memory"):
            async for _ in generic.watch(engine(), model="tiny"):
                pass

    asyncio.run(main())
    with_text, without = recorded.wait(2)
    assert (len(with_text.step_ns), with_text.repeated_token_share) == (2, 0.5)
    assert (len(without.step_ns), without.repeated_token_share) == (3, None)
    assert {with_text.error_type, without.error_type} == {"RuntimeError"}


def test_not_recording_leaves_an_iterator_alone() -> None:
    """Broken: code that watches its iterator pays, or fails, when nothing is recorded."""
    stream = iter("ab")
    assert generic.watch(stream, model="tiny") is stream


# --- what a request brings with it --------------------------------------------------------------------------


def test_baggage_and_request_id(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: grey-release tags do not reach spans, other baggage does, or the request id links to nothing
    stable."""
    monkeypatch.setenv("OTELKIT_BAGGAGE_KEYS", "gray-zone, tenant-id")
    wire.answer = openai_wire.stream(*PIECES)
    incoming = {"x-request-id": "req-7"}
    with testing.recording() as recorded, OpenAI(base_url=wire.url, api_key="k") as client:
        with_id = RequestIdPropagator().extract(incoming)
        with_baggage = baggage.set_baggage("other", "no", baggage.set_baggage("gray-zone", "b", with_id))
        token = context.attach(with_baggage)
        try:
            list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
            outgoing: dict[str, str] = {}
            RequestIdPropagator().inject(outgoing)
        finally:
            context.detach(token)
    attributes = attributes_of(recorded)
    assert attributes["gray-zone"] == "b"
    assert "tenant-id" not in attributes
    assert "other" not in attributes
    assert attributes[semconv.REQUEST_ID] == "req-7"
    (link,) = recorded.spans[0].links
    assert link.context == request_link("req-7").context
    assert outgoing == incoming
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_hostile_request_ids_are_ignored() -> None:
    """Broken: a caller writes what it likes into spans and headers."""
    for hostile in ("a\r\nset-cookie: x", "x" * 1000, "ü", "\x00"):
        assert RequestIdPropagator().extract({"x-request-id": hostile}) == context.get_current()
