"""A sampler for OTEL_TRACES_SAMPLER=otelkit_adaptive: errors and slow calls always, the rest at an adapting
rate.

A sampler decides at the start of a span and can't know its end. So a trace that is not chosen is still
recorded, without being marked as sampled; ``promotion`` exports it after all when a span of it ends in an
error, or a generation of it was slow. That covers the spans of this process; services further down see "not
sampled".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

from otelkit.emit import notices
from otelkit.emit.rate import AdaptiveRate, in_share

NAME: Final = "otelkit_adaptive"
DEFAULT_TRACES_PER_SECOND: Final = 10.0


class AdaptiveSampler(Sampler):
    """Chooses a share of new traces that keeps them within a budget, and follows the decision of a parent.

    Args:
        traces_per_second: the budget.
    """

    def __init__(self, traces_per_second: float = DEFAULT_TRACES_PER_SECOND) -> None:
        self._budget = traces_per_second
        self._load = AdaptiveRate(traces_per_second)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        parent = trace.get_current_span(parent_context)
        context = parent.get_span_context()
        if context.is_valid:
            decision = self._follow(parent, context)
        else:
            self._load.offer(1)
            chosen = in_share(trace_id, self._load.share)
            decision = Decision.RECORD_AND_SAMPLE if chosen else Decision.RECORD_ONLY
        return SamplingResult(decision, attributes, context.trace_state if context.is_valid else None)

    @staticmethod
    def _follow(parent: trace.Span, context: trace.SpanContext) -> Decision:
        if context.trace_flags.sampled:
            return Decision.RECORD_AND_SAMPLE
        # A parent elsewhere that was not sampled stays so: the rest of its trace is not there.
        return Decision.RECORD_ONLY if parent.is_recording() else Decision.DROP

    def get_description(self) -> str:
        return f"OtelkitAdaptive{{{self._budget:g}/s}}"


def from_argument(argument: str | float | None = None) -> AdaptiveSampler:
    """The sampler for OTEL_TRACES_SAMPLER_ARG, which holds traces per second."""
    if argument is None or argument == "":
        return AdaptiveSampler()
    try:
        budget = float(argument)
    except ValueError:
        budget = math.nan
    if math.isnan(budget) or budget < 0:
        notices.say_once(
            f"otelkit: OTEL_TRACES_SAMPLER_ARG={argument!r} is not a number of traces per second; "
            f"using {DEFAULT_TRACES_PER_SECOND:g}."
        )
        return AdaptiveSampler()
    return AdaptiveSampler(budget)
