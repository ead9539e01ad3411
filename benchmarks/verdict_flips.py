"""How often a verdict that was given is replaced by another as data comes in.

    python -m benchmarks.verdict_flips [--seeds 2] [--first-seed 1000] [--kinds plain surge ...]
                                       [--cache DIR] [--workers N]

Each change of the causal benchmark's scenarios is asked about again and again, from one minute after it on,
with the data that there are by then, and once more with all data. Three ways of asking: the causal engine
alone, all whose answers count; ``otelkit explain``, which says "too early" of what may yet change; and the
analyser, which looks a handful of times and remembers.

A **flip** is a given verdict ("too early" is none) that differs from the one given before, whichever two they
are. A **contradiction** is one between "causal", "correlated only" and "no effect": "cannot separate" that
gives way to one of these is an answer that came late, and is counted as a flip alone. The goal holds for
flips. A **withdrawal** is a verdict that "too early" follows.

Few flips are worth nothing if nothing is said, or something wrong. So there are also the time until the first
verdict, by what the change really did, and how right the last verdict is.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met. Seeds below 1000 are for tuning.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.causal import kinds, scoring
from benchmarks.causal.__main__ import load
from benchmarks.causal.world import Planted, Scenario, Truth
from otelkit.analyse.looks import LAST_SECONDS, Judgement, look, looked_back, looks
from otelkit.analyse.settled import Earlier
from otelkit.causal import Finding, Verdict
from otelkit.model import ParameterChange

ASKED_SECONDS = (60, 120, 180, 240, 360, 480, 600, 720, 900, 1080, 1320, 1800, math.inf)
"""Seconds after a change; the analyser's own looks are among them. The last one is the end of all data."""
FEW_FLIPS = 0.05
"""Share of changes that may see a flip."""
WAYS = ("engine", "explain", "analyser")
SIZES = ((scoring.LARGE, "25 % and more"), (0.1, "10 to 25 %"), (0.05, "5 to 10 %"), (0.0, "none"))
"""True effect on P99, at least, and what changes with such an effect are called."""


@dataclass
class Told:
    """What was said of one change in one way, in order of time."""

    asked: list[float] = field(default_factory=list)
    """Seconds after the change."""
    findings: list[Finding | None] = field(default_factory=list)
    """None while it was too early."""

    def add(self, after: float, finding: Finding | None) -> None:
        self.asked.append(after)
        # Placebos are of no use here, and weigh most of what is kept of a change.
        self.findings.append(finding and replace(finding, placebo_effects=None))

    @property
    def replaced(self) -> list[tuple[Verdict, Verdict]]:
        """Each flip as the verdict that was given up and the one that took its place."""
        given = [finding.verdict for finding in self.findings if finding is not None]
        return [(one, other) for one, other in itertools.pairwise(given) if one is not other]

    @property
    def contradictions(self) -> int:
        return sum(Verdict.CANNOT_SEPARATE not in pair for pair in self.replaced)

    @property
    def causal_flips(self) -> int:
        """Those that a reader may have acted on: to or from causal."""
        return sum(Verdict.CAUSAL in pair for pair in self.replaced)

    @property
    def withdrawals(self) -> int:
        return sum(one is not None and other is None for one, other in itertools.pairwise(self.findings))

    @property
    def first_seconds(self) -> float | None:
        """Seconds after the change at which a verdict was first given."""
        pairs = zip(self.asked, self.findings, strict=True)
        return next((after for after, finding in pairs if finding is not None), None)


@dataclass(frozen=True)
class Followed:
    """One change, what is true of it, and what was said of it in each way."""

    kind: str
    seed: int
    planted: Planted
    truth: Truth
    told: dict[str, Told]

    def case(self, finding: Finding) -> scoring.Case:
        """A verdict as the causal benchmark scores it."""
        ratio = finding.effect_ratio
        moved = float(np.log1p(ratio.value)) if ratio else None
        answer = scoring.Answer(finding.verdict is Verdict.CAUSAL, finding.verdict.value, moved)
        return scoring.Case(self.kind, self.seed, self.planted, self.truth, answer)

    @property
    def size(self) -> str:
        moved = abs(float(np.expm1(self.truth.log_ratio)))
        return next(name for least, name in SIZES if moved >= least)


def follow(scenario: Scenario, change: ParameterChange, earlier: Earlier) -> dict[str, Told]:
    """Ask about one change as its data come in."""
    told = {way: Told() for way in WAYS}
    step, times = scenario.panel.step_seconds, scenario.panel.times
    judgement = Judgement(change)
    due = list(looks(change, step))
    for after in ASKED_SECONDS:
        at = min(change.last_seen + after, float(times[-1]))
        if math.isfinite(after) and change.last_seen + after > times[-1]:
            continue
        until = float(times[np.searchsorted(times, at)])
        finding = earlier.finding(change, until)
        assert finding is not None
        told["engine"].add(after, finding)
        back = looked_back(change, partial(earlier.finding, change), until, step)
        told["explain"].add(after, back.finding)
        if due and until >= due[0]:
            due = [one for one in due if one > until]
            judgement = look(judgement, finding, until, step)
        told["analyser"].add(after, judgement.finding)
    return told


