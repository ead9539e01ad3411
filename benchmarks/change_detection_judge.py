"""Runs the detector on a fleet's requests and judges what comes out, for ``change_detection.py``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from change_detection_fleets import Scenario, Truth
from prometheus_client import CollectorRegistry

from otelkit import semconv
from otelkit.emit.settled_metrics import SettledMetrics
from otelkit.model import UNSET, ParameterChange, label_text, shares_text
from otelkit.query.fleet import Settled
from otelkit.query.merge import Report, merge_reports
from otelkit.query.samples import Target
from otelkit.record.observed import ChangeDetector

SCRAPE_SECONDS: Final = 15.0


@dataclass
class Outcome:
    """Of one scenario."""

    found: int = 0
    missed: int = 0
    false: int = 0
    delays: list[int] = field(default_factory=list)
    fleet_delays: list[int] = field(default_factory=list)
    entries: list[int] = field(default_factory=list)
    """Per change that was found: how many entries of the merged list it has."""


class _Pages:
    """What is scraped of the workers' settled values."""

    def __init__(self) -> None:
        self._due = float("-inf")
        self._found: dict[tuple[Target, tuple[tuple[str, str], ...], float], float] = {}

    def scrape(self, at: float, detectors: Mapping[Target, ChangeDetector]) -> None:
        """Scrape all workers that are there, if it is time."""
        if at < self._due:
            return
        self._due = at + SCRAPE_SECONDS
        for target, detector in detectors.items():
            registry = SettledMetrics(CollectorRegistry(), detector.settled_values)
            for family in registry.collect():
                for sample in family.samples:
                    self._found[target, tuple(sample.labels.items()), sample.value] = at

    def settled(self) -> list[Settled]:
        return [
            Settled(target, dict(labels), since, until)
            for (target, labels, since), until in self._found.items()
        ]


def run(scenario: Scenario) -> tuple[Outcome, Outcome]:
    """Send the requests through the workers' detectors, merge what they report, and compare.

    Returns:
        What is known from reports and settled values together, and what reports alone tell.
    """
    detectors: dict[Target, ChangeDetector] = defaultdict(ChangeDetector)
    lives: dict[int, int] = defaultdict(int)
    reports: list[Report] = []
    pages = _Pages()
    delays: dict[tuple[str, str], tuple[int, int]] = {}
    carried: dict[tuple[int, str, str], int] = defaultdict(int)
    in_fleet: dict[tuple[str, str], int] = defaultdict(int)
    begun: dict[tuple[str, str], float] = {}
    truths = {(truth.parameter, label_text(truth.new)): truth for truth in scenario.truths}
    for at, worker, site, parameters, session in scenario.requests:
        target = ("chat", f"worker-{worker}", str(lives[worker]))
        if not lives[worker] and at >= scenario.restarts.get(worker, float("inf")):
            lives[worker] = 1
            detectors.pop(target, None)
            target = ("chat", f"worker-{worker}", "1")
        for (name, text), truth in truths.items():
            if at >= truth.start and label_text(parameters.get(name, UNSET)) == text:
                begun.setdefault((name, text), at)
                carried[worker, name, text] += 1
                in_fleet[name, text] += 1
        for change in detectors[target].observe(site, parameters, at, session):
            reports.append(Report(target, _labels(change), change.first_seen))
            key = (change.parameter, label_text(change.new))
            delays.setdefault(key, (carried[worker, key[0], key[1]], in_fleet[key]))
        pages.scrape(at, detectors)
    return (
        _judge(scenario, merge_reports(reports, pages.settled()), delays, begun),
        _judge(scenario, merge_reports(reports), delays, begun),
    )


def _labels(change: ParameterChange) -> dict[str, str]:
    return {
        semconv.LABEL_SERVICE: change.service,
        semconv.LABEL_SCOPE: change.scope,
        semconv.LABEL_PARAMETER: change.parameter,
        semconv.LABEL_OLD: label_text(change.old),
        semconv.LABEL_NEW: label_text(change.new),
        semconv.LABEL_SOURCE: change.source.value,
        semconv.LABEL_SHARES: shares_text(change.shares),
    }


def _judge(
    scenario: Scenario,
    merged: tuple[ParameterChange, ...],
    delays: Mapping[tuple[str, str], tuple[int, int]],
    begun: Mapping[tuple[str, str], float],
) -> Outcome:
    outcome = Outcome()
    left = list(merged)
    for truth in scenario.truths:
        key = (truth.parameter, label_text(truth.new))
        latest = max(truth.end, begun.get(key, truth.end)) + scenario.slack_seconds
        fitting = [change for change in left if _fits(change, truth, latest)]
        if not fitting:
            outcome.missed += 1
            continue
        outcome.found += 1
        outcome.entries.append(len(fitting))
        if key in delays:  # else no worker saw it, only the fleet as a whole
            in_worker, in_fleet = delays[key]
            outcome.delays.append(in_worker)
            outcome.fleet_delays.append(in_fleet)
        outcome.false += len(fitting) - 1
        left = [change for change in left if change not in fitting]
    outcome.false += len(left)
    return outcome


def _fits(change: ParameterChange, truth: Truth, latest: float) -> bool:
    return (
        change.parameter == truth.parameter
        and label_text(change.old) == label_text(truth.old)
        and label_text(change.new) == label_text(truth.new)
        and truth.start - truth.early <= change.first_seen <= latest
    )
