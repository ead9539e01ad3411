"""What stands on the /metrics page, read back by prometheus_client's own OpenMetrics parser."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from emit_generations import SITE, generation, identity
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from otelkit import semconv
from otelkit.emit.histogram import BulkHistogram, duration_bounds
from otelkit.emit.metrics import MAX_CHANGES, MAX_ERROR_TYPES, GenerationMetrics
from otelkit.model import CallSite, ChangeSource, Outcome, ParameterChange
from otelkit.record.times import Lanes

CALL = {
    "service": "chat",
    "gen_ai_operation_name": "chat",
    "gen_ai_provider_name": "openai",
    "gen_ai_request_model": "some-model",
}


def samples(registry: CollectorRegistry) -> list[Sample]:
    page = generate_latest(registry).decode()
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def values(registry: CollectorRegistry, name: str, **labels: str) -> list[float]:
    return [
        sample.value
        for sample in samples(registry)
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


@pytest.fixture
def registry() -> Iterator[CollectorRegistry]:
    yield CollectorRegistry()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 200_000_000_000), min_size=1, max_size=30), max_size=5))
def test_bulk_updates_equal_single_ones(batches: list[list[int]]) -> None:
    """Otherwise quantiles from our buckets would not be those of the latencies."""
    page = CollectorRegistry()
    bulk, part, one_by_one = (
        BulkHistogram(name, "", buckets=semconv.DURATION_BUCKETS, registry=page)
        for name in ("bulk", "part", "one")
    )
    single = Histogram("single", "", buckets=semconv.DURATION_BUCKETS, registry=page)
    # Values on the bounds themselves as well.
    batches.append([int(bound * 1e9) for bound in semconv.DURATION_BUCKETS])
    # All in one bucket, several times over, and then not.
    batches += [
        [20_000_000] * 3,
        [10_000_001] * 7,
        [15_000_000, 20_000_000],
        [15_000_000, 20_000_001],
        [1, 2],
    ]
    for batch in batches:
        lanes = Lanes(sum(value << 64 * i for i, value in enumerate(batch)), len(batch))
        half = len(batch) // 2
        bulk.add_parts(
            lanes,
            [(part, 0, half, sum(batch[:half])), (part, half, len(batch), sum(batch[half:]))],
            1_000_000_000,
        )
        for value in batch:
            one_by_one.add(value, 1_000_000_000)
            single.observe(value / 1e9)
    for name in ("bulk", "part", "one"):
        for suffix in ("_bucket", "_count"):
            assert values(page, name + suffix) == values(page, "single" + suffix)
        assert values(page, f"{name}_sum") == pytest.approx(values(page, "single_sum"))


def test_bounds_are_sharpened_around_objectives() -> None:
    """Otherwise an 85 ms shift at a 0.8 s objective lies within one bucket and can't be seen."""
    bounds = duration_bounds((0.8, 1.5))
    assert set(semconv.DURATION_BUCKETS) < set(bounds)
    assert {0.72, 0.8, 0.88, 1.35, 1.5, 1.65} < set(bounds)
    assert list(bounds) == sorted(set(bounds))
    assert duration_bounds(()) == semconv.DURATION_BUCKETS


def test_a_generation_is_counted_once_in_every_metric(registry: CollectorRegistry) -> None:
    """Otherwise load, latency, first token, token rate or usage would be missing or doubled."""
    metrics = GenerationMetrics(registry)
    metrics.started(SITE)
    assert values(registry, "otelkit_generations_started_total", **CALL) == [1]
    assert values(registry, "otelkit_generations_in_flight", service="chat") == [1]
    metrics.ended(generation(11, gap_ns=50_000_000, input_tokens=7), traced=True)
    assert values(registry, "otelkit_generations_in_flight", service="chat") == [0]
    for name, count, total in (
        ("gen_ai_client_operation_duration_seconds", 1, 0.55),
        ("gen_ai_client_operation_time_to_first_chunk_seconds", 1, 0.05),
        ("gen_ai_client_operation_time_per_output_chunk_seconds", 10, 0.5),
    ):
        assert values(registry, f"{name}_count", **CALL) == [count]
        assert values(registry, f"{name}_sum", **CALL) == pytest.approx([total])
    assert values(registry, "gen_ai_client_token_usage_sum", gen_ai_token_type="input") == [7]
    assert values(registry, "gen_ai_client_token_usage_sum", gen_ai_token_type="output") == [11]


