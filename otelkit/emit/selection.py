"""Which token steps of a finished generation get a span."""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from otelkit.emit import self_metrics
from otelkit.emit.rate import AdaptiveRate, in_share
from otelkit.model import Generation, Outcome

SLOW_QUANTILE: Final = 0.95
WINDOW: Final = 256
"""Durations from which the quantile of a service is taken."""
FEWEST: Final = 50
"""With fewer of them no generation is called slow."""
BURST_SECONDS: Final = 5.0
"""Seconds of budget that may be spent at once after a quiet time."""
PRIORITY_OVERDRAFT: Final = 10.0
"""Errors and slow generations may overdraw the budget by this many seconds of it, and no further."""
MAX_SERVICES: Final = 256


class Selected(NamedTuple):
    """What was decided for one generation."""

    steps: Sequence[range]
    """Indices of the steps that get a span; empty for none."""
    traced: bool = False
    """Whether the generation's own span is exported, so that an exemplar may point to it."""
    left_out: int = 0
    reason: str = ""
    """Why the ``left_out`` other steps get none."""


class Promoted(Protocol):
    """Whether a trace is exported though it was not sampled."""

    def __call__(self, trace_id: int, *, promote: bool) -> bool: ...


class MovingQuantile:
    """A quantile of the last ``WINDOW`` values."""

    def __init__(self, quantile: float = SLOW_QUANTILE) -> None:
        self._quantile = quantile
        self._recent: deque[float] = deque()
        self._ordered: list[float] = []

    def exceeded_by(self, value: float) -> bool:
        """Whether ``value`` lies above the quantile of the values before it; it is counted from then on."""
        ordered, recent = self._ordered, self._recent
        above = len(ordered) >= FEWEST and value > ordered[int(self._quantile * len(ordered))]
        if len(recent) == WINDOW:
            del ordered[bisect_left(ordered, recent.popleft())]
        recent.append(value)
        insort(ordered, value)
        return above


class StepSelection:
    """Every step while a budget of spans per second holds; beyond it errors, slow ones, some others.

    The decision falls when the generation has ended and its outcome and duration are known. The rate follows
    the load of the last seconds and is applied to the trace id, so that services which share a trace keep or
    leave it together.

    Args:
        spans_per_second: the budget; ``inf`` for no limit.
        spans_per_generation: of a longer generation the first and the last half of this number are kept.
        promoted: whether a trace that was not sampled is exported all the same; asked to promote it, it may
            say that it will be.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        spans_per_second: float,
        spans_per_generation: int,
        *,
        promoted: Promoted = lambda trace_id, *, promote: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._promoted = promoted
        self._budget = spans_per_second
        self._limit = spans_per_generation
        self._clock = clock
        self._durations: dict[str, MovingQuantile] = {}
        self._load = AdaptiveRate(spans_per_second, clock=clock)
        self._tokens = self._most_tokens = spans_per_second * BURST_SECONDS
        self._refilled_at = clock()

    @property
    def rate(self) -> float:
        """Share of ordinary generations whose steps are exported now."""
        return self._load.share

    def select(self, generation: Generation) -> Selected:
        """Decide for one generation; call once for each, in the order in which they ended."""
        durations = self._durations.get(generation.call_site.service) or self._new_service(generation)
        slow = durations.exceeded_by(generation.end_ns - generation.start_ns)
        span = generation.span
        if span is None:
            return Selected(())
        count = len(generation.step_ns)
        priority = slow or generation.outcome is Outcome.ERROR
        if not span.sampled and not self._promoted(span.trace_id, promote=priority):
            return Selected((), left_out=count, reason=self_metrics.NOT_SAMPLED)
        if not count:
            return Selected((), traced=True)
        steps, wanted = ((range(count),), count) if count <= self._limit else self._within_limit(count)
        now = self._clock()
        refilled = self._tokens + (now - self._refilled_at) * self._budget
        self._tokens, self._refilled_at = min(self._most_tokens, refilled), now
        self._load.offer(wanted, priority=priority, now=now)
        if not self._afford(wanted, priority, span.trace_id):
            return Selected((), traced=True, left_out=count, reason=self_metrics.RATE)
        left_out = count - wanted
        return Selected(steps, traced=True, left_out=left_out, reason=self_metrics.GENERATION_LIMIT)

    def _new_service(self, generation: Generation) -> MovingQuantile:
        if len(self._durations) >= MAX_SERVICES:
            self._durations.clear()
        durations = self._durations[generation.call_site.service] = MovingQuantile()
        return durations

    def _within_limit(self, count: int) -> tuple[Sequence[range], int]:
        head = (self._limit + 1) // 2
        tail = self._limit - head
        return (range(head), range(count - tail, count)), self._limit

    def _afford(self, wanted: int, priority: bool, trace_id: int) -> bool:
        if priority:
            affordable = self._tokens > -PRIORITY_OVERDRAFT * self._budget
        else:
            share = self._load.share
            affordable = self._tokens > 0 and (share >= 1 or in_share(trace_id, share))
        if affordable:
            self._tokens -= wanted
        return affordable
