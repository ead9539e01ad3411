"""vLLM's adapters: batches and streams.

Not run: vLLM itself, whose engines need a GPU. The engines here play a script. The requests and answers that
pass through are objects of vLLM's own classes where the package is installed (checked with 0.33.0, its GPU
parts left out), else of classes of the same shape. Where it is installed, the source of the methods that the
adapters wrap is checked too.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from vllm_types import INSTALLED, ScriptedAsyncLLM, ScriptedLLM, completion, request_output, types

from otelkit import semconv, testing
from otelkit.model import Outcome
from otelkit.record.providers.vllm import VLLM, AsyncVLLM
from otelkit.testing import EPOCH_NS, Recorded

START = EPOCH_NS / 1e9


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """Both adapters at work on scripted engines, whose clock moves ten seconds a reading."""
    batches, streams = ModuleType(VLLM.module), ModuleType(AsyncVLLM.module)
    batches.LLM = ScriptedLLM  # type: ignore[attr-defined]
    streams.AsyncLLM = ScriptedAsyncLLM  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, VLLM.module, batches)
    monkeypatch.setitem(sys.modules, AsyncVLLM.module, streams)
    clock = testing.ticking_clock(10_000_000_000)
    with testing.recording(providers=[VLLM(), AsyncVLLM()], clock=clock) as recorded:
        yield recorded


def finished(ids: list[int], request_id: str = "r0", **more: Any) -> Any:
    return request_output(completion(ids, reason="stop"), request_id=request_id, finished=True, **more)


def scores(*probabilities: float) -> list[Any]:
    """For tokens 0, 1, 2 ...: the chosen one's probability, and what is left for one alternative."""
    return [
        {
            token: types.Logprob(logprob=math.log(probability)),
            99: types.Logprob(logprob=math.log(1 - probability)),
        }
        for token, probability in enumerate(probabilities)
    ]


# --- batches ------------------------------------------------------------------------------------------------
def test_batch_is_one_generation_per_request(recorded: Recorded) -> None:
    """Broken: a batch is one call, or its requests get each other's parameters, counts or results."""
    results = [finished([4, 5], "a"), finished([6], "b"), finished([7, 8, 9], "c")]
    sampling = [types.SamplingParams(temperature=0.0, max_tokens=tokens) for tokens in (10, 20, 30)]
    assert ScriptedLLM(results).generate(["x", "y", "z"], sampling) is results
    generations = recorded.wait(3)
    assert [each.parameters["max_tokens"] for each in generations] == [10, 20, 30]
    assert [each.output_tokens for each in generations] == [2, 1, 3]
    assert [each.response_id for each in generations] == ["a", "b", "c"]
    assert {each.input_tokens for each in generations} == {3}
    assert {(each.call_site.model, each.call_site.operation) for each in generations} == {
        ("tiny", "text_completion")
    }
    assert {each.outcome for each in generations} == {Outcome.COMPLETED}
    # Without statistics of the engine nothing is known of when tokens came.
    assert not any(each.step_ns or each.phase_seconds or each.streamed for each in generations)
    assert [span.name for span in recorded.spans] == ["text_completion tiny"] * 3
    assert recorded.spans[0].attributes
    assert recorded.spans[0].attributes[semconv.PROVIDER_NAME] == "vllm"
    assert recorded.spans[0].attributes[semconv.REQUEST_TEMPERATURE] == 0.0


def test_statistics_of_the_engine_date_a_request(recorded: Recorded) -> None:
    """Broken: a request of a batch seems to take as long as the whole batch."""
    metrics = types.RequestStateStats(
        arrival_time=START + 1,
        first_token_latency=2.0,
        queued_ts=100.0,
        scheduled_ts=100.5,
        first_token_ts=102.0,
        last_token_ts=102.75,
    )
    answer = completion([0, 1, 2, 3], reason="length", scores=scores(0.5, 0.8, 0.8, 0.8))
    for _ in range(5):
        recorded_at = testing.EPOCH_NS
    ScriptedLLM([request_output(answer, finished=True, metrics=metrics)]).generate(
        "x", types.SamplingParams()
    )
    (generation,) = recorded.wait(1)
    assert recorded_at == EPOCH_NS
    assert generation.phase_seconds == {"queue": 0.5, "prefill": 1.5, "decode": 0.75}
    assert generation.step_tokens == [1, 3]
    assert generation.step_logprobs == pytest.approx([math.log(0.5), 3 * math.log(0.8)])
    assert generation.step_entropies == pytest.approx(
        [math.log(2), -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))]
    )
    assert generation.end_ns == generation.step_ns[-1]
    assert generation.finish_reasons == ("length",)


