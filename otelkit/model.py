"""The core types: what flows from a user's service to a verdict.

Times are wall-clock: nanoseconds since the Unix epoch where a name ends in ``_ns``, seconds as float
elsewhere.
Nothing here imports anything but the standard library.
"""

from __future__ import annotations

import enum
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

ParameterValue = Any
"""A JSON value (None, bool, int, float, str, list, dict); anything else is recorded through a stable text."""


class Unset(enum.Enum):
    """The parameter was not given at all; ``None`` and ``0`` are values and differ from it."""

    UNSET = "unset"

    __hash__ = object.__hash__  # that of Enum is no C code, and this one is counted for every generation

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


class Outcome(enum.Enum):
    """How a generation ended."""

    COMPLETED = "completed"
    ENDED_EARLY = "ended_early"
    """The consumer stopped reading (break, close, collected), or the provider ended the stream without saying
    that the answer ends; not an error."""
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where generations of one kind come from; parameters settle per call site."""

    service: str
    provider: str
    operation: str
    model: str
    location: str = ""
    """``file.py:function`` or an HTTP route; empty when unknown."""


@dataclass(slots=True, unsafe_hash=True)  # not frozen: that triples the cost of making one
class SpanIdentity:
    """What token-step spans need to know of the generation's span. Not to be changed."""

    trace_id: int
    span_id: int
    sampled: bool
    trace_state: str = ""
    """W3C ``tracestate`` header value."""
    random: bool = False
    """W3C's flag of trace ids that are random, which children inherit."""


@dataclass(slots=True)  # not frozen: that triples the cost of making one
class Generation:
    """One finished call of a model, streamed or not. Built once, after the last step; not to be changed."""

    call_site: CallSite
    start_ns: int
    end_ns: int
    """Time of the last step, or of the error; never the time at which an abandoned stream was collected."""
    step_ns: Sequence[int] = ()
    """End of each token step, ascending; a step begins where the one before ended. Empty if not streamed."""
    step_tokens: Sequence[int | None] | None = None
    """Tokens in each step where the provider tells; None when unknown throughout."""
    step_logprobs: Sequence[float | None] | None = None
    """Log probability (nats) of the tokens chosen in each step."""
    step_entropies: Sequence[float | None] | None = None
    """Entropy (nats) over the alternatives that the provider returned, per step."""
    outcome: Outcome = Outcome.COMPLETED
    error_type: str = ""
    streamed: bool = False
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    """Request parameters as given, under the convention's names (``max_tokens``, ``temperature`` ...)."""
    response_model: str = ""
    response_id: str = ""
    finish_reasons: Sequence[str] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    repeated_token_share: float | None = None
    """Share (0 to 1) of output tokens that repeat one of the tokens before them."""
    span: SpanIdentity | None = None
    """None when no tracer is set up; metrics do not depend on it."""
    session_id: str = ""
    """Conversation or session that the call belongs to, where the service tells; never a metric's label."""
    phase_seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration of phases that the provider reports (``vision_encoding``, ``prefill``, ``queue`` ...)."""

    @property
    def duration_seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    @property
    def time_to_first_chunk_seconds(self) -> float | None:
        """Seconds until the first token step; None for calls that were not streamed."""
        return (self.step_ns[0] - self.start_ns) / 1e9 if self.step_ns else None


class ChangeSource(enum.Enum):
    """How otelkit came to know a change."""

    OBSERVED = "observed"
    DECLARED = "declared"
    CONFIG_FILE = "config_file"
    FEATURE_FLAG = "feature_flag"
    HEADER = "header"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class ParameterChange:
    """A parameter's settled value moved from ``old`` to ``new``."""

    service: str
    parameter: str
    old: ParameterValue
    new: ParameterValue
    first_seen: float
    """Unix seconds at which the new value was first in use."""
    last_seen: float
    """Unix seconds at which the last worker took it up; equals ``first_seen`` for one worker."""
    scope: str = ""
    """Model, route or code location the change is limited to; empty for the whole service."""
    source: ChangeSource = ChangeSource.OBSERVED
    workers: int = 1
    origin: str = ""
    """Who or what made the change, where known: a file with its owner, a flag provider, an action."""
    effective_at: float | None = None
    """Unix seconds at which a call first used the new value, where that differs from ``first_seen``."""
    shares: tuple[float, float] | None = None
    """Share (0 to 1) of requests with the new value before and after, where the settled value did not simply
    move: ``new`` then gained in share, mostly from ``old``."""

    @property
    def key(self) -> str:
        """Names what changed, without when: the same in every process that sees the change."""
        content = [self.service, self.scope, self.parameter, label_text(self.old), label_text(self.new)]
        return hashlib.sha256(json.dumps(content).encode(errors="replace")).hexdigest()[:10]

    @property
    def id(self) -> str:
        """``key`` and the millisecond of ``first_seen``: deterministic, and survives being a metric's labels.

        Workers that see one change a moment apart share the key; merging their reports keeps the earliest
        ``first_seen``, so the merged change has the id of the earliest report.
        """
        return f"{self.key}-{round(self.first_seen * 1000):x}"