def followed(job: tuple[str, int], cache: Path | None) -> list[Followed]:
    """All changes of one scenario; those so near the end that nothing of them was seen are left out."""
    kind, seed = job
    scenario = load(cache, kind, seed)
    services = {change.service for change in scenario.changes}
    earlier = {name: Earlier(scenario.panel, name, scenario.changes) for name in services}
    result = []
    for number, change in enumerate(scenario.changes):
        if change.last_seen + ASKED_SECONDS[0] <= scenario.panel.times[-1]:
            told = follow(scenario, change, earlier[change.service])
            truth = replace(scenario.truths[number], without=None)
            result.append(Followed(kind, seed, scenario.planted[number], truth, told))
    return result


def summary(way: str, every: Sequence[Followed]) -> dict[str, Any]:
    """Figures of one way over all changes."""
    told = [one.told[way] for one in every]

    def share(flags: Iterator[bool]) -> float:
        return round(sum(flags) / len(told), 4)

    final = [one.case(last) for one in every if (last := one.told[way].findings[-1]) is not None]
    return {
        "changes": len(told),
        "flips": sum(len(one.replaced) for one in told),
        "changes_with_flips": share(bool(one.replaced) for one in told),
        "changes_with_contradictions": share(one.contradictions > 0 for one in told),
        "changes_with_flips_of_causal": share(one.causal_flips > 0 for one in told),
        "replaced": dict(Counter(f"{a.value} -> {b.value}" for one in told for a, b in one.replaced)),
        "changes_with_withdrawals": share(one.withdrawals > 0 for one in told),
        "too_early_after_a_minute": share(one.findings[0] is None for one in told),
        "seconds_to_first_verdict": waits(way, every),
        "last_verdict": right(final),
    }


def waits(way: str, every: Sequence[Followed]) -> dict[str, Any]:
    """Seconds until the first verdict, by the true effect. Changes that the data end too soon after are left
    out."""
    result = {}
    for _, name in SIZES:
        firsts = [one.told[way].first_seconds for one in every if one.size == name and _seen_out(one)]
        given = [first for first in firsts if first is not None]
        if given:
            median, most = np.quantile(given, (0.5, 0.9), method="inverted_cdf")
            before = sum(first < LAST_SECONDS for first in given) / len(firsts)
            result[name] = {
                "changes": len(firsts),
                "median": float(median),
                "90th_percentile": float(most),
                "before_the_last_look": round(before, 3),
            }
    return result


def _seen_out(one: Followed) -> bool:
    """Whether there are data up to the last look."""
    return LAST_SECONDS in one.told["engine"].asked


def right(cases: Sequence[scoring.Case]) -> dict[str, Any]:
    """How right verdicts are."""
    figures = scoring.figures(cases)
    names = ("changes", "real", "precision", "recall", "f1", "recall_large", "three_way_accuracy")
    return {name: figures[name] for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_flips", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--kinds", nargs="*", default=list(kinds.KINDS), choices=list(kinds.KINDS))
    parser.add_argument("--cache", type=Path, help="folder to keep simulated scenarios in")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    jobs = [(kind, seed) for seed in seeds for kind in options.kinds]
    every: list[Followed] = []
    with ProcessPoolExecutor(options.workers) as pool:
        for job, some in zip(jobs, pool.map(partial(followed, cache=options.cache), jobs), strict=True):
            every += some
            flips = sum(len(one.told["explain"].replaced) for one in every)
            print(*job, f"{len(every)} changes, {flips} flips so far", file=sys.stderr)
    ways = {way: summary(way, every) for way in WAYS}
    seen_out = [one for one in every if _seen_out(one)]
    at_last = [one.told["engine"].findings[one.told["engine"].asked.index(LAST_SECONDS)] for one in seen_out]
    ways["engine"]["verdict_at_the_last_look"] = right(
        [one.case(finding) for one, finding in zip(seen_out, at_last, strict=True) if finding is not None]
    )
    bars = [
        {
            "name": f"share of changes with {figure.removeprefix('changes_with_').replace('_', ' ')}, {way}",
            "value": ways[way][figure],
            "goal": f"<= {FEW_FLIPS:g}",
            "ok": ways[way][figure] <= FEW_FLIPS,
        }
        for way in ("explain", "analyser")
        for figure in ("changes_with_flips", "changes_with_flips_of_causal")
    ]
    by_kind: dict[str, int] = defaultdict(int)
    for one in every:
        by_kind[one.kind] += len(one.told["explain"].replaced)
    result = {
        "benchmark": "verdict_flips",
        "version": 2,
        "seeds": seeds,
        "asked_seconds_after_the_change": [a if math.isfinite(a) else "all data" for a in ASKED_SECONDS],
        "ways": ways,
        "flips_by_kind": {kind: number for kind, number in by_kind.items() if number},
        "bars": bars,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
