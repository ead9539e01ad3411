"""Both sources against a real Prometheus: one scripted run with errors, a restart, a gap and a change."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pytest
from live import BOUNDS, ScriptedService, prometheus, serve

from otelkit import semconv
from otelkit.query import PrometheusSource, ScrapeSource
from otelkit.query.assemble import quantiles
from otelkit.query.samples import Grid, RawData
from otelkit.spec import Duration, Service, Slo, Spec

pytestmark = pytest.mark.prometheus

SPEC = Spec(
    services=(Service(name="chat", depends_on=("calm",)), Service(name="calm", controls=())),
    slos=(Slo(latency=0.64), Slo(errors=0.01)),
    base_window=Duration.parse("5s"),
    windows=(Duration.parse("3s"), Duration.parse("4s")),
    scrape_interval=Duration.parse("500ms"),
    evaluation_interval=Duration.parse("1s"),
)


@dataclass
class Run:
    prometheus: PrometheusSource
    pages: ScrapeSource
    start: float
    end: float
    changed: float
    chat: ScriptedService
    calm: ScriptedService


@pytest.fixture(scope="module")
def run(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run in which both sources could scrape in time; on a busy machine it is begun anew."""
    for attempt in range(3):
        with scripted(prometheus_binary, tmp_path_factory.mktemp("prometheus")) as done:
            if attempt == 2 or all(kept_up(source, done) for source in (done.prometheus, done.pages)):
                yield done
                return


def kept_up(source: PrometheusSource | ScrapeSource, run: Run) -> bool:
    """Whether no scrape of the page that never fails was missed or late."""
    (scrapes,) = RawData(source._raw(SPEC.service("calm"), run.start, run.end)).scrapes.values()
    return scrapes.interval_ms < 550 and bool((np.diff(scrapes.times_ms) < 1100).all())


@contextlib.contextmanager
def scripted(prometheus_binary: Path, directory: Path) -> Iterator[Run]:
    """Two services; `chat` restarts after 4 s, its page fails from 6 to 8.5 s, it slows after 9 s."""
    chat, calm = ScriptedService("chat", 1), ScriptedService("calm", 2)
    with contextlib.ExitStack() as stack:
        urls = [stack.enter_context(serve(service)) for service in (chat, calm)]
        address = stack.enter_context(prometheus(prometheus_binary, directory, SPEC, urls))
        pages = stack.enter_context(ScrapeSource(urls, SPEC, interval=0.5))
        time.sleep(1.2)
        start = time.time()
        changed, restarted = 0.0, False
        while (passed := time.time() - start) < 14:
            if passed > 4 and not restarted:
                restarted = True
                chat.restart()
            chat.down = 6 < passed < 8.5
            if passed > 9 and not changed:
                changed = time.time()
                chat.change("max_tokens", "8", "24", changed)
            chat.call(0.5 if changed else 0.15, error="timeout" if len(chat.calls) % 10 == 0 else "")
            calm.call()
            time.sleep(0.02)
        time.sleep(1.2)
        pages.stop()
        source = stack.enter_context(PrometheusSource(address, SPEC))
        yield Run(source, pages, start, start + 14, changed, chat, calm)


def test_the_arithmetic_is_that_of_prometheus(run: Run) -> None:
    """From the same samples, our rate and histogram_quantile give what Prometheus gives: else the two ways of
    reading P99 would tell different stories about one service."""
    for name in ("chat", "calm"):
        service = SPEC.service(name)
        grid = Grid.between(run.start + 3, run.end, 0.37)
        data = RawData(run.prometheus._raw(service, run.start - 5, run.end))
        for window in ("1500ms", "3s", "4300ms"):
            seconds = Duration.parse(window).seconds
            ours = quantiles(data, service, grid, seconds, semconv.RECORDED_QUANTILES)
            for quantile, values in ours.items():
                theirs = run.prometheus._range(
                    f"histogram_quantile({quantile}, sum by (le) (rate("
                    f'{semconv.METRIC_OPERATION_DURATION}_bucket{{service="{name}"}}[{window}])))',
                    grid,
                )
                assert theirs is not None
                np.testing.assert_array_equal(np.isnan(values), np.isnan(theirs))
                np.testing.assert_allclose(values, theirs, rtol=1e-9)
        assert np.isfinite(ours[0.99]).mean() > 0.7


