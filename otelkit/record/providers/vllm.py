"""vLLM: ``LLM.generate`` and ``LLM.chat`` on batches, and ``AsyncLLM.generate``, which its server uses too.

What a batch returns comes all at once. Each of its requests is a generation of its own, dated by the engine's
statistics where it keeps them (``disable_log_stats=False``), else by the call's end. vLLM's own metrics are
left to vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import ModuleType
from typing import Any, Final

from opentelemetry import context as otel_context
from opentelemetry import propagate, trace

from otelkit.record.guard import fault
from otelkit.record.location import caller
from otelkit.record.patches import Patches
from otelkit.record.providers.base import GetRuntime
from otelkit.record.providers.vllm_reader import OutputReader, read_sampling, token_times
from otelkit.record.recording import Recording
from otelkit.record.request import Request
from otelkit.record.runtime import Runtime
from otelkit.record.streams import WatchedAsyncIterator

_CALL_PARAMETERS: Final = ("priority", "chat_template_kwargs", "mm_processor_kwargs")
"""Parameters among the arguments, beside the sampling parameters."""
_CHAT_IDS: Final = ("chatcmpl", "resp_")
"""How the server's ids of chat requests begin; the engine sees no other difference."""

_in_batch: Final[ContextVar[bool]] = ContextVar("otelkit_in_vllm_batch", default=False)
"""Whether a batch is being recorded: some versions' ``chat`` calls ``generate``."""


class VLLM:
    """The adapter for batches."""

    module = "vllm.entrypoints.llm"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        patches.wrap(module.LLM, "generate", lambda original: _batch(original, "text_completion", runtime))
        patches.wrap(module.LLM, "chat", lambda original: _batch(original, "chat", runtime))


class AsyncVLLM:
    """The adapter for streams; ``AsyncLLMEngine`` is another name of the same class."""

    module = "vllm.v1.engine.async_llm"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        patches.wrap(module.AsyncLLM, "generate", lambda original: _stream(original, runtime))


def _batch(original: Any, operation: str, get_runtime: GetRuntime) -> Any:
    def generate(llm: Any, *args: Any, **kwargs: Any) -> Any:
        if _in_batch.get():
            return original(llm, *args, **kwargs)
        recordings = _begin_batch(get_runtime(), llm, operation, args, kwargs)
        token = _in_batch.set(True)
        try:
            if len(recordings) == 1:
                with recordings[0].active():
                    results = original(llm, *args, **kwargs)
            else:
                results = original(llm, *args, **kwargs)
        except BaseException as error:
            for recording in recordings:
                recording.failed(error)
            raise
        finally:
            _in_batch.reset(token)
        _end_batch(recordings, results)
        return results

    return generate


def _begin_batch(
    runtime: Runtime | None, llm: Any, operation: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> list[Recording]:
    """One recording for each request of the batch, in its order."""
    recordings: list[Recording] = []
    if runtime is None:
        return recordings
    try:
        inputs = args[0] if args else kwargs.get("messages" if operation == "chat" else "prompts")
        count = _conversations(inputs) if operation == "chat" else _prompts(inputs)
        sampling = args[1] if len(args) > 1 else kwargs.get("sampling_params")
        if sampling is None:
            sampling = llm.get_default_sampling_params()
        each = list(sampling) if isinstance(sampling, Sequence) else [sampling] * count
        if len(each) != count:
            return recordings  # vLLM refuses it
        model, location = _model(llm), caller("vllm")
        for params in each:
            parameters, originals = read_sampling(params, _call_parameters(kwargs))
            describe = partial(Request, "vllm", operation, model, parameters, originals, location=location)
            recordings.append(Recording(runtime, describe, OutputReader()))
    except Exception:
        for recording in recordings:
            recording.abandon()
        recordings = []
        fault("begin a batch")
    return recordings


def _end_batch(recordings: Sequence[Recording], results: Any) -> None:
    try:
        for recording, request in zip(recordings, results, strict=True):
            times = [recording.at(seconds) for seconds in token_times(request)]
            recording.steps.extend(times)
            recording.answered(request, times[-1] if times else None)
    except Exception:
        for recording in recordings:
            recording.abandon()
        fault("read a batch")


def _prompts(prompts: Any) -> int:
    """How many: one is a text, a mapping, or a list of token ids."""
    single = isinstance(prompts, str | bytes | Mapping) or (prompts and isinstance(prompts[0], int))
    return 1 if single else len(prompts)


def _conversations(messages: Any) -> int:
    """How many: one is a list of messages."""
    return 1 if messages and isinstance(messages[0], Mapping) else len(messages)


def _call_parameters(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: kwargs[name] for name in _CALL_PARAMETERS if name in kwargs}
    adapter = getattr(kwargs.get("lora_request"), "lora_name", None)
    if adapter:
        found["lora"] = adapter
    return found


def _model(engine: Any) -> str:
    """The name that clients call the model by, else that of its weights."""
    config = getattr(engine, "model_config", None) or engine.llm_engine.model_config
    served = getattr(config, "served_model_name", None)
    if isinstance(served, list | tuple):
        served = served[0] if served else None
    return str(served or config.model)


def _stream(original: Any, get_runtime: GetRuntime) -> Any:
    def generate(engine: Any, *args: Any, **kwargs: Any) -> Any:
        outputs = original(engine, *args, **kwargs)
        runtime = get_runtime()
        recording = None if runtime is None else _begin_stream(runtime, engine, args, kwargs)
        return outputs if recording is None else WatchedAsyncIterator(outputs, recording)

    return generate


def _begin_stream(
    runtime: Runtime, engine: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Recording | None:
    token = None
    try:
        params = args[1] if len(args) > 1 else kwargs["sampling_params"]
        request_id = str(args[2] if len(args) > 2 else kwargs["request_id"])
        kind = params.output_kind.name
        parameters, originals = read_sampling(params, _call_parameters(kwargs))
        describe = partial(
            Request,
            provider="vllm",
            operation="chat" if request_id.startswith(_CHAT_IDS) else "text_completion",
            model=_model(engine),
            parameters=parameters,
            originals=originals,
            streamed=kind != "FINAL_ONLY",
            location=caller("vllm"),
        )
        headers = kwargs.get("trace_headers")
        if headers and not trace.get_current_span().get_span_context().is_valid:
            token = otel_context.attach(propagate.extract(headers))
        return Recording(runtime, describe, OutputReader(kind))
    except Exception:
        fault("begin a generation")
        return None
    finally:
        if token is not None:
            otel_context.detach(token)
