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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.causal import impact, kinds, methods, oracle, scale, scoring
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
SCALE_BARS = {
    "ten_services_12_hours": {"cpu_ms_per_change": 50.0},
    "hundred_services_1000_changes": {"seconds": 60.0, "peak_memory_mb": 1024.0},
}
Total = dict[str, tuple[list[scoring.Case], float]]


def kept(path: Path | None, make: Callable[[], Scenario]) -> Scenario:
    """The scenario in a file, or the one that is made, which then is put there."""
    if path and path.exists():
        with path.open("rb") as file:
            read: Scenario = pickle.load(file)
            return read
    made = make()
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            pickle.dump(made, file)
    return made


def load(cache: Path | None, kind: str, seed: int) -> Scenario:
    path = cache / f"{kind}-{seed}.pickle" if cache else None
    return kept(path, partial(kinds.scenario, kind, seed))


def judge(
    job: tuple[str, int], cache: Path | None, chosen: dict[str, methods.Method], attainable: bool
) -> tuple[Total, list[tuple[str, float]]]:
    """All answers of all methods on one scenario with the CPU seconds they took, and for each real change its
    kind and the oracle's chance to find it."""
    kind, seed = job
    scenario = load(cache, kind, seed)
    result = answered(scenario, seed, chosen)
    chances = []
    for number, truth in enumerate(scenario.truths):
        chance = oracle.chance(scenario, number) if attainable and truth.real else None
        if chance is not None:
            chances.append((kind, chance))
    return result, chances


def answered(scenario: Scenario, seed: int, chosen: dict[str, methods.Method]) -> Total:
    """All answers of all methods on one scenario with the CPU seconds they took."""
    result: Total = {}
    for name, method in chosen.items():
        cases = []
        begun = time.process_time()
        for service in sorted({c.service for c in scenario.changes}):
            answers = method(scenario.panel, service, scenario.changes)
            numbers = [n for n, c in enumerate(scenario.changes) if c.service == service]
            cases += [
                scoring.Case(scenario.kind, seed, scenario.planted[n], scenario.truths[n], answer)
                for n, answer in zip(numbers, answers, strict=True)
            ]
        result[name] = (cases, time.process_time() - begun)
    return result


def evaluate(
    seeds: list[int],
    names: list[str],
    chosen: dict[str, methods.Method],
    cache: Path | None,
    workers: int,
    attainable: bool,
) -> tuple[Total, list[tuple[str, float]]]:
    """All cases of all methods with their CPU seconds, and the oracle's chances."""
    jobs = [(kind, seed) for seed in seeds for kind in names]
    total: Total = {name: ([], 0.0) for name in chosen}
    chances: list[tuple[str, float]] = []
    work = partial(judge, cache=cache, chosen=chosen, attainable=attainable)
    for part, found in _mapped(work, jobs, workers):
        chances += found
        for name, (cases, cpu) in part.items():
            total[name] = (total[name][0] + cases, total[name][1] + cpu)
    return total, chances


def _mapped(work: Any, jobs: list[tuple[str, int]], workers: int) -> Iterator[Any]:
    if workers <= 1:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(work, jobs, chunksize=4)


def report(
    total: Total, seeds: list[int], chances: list[tuple[str, float]], scales: dict[str, dict[str, float]]
) -> dict[str, Any]:
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

    def bar(name: str, value: float | None, direction: str, goal: float) -> None:
        ok = value is not None and (value >= goal if direction == ">=" else value <= goal)
        result["bars"].append({"name": name, "value": value, "goal": f"{direction} {goal:g}", "ok": ok})

    if "otelkit" in total:
        for figure, (direction, floor, goal) in BARS.items():
            for level, limit in (("floor", floor), ("goal", goal)):
                if limit is not None:
                    bar(f"{figure} ({level})", result["methods"]["otelkit"][figure], direction, limit)
        result["by_kind"] = scoring.by_kind(total["otelkit"][0])
    for name, figures in scales.items():
        for figure, limit in SCALE_BARS[name].items():
            bar(f"{name} {figure} (goal)", figures[figure], "<=", limit)
    if chances:
        result["oracle"] = {"real": len(chances), "recall": _mean(c for _, c in chances)}
        for kind, figures in result.get("by_kind", {}).items():
            own = [c for k, c in chances if k == kind]
            if own:
                figures["oracle_hits"] = round(sum(own), 1)
    if scales:
        result["scale"] = scales
    result["peak_memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return round(sum(kept) / len(kept), 4)


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
    parser.add_argument("--no-oracle", action="store_true", help="leave out what could be found at all")
    parser.add_argument(
        "--no-scale", action="store_true", help="leave out the runs of many hours and services"
    )
    options = parser.parse_args()
    every: dict[str, methods.Method] = {
        "otelkit": methods.otelkit,
        "otelkit_quantiles_only": methods.otelkit_quantiles_only,
        **methods.BASELINES,
    }
    if impact.available():
        for name, level in impact.LEVELS.items():
            every[name] = partial(impact.causal_impact, level=level)
    chosen = {name: every[name] for name in options.methods or every}
    seeds = list(range(options.first_seed, options.first_seed + options.seeds))
    total, chances = evaluate(
        seeds, options.kinds, chosen, options.cache, options.workers, not options.no_oracle
    )
    scales = {} if options.no_scale else {name: scale.measured(name) for name in SCALE_BARS}
    print(json.dumps(report(total, seeds, chances, scales)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