def test_parameters(recorded: Recorded) -> None:
    """Broken: a sampling parameter is lost, misnamed, or one that nobody gave is made up."""
    params = types.SamplingParams(
        n=2, temperature=0.5, top_p=1.0, top_k=5, max_tokens=7, stop="END", seed=3, min_p=0.1,
        presence_penalty=0.2, frequency_penalty=0.3, repetition_penalty=1.1, logprobs=4, bad_words=["no"],
        structured_outputs=types.StructuredOutputsParams(regex="a+"),
        extra_args={"top_n_sigma": 1.5, "kv_transfer_params": {"remote_block_ids": [1]}},
    )  # fmt: skip
    adapter = SimpleNamespace(lora_name="french")
    ScriptedLLM([finished([1])]).generate("x", params, lora_request=adapter, priority=2)
    (generation,) = recorded.wait(1)
    assert generation.parameters == {
        "choice.count": 2, "temperature": 0.5, "top_p": 1.0, "top_k": 5, "min_p": 0.1, "max_tokens": 7,
        "stop_sequences": ["END"],
        "seed": 3, "presence_penalty": 0.2, "frequency_penalty": 0.3, "repetition_penalty": 1.1,
        "logprobs": 4, "bad_words": ["no"], "structured_outputs": {"regex": "a+"}, "top_n_sigma": 1.5,
        "lora": "french", "priority": 2,
    }  # fmt: skip
    attributes = recorded.spans[0].attributes or {}
    assert attributes[semconv.REQUEST_STOP_SEQUENCES] == ("END",)
    assert attributes[semconv.REQUEST_CHOICE_COUNT] == 2
    assert attributes[semconv.PARAMETER_PREFIX + "n"] == 2