def test_both_sources_read_the_same_p99(run: Run) -> None:
    """The recorded P99 and the one from pages scraped in process agree within one bucket, although
    their scrapes fall at different moments."""
    recorded = run.prometheus.panel(["chat", "calm"], run.start + 3, run.end, 0.5, window_seconds=4)
    scraped = run.pages.panel(["chat", "calm"], run.start + 3, run.end, 0.5, window_seconds=4)
    assert run.prometheus.warnings == ()
    edges = np.concatenate(([0.0], BOUNDS))
    for name in ("chat", "calm"):
        for quantile in semconv.RECORDED_QUANTILES:
            one, other = (panel.services[name].quantiles[quantile] for panel in (recorded, scraped))
            known = np.isfinite(one)
            assert known.mean() > 0.8
            width = np.diff(edges)[np.clip(np.searchsorted(edges, one) - 1, 0, len(edges) - 2)]
            # A rule is evaluated up to a second before the step's end, so steps within a second are compared.
            near = np.stack([np.roll(other, shift) for shift in (-1, 0, 1, 2)])
            close = (np.abs(near - one) <= width + 1e-9).any(axis=0)
            assert close[known][2:-2].mean() > 0.9


def test_counts_are_whole_and_complete(run: Run) -> None:
    """Each call of a service without gaps is counted once, in its bucket; `increase` would give fractions."""
    for source in (run.prometheus, run.pages):
        series = source.panel(["calm"], run.start + 1, run.end + 1, 1).services["calm"]
        assert series.bucket_counts is not None and series.bucket_bounds is not None
        assert np.isfinite(series.bucket_counts).all()
        truth = np.histogram(run.calm.calls, bins=[0, *BOUNDS, np.inf])[0]
        np.testing.assert_allclose(series.bucket_counts.sum(axis=0), truth)
        np.testing.assert_allclose(series.bucket_bounds, [*BOUNDS, np.inf])


def ended(service: ScriptedService, since: float, until: float) -> int:
    """Calls that ended between two Unix times."""
    times = np.array(service.ended)
    return int(((times > since) & (times <= until)).sum())


def test_a_gap_is_unknown_and_a_restart_is_not_a_fall(run: Run) -> None:
    """Steps in which the page failed hold no counts; a restart gives no negative ones and hides no calls."""
    for source in (run.prometheus, run.pages):
        panel = source.panel(["chat"], run.start + 1, run.end, 1)
        series = panel.services["chat"]
        assert series.bucket_counts is not None
        passed = panel.times - run.start
        unknown = np.isnan(series.bucket_counts).any(axis=1)
        assert unknown[(passed > 7) & (passed < 8.5)].all()
        assert not unknown[(passed < 5.5) | (passed > 10.5)].any()
        assert (series.bucket_counts[~unknown] >= 0).all()
        for since, until in ((1, 5), (11, 14)):
            steps = (passed > since) & (passed < until + 0.5)
            truth = ended(run.chat, run.start + passed[steps][0] - 1, run.start + passed[steps][-1])
            # At both ends a step reaches to the scrape before it; a restart loses what was not scraped yet.
            assert series.bucket_counts[steps].sum() == pytest.approx(truth, abs=0.5 / 0.02 * 2 + 3)


