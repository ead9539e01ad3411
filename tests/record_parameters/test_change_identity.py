"""A change keeps its identity from the workers, through their /metrics pages, to the merged list."""

from __future__ import annotations

import random
from typing import Any

import pytest
from parameters_declared import Declared
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from otelkit import semconv
from otelkit.emit.metrics import GenerationMetrics
from otelkit.model import UNSET, ParameterChange, canonical, label_text
from otelkit.query.merge import Report, merge_reports

STEPS: list[tuple[Any, Any]] = [
    (256, 1024),
    (UNSET, 0),
    (None, False),
    ("a" * 70 + "b", "a" * 70 + "c"),
    (["\n", "User:"], []),
    ({"level": "é\n" * 60}, {"level": "low"}),
    ("\ud800", 'quote " and \\ slash'),
]


def scraped(worker: int, changes: list[ParameterChange]) -> list[Report]:
    """What a worker's page tells of its changes."""
    registry = CollectorRegistry()
    metrics = GenerationMetrics(registry)
    for change in changes:
        metrics.changed(change)
    page = generate_latest(registry).decode()
    return [
        Report(("chat", f"worker-{worker}", ""), sample.labels, sample.value)
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP
    ]


def worker(number: int, at: float, steps: list[Any]) -> list[ParameterChange]:
    """Changes of a worker that goes through ``steps``, the first of them before any call, 30 s apart."""
    declared = Declared()
    declared.time = at
    declared.store.set("route", steps[0])
    declared.store.call_begins()
    for step in steps[1:]:
        declared.store.set("route", step, origin="reload")
        declared.time += 30
    return declared.sink.changes


@pytest.mark.parametrize(("old", "new"), STEPS, ids=range(len(STEPS)))
def test_a_fleet_that_reloads_within_forty_seconds_makes_one_change(old: Any, new: Any) -> None:
    """If this fails, each worker's reload is a change of its own, or links from the list lead nowhere."""
    rng = random.Random(1)
    # 299.99 s past a multiple of five minutes: where slots of time would split the rollout.
    begin = 1_700_000_099.99
    moments = [begin, *(begin + rng.uniform(0, 40) for _ in range(15))]
    fleet = [worker(number, at, [old, new]) for number, at in enumerate(moments)]
    (merged,) = merge_reports(
        [report for number, made in enumerate(fleet) for report in scraped(number, made)]
    )
    assert merged.workers == 16
    assert merged.first_seen == begin and merged.last_seen == pytest.approx(max(moments))
    assert len({change.key for made in fleet for change in made}) == 1
    assert merged.id == fleet[0][0].id, "the id of the earliest report"
    assert merged.source is fleet[0][0].source
    for value in (merged.old, merged.new):
        assert value is UNSET or len(canonical(value)) <= 64
    assert label_text(merged.old) != label_text(merged.new)


def test_up_and_back_and_up_again_are_three_changes() -> None:
    """If this fails, a revert is swallowed, or cancels what it reverts."""
    fleet = [worker(number, 1_700_000_000.0 + number, [256, 1024, 256, 1024]) for number in range(8)]
    merged = merge_reports([report for number, made in enumerate(fleet) for report in scraped(number, made)])
    assert [(change.old, change.new, change.workers) for change in merged] == [
        (256, 1024, 8),
        (1024, 256, 8),
        (256, 1024, 8),
    ]
    assert len({change.id for change in merged}) == 3 and merged[0].key == merged[2].key
