"""How often a verdict that was given is replaced by another as data comes in.

    python -m benchmarks.verdict_flips [--seeds 2] [--first-seed 1000] [--kinds plain surge ...]

Each change of the causal benchmark's scenarios is asked about again and again, from one minute after it on,
with the data that there are by then. Three ways of asking: the causal engine alone, all whose answers count;
``otelkit explain``, which says "too early" of what may yet change; and the analyser, which looks a handful of
times. A flip is a given verdict that differs from the one given before; a withdrawal is one that "too early"
follows.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.causal import kinds
from benchmarks.causal.world import Scenario
from otelkit.analyse.looks import Judgement, look, looks
from otelkit.analyse.waiting import with_waiting
from otelkit.causal import Explanation, Finding, Verdict, explain
from otelkit.causal.windows import cut
from otelkit.model import ParameterChange

ASKED_SECONDS = (60, 120, 180, 240, 360, 480, 600, 720, 900, 1080, 1320, 1800)
"""Seconds after a change; the analyser's own looks are among them."""
FEW_FLIPS = 0.05
"""Share of changes that may see a flip."""


@dataclass
class Told:
    """What was said of one change in one way, in order of time."""

    verdicts: list[str | None] = field(default_factory=list)
    """None while it was too early."""

    @property
    def flips(self) -> int:
        return len(self.replaced)

    @property
    def causal_flips(self) -> int:
        """Those that a reader may have acted on: to or from causal."""
        return sum(Verdict.CAUSAL.value in pair for pair in self.replaced)

    @property
    def replaced(self) -> list[str]:
        """Each flip as ``old -> new``."""
        given = [verdict for verdict in self.verdicts if verdict is not None]
        return [f"{one} -> {other}" for one, other in itertools.pairwise(given) if one != other]

    @property
    def withdrawals(self) -> int:
        return sum(one is not None and other is None for one, other in itertools.pairwise(self.verdicts))

    @property
    def first_seconds(self) -> int | None:
        """Seconds after the change at which a verdict was first given."""
        pairs = zip(ASKED_SECONDS, self.verdicts, strict=False)
        return next((after for after, verdict in pairs if verdict is not None), None)


def follow(scenario: Scenario, change: ParameterChange) -> dict[str, Told]:
    """Ask about one change as its data come in."""
    told = {"engine": Told(), "explain": Told(), "analyser": Told()}
    step, last = scenario.panel.step_seconds, float(scenario.panel.times[-1])
    judgement = Judgement(change)
    due = list(looks(change, step))
    for after in ASKED_SECONDS:
        until = change.last_seen + after
        if until > last:
            break
        explanation = ask(scenario, change.service, until)
        finding = finding_of(explanation, change)
        told["engine"].verdicts.append(finding.verdict.value)
        shown = finding_of(with_waiting(explanation, step), change)
        told["explain"].verdicts.append(None if shown.known_at is not None else shown.verdict.value)
        if due and until >= due[0]:
            due = [at for at in due if at > until]
            judgement = look(judgement, finding, until, step)
        told["analyser"].verdicts.append(judgement.finding and judgement.finding.verdict.value)
    return told


def ask(scenario: Scenario, service: str, until: float) -> Explanation:
    """The explanation from what is known at a Unix time."""
    changes = [replace(one, last_seen=min(one.last_seen, until)) for one in scenario.changes]
    panel = cut(scenario.panel, float("-inf"), until)
    explanation = explain(panel, service, [one for one in changes if one.first_seen <= until])
    # A span of whole steps ends up to a step early; what matters here is when it was asked.
    return replace(explanation, end=until)


def finding_of(explanation: Explanation, change: ParameterChange) -> Finding:
    return next(one for one in explanation.findings if one.change.id == change.id)


def summary(told: Sequence[Told]) -> dict[str, Any]:
    """Figures over all changes."""
    given = [one.first_seconds for one in told if one.first_seconds is not None]
    return {
        "changes": len(told),
        "flips": sum(one.flips for one in told),
        "changes_with_flips": round(sum(one.flips > 0 for one in told) / len(told), 4),
        "changes_with_flips_of_causal": round(sum(one.causal_flips > 0 for one in told) / len(told), 4),
        "replaced": dict(Counter(pair for one in told for pair in one.replaced)),
        "changes_with_withdrawals": round(sum(one.withdrawals > 0 for one in told) / len(told), 4),
        "too_early_after_a_minute": round(sum(one.verdicts[0] is None for one in told) / len(told), 4),
        "seconds_to_first_verdict_median": statistics.median(given) if given else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdict_flips", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--kinds", nargs="*", default=list(kinds.KINDS), choices=list(kinds.KINDS))
    options = parser.parse_args()
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    told: dict[str, list[Told]] = {}
    flipping: dict[str, int] = {}
    for seed in seeds:
        for kind in options.kinds:
            scenario = kinds.scenario(kind, seed)
            for change in scenario.changes:
                ways = follow(scenario, change)
                if not ways["engine"].verdicts:
                    continue
                for way, one in ways.items():
                    told.setdefault(way, []).append(one)
                flipping[kind] = flipping.get(kind, 0) + ways["explain"].flips
            print(f"{kind} {seed}: {flipping.get(kind, 0)} flips so far", file=sys.stderr)
    ways_summary = {way: summary(every) for way, every in told.items()}
    bars = [
        {
            "name": f"share of changes with {figure.removeprefix('changes_with_').replace('_', ' ')}, {way}",
            "value": ways_summary[way][figure],
            "goal": f"<= {FEW_FLIPS:g}",
            "ok": ways_summary[way][figure] <= FEW_FLIPS,
        }
        for way in ("explain", "analyser")
        for figure in ("changes_with_flips", "changes_with_flips_of_causal")
    ]
    result = {
        "benchmark": "verdict_flips",
        "version": 1,
        "seeds": seeds,
        "asked_seconds_after_the_change": list(ASKED_SECONDS),
        "ways": ways_summary,
        "flips_by_kind": {kind: number for kind, number in flipping.items() if number},
        "bars": bars,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
