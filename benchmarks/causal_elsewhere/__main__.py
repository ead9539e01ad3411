"""The engine on scenarios of another simulator: ``python -m benchmarks.causal_elsewhere``; one JSON object on
stdout.

It shares real traces, methods and scoring with ``benchmarks.causal``, but none of its simulation. With seed 0
its noise and sizes were set so that simple methods do as they are known to do elsewhere; the engine was first
run after that.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from benchmarks.causal import methods
from benchmarks.causal.__main__ import Total, answered, kept, report
from benchmarks.causal.world import Scenario
from benchmarks.causal_elsewhere import kinds

OF_EACH = 9
"""Scenarios of each kind for a seed."""


def load(cache: Path | None, name: str, number: int, seed: int) -> Scenario:
    path = cache / f"elsewhere-{name}-{number}-{seed}.pickle" if cache else None
    return kept(path, partial(kinds.scenario, name, number, seed))


def main() -> int:
    every: dict[str, methods.Method] = {"otelkit": methods.otelkit, **methods.BASELINES}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causal_elsewhere", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="of 270 scenarios each (default 1)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="*", default=list(kinds.KINDS), choices=list(kinds.KINDS))
    parser.add_argument("--of-each", type=int, default=OF_EACH, help="scenarios of each kind (default 9)")
    parser.add_argument("--methods", nargs="*", default=list(every), choices=list(every))
    parser.add_argument("--cache", type=Path, help="folder to keep simulated scenarios in")
    options = parser.parse_args()
    chosen = {name: every[name] for name in options.methods}
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    total: Total = {name: ([], 0.0) for name in chosen}
    for seed in seeds:
        for name in options.kinds:
            for number in range(options.of_each):
                part = answered(load(options.cache, name, number, seed), seed, chosen)
                total = {m: (total[m][0] + part[m][0], total[m][1] + part[m][1]) for m in chosen}
            print(f"seed {seed}: {name}", file=sys.stderr)
    result = report(total, seeds, [], {})
    del result["tuned_on"]
    print(json.dumps({**result, "benchmark": "causal_elsewhere"}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
