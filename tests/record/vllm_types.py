"""vLLM's public types where it is installed, else classes of the same shape; and engines that play a script.

No engine of vLLM's runs here, as that takes a GPU.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum
from types import SimpleNamespace
from typing import Any


def _installed() -> SimpleNamespace:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from vllm.logprobs import Logprob
        from vllm.outputs import CompletionOutput, RequestOutput
        from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
        from vllm.v1.metrics.stats import RequestStateStats
    return SimpleNamespace(
        Logprob=Logprob,
        CompletionOutput=CompletionOutput,
        RequestOutput=RequestOutput,
        RequestOutputKind=RequestOutputKind,
        SamplingParams=SamplingParams,
        StructuredOutputsParams=StructuredOutputsParams,
        RequestStateStats=RequestStateStats,
    )


def _of_the_same_shape() -> SimpleNamespace:
    class RequestOutputKind(Enum):
        CUMULATIVE = 0
        DELTA = 1
        FINAL_ONLY = 2

    @dataclass
    class StructuredOutputsParams:
        json: Any = None
        regex: str | None = None
        disable_any_whitespace: bool = False
        _backend: str | None = None

    @dataclass
    class SamplingParams:
        n: int = 1
        presence_penalty: float = 0.0
        frequency_penalty: float = 0.0
        repetition_penalty: float = 1.0
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = 0
        min_p: float = 0.0
        seed: int | None = None
        stop: Any = None
        stop_token_ids: list[int] = field(default_factory=list)
        ignore_eos: bool = False
        max_tokens: int | None = 16
        min_tokens: int = 0
        logprobs: int | None = None
        output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
        output_text_buffer_length: int = 0
        _all_stop_token_ids: set[int] = field(default_factory=set)
        structured_outputs: StructuredOutputsParams | None = None
        extra_args: dict[str, Any] | None = None
        bad_words: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            self.stop = [self.stop] if isinstance(self.stop, str) else self.stop or []
            self.output_text_buffer_length = max(map(len, self.stop), default=1) - 1

    SamplingParams.__struct_fields__ = tuple(each.name for each in fields(SamplingParams))  # type: ignore[attr-defined]

    @dataclass
    class Logprob:
        logprob: float
        rank: int | None = None
        decoded_token: str | None = None

    @dataclass
    class RequestStateStats:
        arrival_time: float = 0.0
        queued_ts: float = 0.0
        scheduled_ts: float = 0.0
        first_token_ts: float = 0.0
        last_token_ts: float = 0.0
        first_token_latency: float = 0.0

    @dataclass
    class CompletionOutput:
        index: int
        text: str
        token_ids: Sequence[int]
        cumulative_logprob: float | None
        logprobs: Any
        finish_reason: str | None = None

    @dataclass
    class RequestOutput:
        request_id: str
        prompt: str | None
        prompt_token_ids: list[int] | None
        prompt_logprobs: Any
        outputs: list[CompletionOutput]
        finished: bool
        metrics: RequestStateStats | None = None

    return SimpleNamespace(**locals())


try:
    types, INSTALLED = _installed(), True
except ImportError:
    types, INSTALLED = _of_the_same_shape(), False


def completion(ids: Sequence[int], index: int = 0, reason: str | None = None, scores: Any = None) -> Any:
    return types.CompletionOutput(
        index=index,
        text="".join(f"t{token} " for token in ids),
        token_ids=list(ids),
        cumulative_logprob=None,
        logprobs=scores,
        finish_reason=reason,
    )


def request_output(*outputs: Any, request_id: str = "r0", finished: bool = False, metrics: Any = None) -> Any:
    return types.RequestOutput(
        request_id=request_id,
        prompt="prompt",
        prompt_token_ids=[1, 2, 3],
        prompt_logprobs=None,
        outputs=list(outputs),
        finished=finished,
        metrics=metrics,
    )


class ScriptedLLM:
    """In place of ``vllm.LLM``: returns what it is given to return."""

    def __init__(self, results: Sequence[Any] | Exception = ()) -> None:
        self.model_config = SimpleNamespace(model="/models/tiny", served_model_name=["tiny", "other"])
        self.results = results
        self.seen: list[Any] = []

    def get_default_sampling_params(self) -> Any:
        return types.SamplingParams(temperature=0.6)

    def generate(self, prompts: Any, sampling_params: Any = None, *, use_tqdm: bool = True, **_: Any) -> Any:
        self.seen.append(sampling_params)
        if isinstance(self.results, Exception):
            raise self.results
        return self.results

    def chat(self, messages: Any, sampling_params: Any = None, use_tqdm: bool = True, **_: Any) -> Any:
        return self.generate(messages, sampling_params)


class ScriptedAsyncLLM:
    """In place of ``vllm.v1.engine.async_llm.AsyncLLM``: yields its outputs, then ends, fails or waits."""

    def __init__(self, *outputs: Any, then: Exception | None = None, waits: bool = False) -> None:
        self.model_config = SimpleNamespace(model="tiny", served_model_name=None)
        self.outputs, self.then, self.waits = outputs, then, waits
        self.aborted: list[str] = []

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **_: Any
    ) -> AsyncIterator[Any]:
        try:
            for output in self.outputs:
                await asyncio.sleep(0)
                yield output
            if self.waits:
                await asyncio.sleep(60)
            if self.then is not None:
                raise self.then
        except (asyncio.CancelledError, GeneratorExit):
            self.aborted.append(request_id)
            raise