def canonical(value: ParameterValue) -> str:
    """A stable text form of a parameter value: equal values give equal text, whatever the order of keys."""
    if value is UNSET:
        return "unset"
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=repr, ensure_ascii=False)


def almost_equal(one: ParameterValue, other: ParameterValue) -> bool:
    """Whether two values are equal but for rounding errors of floats, also inside lists and mappings: 0.3 and
    0.1 + 0.2."""
    if isinstance(one, float) or isinstance(other, float):
        numbers = not isinstance(one, bool) and not isinstance(other, bool)
        return (
            numbers and isinstance(one, int | float) and isinstance(other, int | float) and _near(one, other)
        )
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(almost_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(almost_equal(one[key], other[key]) for key in one)
    return one is other or (type(one) is type(other) and bool(one == other))


def _near(one: float, other: float) -> bool:
    try:
        return math.isclose(one, other, rel_tol=_ROUNDING)
    except OverflowError:  # an integer that is no float
        return False


_ROUNDING: Final = 1e-7
"""Relative; that of single precision."""

MAX_LABEL_TEXT: Final = 64


def label_text(value: ParameterValue, limit: int = MAX_LABEL_TEXT) -> str:
    """``canonical(value)`` in at most ``limit`` characters (at least 32): still JSON, still different for
    different values.

    What is too long becomes a text with its beginning and a digest, whose label text is that text itself.
    """
    text = canonical(value)
    if len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12]
    beginning = (value if isinstance(value, str) else text)[:limit]
    while len(short := canonical(f"{beginning}… #{digest}")) > limit:
        beginning = beginning[: -max(1, (len(short) - limit) // 6)]
    return short


def shares_text(shares: tuple[float, float] | None) -> str:
    """``0.05,0.6``, as in a metric's label; empty for None."""
    return "" if shares is None else f"{shares[0]:.2g},{shares[1]:.2g}"


def shares_note(shares: tuple[float, float] | None, arrow: str = "->") -> str:
    """`` (5 % -> 60 % of requests)``, for people; empty for None."""
    return "" if shares is None else f" ({100 * shares[0]:.0f} % {arrow} {100 * shares[1]:.0f} % of requests)"


class Sink(Protocol):
    """Takes what ``record`` produces. Must be quick, must not block and must not raise."""

    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        """A call begins; every one is followed by exactly one ``generation``. ``call_site`` tells where it
        comes from; the sink best calls it off the request's path."""

    def generation(self, build: Callable[[], Generation]) -> None:
        """A call has ended. ``build`` makes its record; the sink calls it once, off the request's path."""

    def change(self, change: ParameterChange) -> None:
        """A parameter change was declared or observed, or one reported before reached more workers."""