def test_calls_that_are_not_streamed_have_no_first_token_time(registry: CollectorRegistry) -> None:
    """Otherwise the whole duration of such calls would spoil the first-token latency of the others."""
    metrics = GenerationMetrics(registry)
    metrics.ended(generation(0, streamed=False, output_tokens=None), traced=True)
    assert values(registry, "gen_ai_client_operation_duration_seconds_count") == [1]
    assert values(registry, "gen_ai_client_operation_time_to_first_chunk_seconds_count") == [0]
    assert values(registry, "gen_ai_client_token_usage_count") == [0, 0]


def exemplars(registry: CollectorRegistry) -> Sequence[Sample]:
    return [sample for sample in samples(registry) if sample.exemplar is not None]


def test_each_histogram_gets_one_exemplar_with_the_trace(registry: CollectorRegistry) -> None:
    """Otherwise nobody gets from a bucket on a dashboard to a trace that fell into it."""
    recorded = generation(10, input_tokens=5)
    assert recorded.span is not None
    GenerationMetrics(registry).ended(recorded, traced=True)
    found = exemplars(registry)
    assert len({sample.name for sample in found}) == 4
    assert len(found) == 5  # token usage has two series
    for sample in found:
        assert sample.exemplar is not None
        assert sample.exemplar.labels == {
            "trace_id": f"{recorded.span.trace_id:032x}",
            "span_id": f"{recorded.span.span_id:016x}",
        }


def test_each_scrape_shows_the_latest_exemplar_of_a_bucket(registry: CollectorRegistry) -> None:
    """Otherwise a dashboard would lead for ever to the first trace, which its store has long forgotten."""
    metrics = GenerationMetrics(registry)
    for span in (identity(), identity()):
        metrics.ended(generation(10, span=span, input_tokens=5), traced=True)
        metrics.ended(generation(10, span=None, input_tokens=5), traced=False)
        for sample in exemplars(registry):
            assert sample.exemplar is not None
            assert sample.exemplar.labels["trace_id"] == f"{span.trace_id:032x}"
        assert len(exemplars(registry)) == 5


@pytest.mark.parametrize("span", [None, identity(sampled=False)])
def test_no_exemplar_points_to_a_trace_that_is_not_exported(
    registry: CollectorRegistry, span: object
) -> None:
    """Otherwise a click on an exemplar would lead to "trace not found"."""
    GenerationMetrics(registry).ended(generation(10, span=span), traced=False)
    assert exemplars(registry) == []
    assert values(registry, "gen_ai_client_operation_duration_seconds_count") == [1]


def test_errors_are_apart_by_type(registry: CollectorRegistry) -> None:
    """Otherwise failures, which are often quick, would improve the latency of successes."""
    metrics = GenerationMetrics(registry)
    metrics.ended(generation(3), traced=True)
    metrics.ended(generation(3, outcome=Outcome.ERROR, error_type="Timeout"), traced=True)
    assert values(registry, "gen_ai_client_operation_duration_seconds_count", error_type="") == [1]
    assert values(registry, "gen_ai_client_operation_duration_seconds_count", error_type="Timeout") == [1]


def test_the_number_of_series_is_bounded(registry: CollectorRegistry) -> None:
    """Otherwise a service that lets users name models, or numbered errors, would flood Prometheus."""
    metrics = GenerationMetrics(registry, label_sets=5)
    for i in range(500):
        site = CallSite("chat", "openai", "chat", f"model-{i}", f"file{i}.py:f")
        metrics.started(site)
        metrics.ended(generation(3, call_site=site, error_type=f"Error{i}"), traced=True)
    models = {
        sample.labels["gen_ai_request_model"]
        for sample in samples(registry)
        if sample.name == "otelkit_generations_started_total"
    }
    assert models == {f"model-{i}" for i in range(5)} | {semconv.OTHER}
    assert sum(values(registry, "otelkit_generations_started_total")) == 500
    errors = {
        sample.labels["error_type"]
        for sample in samples(registry)
        if sample.name == "gen_ai_client_operation_duration_seconds_count"
    }
    assert len(errors) == MAX_ERROR_TYPES + 1
    assert sum(values(registry, "gen_ai_client_operation_duration_seconds_count")) == 500


