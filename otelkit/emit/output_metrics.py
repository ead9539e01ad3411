"""What the /metrics page says of the outputs themselves: pace by position, entropy, repetition."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry

from otelkit import semconv
from otelkit.emit.histogram import BulkHistogram, Example, Part
from otelkit.model import Generation

_ENDS: Final = tuple(bound - 1 for bound in semconv.POSITION_BOUNDS)
"""Where positions end among the gaps of steps of one token each."""


@dataclass(slots=True)
class _Series:
    """The series of one service, each made at its first value: a service whose provider returns no
    alternatives then has no entropy, rather than one of nothing."""

    by_position: list[BulkHistogram] = field(default_factory=list)
    """In the order of ``semconv.POSITIONS``; an output reaches a position only through those before it."""
    entropy: BulkHistogram | None = None
    repeated: BulkHistogram | None = None


class OutputMetrics:
    """Histograms by service, each updated once for a whole output; for the background thread alone."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._series: dict[str, _Series] = {}
        self._steps = BulkHistogram(
            semconv.METRIC_TOKEN_STEP,
            "Seconds between one token step and the next, by position in the output.",
            (semconv.LABEL_SERVICE, semconv.LABEL_POSITION),
            buckets=semconv.DURATION_BUCKETS,
            registry=registry,
        )
        self._entropy = BulkHistogram(
            semconv.METRIC_OUTPUT_ENTROPY,
            "Mean entropy of a call's token steps, nats.",
            (semconv.LABEL_SERVICE,),
            buckets=semconv.ENTROPY_BUCKETS,
            registry=registry,
        )
        self._repeated = BulkHistogram(
            semconv.METRIC_REPEATED_TOKENS,
            "Share of a call's output tokens that repeat one of the tokens before them.",
            (semconv.LABEL_SERVICE,),
            buckets=semconv.RATIO_BUCKETS,
            registry=registry,
        )

    def by_position(self, generation: Generation, times: array[int]) -> list[Part]:
        """Which gaps between token steps, in nanoseconds, belong into which histogram.

        Args:
            times: nanoseconds at which each step ended, at least two.
        """
        service = generation.call_site.service
        known = self._of(service).by_position
        ends = _ends(generation.step_tokens, len(times) - 1)
        while len(known) < len(ends):
            known.append(self._steps.labels(service, semconv.POSITIONS[len(known)]))
        parts: list[Part] = []
        begin, since = 0, times[0]
        for histogram, end in zip(known, ends, strict=False):
            # Gaps that follow each other add up to the time between the first and the last of their ends.
            until = times[end]
            parts.append((histogram, begin, end, until - since if until > since else 0))
            begin, since = end, until
        return parts

    def ended(self, generation: Generation, exemplar: Example | None) -> None:
        """Count a call's mean entropy and its share of repeated tokens, where known."""
        service = generation.call_site.service
        known = generation.step_entropies
        entropies = [entropy for entropy in known if entropy is not None] if known else None
        if entropies:
            series = self._of(service)
            histogram = series.entropy = series.entropy or self._entropy.labels(service)
            histogram.add(sum(entropies) / len(entropies), exemplar=exemplar)
        if generation.repeated_token_share is not None:
            series = self._of(service)
            histogram = series.repeated = series.repeated or self._repeated.labels(service)
            histogram.add(generation.repeated_token_share, exemplar=exemplar)

    def after_fork(self) -> None:
        """In the child: series are looked up anew, as files shared between processes start anew."""
        self._series.clear()

    def unregister(self) -> None:
        """Take the metrics off the registry, so that they can be registered again."""
        for collector in (self._steps, self._entropy, self._repeated):
            self._registry.unregister(collector)

    def _of(self, service: str) -> _Series:
        series = self._series.get(service)
        if series is None:
            series = self._series[service] = _Series()
        return series


def _ends(step_tokens: Sequence[int | None] | None, count: int) -> list[int]:
    """Where in ``count`` gaps each position ends, for the positions that the output reaches.

    The gap at index i is that of step i + 1, whose position is that of its first token. A step whose tokens
    the provider does not tell counts as one.
    """
    if step_tokens is None:
        return [*_ENDS[: bisect_left(_ENDS, count)], count]
    before = list(accumulate(tokens or 1 for tokens in step_tokens))
    ends = [min(count, bisect_left(before, bound)) for bound in semconv.POSITION_BOUNDS]
    return [*ends[: bisect_left(ends, count)], count]
