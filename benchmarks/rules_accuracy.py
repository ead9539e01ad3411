"""Accuracy part of ``rules.py``: P99 read from histograms beside P99 of the latencies themselves."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from otelkit import semconv
from otelkit.emit.histogram import duration_bounds
from otelkit.query.promql import histogram_quantile

SEED: Final = 7
_CALLS: Final = 20_000
_DRAWS: Final = 25
_STACK_OBJECTIVES: Final = (0.15, 0.4, 1.2)
"""What the compose stack sharpens around, until somebody states objectives."""
_SCHEMA: Final = 3
"""Native histograms of growth 2 ** (1/8), about 9 % a bucket."""


def _latencies(kind: str, random: np.random.Generator) -> Any:
    if kind == "log-normal":
        return random.lognormal(np.log(0.5), 0.6, _CALLS)
    if kind == "bimodal":
        slow = random.random(_CALLS) < 0.1
        return np.where(
            slow, random.normal(1.5, 0.15, _CALLS), random.lognormal(np.log(0.2), 0.3, _CALLS)
        ).clip(1e-3)
    return 0.2 * (1 + random.pareto(1.6, _CALLS))


def accuracy(promtool: str | None) -> dict[str, Any]:
    """Relative error of P99 from histograms against P99 of the latencies themselves.

    Over draws of distributions whose scale varies, so that no bucket layout is lucky.
    """
    result: dict[str, Any] = {"calls": _CALLS, "draws": _DRAWS}
    for kind in ("log-normal", "bimodal", "heavy-tailed"):
        random = np.random.default_rng(SEED)
        errors: dict[str, list[float]] = {}
        shifts: dict[str, list[float]] = {}
        for _ in range(_DRAWS):
            latencies = _latencies(kind, random) * random.uniform(0.7, 1.4)
            exact = float(np.quantile(latencies, 0.99))
            slower = latencies + 0.085
            for form, read in _forms(objective=exact).items():
                errors.setdefault(form, []).append(read(latencies) / exact - 1)
                shifts.setdefault(form, []).append(read(slower) - read(latencies))
        result[kind] = {
            form: {
                "median_error_percent": round(100 * float(np.median(np.abs(values))), 2),
                "worst_error_percent": round(100 * float(np.max(np.abs(values))), 2),
                "shift_of_85_ms_reads_as_ms": [
                    round(1000 * float(one)) for one in np.quantile(shifts[form], [0.1, 0.5, 0.9])
                ],
            }
            for form, values in errors.items()
        }
    if promtool:
        result["largest_difference_from_prometheus"] = _against_prometheus(promtool)
    return result


def _forms(objective: float) -> dict[str, Any]:
    """How P99 is read, by form of histogram. People state objectives, so this one lies 30 % off P99."""
    default = np.array([*semconv.DURATION_BUCKETS, np.inf])
    finite = np.array(semconv.DURATION_BUCKETS)
    halved = np.array([*np.sort(np.concatenate((finite, finite[:-1] * np.sqrt(2)))), np.inf])
    stated = float(f"{objective * 1.3:.1g}")
    stack = np.array([*duration_bounds(_STACK_OBJECTIVES), np.inf])
    sharpened = np.array([*duration_bounds([stated]), np.inf])
    return {
        "default buckets": lambda values: _classic(values, default),
        "default buckets, twice as many": lambda values: _classic(values, halved),
        "buckets of the stack": lambda values: _classic(values, stack),
        "sharpened buckets": lambda values: _classic(values, sharpened),
        "native": _native,
    }


def _classic(latencies: Any, bounds: Any) -> float:
    counts = np.searchsorted(np.sort(latencies), bounds, side="right")
    return float(histogram_quantile(0.99, bounds, counts[None, :].astype(float))[0])


def _native(latencies: Any) -> float:
    """As Prometheus 3 reads exponential buckets: interpolated on their logarithmic scale."""
    growth = 2.0 ** (2.0**-_SCHEMA)
    index = np.ceil(np.log(latencies) / np.log(growth)).astype(int)
    buckets, counts = np.unique(index, return_counts=True)
    cumulative = np.cumsum(counts)
    rank = 0.99 * cumulative[-1]
    at = int(np.searchsorted(cumulative, rank))
    below = cumulative[at - 1] if at else 0
    return float(growth ** (buckets[at] - 1 + (rank - below) / counts[at]))


def _against_prometheus(promtool: str) -> float:
    """Largest relative difference between our reading and promtool's, over all forms and distributions."""
    random = np.random.default_rng(SEED)
    differences = []
    for kind in ("log-normal", "bimodal", "heavy-tailed"):
        latencies = _latencies(kind, random)
        bounds = np.array([*semconv.DURATION_BUCKETS, np.inf])
        counts = np.searchsorted(np.sort(latencies), bounds, side="right")
        series = [
            {"series": f'c_bucket{{le="{"+Inf" if np.isinf(bound) else bound}"}}', "values": str(count)}
            for bound, count in zip(bounds, counts, strict=True)
        ]
        growth = 2.0 ** (2.0**-_SCHEMA)
        index = np.ceil(np.log(latencies) / np.log(growth)).astype(int)
        filled = np.bincount(index - index.min())
        # Bucket 0 of Prometheus ends at 1, so an offset of n begins with the bucket that ends at growth ** n.
        native = (
            f"{{{{schema:{_SCHEMA} count:{len(latencies)} sum:1 offset:{index.min()} "
            f"buckets:[{' '.join(map(str, filled))}]}}}}"
        )
        series.append({"series": "n", "values": native})
        for expression, ours in (
            ("histogram_quantile(0.99, c_bucket)", _classic(latencies, bounds)),
            ("histogram_quantile(0.99, n)", _native(latencies)),
        ):
            differences.append(abs(_promtool_value(promtool, series, expression) / ours - 1))
    return float(f"{max(differences):.1e}")


def _promtool_value(promtool: str, series: list[dict[str, str]], expression: str) -> float:
    """The value of an expression, told by promtool when it contradicts a wrong expectation."""
    check = {"expr": expression, "eval_time": "0s", "exp_samples": [{"labels": "{}", "value": -1}]}
    document = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": [check]}]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "test.yaml")
        path.write_text(yaml.safe_dump(document, width=100_000))
        done = subprocess.run(
            [promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False
        )
    found = re.search(r"got:.*?\{\} ([0-9.e+-]+)", done.stdout + done.stderr, flags=re.DOTALL)
    if not found:
        raise RuntimeError(done.stdout + done.stderr)
    return float(found[1])