def change(number: int = 0, **other: object) -> ParameterChange:
    fields: dict[str, object] = {
        "service": "chat",
        "parameter": "max_tokens",
        "old": 256,
        "new": 1024,
        "first_seen": 1_764_000_000.25 + number,
        "last_seen": 1_764_000_030.0 + number,
        "source": ChangeSource.DECLARED,
        "scope": "some-model",
    }
    return ParameterChange(**{**fields, **other})  # type: ignore[arg-type]


def test_changes_can_be_rebuilt_from_the_page(registry: CollectorRegistry) -> None:
    """Otherwise the list of changes would be lost with the process that saw them."""
    metrics = GenerationMetrics(registry)
    made = change()
    assert metrics.changed(made)
    assert not metrics.changed(made)
    (dated,) = [s for s in samples(registry) if s.name == "otelkit_parameter_change_timestamp_seconds"]
    assert dated.value == 1_764_000_000.25
    assert dated.labels == {
        "service": "chat",
        "parameter": "max_tokens",
        "old": "256",
        "new": "1024",
        "source": "declared",
        "scope": "some-model",
        "change_id": made.id,
        "origin": "",
        "shares": "",
    }
    assert values(registry, "otelkit_parameter_changes_total", parameter="max_tokens", source="declared") == [
        1
    ]


def test_dated_changes_are_bounded_and_the_oldest_goes(registry: CollectorRegistry) -> None:
    """Otherwise a service that changes a parameter every minute would grow by a series each time."""
    metrics = GenerationMetrics(registry)
    for number in range(MAX_CHANGES + 10):
        metrics.changed(change(number))
    dated = values(registry, "otelkit_parameter_change_timestamp_seconds")
    assert len(dated) == MAX_CHANGES
    assert min(dated) == change(10).first_seen
    assert values(registry, "otelkit_parameter_changes_total") == [MAX_CHANGES + 10]


def test_metrics_can_be_registered_again(registry: CollectorRegistry) -> None:
    """Otherwise instrumenting a second time would fail with a duplicate."""
    GenerationMetrics(registry).unregister()
    GenerationMetrics(registry)


MULTIPROCESS = """
    import logging, os, sys, time, urllib.request
    logging.basicConfig(format="%(message)s")
    sys.path.insert(0, sys.argv[1])
    from emit_generations import SITE, generation
    import otelkit

    child = os.fork()
    handle = otelkit.instrument()
    from otelkit.record import instrumentation
    for number in range(20):
        given = {"max_tokens": 256 if child else 512}
        instrumentation.runtime().detector.observe(SITE, given, 100.0 + number)
    handle.sink.generation_started(lambda: SITE)
    handle.sink.generation(generation)
    assert handle.flush()
    if child == 0:
        handle.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    request = urllib.request.Request(handle.metrics_url, headers={"accept": "application/openmetrics-text"})
    print(urllib.request.urlopen(request).read().decode(), end="")
"""


def test_prometheus_multiprocess_mode_sums_processes_and_says_what_it_lacks(tmp_path: Path) -> None:
    """Otherwise a server with several workers would show one of them, or fail on exemplars."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MULTIPROCESS), str(Path(__file__).parent)],
        env={
            **os.environ,
            "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            "OTEL_SERVICE_NAME": "chat",
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    families = list(text_string_to_metric_families(run.stdout))
    page = {(s.name, s.labels.get("error_type")): s.value for family in families for s in family.samples}
    settled = {
        (sample.labels["value"], sample.value, bool(sample.labels["pid"]))
        for family in families
        for sample in family.samples
        if sample.name == semconv.METRIC_PARAMETER_SETTLED
    }
    assert settled == {("256", 100.0, True), ("512", 100.0, True)}
    assert page["otelkit_parameter_evictions_total", None] == 0
    assert page["gen_ai_client_operation_duration_seconds_count", ""] == 2
    assert page["otelkit_generations_started_total", None] == 2
    assert page["otelkit_generations_in_flight", None] == 0
    assert run.stderr.count("multiprocess mode keeps no exemplars") == 2  # once in each process
