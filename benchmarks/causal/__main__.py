"""Run the benchmark: ``python -m benchmarks.causal``; one JSON object on stdout.

Scenarios are simulated once for each seed and kind and may be kept (``--cache``). Seeds below 1000 are for
tuning, those from 1000 on only for the reported figures.
"""

from __future__ import annotations

import argparse
import json
import pickle
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.causal import kinds, methods, scoring
from benchmarks.causal.world import Scenario

REPORTED = 1000
BARS = {
    "f1": (">=", 0.80, None),
    "precision": (">=", 0.88, 0.95),
    "recall": (">=", None, 0.80),
    "recall_large": (">=", 0.85, 0.95),
    "false_positives_clean": ("<=", 0.03, 0.01),
    "false_positives_confounded": ("<=", 0.05, 0.03),
    "coverage": (">=", 0.90, 0.93),
    "lag_error_seconds_median": ("<=", 10.0, 8.0),
    "null_p_below_0.05": ("<=", None, 0.06),
    "three_way_accuracy": (">=", None, 0.90),
    "cpu_ms_per_change": ("<=", None, 50.0),
}


def load(cache: Path | None, kind: str, seed: int) -> Scenario:
    path = cache / f"{kind}-{seed}.pickle" if cache else None
    if path and path.exists():
        with path.open("rb") as file:
            kept: Scenario = pickle.load(file)
            return kept
    made = kinds.scenario(kind, seed)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            pickle.dump(made, file)
    return made


def judge(
    job: tuple[str, int], cache: Path | None, chosen: dict[str, methods.Method]
) -> dict[str, tuple[list[scoring.Case], float]]:
    """All answers of all methods on one scenario, and the CPU seconds they took."""
    kind, seed = job
    scenario = load(cache, kind, seed)
    result: dict[str, tuple[list[scoring.Case], float]] = {}
    for name, method in chosen.items():
        cases = []
        begun = time.process_time()
        for service in sorted({c.service for c in scenario.changes}):
            answers = method(scenario.panel, service, scenario.changes)
            numbers = [n for n, c in enumerate(scenario.changes) if c.service == service]
            cases += [
                scoring.Case(kind, seed, scenario.planted[n], scenario.truths[n], answer)
                for n, answer in zip(numbers, answers, strict=True)
            ]
        result[name] = (cases, time.process_time() - begun)
    return result


def evaluate(
    seeds: list[int], names: list[str], chosen: dict[str, methods.Method], cache: Path | None, workers: int
) -> dict[str, tuple[list[scoring.Case], float]]:
    """All cases of all methods with their CPU seconds."""
    jobs = [(kind, seed) for seed in seeds for kind in names]
    total: dict[str, tuple[list[scoring.Case], float]] = {name: ([], 0.0) for name in chosen}
    work = partial(judge, cache=cache, chosen=chosen)
    for part in _mapped(work, jobs, workers):
        for name, (cases, cpu) in part.items():
            total[name] = (total[name][0] + cases, total[name][1] + cpu)
    return total


def _mapped(work: Any, jobs: list[tuple[str, int]], workers: int) -> Iterator[Any]:
    if workers <= 1:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, jobs, chunksize=4)


def report(total: dict[str, tuple[list[scoring.Case], float]], seeds: list[int]) -> dict[str, Any]:
    """The JSON object."""
    result: dict[str, Any] = {
        "benchmark": "causal",
        "version": 1,
        "seeds": seeds,
        "tuned_on": min(seeds) < REPORTED,
        "methods": {},
        "bars": [],
    }
    for name, (cases, cpu) in total.items():
        result["methods"][name] = {
            **scoring.figures(cases),
            "cpu_ms_per_change": round(1000 * cpu / len(cases), 1),
        }
    if "otelkit" in total:
        own = result["methods"]["otelkit"]
        for figure, (direction, floor, goal) in BARS.items():
            value = own[figure]
            for level, bar in (("floor", floor), ("goal", goal)):
                if bar is not None:
                    ok = value is not None and (value >= bar if direction == ">=" else value <= bar)
                    result["bars"].append(
                        {
                            "name": f"{figure} ({level})",
                            "value": value,
                            "goal": f"{direction} {bar:g}",
                            "ok": ok,
                        }
                    )
        result["by_kind"] = scoring.by_kind(total["otelkit"][0])
    result["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.causal", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="scenarios of each kind (default 4)")
    parser.add_argument("--first-seed", type=int, default=REPORTED, help="tuning uses seeds below 1000")
    parser.add_argument("--kinds", nargs="*", default=list(kinds.KINDS), choices=list(kinds.KINDS))
    parser.add_argument(
        "--methods", nargs="*", help="default: the engine, without buckets too, and all baselines"
    )
    parser.add_argument("--cache", type=Path, help="folder to keep simulated scenarios in")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    every: dict[str, methods.Method] = {
        "otelkit": methods.otelkit,
        "otelkit_quantiles_only": methods.otelkit_quantiles_only,
        **methods.BASELINES,
    }
    chosen = {name: every[name] for name in options.methods or every}
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    total = evaluate(seeds, options.kinds, chosen, options.cache, options.workers)
    print(json.dumps(report(total, seeds)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