def test_chat_and_defaults(recorded: Recorded) -> None:
    """Broken: a chat is recorded twice, as a batch of its messages, or without the engine's own defaults."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    ScriptedLLM([finished([1])]).chat(messages, chat_template_kwargs={"enable_thinking": False})
    ScriptedLLM([finished([1]), finished([2])]).chat(messages=[messages, messages])
    ScriptedLLM([finished([1])]).generate({"prompt_token_ids": [1, 2]})
    ScriptedLLM([finished([1])]).generate([1, 2, 3])
    generations = recorded.wait(5)
    assert [each.call_site.operation for each in generations] == ["chat"] * 3 + ["text_completion"] * 2
    assert {each.parameters["temperature"] for each in generations} == {0.6}
    assert generations[0].parameters["chat_template_kwargs"] == {"enable_thinking": False}
    assert len(recorded.spans) == 5


def test_failing_batch(recorded: Recorded) -> None:
    """Broken: a batch that fails is recorded as OK, or keeps its requests in flight."""
    with pytest.raises(ValueError, match="too long"):
        ScriptedLLM(ValueError("too long")).generate(["x", "y"], types.SamplingParams())
    generations = recorded.wait(2)
    assert {(each.outcome, each.error_type) for each in generations} == {(Outcome.ERROR, "ValueError")}


# --- streams ------------------------------------------------------------------------------------------------
def read(engine: Any, params: Any, request_id: str = "r0", **kwargs: Any) -> list[Any]:
    async def main() -> list[Any]:
        return [output async for output in engine.generate("x", params, request_id, **kwargs)]

    return asyncio.run(main())


KINDS = types.RequestOutputKind


def test_cumulative_stream(recorded: Recorded) -> None:
    """Broken: tokens are counted once for every output that repeats them."""
    outputs = [
        request_output(completion([0], scores=scores(0.5))),
        request_output(completion([0, 1, 2], scores=scores(0.5, 0.25, 0.25))),
        request_output(completion([0, 1, 2, 0], reason="stop"), finished=True),
    ]
    assert read(ScriptedAsyncLLM(*outputs), types.SamplingParams(logprobs=1)) == outputs
    (generation,) = recorded.wait(1)
    assert generation.step_tokens == [1, 2, 1]
    assert generation.step_logprobs == pytest.approx([math.log(0.5), 2 * math.log(0.25), None])
    assert (generation.input_tokens, generation.output_tokens) == (3, 4)
    assert generation.repeated_token_share == pytest.approx(1 / 3)
    assert generation.streamed
    attributes = recorded.spans[0].attributes or {}
    spread = (generation.step_ns[-1] - generation.step_ns[0]) / 1e9
    assert attributes[semconv.TIME_PER_OUTPUT_TOKEN] == pytest.approx(spread / 3)


def test_delta_stream_of_several_outputs(recorded: Recorded) -> None:
    """Broken: several outputs of one request are taken for one, or their deltas for all there is."""
    outputs = [
        request_output(completion([5], index=0)),
        request_output(completion([6, 7], index=1)),
        request_output(completion([8], index=0, reason="stop")),
        request_output(completion([], index=1, reason="length"), finished=True),
    ]
    read(ScriptedAsyncLLM(*outputs), types.SamplingParams(n=2, output_kind=KINDS.DELTA), "chatcmpl-1")
    (generation,) = recorded.wait(1)
    assert generation.step_tokens == [1, 2, 1]
    assert generation.output_tokens == 4
    assert generation.finish_reasons == ("stop", "length")
    assert generation.call_site.operation == "chat"


def test_final_output_only(recorded: Recorded) -> None:
    """Broken: an answer that comes at once gets a time to first token."""
    output = request_output(completion([5, 6, 7], reason="stop"), finished=True)
    read(ScriptedAsyncLLM(output), types.SamplingParams(output_kind=KINDS.FINAL_ONLY))
    (generation,) = recorded.wait(1)
    assert (generation.output_tokens, list(generation.step_ns), generation.streamed) == (3, [], False)


def test_abort(recorded: Recorded) -> None:
    """Broken: a request that ``engine.abort`` stopped counts as completed."""
    outputs = [
        request_output(completion([1])),
        request_output(completion([1], reason="abort"), finished=True),
    ]
    read(ScriptedAsyncLLM(*outputs), types.SamplingParams())
    (generation,) = recorded.wait(1)
    assert generation.outcome is Outcome.CANCELLED
    assert generation.finish_reasons == ("abort",)
    assert len(generation.step_ns) == 1


def test_engine_fails(recorded: Recorded) -> None:
    """Broken: an engine that dies in the middle is recorded as OK."""
    with pytest.raises(RuntimeError):
        read(ScriptedAsyncLLM(request_output(completion([1])), then=RuntimeError()), types.SamplingParams())
    assert recorded.wait(1)[0].outcome is Outcome.ERROR


def test_consumer_stops(recorded: Recorded) -> None:
    """Broken: leaving or cancelling a stream is not recorded as such, or no longer aborts the request."""
    outputs = [request_output(completion(range(count + 1))) for count in range(9)]
    engine = ScriptedAsyncLLM(*outputs, waits=True)

    async def leave() -> None:
        async for output in engine.generate("x", types.SamplingParams(), "left"):
            if len(output.outputs[0].token_ids) == 3:
                break

    async def cancel() -> None:
        async def consume() -> None:
            async for _ in engine.generate("x", types.SamplingParams(), "cancelled"):
                pass

        task = asyncio.create_task(consume())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def close() -> None:
        stream = engine.generate("x", types.SamplingParams(), "closed")
        await anext(stream)
        await stream.aclose()

    for act in (leave, cancel, close):
        asyncio.run(act())
    generations = recorded.wait(3)
    assert [(each.outcome, len(each.step_ns)) for each in generations] == [
        (Outcome.ENDED_EARLY, 3), (Outcome.CANCELLED, 9), (Outcome.ENDED_EARLY, 1),
    ]  # fmt: skip
    assert engine.aborted == ["left", "cancelled", "closed"]


def test_trace_of_the_server(recorded: Recorded) -> None:
    """Broken: a generation in vLLM's server does not join its caller's trace."""
    headers = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    read(ScriptedAsyncLLM(finished([1])), types.SamplingParams(), trace_headers=headers)
    recorded.wait(1)
    span = recorded.spans[0]
    assert span.context
    assert span.parent
    assert (f"{span.context.trace_id:x}", f"{span.parent.span_id:x}") == ("a" * 32, "b" * 16)


@pytest.mark.skipif(not INSTALLED, reason="vllm is not installed: its source can't be checked")
@pytest.mark.parametrize(
    ("module", "owner", "method", "parameters"),
    [
        (VLLM.module, "LLM", "generate", ["self", "prompts", "sampling_params"]),
        (VLLM.module, "LLM", "chat", ["self", "messages", "sampling_params"]),
        (VLLM.module, "LLM", "get_default_sampling_params", ["self"]),
        (AsyncVLLM.module, "AsyncLLM", "generate", ["self", "prompt", "sampling_params", "request_id"]),
    ],
)
def test_wrapped_methods_of_the_installed_version(
    module: str, owner: str, method: str, parameters: list[str]
) -> None:
    """Broken: this version of vLLM has moved what the adapters wrap, and nothing would be recorded."""
    spec = importlib.util.find_spec("vllm")
    assert spec
    assert spec.submodule_search_locations
    path = Path(spec.submodule_search_locations[0], *module.split(".")[1:]).with_suffix(".py")
    classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    (definition,) = (node for node in classes if node.name == owner)
    functions = [node for node in definition.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    (function,) = (node for node in functions if node.name == method)
    assert [argument.arg for argument in function.args.args][: len(parameters)] == parameters
