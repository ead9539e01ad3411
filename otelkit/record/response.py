"""What a provider's answer says about a generation, and how an adapter reads it. Content is looked at, never
kept."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar


class ResponseFacts:
    """Filled in by an adapter while a response is read. Cumulative counts: the last value wins, never a
    sum.

    What is not known stays with the class: so there is nothing to do when a generation begins.
    """

    response_id: str = ""
    response_model: str = ""
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    error_type: str = ""
    """Set when the provider said within the stream that it failed; the client may hand that on as a chunk."""
    aborted: bool = False
    """Set when the answer says that someone had the provider stop before its end."""
    step_tokens: list[int | None] | None = None
    """Per recorded step, where the provider tells."""
    step_logprobs: list[float | None] | None = None
    step_entropies: list[float | None] | None = None
    phase_seconds: Mapping[str, float] = MappingProxyType({})
    """Durations of phases that the provider reports (``queue``, ``prefill``, ``decode`` ...)."""
    piece: Hashable = None
    """Text or token ids of the step being read, for the share of repeated tokens only; None where unknown."""
    _tokens: int | None = None
    _logprob: float | None = None
    _entropy: float | None = None

    def names(self, response_id: Any, response_model: Any) -> None:
        """Note which response this is and which model gave it. Here and below, what is no such thing is
        ignored."""
        if isinstance(response_id, str) and response_id:
            self.response_id = response_id
        if isinstance(response_model, str) and response_model:
            self.response_model = response_model

    def finished(self, reason: Any) -> None:
        """Note a finish reason once per kind, in the order of arrival."""
        if isinstance(reason, str) and reason and reason not in self.finish_reasons:
            self.finish_reasons = (*self.finish_reasons, reason)

    def phases(self, seconds: Mapping[str, float]) -> None:
        """Note durations of phases."""
        if seconds:
            self.phase_seconds = {**self.phase_seconds, **seconds}

    def usage(self, input_tokens: Any, output_tokens: Any) -> None:
        """Note token counts; None leaves what is known."""
        if isinstance(input_tokens, int):
            self.input_tokens = input_tokens
        if isinstance(output_tokens, int):
            self.output_tokens = output_tokens

    def score(self, logprobs: Sequence[float], entropies: Sequence[float]) -> None:
        """Note log probabilities (nats) of the tokens in the step being read, and entropies (nats) over
        alternatives."""
        self._logprob = sum(logprobs) if logprobs else None
        self._entropy = sum(entropies) / len(entropies) if entropies else None

    def count(self, tokens: int | None) -> None:
        """Note how many tokens the step being read carries."""
        self._tokens = tokens

    def end_step(self, number: int) -> None:
        """The step being read is the ``number``-th (from 1); what is not known of earlier ones is None."""
        self.step_tokens = _extended(self.step_tokens, number, self._tokens)
        self.step_logprobs = _extended(self.step_logprobs, number, self._logprob)
        self.step_entropies = _extended(self.step_entropies, number, self._entropy)
        self._tokens = self._logprob = self._entropy = None


_NOTHING: Final[Mapping[str, Any]] = {}


def given(part: Any) -> Mapping[str, Any]:
    """The fields that a part of an answer has. To ask a client's object for one that it has not takes
    microseconds."""
    if isinstance(part, dict):  # to ask whether it is a ``Mapping`` takes one itself
        return part
    fields = getattr(part, "__dict__", _NOTHING)
    extra = getattr(part, "__pydantic_extra__", None)
    return {**fields, **extra} if extra else fields


Value = TypeVar("Value")


def _extended(
    values: list[Value | None] | None, number: int, value: Value | None
) -> list[Value | None] | None:
    if values is None:
        if value is None:
            return None
        values = []
    values.extend([None] * (number - 1 - len(values)))
    values.append(value)
    return values


class Reader(Protocol):
    """Reads one provider's chunks and responses. All methods may meet malformed objects and must tolerate
    missing parts."""

    @property
    def quick(self) -> str:
        """The quick way: a Python expression for the text of ``chunk`` if that is a plain token step.

        It is compiled into the loop over the stream, as a call for every chunk would cost more than all the
        rest. It may raise, or give a false value, for other chunks: they are read by ``chunk``; but for those
        for which it gives ``False`` itself, which are no token steps and say nothing that the last one
        doesn't say too. Empty to have every chunk read.
        """

    @property
    def says_end(self) -> bool:
        """Whether every whole stream has a finish reason: one that ends without is cut off. Taken for False
        where it is missing."""

    def chunk(self, chunk: Any, facts: ResponseFacts) -> bool:
        """Read a chunk wholly. True if it is a token step: role-only and usage-only chunks are none."""

    def response(self, response: Any, facts: ResponseFacts) -> None:
        """Read a whole response that was not streamed."""


def repeated_share(pieces: Sequence[Any]) -> float | None:
    """Share (0 to 1) of steps whose text repeats that of a step before them; None when it can't be told."""
    try:
        distinct = set(pieces)
    except TypeError:
        return None  # a server that sends something else than text
    return None if not distinct or None in distinct else 1 - len(distinct) / len(pieces)
