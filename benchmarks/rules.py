"""What generated rules cost and how exact they are, against a real Prometheus. Prints one JSON object.

    python benchmarks/rules.py [--prometheus PATH] [--promtool PATH] [--services 200] [--instances 2]

Without Prometheus the parts that need it are left out and named in ``skipped``.
"""

from __future__ import annotations

import argparse
import contextlib
import http.server
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import yaml

from otelkit import semconv
from otelkit.emit.histogram import duration_bounds
from otelkit.query.promql import histogram_quantile
from otelkit.rules import generate
from otelkit.spec import BURN_ALERTS, PRESETS, Duration, parse_spec

SCRAPE_SECONDS: Final = 15
HISTORY_SECONDS: Final = 3900
"""History of all series: enough for the longest window of a quantile."""
BURN_HISTORY_SECONDS: Final = 6 * 3600 + 300
"""History of what burn rates are computed from, in either form."""
MEASURED_INTERVAL: Final = "20s"
"""Groups are evaluated this often while they are measured, so that each is seen soon. The time that one
evaluation takes does not depend on it, and is compared with the group's real interval."""
SEED: Final = 7


def main() -> None:
    options = _options()
    result: dict[str, Any] = {"scale": _scale(options.promtool), "accuracy": _accuracy(options.promtool)}
    skipped = []
    if options.prometheus and options.promtool:
        result["evaluation"] = _evaluation(options)
    else:
        skipped.append("evaluation: no prometheus or promtool was found")
    if not options.promtool:
        skipped.append("promtool's checks of the output and of the arithmetic")
    result["skipped"] = skipped
    print(json.dumps(result, indent=2))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prometheus", default=_tool("prometheus"))
    parser.add_argument("--promtool", default=_tool("promtool"))
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--instances", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="how long each form is evaluated")
    return parser.parse_args()


def _tool(name: str) -> str | None:
    fetched = Path(__file__).parents[1] / ".tools" / "prometheus" / "usr" / "bin" / name
    return str(fetched) if fetched.is_file() else shutil.which(name)


# --- scale of the generator ---

_GENERATE: Final = """
import resource, sys, time
from pathlib import Path
from otelkit.rules import generate
from otelkit.spec import load_spec
began = time.perf_counter()
spec = load_spec(sys.argv[1])
for name, text in generate(spec).items():
    Path(sys.argv[2], name).write_text(text)
used = resource.getrusage(resource.RUSAGE_SELF)
print(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
"""


def _scale(promtool: str | None) -> dict[str, Any]:
    """A thousand services with three objectives each: alike, and each picked by a selector of its own."""
    result = {}
    for kind in ("alike", "each its own selector"):
        services = [
            {
                "name": f"service-{index:04}",
                **({} if kind == "alike" else {"selector": {"job": f"job-{index}"}}),
                "slos": [
                    {"name": "fast", "latency": 0.64, "quantile": 0.95},
                    {"name": "tail", "latency": 2.56},
                    {"errors": f"{0.1 * (1 + index % 5):.1f}%"},
                ],
            }
            for index in range(1000)
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "otelkit.yaml")
            path.write_text(yaml.safe_dump({"services": services}))
            done = subprocess.run(
                [sys.executable, "-c", _GENERATE, str(path), folder],
                capture_output=True,
                text=True,
                check=True,
            )
            seconds, cpu, megabytes = map(float, done.stdout.split())
            files = sorted(Path(folder).glob("*.rules.yaml"))
            rules = sum(len(re.findall(r"- (?:record|alert):", file.read_text())) for file in files)
            accepted = None
            if promtool:
                check = subprocess.run(
                    [promtool, "check", "rules", *map(str, files)], capture_output=True, check=False
                )
                accepted = check.returncode == 0
            result[kind] = {
                "services": 1000,
                "objectives": 3000,
                "rules": rules,
                "seconds": round(seconds, 3),
                "cpu_seconds_with_start": round(cpu, 3),
                "peak_megabytes": round(megabytes, 1),
                "promtool_accepts": accepted,
            }
    return result


