"""How well observed parameter changes are found: precision, recall, delay, one change per rollout, and cost.

    python benchmarks/change_detection.py [--seed N] [--repeats N] [--only PREFIX]

Synthetic fleets of 1 to 64 workers, each with the real detector of its own, send requests; what the workers
report, and the settled values that are scraped from them every 15 s, are merged as they are when read from
Prometheus, and compared with what was really done.

A change counts as found when the merged list has its parameter with its old and new value, first seen between
its start and the end of its rollout, or the first request that carried it, with slack: 60 s, or three times
the mean time between a worker's requests where that is longer. Everything else in the list is a false alarm,
as is a second entry for one change. The delay counts the requests that carried the new value until a worker
reports it: those of that worker, and in the whole fleet; a change that only the fleet shows has none. Kinds
beginning with "nothing" have no change; all of their reports are false alarms.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were reached.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from bars import bar
from change_detection_fleets import FLEETS, SITE, VARIATIONS, Draw, scenarios
from change_detection_judge import Outcome, run

from otelkit.record.observed import ChangeDetector

PRECISION: Final = 0.99
RECALL: Final = 0.99
DELAY_REQUESTS: Final = 20
EXACTLY_ONE: Final = 0.99
COST_NS: Final = 2000
ROUNDS: Final = 7
LIMITS: Final = (
    "A process that serves one session after the other, each with a value of its own, can't be told from "
    "one whose parameter changes, until it has seen a few sessions: about one in two reports a change "
    "(nothing/long_runs, reports_alone), and takes it back once it knows; it does not where several sessions "
    "in a row had one value, and several after them another (nothing/runs_of_any_length). Where calls tell "
    "their session hardly any reports one (nothing/long_runs_told). A change at a site that was used less "
    "than about eight times before it (some of rarely_used) is the same thing seen from the other side. A "
    "change that comes with new processes (deploy/new_value) is known from the settled values alone, and has "
    "no delay in requests. Of a change of shares, the moment is known to about 15 requests, and below 30 "
    "percentage points it is not looked for."
)


def costs_ns(requests: int = 20_000) -> dict[str, dict[str, float]]:
    """CPU time of ``observe`` per request beyond that of an empty loop, ns, for each kind of variation. The
    least of seven rounds counts: what else runs on the machine only adds to it."""
    times: dict[str, list[float]] = {name: [] for name in VARIATIONS}
    for _ in range(ROUNDS):
        for name, draw in VARIATIONS.items():
            times[name].append(_cost_ns(draw, requests))
    return {
        name: {"least": round(min(each)), "median": round(statistics.median(each))}
        for name, each in times.items()
    }


def _cost_ns(draw: Draw, requests: int) -> float:
    rng = random.Random(1)
    drawn = [draw(rng, 0, number) for number in range(requests)]
    detector = ChangeDetector()
    start = time.thread_time_ns()
    for number in range(requests):
        parameters, session = drawn[number]
        detector.observe(SITE, parameters, float(number), session)
    observed = time.thread_time_ns() - start
    start = time.thread_time_ns()
    for number in range(requests):
        parameters, session = drawn[number]
    return (observed - (time.thread_time_ns() - start)) / requests


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


def _total(by_kind: Mapping[str, list[Outcome]]) -> dict[str, Any]:
    return _summary([one for outcomes in by_kind.values() for one in outcomes])


def _bars(total: Mapping[str, Any], costs: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    dearest = max(costs, key=lambda name: costs[name]["least"])
    return [
        bar("precision", total["precision"], at_least=PRECISION),
        bar("recall", total["recall"], at_least=RECALL),
        bar(
            "requests until a change is known, in the first worker that reports it, median",
            total["delay_requests"]["median"],
            at_most=DELAY_REQUESTS,
        ),
        bar(
            "requests until a change is known, of all workers, median",
            total["fleet_delay_requests"]["median"],
            at_most=DELAY_REQUESTS,
        ),
        bar("share of changes with exactly one entry", total["exactly_one_share"], at_least=EXACTLY_ONE),
        bar(
            f"CPU time per generation where it is highest ({dearest}), ns",
            costs[dearest]["least"],
            at_most=COST_NS,
        ),
    ]


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description="Quality and cost of the detection of observed parameter changes."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=2, help="fleets of each size, per kind of scenario")
    parser.add_argument("--only", default="", metavar="PREFIX", help="only such kinds, without bars")
    arguments = parser.parse_args()
    # First: later the process holds every fleet's outcome, and its memory is cold.
    costs = costs_ns()
    print("CPU time per generation, ns", costs, file=sys.stderr)
    by_kind: dict[str, list[Outcome]] = {}
    alone: dict[str, list[Outcome]] = {}
    by_fleet: dict[int, list[Outcome]] = defaultdict(list)
    for name, build in scenarios():
        if not name.startswith(arguments.only):
            continue
        for workers in FLEETS:
            for repeat in range(arguments.repeats):
                together, reports_alone = run(
                    build(random.Random(f"{arguments.seed} {name} {workers} {repeat}"), workers)
                )
                by_kind.setdefault(name, []).append(together)
                alone.setdefault(name, []).append(reports_alone)
                by_fleet[workers].append(together)
        print(name, _summary(by_kind[name]), file=sys.stderr)
    total = _total(by_kind)
    print(
        json.dumps(
            {
                "benchmark": "change_detection",
                "seed": arguments.seed,
                "all": total,
                "kinds": {name: _summary(outcomes) for name, outcomes in by_kind.items()},
                "fleets": {workers: _summary(outcomes) for workers, outcomes in by_fleet.items()},
                "reports_alone": {
                    "all": _total(alone),
                    "kinds": {name: _summary(outcomes) for name, outcomes in alone.items()},
                },
                "cost_ns_per_generation": costs,
                "limits": LIMITS,
                "bars": [] if arguments.only else _bars(total, costs),
            }
        )
    )


if __name__ == "__main__":
    main()
