"""How well observed parameter changes are found: precision, recall, delay, one change per rollout, and cost.

    python benchmarks/change_detection.py [--seed N] [--repeats N]

Synthetic fleets of 1 to 64 workers, each with the real detector of its own, send requests; what the workers
report, and the settled values that are scraped from them every 15 s, are merged as they are when read from
Prometheus, and compared with what was really done. Prints one JSON object.

A change counts as found when the merged list has its parameter with its old and new value, first seen between
its start and the end of its rollout, or the first request that carried it (60 s of slack); everything else in
the list is a false alarm, as is a second entry for one change. The delay counts the requests that carried
the new value until a worker reports it: those of that worker, and in the whole fleet; a change that only the
fleet shows has none. Kinds beginning with "nothing" have no change; all of their reports are false alarms.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry

from otelkit import semconv
from otelkit.emit.settled_metrics import SettledMetrics
from otelkit.model import UNSET, CallSite, ParameterChange, label_text, shares_text
from otelkit.query.fleet import Settled
from otelkit.query.merge import Report, merge_reports
from otelkit.query.samples import Target
from otelkit.record.observed import ChangeDetector

FLEETS: Final = (1, 2, 4, 8, 16, 32, 64)
SITE: Final = CallSite("chat", "openai", "chat", "gpt-4o", "app.py:answer")
RARE: Final = CallSite("chat", "openai", "chat", "gpt-4o", "batch.py:nightly")
SLACK_SECONDS: Final = 60.0
SCRAPE_SECONDS: Final = 15.0
BEFORE: Final = 120
"""Requests per worker before the change; as many follow it."""

Parameters = dict[str, Any]
Draw = Callable[[random.Random, int, int], Parameters]
"""(randomness, worker, number of the request) -> parameters of a request."""


@dataclass(frozen=True)
class Truth:
    """A change that was really made."""

    parameter: str
    old: Any
    new: Any
    start: float
    end: float
    """Seconds at which the first and the last worker took it up."""
    early: float = 1.0
    """Seconds before ``start`` to which a report may date it; where shares shift, no request marks it."""


@dataclass
class Scenario:
    """Requests of a fleet in order of time, and what was done meanwhile."""

    requests: list[tuple[float, int, CallSite, Parameters]] = field(default_factory=list)
    truths: list[Truth] = field(default_factory=list)
    restarts: Mapping[int, float] = field(default_factory=dict)
    """Worker -> second at which it is replaced by a fresh process."""


# --- how requests differ from each other without any change ----------------------------------------
def _plain(rng: random.Random, worker: int, number: int) -> Parameters:
    return {"max_tokens": 256, "temperature": 0.7}


def _by_intent(rng: random.Random, worker: int, number: int) -> Parameters:
    return {"max_tokens": 256, "temperature": rng.choice([0.0, 0.0, 0.0, 0.7, 0.7, 1.0])}


def _by_user(rng: random.Random, worker: int, number: int) -> Parameters:
    return {"max_tokens": rng.choice([64, 128, 256, 256, 256, 512, 1024]), "temperature": 0.7}


def _seeds(rng: random.Random, worker: int, number: int) -> Parameters:
    return {"max_tokens": 256, "temperature": round(rng.uniform(0.2, 1.0), 3), "seed": rng.getrandbits(31)}


def _even_split(rng: random.Random, worker: int, number: int) -> Parameters:
    return {"max_tokens": 256, "temperature": rng.choice([0.2, 0.7])}


def _session(worker: int, session: int) -> Parameters:
    """All requests of a session have the settings of its user."""
    chosen = random.Random(worker * 1_000_003 + session).choice([256, 256, 512, 1024])
    return {"max_tokens": chosen, "temperature": 0.7}


def _sessions(rng: random.Random, worker: int, number: int) -> Parameters:
    """Six sessions at a time, of about a dozen requests each; they begin and end one after the other."""
    slot = rng.randrange(6)
    return _session(worker, (number + 12 * slot) // 72 * 6 + slot)


def _long_runs(rng: random.Random, worker: int, number: int) -> Parameters:
    """One session after the other, of a dozen requests each."""
    return _session(worker, number // 12)


def _sometimes_unset(rng: random.Random, worker: int, number: int) -> Parameters:
    parameters: Parameters = {"max_tokens": 256}
    if rng.random() < 0.5:
        parameters["temperature"] = rng.choice([None, 0, 0.7])
    return parameters


def _lists(rng: random.Random, worker: int, number: int) -> Parameters:
    stop = ["\n", "User:"]
    return {
        "max_tokens": 256,
        "stop": stop[:] if rng.random() < 0.9 else stop[:1],
        "safety": {"b": 1, "a": [2]},
    }


VARIATIONS: Final[dict[str, Draw]] = {
    "plain": _plain,
    "by_intent": _by_intent,
    "by_user": _by_user,
    "seeds": _seeds,
    "even_split": _even_split,
    "sessions": _sessions,
    "long_runs": _long_runs,
    "sometimes_unset": _sometimes_unset,
    "lists": _lists,
}


# --- what is done to the fleet ---------------------------------------------------------------------
def _fleet(
    rng: random.Random,
    workers: int,
    draw: Draw,
    changed: Callable[[random.Random, int, float, Parameters], Parameters],
    *,
    before: int = BEFORE,
    after: int = BEFORE,
    gap_seconds: float = 2.0,
    site: CallSite = SITE,
) -> Scenario:
    """Requests at random times, ``gap_seconds`` apart per worker on average; second 0 is in the middle."""
    scenario = Scenario()
    users = rng.randrange(10**6)  # no two fleets have the same sessions
    for worker in range(workers):
        at = -before * gap_seconds
        for number in range(before + after):
            at += rng.expovariate(1 / gap_seconds)
            drawn = draw(rng, users + worker, number)
            scenario.requests.append((at, worker, site, changed(rng, worker, at, drawn)))
    scenario.requests.sort(key=lambda request: request[0])
    return scenario


def _step(
    rng: random.Random,
    workers: int,
    draw: Draw,
    rollout_seconds: float,
    parameter: str = "max_tokens",
    **run: Any,
) -> Scenario:
    """Every worker takes up a new value at its own moment within the rollout."""
    old = {"max_tokens": 256, "top_p": UNSET, "top_k": 0}[parameter]
    new = {"max_tokens": 1024, "top_p": 0.9, "top_k": None}[parameter]
    moments = [rng.uniform(0, rollout_seconds) for _ in range(workers)]
    moments[rng.randrange(workers)] = 0.0

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        value = new if at >= moments[worker] else old
        given = {} if value is UNSET else {parameter: value}
        return {**{name: kept for name, kept in parameters.items() if name != parameter}, **given}

    scenario = _fleet(rng, workers, draw, changed, **run)
    scenario.truths.append(Truth(parameter, old, new, 0.0, max(moments)))
    return scenario


def _nothing(rng: random.Random, workers: int, draw: Draw) -> Scenario:
    return _fleet(rng, workers, draw, lambda rng, worker, at, parameters: parameters)


def _revert(rng: random.Random, workers: int, draw: Draw) -> Scenario:
    """Up and, 30 s later, back; 25 requests of each worker fall between."""

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        return {**parameters, "max_tokens": 1024 if 0 <= at < 30 else 256}

    scenario = _fleet(rng, workers, draw, changed, gap_seconds=1.2)
    scenario.truths += [
        Truth("max_tokens", 256, 1024, 0.0, 0.0),
        Truth("max_tokens", 1024, 256, 30.0, 30.0),
    ]
    return scenario


def _share(
    rng: random.Random, workers: int, draw: Draw, before: float, after: float, seconds: float
) -> Scenario:
    """The share of requests with the new value grows, request by request."""

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        share = before + (after - before) * min(1.0, max(0.0, at / seconds if seconds else float(at >= 0)))
        return {**parameters, "top_p": 0.9 if rng.random() < share else 0.5}

    scenario = _fleet(rng, workers, draw, changed)
    scenario.truths.append(Truth("top_p", 0.5, 0.9, 0.0, seconds, early=30.0))
    return scenario


def _deploy(rng: random.Random, workers: int, draw: Draw, new: int) -> Scenario:
    """Every worker is replaced within 40 s by a process that uses ``new`` from its first request on."""
    moments = {worker: rng.uniform(0, 40) for worker in range(workers)}

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        return {**parameters, "max_tokens": new if at >= moments[worker] else 256}

    scenario = _fleet(rng, workers, draw, changed)
    scenario.restarts = moments
    if new != 256:
        scenario.truths.append(Truth("max_tokens", 256, new, 0.0, 40.0))
    return scenario


def scenarios() -> Iterator[tuple[str, Callable[[random.Random, int], Scenario]]]:
    """Every kind, by name."""
    for name, draw in VARIATIONS.items():
        yield f"nothing/{name}", partial(_nothing, draw=draw)
        if name not in ("by_user", "sessions", "long_runs"):  # these vary the very parameter that changes
            yield f"reload/{name}", partial(_step, draw=draw, rollout_seconds=40.0)
    yield (
        "reload/long_lived",
        lambda rng, workers: _step(rng, workers, _by_intent, 40.0, before=700, after=150),
    )
    yield "reload/unset_to_value", lambda rng, workers: _step(rng, workers, _by_intent, 40.0, "top_p")
    yield "reload/zero_to_none", lambda rng, workers: _step(rng, workers, _by_intent, 40.0, "top_k")
    yield "rollout/10_min", lambda rng, workers: _step(rng, workers, _plain, 600.0, gap_seconds=8.0)
    yield "rollout/by_request", lambda rng, workers: _share(rng, workers, _plain, 0.0, 1.0, 120.0)
    yield (
        "rarely_used",
        lambda rng, workers: _step(
            rng, workers, _plain, 40.0, before=12, after=15, gap_seconds=60.0, site=RARE
        ),
    )
    yield "revert/30_s", lambda rng, workers: _revert(rng, workers, _plain)
    yield "ab_split/begins", lambda rng, workers: _share(rng, workers, _plain, 0.0, 0.5, 0.0)
    yield "shift/5_to_60_percent", lambda rng, workers: _share(rng, workers, _plain, 0.05, 0.6, 0.0)
    yield "deploy/same_values", lambda rng, workers: _deploy(rng, workers, _by_intent, 256)
    yield "deploy/new_value", lambda rng, workers: _deploy(rng, workers, _by_intent, 1024)


# --- detection and judgement -----------------------------------------------------------------------
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
    for at, worker, site, parameters in scenario.requests:
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
        for change in detectors[target].observe(site, parameters, at):
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
        latest = max(truth.end, begun.get(key, truth.end)) + SLACK_SECONDS
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


# --- cost ------------------------------------------------------------------------------------------
def cost_ns(draw: Draw, requests: int = 20_000) -> dict[str, float]:
    """CPU time of ``observe`` per request beyond that of an empty loop, ns: the median of seven runs."""
    rng = random.Random(1)
    drawn = [draw(rng, 0, number) for number in range(requests)]
    times = []
    for _ in range(7):
        detector = ChangeDetector()
        start = time.thread_time_ns()
        for number in range(requests):
            detector.observe(SITE, drawn[number], float(number))
        observed = time.thread_time_ns() - start
        start = time.thread_time_ns()
        for number in range(requests):
            drawn[number]
        times.append((observed - (time.thread_time_ns() - start)) / requests)
    return {"median": round(statistics.median(times)), "worst": round(max(times))}


def _summary(outcomes: list[Outcome]) -> dict[str, Any]:
    found, missed = sum(one.found for one in outcomes), sum(one.missed for one in outcomes)
    false = sum(one.false for one in outcomes)
    entries = [number for one in outcomes for number in one.entries]
    return {
        "scenarios": len(outcomes),
        "changes": found + missed,
        "precision": round(found / (found + false), 4) if found + false else None,
        "recall": round(found / (found + missed), 4) if found + missed else None,
        "false_alarms": false,
        "delay_requests": _spread([delay for one in outcomes for delay in one.delays]),
        "fleet_delay_requests": _spread([delay for one in outcomes for delay in one.fleet_delays]),
        "exactly_one_share": round(entries.count(1) / len(entries), 4) if entries else None,
    }


def _spread(values: list[int]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "p95": sorted(values)[int(0.95 * (len(values) - 1))]}


ADVERSARIAL: Final = "nothing/long_runs"
LIMITS: Final = (
    "A process that serves one session after the other, each with a value of its own, can't be told from "
    "one whose parameter changes, until it has seen a few sessions: about one such process in two reports "
    "a change (nothing/long_runs, reports_alone). The settled values of the other processes give it away "
    "where there are any; in fleets of one and two it stays. A change at a site that was used no more "
    "often before it than after it (rarely_used: 12 requests) is the same thing seen from the other side, "
    "so that a single process misses half of them. A change that comes with new processes "
    "(deploy/new_value) is known from the settled values alone, and has no delay in requests. Of a change "
    "of shares, the moment is known to about 15 requests, and below 30 percentage points it is not looked "
    "for."
)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description="Quality and cost of the detection of observed parameter changes."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2, help="fleets of each size, per kind of scenario")
    arguments = parser.parse_args()
    by_kind: dict[str, list[Outcome]] = {}
    alone: dict[str, list[Outcome]] = {}
    by_fleet: dict[int, list[Outcome]] = defaultdict(list)
    for name, build in scenarios():
        for workers in FLEETS:
            for repeat in range(arguments.repeats):
                together, reports_alone = run(
                    build(random.Random(f"{arguments.seed} {name} {workers} {repeat}"), workers)
                )
                by_kind.setdefault(name, []).append(together)
                alone.setdefault(name, []).append(reports_alone)
                by_fleet[workers].append(together)
        print(name, _summary(by_kind[name]), file=sys.stderr)
    json.dump(
        {
            "benchmark": "change_detection",
            "seed": arguments.seed,
            "all": _total(by_kind),
            "all_but_long_runs": _total(by_kind, but=ADVERSARIAL),
            "long_runs": _summary(by_kind[ADVERSARIAL]),
            "reports_alone": {
                "all": _total(alone),
                "all_but_long_runs": _total(alone, but=ADVERSARIAL),
                "long_runs": _summary(alone[ADVERSARIAL]),
            },
            "kinds": {name: _summary(outcomes) for name, outcomes in by_kind.items()},
            "fleets": {workers: _summary(outcomes) for workers, outcomes in by_fleet.items()},
            "cost_ns_per_generation": {name: cost_ns(draw) for name, draw in VARIATIONS.items()},
            "limits": LIMITS,
        },
        sys.stdout,
        indent=1,
    )
    print()


def _total(by_kind: Mapping[str, list[Outcome]], but: str = "") -> dict[str, Any]:
    return _summary([one for name, outcomes in by_kind.items() if name != but for one in outcomes])


if __name__ == "__main__":
    main()
