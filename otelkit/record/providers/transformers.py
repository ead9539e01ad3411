"""transformers: ``model.generate``, with or without a streamer, greedy, sampled or by beams, one prompt or a
batch.

Each step is timed by a stopping criterion that never stops: every decoding method asks the criteria once a
step, after its token.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

from otelkit.record.guard import fault
from otelkit.record.location import caller
from otelkit.record.patches import Patches
from otelkit.record.providers.base import GetRuntime, request_parameters
from otelkit.record.recording import Recording
from otelkit.record.request import Request
from otelkit.record.response import ResponseFacts
from otelkit.record.runtime import Runtime

_NAMES: Final = {
    "max_new_tokens": "max_tokens",
    "stop_strings": "stop_sequences",
    "num_return_sequences": "choice.count",
}
_SETTINGS: Final = frozenset(
    {
        "do_sample", "temperature", "top_k", "top_p", "min_p", "typical_p", "max_new_tokens", "max_length",
        "min_new_tokens", "num_beams", "num_return_sequences", "repetition_penalty", "no_repeat_ngram_size",
        "length_penalty", "penalty_alpha", "early_stopping", "stop_strings", "use_cache",
        "cache_implementation",
        "prompt_lookup_num_tokens", "num_assistant_tokens", "assistant_early_exit",
    }
)  # fmt: skip
"""Parameters among the arguments, which are tensors of content for the rest."""


class Transformers:
    """The adapter. Waits for the module that defines ``generate``: ``transformers`` itself loads it late."""

    module = "transformers.generation.utils"

    def instrument(self, module: ModuleType, patches: Patches, runtime: GetRuntime) -> None:
        patches.wrap(module.GenerationMixin, "generate", lambda original: _generate(original, runtime))


class _GenerateReader:
    """Reads what ``generate`` returns, given the length of the prompt."""

    quick = ""
    says_end = False

    def __init__(self, prompt_length: int, batch: int) -> None:
        self._prompt_length = prompt_length
        self._batch = batch

    def chunk(self, chunk: Any, facts: ResponseFacts) -> bool:
        facts.count(self._batch)
        return True

    def response(self, response: Any, facts: ResponseFacts) -> None:
        sequences = getattr(response, "sequences", response)
        count, length = sequences.shape
        facts.usage(self._prompt_length * self._batch, (length - self._prompt_length) * count)


def _generate(original: Any, get_runtime: GetRuntime) -> Any:
    def generate(model: Any, *args: Any, **kwargs: Any) -> Any:
        recording = _begin(get_runtime(), model, args, kwargs)
        if recording is None:
            return original(model, *args, **kwargs)
        with recording:
            result = original(model, *args, **{**kwargs, "stopping_criteria": _timed(recording, kwargs)})
        recording.answered(result)
        return result

    return generate


def _begin(
    runtime: Runtime | None, model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Recording | None:
    # Criteria given by position, after six other arguments, are so rare that such a call is left alone.
    if runtime is None or len(args) > 1:
        return None
    try:
        config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
        given = dict(config.to_diff_dict()) if config is not None else {}
        given.update(kwargs)
        settings = {name: value for name, value in given.items() if name in _SETTINGS}
        parameters, originals = request_parameters(settings, _NAMES)
        prompt = (
            args[0]
            if args
            else next((kwargs[name] for name in ("inputs", "input_ids") if name in kwargs), None)
        )
        batch, length = prompt.shape if prompt is not None else (1, 0)
        name = getattr(model, "name_or_path", "") or type(model).__name__
        describe = partial(
            Request,
            provider="transformers",
            operation="text_completion",
            model=str(name),
            parameters=parameters,
            originals=originals,
            streamed=True,
            location=caller("transformers"),
        )
        # An encoder-decoder model's answer does not repeat the prompt.
        repeated = 0 if getattr(model.config, "is_encoder_decoder", False) else int(length)
        return Recording(runtime, describe, _GenerateReader(repeated, int(batch)))
    except Exception:
        fault("begin a generation")
        return None


def _timed(recording: Recording, kwargs: Mapping[str, Any]) -> Any:
    """The caller's criteria and ours, in a list of our own."""
    criteria = importlib.import_module("transformers.generation.stopping_criteria")
    torch = sys.modules["torch"]
    now = recording.runtime.clock.monotonic_ns

    class StepClock(criteria.StoppingCriteria):  # type: ignore[misc,name-defined]
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            recording.steps.append(now())
            recording.observe(None)
            return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    return criteria.StoppingCriteriaList([*(kwargs.get("stopping_criteria") or ()), StepClock()])
