"""The histograms of outputs, by service: pace by position, entropy, repetition; and counters by reason."""

from __future__ import annotations

from itertools import pairwise

import pytest
from emit_generations import START, generation
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from otelkit import semconv
from otelkit.emit.metrics import GenerationMetrics
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.model import Generation


def page_of(*generations: Generation) -> list[Sample]:
    registry = CollectorRegistry()
    metrics = GenerationMetrics(registry)
    for one in generations:
        metrics.ended(one, traced=True)
    return samples(registry)


def samples(registry: CollectorRegistry) -> list[Sample]:
    text = generate_latest(registry).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def by_label(page: list[Sample], name: str, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in page if sample.name == name}


def test_steps_are_counted_by_where_they_begin() -> None:
    """Otherwise nobody could see that long outputs slow the model down, or at which length."""
    times, now = [], START
    for number in range(1, 5001):  # the step's position, counted from one
        now += 1_000_000 if number <= 16 else 20_000_000 if number <= 4096 else 50_000_000
        times.append(now)
    page = page_of(generation(step_ns=times, end_ns=times[-1]))
    counts = by_label(page, "otelkit_token_step_seconds_count", "position")
    # The first step has no step before it.
    assert counts == {
        "0001-0016": 15,
        "0017-0064": 48,
        "0065-0256": 192,
        "0257-1024": 768,
        "1025-4096": 3072,
        "4097+": 904,
    }
    assert list(counts) == sorted(counts)
    sums = by_label(page, "otelkit_token_step_seconds_sum", "position")
    assert sums["0001-0016"] == pytest.approx(15 * 0.001)
    assert sums["0017-0064"] == pytest.approx(48 * 0.02)
    assert sums["4097+"] == pytest.approx(904 * 0.05)


def test_steps_of_several_tokens_lie_where_their_first_token_does() -> None:
    """Otherwise a provider that sends twenty tokens at once would seem to write short outputs only."""
    counts = by_label(
        page_of(generation(5, step_tokens=[10, 6, 40, None, 300])),
        "otelkit_token_step_seconds_count",
        "position",
    )
    assert counts == {"0001-0016": 1, "0017-0064": 3}  # they begin at 11, 17, 57 and 58
    counts = by_label(
        page_of(generation(2, step_tokens=[70, 1])), "otelkit_token_step_seconds_count", "position"
    )
    assert counts == {"0001-0016": 0, "0017-0064": 0, "0065-0256": 1}


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2_000_000_000), st.integers(1, 40)), min_size=1, max_size=80),
        max_size=3,
    )
)
def test_positions_together_are_all_steps(outputs: list[list[tuple[int, int]]]) -> None:
    """Otherwise a step would be missing from a position, or be in two, or be lost to the calls' own
    histogram, which is counted from the same gaps."""
    generations, gaps = [], []
    for number, output in enumerate(outputs):
        times = [START]
        for gap, _ in output:
            times.append(times[-1] + gap)
        tokens = [tokens for _, tokens in output]
        generations.append(
            generation(step_ns=times[1:], end_ns=times[-1], step_tokens=tokens if number % 2 else None)
        )
        gaps += [after - before for before, after in pairwise(times[1:])]
    page = page_of(*generations)
    for name in ("otelkit_token_step_seconds", semconv.METRIC_TIME_PER_OUTPUT_CHUNK):
        for bound in semconv.DURATION_BUCKETS:
            counted = sum(
                s.value for s in page if s.name == f"{name}_bucket" and s.labels["le"] == str(bound)
            )
            assert counted == sum(gap <= bound * 1e9 for gap in gaps)
        total = sum(sample.value for sample in page if sample.name == f"{name}_sum")
        assert total == pytest.approx(sum(gaps) / 1e9)


def test_entropy_and_repetition_are_counted_once_a_call_with_its_trace() -> None:
    """Otherwise long outputs would weigh more than short ones, or a strange output could not be opened."""
    recorded = generation(3, step_entropies=[0.5, None, 1.5], repeated_token_share=0.25)
    assert recorded.span is not None
    page = page_of(recorded)
    for name, value in (("otelkit_output_entropy_nats", 1.0), ("otelkit_repeated_token_ratio", 0.25)):
        assert by_label(page, f"{name}_count", "service") == {"chat": 1}
        assert by_label(page, f"{name}_sum", "service") == {"chat": value}
        (found,) = [sample for sample in page if sample.name == f"{name}_bucket" and sample.exemplar]
        assert found.exemplar is not None
        assert found.exemplar.value == value
        assert found.exemplar.labels["trace_id"] == f"{recorded.span.trace_id:032x}"


def test_a_value_on_a_bound_is_within_it() -> None:
    """Otherwise an output that repeats nothing would look like one that repeats a little."""
    page = page_of(
        generation(3, repeated_token_share=0.0, step_entropies=[0.05]),
        generation(3, repeated_token_share=1.0, step_entropies=[7.0]),
    )
    ratio = by_label(page, "otelkit_repeated_token_ratio_bucket", "le")
    assert (ratio["0.0"], ratio["0.95"], ratio["1.0"]) == (1, 1, 2)
    entropy = by_label(page, "otelkit_output_entropy_nats_bucket", "le")
    assert (entropy["0.05"], entropy["6.0"], entropy["+Inf"]) == (1, 1, 2)


def test_what_is_not_known_has_no_series() -> None:
    """Otherwise a provider without log probabilities would seem to have an entropy of nothing."""
    page = page_of(generation(1, step_entropies=[None], output_tokens=None), generation(0, streamed=False))
    names = {sample.name for sample in page}
    for name in ("otelkit_output_entropy_nats", "otelkit_repeated_token_ratio", "otelkit_token_step_seconds"):
        assert f"{name}_count" not in names


def test_every_reason_is_there_before_the_first_loss() -> None:
    """Otherwise Prometheus' ``increase`` would not see the first loss: its series would begin with it."""
    registry = CollectorRegistry()
    own = SelfMetrics("chat", registry)
    for name, reasons in (
        ("spans_dropped", {"buffer_full", "export_failed", "rejected_by_collector", "shut_down"}),
        ("steps_not_selected", {"parent_not_sampled", "over_rate", "over_generation_limit"}),
        ("generations_lost", {"queue_full", "fault"}),
    ):
        found = by_label(samples(registry), f"otelkit_{name}_total", "reason")
        assert found == dict.fromkeys(reasons, 0)
    own.lost(2, "fault")
    assert by_label(samples(registry), "otelkit_generations_lost_total", "reason")["fault"] == 2
