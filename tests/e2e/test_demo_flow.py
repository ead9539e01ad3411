"""The whole flow on a real model and a real Prometheus: from a setting that somebody changes to the verdict
on it."""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import pytest
from one_demo_run import LONG_ANSWERS, DemoRun

from otelkit import semconv
from otelkit.causal import Verdict
from otelkit.demo.script import BASE_SETTINGS

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.prometheus,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

NEAR = 3
"""Seconds within which both sources must show the same."""


def test_change_is_noticed_and_found_to_have_moved_p99(demo_run: DemoRun) -> None:
    """Broken if otelkit missed a change nobody announced, or could not tell that it moved P99 up."""
    (made,) = demo_run.truth()["changes"]
    (finding,) = demo_run.result.explanation.findings
    assert (finding.change.parameter, finding.change.old, finding.change.new) == (
        "max_tokens",
        BASE_SETTINGS["max_tokens"],
        LONG_ANSWERS,
    )
    # Noticed by the first call that uses it, which comes with the next arrival.
    assert -0.5 <= finding.change.first_seen - made["at"] < 8.0
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    assert finding.effect is not None and finding.effect.low > 0


def test_effect_agrees_with_what_callers_saw(demo_run: DemoRun) -> None:
    """Broken if the effect told had another size than the one that callers met."""
    (finding,) = demo_run.result.explanation.findings
    before, after = demo_run.truth()["seen_by_callers"]
    moved = after["p99_seconds"] - before["p99_seconds"]
    assert finding.effect is not None
    assert finding.effect.low * 0.5 < moved < finding.effect.high * 2


def test_load_was_held(demo_run: DemoRun) -> None:
    """Broken if requests failed, or the rate planned was not the rate sent."""
    load = demo_run.result.load
    assert load.errors == 0
    assert load.sent == load.planned > 15


def test_token_steps_are_children_of_their_generation(demo_run: DemoRun) -> None:
    """Broken if token-step spans were lost, doubled, or not tied to the generation they belong to."""
    spans = demo_run.spans()
    steps = [span for span in spans if span["name"] == semconv.TOKEN_STEP_SPAN]
    generations = {span["spanId"]: span for span in spans if span["name"] != semconv.TOKEN_STEP_SPAN}
    assert len(generations) == demo_run.result.load.sent
    assert len({span["spanId"] for span in spans}) == len(spans)
    by_parent: dict[str, list[dict[str, Any]]] = {}
    for step in steps:
        parent = generations[step["parentSpanId"]]
        assert step["traceId"] == parent["traceId"] and len(step["traceId"]) == 32
        assert (
            int(parent["startTimeUnixNano"]) <= int(step["startTimeUnixNano"]) <= int(step["endTimeUnixNano"])
        )
        assert int(step["endTimeUnixNano"]) <= int(parent["endTimeUnixNano"])
        by_parent.setdefault(step["parentSpanId"], []).append(step)
    counts = [len(group) for group in by_parent.values()]
    assert max(counts) >= LONG_ANSWERS - 2 and min(counts) <= 6
    assert len(by_parent) == len(generations)


def test_change_is_a_log_event(demo_run: DemoRun) -> None:
    """Broken if the change were only a metric: whoever reads logs or traces would not see it."""
    text = (demo_run.result.directory / "logs.jsonl").read_text()
    assert f'"eventName":"{semconv.CHANGE_EVENT}"' in text


def test_exemplars_lead_to_traces(demo_run: DemoRun) -> None:
    """Broken if a point of the histogram could not be followed to the generation behind it."""
    explanation = demo_run.result.explanation
    metric = f"{semconv.METRIC_OPERATION_DURATION}_bucket"
    exemplars = demo_run.prometheus.exemplar_trace_ids(metric, explanation.start, explanation.end)
    traces = {span["traceId"] for span in demo_run.spans()}
    assert len(exemplars) >= 10
    assert exemplars <= traces


def test_both_sources_show_the_same_p99(demo_run: DemoRun) -> None:
    """Broken if a user without Prometheus saw another P99 than one with it."""
    ours, theirs = demo_run.panel_of_pages.services["chat"], demo_run.panel_of_prometheus.services["chat"]
    assert ours.window_seconds == theirs.window_seconds
    assert ours.bucket_bounds is not None and theirs.bucket_bounds is not None
    assert np.array_equal(ours.bucket_bounds, theirs.bucket_bounds)
    a, b = ours.quantiles[0.99], theirs.quantiles[0.99]
    # A counter's first sample is where counting begins, and the two did not begin with the same call. Once a
    # whole window has passed, both have seen the same calls.
    begin = int(np.flatnonzero(np.isfinite(a))[0] + ours.window_seconds)
    # Two scrapers never look at the same instant, and a rule is evaluated after the scrape: one source
    # shows a new answer up to two seconds before the other. So each value must agree, within one bucket's
    # interpolation, with what the other source shows about then. A busy machine delays a scrape by more than
    # that now and then, and where the P99 jumps that is a value or two; another window or another
    # arithmetic would show everywhere.
    settled = []
    agreeing = []
    for index in range(begin, len(a) - NEAR):
        about_then = b[index - NEAR : index + NEAR + 1]
        if not (np.isfinite(a[index]) and np.isfinite(about_then).all()):
            continue
        bucket = np.searchsorted(ours.bucket_bounds, a[index])
        lowest, highest = np.searchsorted(ours.bucket_bounds, [about_then.min(), about_then.max()])
        agreeing.append(lowest - 1 <= bucket <= highest + 1)
        if lowest == highest:
            settled.append(abs(a[index] / b[index] - 1))
    assert len(agreeing) > 15 and np.mean(agreeing) > 0.9
    assert len(settled) > 5 and np.median(settled) < 0.05


def test_page_and_json_are_there(demo_run: DemoRun) -> None:
    """Broken if the run ended without the page, or the page without its verdict."""
    page = demo_run.result.page.read_text()
    assert page.startswith("<!") and "max_tokens" in page and "causal" in page
    document = json.loads((demo_run.result.directory / "report.json").read_text())
    assert document["explanations"][0]["findings"][0]["verdict"] == "causal"


def test_nothing_is_left_running(demo_run: DemoRun) -> None:
    """Broken if the model server, the service or Prometheus outlived the run."""
    assert demo_run.children_left == set()
