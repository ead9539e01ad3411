"""Every panel against the Prometheus of a real demo run: real model, real load, real scrapes and rules."""

from __future__ import annotations

import sys

import pytest
from one_demo_run import LONG_ANSWERS, DemoRun
from panel_results import Results, results

from otelkit.dashboards import documents
from otelkit.dashboards.preview import PrometheusApi, Span, render_preview
from otelkit.demo.run import SPEC
from otelkit.demo.script import BASE_SETTINGS
from otelkit.spec import parse_spec

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.prometheus,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

NO_ANALYSER = "the demo explains its run once, at its end; verdicts come to Prometheus from the analyser"
NO_TEMPO = "the service graph comes from Tempo's metrics generator, and the demo runs no Tempo"
NO_SELF_SCRAPE = "the demo's Prometheus scrapes the service, not itself"
NO_LOGPROBS = "entropy comes from log probabilities, and the demo's service does not ask its model for them"
NOTHING_FAILED = "no call of the demo fails: there is no series to show"
TOO_SHORT = "the run is shorter than what it is compared with"

WITHOUT_DATA = {
    "otelkit-causal": {
        "Before it moved / A": NO_ANALYSER,
        "After / A": NO_ANALYSER,
        "Movement / A": NO_ANALYSER,
        "Unexplained / A": NO_ANALYSER,
        "P99 against parameter changes / D": NO_ANALYSER,
        "P99 now and before / B": TOO_SHORT,
        "Verdict on each change / effect": NO_ANALYSER,
        "Verdict on each change / low": NO_ANALYSER,
        "Verdict on each change / high": NO_ANALYSER,
        "Verdict on each change / lag": NO_ANALYSER,
        "Verdict on each change / r": NO_ANALYSER,
        "Verdict on each change / q": NO_ANALYSER,
        "Verdict on each change / threshold": NO_ANALYSER,
        "Verdict on each change / crossed": NO_ANALYSER,
        "Causal graph / nodes": NO_ANALYSER,
        "Causal graph / edges": NO_ANALYSER,
        "Causal graph / edges_secondarystat": NO_ANALYSER,
        "Causal graph / edges_thickness": NO_ANALYSER,
        "Through what: effect of causal changes by mechanism / A": NO_ANALYSER,
    },
    "otelkit-overview": {"Errors by type / A": NOTHING_FAILED},
    "otelkit-token-steps": {
        "Entropy of the output / A": NO_LOGPROBS,
        "Entropy of the output / B": NO_LOGPROBS,
    },
    "otelkit-parameters": {"Entropy of the output by $parameter / A": NO_LOGPROBS},
    "otelkit-topology": {"P95 between services (Tempo's service graph) / A": NO_TEMPO},
    "otelkit-itself": {
        "Analyser rounds / A": NO_ANALYSER,
        "Age of the data behind the verdicts / A": NO_ANALYSER,
        "Age of the data behind the verdicts / B": NO_ANALYSER,
        "Services that wait for a verdict / A": NO_ANALYSER,
        "Rule evaluation time, share of the interval / A": NO_SELF_SCRAPE,
        "Rule evaluations that failed / A": NO_SELF_SCRAPE,
    },
    "otelkit-runbook": {},
}
"""``panel / query`` that a demo run can't fill, each with its reason; whatever is not here must have data."""


def _span(run: DemoRun) -> Span:
    explained = run.result.explanation
    return Span(explained.start, explained.end, run.spec.scrape_interval.seconds)


def _results(uid: str, run: DemoRun) -> Results:
    return results(documents(run.spec)[uid], run.prometheus.url, _span(run))


@pytest.mark.parametrize("uid", documents(parse_spec(SPEC)))
def test_every_target_returns_data_or_is_listed(uid: str, demo_run: DemoRun) -> None:
    """A panel that works with scripted series only would be empty for every user."""
    found = _results(uid, demo_run)
    assert found.problems == []
    assert set(found.empty) - set(WITHOUT_DATA[uid]) == set()


@pytest.mark.parametrize("uid", documents(parse_spec(SPEC)))
def test_the_list_is_no_longer_than_it_must_be(uid: str, demo_run: DemoRun) -> None:
    """A query that has long had data would still be excused, and its next failure go unnoticed."""
    assert set(WITHOUT_DATA[uid]) - set(_results(uid, demo_run).empty) == set()


def test_the_change_of_the_run_is_on_the_dashboards(demo_run: DemoRun) -> None:
    """What otelkit noticed in a real service would not reach the reader."""
    (table,) = _results("otelkit-causal", demo_run).frames["Verdict on each change"]
    (row,) = table.rows()
    before = str(BASE_SETTINGS["max_tokens"])
    assert (row["parameter"], row["old"], row["new"]) == ("max_tokens", before, str(LONG_ANSWERS))
    assert row["verdict"] == "not judged yet"


def test_exemplars_of_the_run_are_found(demo_run: DemoRun) -> None:
    """Nobody could get from a peak to a trace."""
    with PrometheusApi(demo_run.prometheus.url) as api:
        page = render_preview(documents(demo_run.spec)["otelkit-overview"], api, _span(demo_run))
    assert '"exemplars":[[' in page
