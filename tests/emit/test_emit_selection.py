"""Which token steps get spans: everything within the budget, then errors and slow generations first."""

from __future__ import annotations

import math

import pytest
from emit_generations import generation, identity
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision

from otelkit.emit.rate import AdaptiveRate, in_share
from otelkit.emit.sampler import DEFAULT_TRACES_PER_SECOND, AdaptiveSampler, from_argument
from otelkit.emit.selection import MovingQuantile, StepSelection
from otelkit.model import Outcome


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def select_for(
    selection: StepSelection, clock: Time, seconds: int, per_second: int, **other: object
) -> float:
    """Share of generations of 10 steps whose steps were selected."""
    chosen = 0
    for _ in range(seconds * per_second):
        clock.now += 1 / per_second
        chosen += bool(selection.select(generation(10, **other)).steps)
    return chosen / (seconds * per_second)


def test_everything_is_exported_within_the_budget() -> None:
    """Otherwise a quiet service would lack spans for no reason."""
    clock = Time()
    selection = StepSelection(1000, 10_000, clock=clock)
    assert select_for(selection, clock, 30, 90) == 1.0
    assert selection.rate == 1.0


def test_load_beyond_the_budget_lowers_the_rate_to_fit() -> None:
    """Otherwise telemetry would grow without bound with the load."""
    clock = Time()
    selection = StepSelection(1000, 10_000, clock=clock)
    select_for(selection, clock, 30, 400)
    assert 0.2 < select_for(selection, clock, 20, 400) < 0.3
    assert selection.rate == pytest.approx(0.25, rel=0.05)
    select_for(selection, clock, 20, 50)
    assert select_for(selection, clock, 10, 50) == 1.0


def test_errors_and_slow_generations_are_exported_whatever_the_rate() -> None:
    """Otherwise the spans that explain an incident would be the ones left out."""
    clock = Time()
    selection = StepSelection(1000, 10_000, clock=clock)
    select_for(selection, clock, 20, 1000)
    assert select_for(selection, clock, 1, 20, outcome=Outcome.ERROR) == 1.0
    assert all(selection.select(generation(10, gap_ns=10**9 + i)).steps for i in range(5))


def test_a_storm_of_errors_is_bounded_as_well() -> None:
    """Otherwise an outage of the provider would flood the collector in the worst moment."""
    clock = Time()
    selection = StepSelection(1000, 10_000, clock=clock)
    assert select_for(selection, clock, 20, 2000, outcome=Outcome.ERROR) < 0.1


def test_nothing_is_exported_of_parents_that_are_not_sampled() -> None:
    """Otherwise steps would show up without the generation they belong to."""
    selection = StepSelection(math.inf, 10_000)
    selected = selection.select(generation(10, span=identity(sampled=False), outcome=Outcome.ERROR))
    assert (selected.steps, selected.traced, selected.left_out) == ((), False, 10)
    assert selection.select(generation(10, span=None)).steps == ()


def test_slow_generations_ask_for_their_trace() -> None:
    """Otherwise a trace that was not chosen at its start stays out though it became slow or failed."""
    asked: list[bool] = []

    def promoted(trace_id: int, *, promote: bool) -> bool:
        asked.append(promote)
        return promote

    selection = StepSelection(math.inf, 10_000, promoted=promoted)
    for _ in range(60):
        selection.select(generation(10, span=identity(sampled=False)))
    assert not any(asked)
    slow = selection.select(generation(10, gap_ns=10**9, span=identity(sampled=False)))
    failed = selection.select(generation(10, outcome=Outcome.ERROR, span=identity(sampled=False)))
    assert asked[-2:] == [True, True]
    assert slow.traced
    assert slow.steps
    assert failed.steps


def test_long_generations_keep_their_beginning_and_end() -> None:
    """Otherwise one endless generation would use up the budget of all others."""
    selection = StepSelection(math.inf, 101)
    selected = selection.select(generation(5000))
    assert selected.steps == (range(51), range(4950, 5000))
    assert selected.left_out == 4899
    assert selection.select(generation(101)).left_out == 0


def test_the_moving_quantile_follows() -> None:
    """Otherwise "slow" would mean what it meant an hour ago."""
    quantile = MovingQuantile(0.95)
    assert not any(quantile.exceeded_by(1.0) for _ in range(60))
    assert quantile.exceeded_by(2.0)
    for _ in range(400):
        quantile.exceeded_by(3.0)
    assert not quantile.exceeded_by(2.5)
    assert quantile.exceeded_by(3.5)


def test_shares_of_traces_nest() -> None:
    """Otherwise two services at different rates would keep different traces, and hardly one complete."""
    ids = [identity().trace_id for _ in range(2000)]
    low, high = ({i for i in ids if in_share(i, share)} for share in (0.1, 0.5))
    assert low < high
    assert 800 < len(high) < 1200
    assert all(in_share(i, 1.0) for i in ids)
    assert not any(in_share(i, 0.0) for i in ids)


def test_a_pause_ends_a_low_rate() -> None:
    """Otherwise the first traces after a quiet night would be sampled at the rate of the evening's peak."""
    clock = Time()
    load = AdaptiveRate(100, clock=clock)
    for _ in range(5000):
        clock.now += 0.001
        load.offer(1)
    assert load.share < 0.2
    clock.now += 60
    load.offer(1)
    assert load.share == 1.0


def decision(sampler: AdaptiveSampler, parent: trace.Span | None = None) -> Decision:
    context = None if parent is None else trace.set_span_in_context(parent)
    return sampler.should_sample(context, identity().trace_id, "chat").decision


def test_the_sampler_follows_its_parent() -> None:
    """Otherwise traces would come in pieces."""
    sampler = AdaptiveSampler()

    def remote(sampled: bool) -> trace.Span:
        flags = trace.TraceFlags(trace.TraceFlags.SAMPLED if sampled else trace.TraceFlags.DEFAULT)
        return trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=True, trace_flags=flags))

    assert decision(sampler) is Decision.RECORD_AND_SAMPLE
    assert decision(sampler, remote(True)) is Decision.RECORD_AND_SAMPLE
    assert decision(sampler, remote(False)) is Decision.DROP
    provider = TracerProvider(sampler=AdaptiveSampler(0), shutdown_on_exit=False)
    with provider.get_tracer("t").start_span("not chosen") as local:
        assert not local.get_span_context().trace_flags.sampled
        assert decision(sampler, local) is Decision.RECORD_ONLY


def test_the_sampler_reads_its_argument(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise OTEL_TRACES_SAMPLER_ARG would have no effect, or a bad one would stop the SDK."""
    assert "10/s" in from_argument(None).get_description()
    assert "2.5/s" in from_argument("2.5").get_description()
    assert f"{DEFAULT_TRACES_PER_SECOND:g}/s" in from_argument("many").get_description()
    assert "'many'" in caplog.text