def test_covariates_are_what_happened(run: Run) -> None:
    """Arrivals, completions, errors, tokens, calls under way: a wrong one would be adjusted for."""
    for source in (run.prometheus, run.pages):
        panel = source.panel(["chat"], run.start + 11, run.end, 1)
        found = panel.services["chat"].covariates
        known = np.flatnonzero(np.isfinite(found["completions"]))
        steps = next(iter(np.split(known, np.flatnonzero(np.diff(known) > 1) + 1)))
        counted = found["completions"][steps].sum()
        # A step reaches from scrape to scrape, and on a busy machine those are late.
        (scrapes,) = RawData(source._raw(SPEC.service("chat"), run.start, run.end)).scrapes.values()
        edges = np.array([panel.times[steps[0]] - 1, panel.times[steps[-1]]])
        since, until = (
            scrapes.times_ms[np.searchsorted(scrapes.times_ms, edges * 1000, side="right") - 1] / 1000
        )
        assert (
            ended(run.chat, since + 0.5, until - 0.5) <= counted <= ended(run.chat, since - 0.5, until + 0.5)
        )
        rate = np.nanmean(found["completions"])
        np.testing.assert_allclose(found["arrivals"], found["completions"])
        assert np.nanmean(found["errors"]) == pytest.approx(rate / 10, rel=0.35)
        assert np.nanmean(found["output_tokens"]) == pytest.approx(20)
        assert np.nanmean(found["input_tokens"]) == pytest.approx(100)
        assert np.nanmean(found["in_flight"]) == pytest.approx(3)
        assert "time_to_first_chunk" not in found


def test_changes_and_services_are_found(run: Run) -> None:
    """Without these `otelkit explain` would have nothing to explain."""
    for source in (run.prometheus, run.pages):
        assert source.service_names(run.start, run.end) == ("calm", "chat")
        (change,) = source.changes(run.start, run.end)
        assert (change.service, change.parameter, change.old, change.new) == ("chat", "max_tokens", 8, 24)
        assert change.first_seen == pytest.approx(run.changed, abs=0.001)
        assert source.changes(run.start, run.changed - 1) == ()
        assert source.changes(run.start, run.end, "calm") == ()


def test_what_the_spec_says_of_services_is_passed_on(run: Run) -> None:
    """Else a dependency would be taken for a control, and a service told that nothing happened to it."""
    panel = run.pages.panel(None, run.start + 1, run.end, 1)
    assert sorted(panel.services) == ["calm", "chat"]
    assert panel.dependencies == {"chat": ("calm",)} and panel.controls == {"calm": ()}


def test_the_changes_command_lists_them(run: Run) -> None:
    """`otelkit changes` through the real command, from Prometheus and from a page, as table and JSON."""
    command = [str(Path(sys.executable).with_name("otelkit")), "changes", "--since", "5m"]
    for place in (["--prometheus", run.prometheus.address], ["--metrics", run.pages.address.split(", ")[0]]):
        table = subprocess.run([*command, *place], capture_output=True, text=True, check=True).stdout
        assert "max_tokens 8 -> 24" in table and "chat" in table
        done = subprocess.run(
            [*command, *place, "--format", "json"], capture_output=True, text=True, check=True
        )
        document = json.loads(done.stdout)
        assert document["version"] == 1
        (change,) = document["changes"]
        assert (change["parameter"], change["old"], change["new"], change["source"]) == (
            "max_tokens",
            "8",
            "24",
            "observed",
        )


def test_prometheus_evaluates_every_rule_without_fault(run: Run) -> None:
    """promtool only reads rules; a server finds that two write the same series, or that labels clash."""
    groups = httpx.get(f"{run.prometheus.address}/api/v1/rules", timeout=10).json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} >= {semconv.RECORDED_P99, "OtelkitErrorBudgetBurn"}
    assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []


def test_a_window_without_rules_is_computed_and_said(run: Run) -> None:
    """Where no rule records the window, P99 is still there, with a warning instead of silent emptiness."""
    with PrometheusSource(run.prometheus.address, SPEC) as source:
        panel = source.panel(["calm"], run.start + 5, run.end, 1, window_seconds=3.5)
        assert np.isfinite(panel.services["calm"].quantiles[0.99]).all()
        assert any("quantile_3s500ms" in warning for warning in source.warnings)