# --- cost of evaluation ---


def _evaluation(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds per evaluation of every group in a real Prometheus, for our form and for the naive one."""
    objectives = "{latency: 500ms, quantile: 0.95, name: fast}, {latency: 2.5s, name: tail}, {errors: 0.1%}"
    spec = parse_spec(f"preset: http\nslos: [{objectives}]\n")
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        fleet = _Fleet(options)
        fleet.backfill(directory, options)
        forms = {}
        with fleet.served() as target:
            for form, files in (("otelkit", generate(spec)), ("naive", {"naive.rules.yaml": _naive()})):
                forms[form] = _measure(directory, files, target, options)
    ours, naive = (forms[form]["share_of_time"] for form in ("otelkit", "naive"))
    # Rules written by hand stand in groups without an interval of their own.
    everywhere = sum(group["seconds"] for group in forms["naive"]["groups"].values()) / SCRAPE_SECONDS
    return {
        "services": options.services,
        "instances": options.instances,
        "raw_series": len(fleet.names),
        "scrape_seconds": SCRAPE_SECONDS,
        **forms,
        "times_cheaper": round(naive / ours, 2),
        "times_cheaper_than_at_the_global_interval": round(everywhere / ours, 2),
        "note": "six hours of history: both forms' windows of days would read more in production",
    }


def _naive() -> str:
    """The same series, each from the raw metrics in one expression, as one would write them by hand."""
    metric = semconv.METRIC_HTTP_REQUEST_DURATION
    calls, failing = f"{metric}_count", f'{metric}_count{{code=~"5.."}}'
    base = [{"record": "naive:p99", "expr": _quantile(0.99, metric, "1h")}]
    groups: list[dict[str, Any]] = [{"name": "base", "interval": "1m", "rules": base}]
    for window in ("1m", "5m"):
        requests, failed = (f"sum by (service) (rate({one}[{window}]))" for one in (calls, failing))
        rules = [
            {"record": f"naive:p{q * 100:g}_{window}", "expr": _quantile(q, metric, window)}
            for q in semconv.RECORDED_QUANTILES
        ]
        rules += [
            {"record": f"naive:requests_{window}", "expr": requests},
            {"record": f"naive:errors_{window}", "expr": failed},
            {"record": f"naive:error_ratio_{window}", "expr": f"{failed} / {requests}"},
        ]
        groups.append({"name": f"ladder-{window}", "interval": "15s", "rules": rules})
    for window in sorted({window for alert in BURN_ALERTS for window in (alert.short, alert.long)}):
        total, failed = (f"sum by (service) (rate({one}[{window}]))" for one in (calls, failing))
        rules = []
        for name, bound, budget in (("fast", "0.5", 0.05), ("tail", "2.5", 0.01)):
            good = f'sum by (service) (rate({metric}_bucket{{le="{bound}"}}[{window}]))'
            rules.append(
                {"record": f"naive:burn_{name}_{window}", "expr": f"(1 - {good} / {total}) / {budget}"}
            )
        rules.append({"record": f"naive:burn_errors_{window}", "expr": f"{failed} / {total} / 0.001"})
        interval = f"{max(15, min(300, int(window.seconds // 60)))}s"
        groups.append({"name": f"burn-{window}", "interval": interval, "rules": rules})
    alerts = []
    for alert in BURN_ALERTS:
        factor = alert.factor(Duration.parse("30d"))
        for name in ("fast", "tail", "errors"):
            long, short = (f"naive:burn_{name}_{window} > {factor}" for window in (alert.long, alert.short))
            alerts.append({"alert": "Burn", "expr": f"{long} and {short}"})
    groups.append({"name": "alerts", "interval": "15s", "rules": alerts})
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)


def _quantile(quantile: float, metric: str, window: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le, service) (rate({metric}_bucket[{window}])))"


def _healthy(random: np.random.Generator, bounds: tuple[float, ...]) -> Any:
    """Share of calls below each bound, of a service that keeps its objectives."""
    latencies = np.sort(random.lognormal(np.log(random.uniform(0.05, 0.1)), 0.5, 2000))
    return np.searchsorted(latencies, bounds, side="right") / len(latencies)


class _Fleet:
    """Healthy services whose counters grow steadily: first as history in blocks, then as a /metrics page."""

    def __init__(self, options: argparse.Namespace) -> None:
        random = np.random.default_rng(SEED)
        bounds = (*(PRESETS["http"].buckets or ()), float("inf"))
        metric = semconv.METRIC_HTTP_REQUEST_DURATION
        self.names: list[str] = []
        paces: list[float] = []
        for service in range(options.services):
            for instance in range(options.instances):
                for code, pace in (("200", 30.0), ("500", 0.003)):
                    labels = f'service="s{service:03}",instance="i{instance}",job="b",code="{code}"'
                    cumulative = _healthy(random, bounds) * pace
                    for bound, share in zip(bounds, cumulative, strict=True):
                        le = "+Inf" if np.isinf(bound) else repr(bound)
                        self.names.append(f'{metric}_bucket{{{labels},le="{le}"}}')
                        paces.append(float(share))
                    self.names += [f"{metric}_count{{{labels}}}", f"{metric}_sum{{{labels}}}"]
                    paces += [pace, pace / 2]
        self.paces = np.array(paces)
        self.began = time.time() - BURN_HISTORY_SECONDS
        self.header = f"# TYPE {metric} histogram\n"

    def values(self, at: float) -> list[float]:
        """The counters at a Unix time."""
        values: list[float] = np.floor(self.paces * ((at - self.began) / SCRAPE_SECONDS)).tolist()
        return values

    def page(self) -> bytes:
        now = self.values(time.time())
        lines = (f"{name} {value:.0f}\n" for name, value in zip(self.names, now, strict=True))
        return (self.header + "".join(lines)).encode()

    def backfill(self, directory: Path, options: argparse.Namespace) -> None:
        """Write the history up to now as blocks of Prometheus."""
        text = directory / "history.om"
        now = int(time.time())
        written: set[str] = set()
        with text.open("w") as file:
            file.write(self.header)
            for name, pace in zip(self.names, self.paces.tolist(), strict=True):
                burns = "_count{" in name or 'le="0.5"' in name or 'le="2.5"' in name
                first = now - (BURN_HISTORY_SECONDS if burns else HISTORY_SECONDS)
                times = range(first, now, SCRAPE_SECONDS)
                file.writelines(
                    f"{name} {int(pace * ((at - self.began) / SCRAPE_SECONDS))} {at}\n" for at in times
                )
            for name, value in self._recorded(options):
                metric = name.split("{")[0]
                file.write(f"# TYPE {metric} gauge\n" if metric not in written else "")
                written.add(metric)
                times = range(now - BURN_HISTORY_SECONDS, now, SCRAPE_SECONDS)
                file.writelines(f"{name} {value} {at}\n" for at in times)
            file.write("# EOF\n")
        blocks = ["tsdb", "create-blocks-from", "openmetrics", str(text), str(directory / "data")]
        subprocess.run([options.promtool, *blocks], check=True, capture_output=True)
        text.unlink()

    def _recorded(self, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
        """What our rules would have recorded meanwhile, of the series that burn rates are computed from."""
        for service in range(options.services):
            label = f'service="s{service:03}"'
            yield f"{semconv.RECORDED_REQUESTS}5m{{{label}}}", 30.0 * options.instances / SCRAPE_SECONDS
        for slo in ("fast", "tail", "errors"):
            for service in range(options.services):
                label = f'service="s{service:03}",slo="{slo}",slo_window="30d"'
                yield f"{semconv.RECORDED_BUDGET_USE}{{{label}}}", 0.0

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """Serve the page; yields host and port."""
        fleet = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = fleet.page()
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()


def _measure(
    directory: Path, files: Mapping[str, str], target: str, options: argparse.Namespace
) -> dict[str, Any]:
    intervals = {
        group["name"]: group["interval"]
        for text in files.values()
        for group in yaml.safe_load(text)["groups"]
    }
    for old in directory.glob("*.rules.yaml"):
        old.unlink()
    for name, text in files.items():
        hastened = re.sub(r"^( +interval:) \S+$", rf"\1 {MEASURED_INTERVAL}", text, flags=re.MULTILINE)
        (directory / name).write_text(hastened)
    configuration = {
        "global": {"evaluation_interval": MEASURED_INTERVAL, "scrape_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(directory / "*.rules.yaml")],
        "scrape_configs": [
            {"job_name": "b", "honor_labels": True, "static_configs": [{"targets": [target]}]},
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with _prometheus(directory, options) as url:
        seen = []
        until = time.monotonic() + options.seconds
        # The first round finds nothing recorded yet, and opens the blocks.
        time.sleep(options.seconds / 3)
        while time.monotonic() < until:
            seen.append(_by_group(url, "prometheus_rule_group_last_duration_seconds"))
            time.sleep(5)
        seen.append(_by_group(url, "prometheus_rule_group_last_duration_seconds"))
        samples = _by_group(url, "prometheus_rule_group_last_evaluation_samples")
        failures = sum(_by_group(url, "prometheus_rule_evaluation_failures_total").values())
        page = httpx.get(f"{url}/metrics", timeout=30).text
    # The quickest of several rounds: what else runs on the machine only ever adds to it.
    durations = {
        name: min(one[name] for one in seen if name in one) for name in {name for one in seen for name in one}
    }
    cpu = re.search(r"^process_cpu_seconds_total (\S+)$", page, flags=re.MULTILINE)
    groups = {
        name: {"seconds": round(durations[name], 4), "interval": interval}
        for name, interval in intervals.items()
        if name in durations
    }
    shares = {
        name: group["seconds"] / Duration.parse(group["interval"]).seconds for name, group in groups.items()
    }
    return {
        "groups": groups,
        "not_evaluated": sorted(set(intervals) - set(durations)),
        "failures": failures,
        "samples_recorded_per_round": sum(samples.values()),
        "process_cpu_seconds": float(cpu[1]) if cpu else None,
        "share_of_time": round(sum(shares.values()), 5),
        "worst_share_of_interval": round(max(shares.values()), 4),
        "all_within_half_of_their_interval": max(shares.values()) < 0.5,
    }


@contextlib.contextmanager
def _prometheus(directory: Path, options: argparse.Namespace) -> Iterator[str]:
    """Prometheus on the folder's data and rules; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [
        options.prometheus,
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"{url}/-/ready", timeout=2).status_code == 200:
                        break
                if process.poll() is not None:
                    raise RuntimeError((directory / "log").read_text())
                time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _by_group(url: str, metric: str) -> dict[str, float]:
    """A metric of Prometheus about itself, from its own page, by rule group."""
    found: dict[str, float] = {}
    pattern = re.compile(rf'^{metric}{{rule_group="[^"]*;([^";]+)"}} (\S+)$', flags=re.MULTILINE)
    for group, value in pattern.findall(httpx.get(f"{url}/metrics", timeout=30).text):
        if metric.endswith("_total") or float(value) > 0:
            found[group] = float(value)
    return found


# --- accuracy ---

_CALLS: Final = 20_000
_DRAWS: Final = 25
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


def _accuracy(promtool: str | None) -> dict[str, Any]:
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
    sharpened = np.array([*duration_bounds([stated]), np.inf])
    return {
        "default buckets": lambda values: _classic(values, default),
        "default buckets, twice as many": lambda values: _classic(values, halved),
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


if __name__ == "__main__":
    main()
