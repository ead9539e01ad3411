"""Reads vLLM's SamplingParams and RequestOutput."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from otelkit.model import ParameterValue
from otelkit.record.logprobs import note_position_scores
from otelkit.record.providers.base import request_parameters
from otelkit.record.response import ResponseFacts

_NAMES: Final = {"stop": "stop_sequences", "n": "choice.count"}
_ALWAYS: Final = frozenset({"temperature", "top_p", "top_k", "max_tokens"})
"""Recorded whatever their value: vLLM fills in its defaults, which are what a request asks for then."""
_NOT_PARAMETERS: Final = frozenset({"output_kind", "output_text_buffer_length", "skip_clone", "extra_args"})
"""How the answer is delivered, and what vLLM keeps for itself; ``extra_args`` are parameters one by one."""
_NOT_EXTRA: Final = frozenset({"kv_transfer_params", "ec_transfer_params"})
"""Differ in every request: where another engine has left its cache."""


def read_sampling(
    params: Any, call: Mapping[str, Any]
) -> tuple[dict[str, ParameterValue], dict[str, ParameterValue]]:
    """(parameters under the convention's names, originals that were renamed).

    Args:
        params: SamplingParams. It does not tell what was given, so what has its default is left out, save the
            parameters that everyone sets.
        call: further parameters among the call's arguments.
    """
    extra = getattr(params, "extra_args", None) or {}
    given = {name: value for name, value in extra.items() if name not in _NOT_EXTRA}
    defaults = _defaults(params.__class__)
    for name in params.__struct_fields__:
        if name.startswith("_") or name in _NOT_PARAMETERS:
            continue
        value = getattr(params, name)
        if name in _ALWAYS or value != getattr(defaults, name):
            given[name] = _plain(value)
    given.update({name: value for name, value in call.items() if value})
    return request_parameters(given, _NAMES)


@lru_cache(maxsize=4)
def _defaults(kind: Any) -> Any:
    return kind()


def _plain(value: Any) -> ParameterValue:
    """Options that are objects of their own, by what was given; vLLM notes things of its own in them."""
    if not dataclasses.is_dataclass(value):
        return value
    fields = {field.name: field.default for field in dataclasses.fields(value)}
    given = {name: (getattr(value, name), default) for name, default in fields.items() if name[0] != "_"}
    return {name: item for name, (item, default) in given.items() if item != default}


class OutputReader:
    """Reads what ``generate`` yields: everything so far in each output, or what is new, or the end alone.

    Outputs of one request grow each at its own pace, and one that the consumer was too slow for comes merged
    with the next; so tokens are counted by their ids, not by outputs.
    """

    quick = ""
    says_end = True

    def __init__(self, kind: str = "FINAL_ONLY") -> None:
        self._kind = kind
        self._counts: dict[int, int] = {}
        """Tokens read so far, by index of the output."""

    def chunk(self, request: Any, facts: ResponseFacts) -> bool:
        self._note_request(request, facts)
        if self._kind == "FINAL_ONLY":
            self._counts = {output.index: len(output.token_ids) for output in request.outputs}
            facts.usage(None, sum(self._counts.values()))
            return False
        tokens, scores = [], []
        for output in request.outputs:
            seen = self._counts.get(output.index, 0)
            new = slice(seen if self._kind == "CUMULATIVE" else 0, None)
            ids = tuple(output.token_ids[new])
            self._counts[output.index] = (seen if self._kind == "DELTA" else 0) + len(output.token_ids)
            tokens.append(ids)
            scores.append(output.logprobs[new] if output.logprobs else ())
        facts.usage(None, sum(self._counts.values()))
        # Several outputs repeat each other, which says nothing of any of them.
        facts.piece = tokens[0] if len(self._counts) == 1 else None
        if not any(tokens):
            return False
        note_position_scores(tokens, scores, facts)
        facts.count(sum(map(len, tokens)))
        return True

    def response(self, request: Any, facts: ResponseFacts) -> None:
        self._note_request(request, facts)
        facts.usage(None, sum(len(output.token_ids) for output in request.outputs))
        if token_times(request):
            (output,) = request.outputs
            ids, scores = output.token_ids, output.logprobs or ()
            for number, part in enumerate((slice(1), slice(1, None))[: len(ids)], 1):
                note_position_scores([ids[part]], [scores[part]], facts)
                facts.count(len(ids[part]))
                facts.end_step(number)

    def _note_request(self, request: Any, facts: ResponseFacts) -> None:
        facts.names(getattr(request, "request_id", None), None)
        prompt = getattr(request, "prompt_token_ids", None)
        facts.usage(None if prompt is None else len(prompt), None)
        error = getattr(request, "error", None)
        if error is not None:
            facts.error_type = str(getattr(error, "code", None) or "error")
        for output in request.outputs:
            facts.finished(output.finish_reason)
            facts.aborted |= output.finish_reason == "abort"
            if output.finish_reason == "error":
                facts.error_type = facts.error_type or "error"
        if request.finished:
            facts.phases(_phases(getattr(request, "metrics", None)))


def _phases(metrics: Any) -> dict[str, float]:
    """Seconds that the engine says a request waited, read its prompt and made tokens; empty unless it keeps
    statistics."""
    names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    times = [getattr(metrics, name, None) or 0.0 for name in names]
    phases = zip(("queue", "prefill", "decode"), times, times[1:], strict=False)
    return {phase: end - begin for phase, begin, end in phases if begin and end >= begin}


def token_times(request: Any) -> Sequence[float]:
    """Unix seconds of a finished request's first and last token (once, where that is one token).

    Empty unless the engine keeps statistics, and for several outputs, whose times it does not keep apart.
    """
    metrics = getattr(request, "metrics", None)
    arrival = getattr(metrics, "arrival_time", None)
    latency = getattr(metrics, "first_token_latency", None)
    if not arrival or not latency or len(request.outputs) != 1 or not request.outputs[0].token_ids:
        return ()
    first = arrival + latency
    decode = _phases(metrics).get("decode", 0.0)
    return (first, first + decode)[: len(request.outputs[0].token_ids)]
