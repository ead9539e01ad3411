"""Every panel against the Prometheus of a real demo run: real model, real load, real scrapes and rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from panel_results import Results, results

from otelkit.dashboards import documents
from otelkit.dashboards.preview import Span
from otelkit.demo.prometheus import Prometheus
from otelkit.demo.run import SPEC, Options, run
from otelkit.demo.script import BASE_SETTINGS, Moves, Script, ScriptedChange
from otelkit.demo.supervise import Supervisor, free_port
from otelkit.spec import Spec, parse_spec

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.model,
    pytest.mark.prometheus,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SECONDS = 70.0

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
        "Rule evaluation time, share of the interval / A": NO_SELF_SCRAPE,
        "Rule evaluations that failed / A": NO_SELF_SCRAPE,
    },
    "otelkit-runbook": {},
}
"""``panel / query`` that a demo run can't fill, each with its reason; whatever is not here must have data."""


@dataclass(frozen=True)
class DemoRun:
    url: str
    spec: Spec
    span: Span

    def results(self, uid: str) -> Results:
        return results(documents(self.spec)[uid], self.url, self.span)


@pytest.fixture(scope="module")
def demo_run(
    prometheus_binary: Path, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DemoRun]:
    """One run of about a minute with one change early in it; its Prometheus then opened again on the data it
    kept."""
    script = Script(
        seconds=SECONDS,
        changes=(ScriptedChange(SECONDS * 0.3, "max_tokens", 8, Moves.UP),),
        surges=(),
        base=BASE_SETTINGS,
        utilisation=0.9,
    )
    result = run(
        Options(
            output=tmp_path_factory.mktemp("demo"),
            script=script,
            model=model_path,
            prometheus=prometheus_binary,
        )
    )
    spec = parse_spec(SPEC)
    with Supervisor(tmp_path_factory.mktemp("logs")) as supervisor:
        server = Prometheus.reopen(
            supervisor, prometheus_binary, directory=result.directory, port=free_port()
        )
        explained = result.explanation
        yield DemoRun(server.url, spec, Span(explained.start, explained.end, spec.scrape_interval.seconds))


@pytest.mark.parametrize("uid", documents(parse_spec(SPEC)))
def test_every_target_returns_data_or_is_listed(uid: str, demo_run: DemoRun) -> None:
    """A panel that works with scripted series only would be empty for every user."""
    found = demo_run.results(uid)
    assert found.problems == []
    assert set(found.empty) - set(WITHOUT_DATA[uid]) == set()


@pytest.mark.parametrize("uid", documents(parse_spec(SPEC)))
def test_the_list_is_no_longer_than_it_must_be(uid: str, demo_run: DemoRun) -> None:
    """A query that has long had data would still be excused, and its next failure go unnoticed."""
    assert set(WITHOUT_DATA[uid]) - set(demo_run.results(uid).empty) == set()


def test_the_change_of_the_run_is_on_the_dashboards(demo_run: DemoRun) -> None:
    """What otelkit noticed in a real service would not reach the reader."""
    (table,) = demo_run.results("otelkit-causal").frames["Verdict on each change"]
    (row,) = table.rows()
    before = str(BASE_SETTINGS["max_tokens"])
    assert (row["parameter"], row["old"], row["new"]) == ("max_tokens", before, "8")
    assert row["verdict"] == "not judged yet"


def test_exemplars_of_the_run_are_found(demo_run: DemoRun) -> None:
    """Nobody could get from a peak to a trace."""
    from otelkit.dashboards.preview import PrometheusApi, render_preview

    with PrometheusApi(demo_run.url) as api:
        page = render_preview(documents(demo_run.spec)["otelkit-overview"], api, demo_run.span)
    assert '"exemplars":[[' in page
