"""Evaluation part of ``rules.py``: what rules cost a real Prometheus, beside those written by hand."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import yaml
from rules_fleet import SCRAPE_SECONDS, Fleet

from otelkit import semconv
from otelkit.rules import generate
from otelkit.spec import BURN_ALERTS, Duration, parse_spec

MEASURED_INTERVAL: Final = "20s"
"""Groups are evaluated this often while they are measured, so that each is seen soon. The time that one
evaluation takes does not depend on it, and is compared with the group's real interval."""
_OBJECTIVES: Final = (
    "{latency: 500ms, quantile: 0.95, name: fast}, {latency: 2.5s, name: tail}, {errors: 0.1%}"
)
_SLOW: Final = (("fast", "0.5", 0.05), ("tail", "2.5", 0.01))
_ERROR_BUDGET: Final = 0.001


@dataclass(frozen=True)
class Setup:
    """Which binaries, how many services, hours of history, and seconds that each form is evaluated for."""

    prometheus: str
    promtool: str
    services: int
    instances: int
    hours: float
    seconds: float


def evaluation(setup: Setup) -> dict[str, Any]:
    """Seconds per evaluation of every group in a real Prometheus, for our form and for those by hand."""
    ours = generate(parse_spec(f"preset: http\nslos: [{_OBJECTIVES}]\n"))
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        fleet = Fleet(setup.services, setup.instances, setup.hours)
        _say(f"history of {len(fleet.names)} series")
        fleet.write_blocks(directory, setup.promtool)
        forms = {}
        with _Server(directory, setup.prometheus) as server, fleet.served() as target:
            fleet.push_head(directory, setup.promtool, server.url)
            for form, files in (("otelkit", ours), ("by_hand", {"hand.rules.yaml": _by_hand()})):
                _say(f"evaluating {form} for {setup.seconds:g} s")
                forms[form] = server.measure(files, target, setup.seconds)
    return {
        "services": setup.services,
        "instances": setup.instances,
        "raw_series": len(fleet.names),
        "scrape_seconds": SCRAPE_SECONDS,
        "hours_of_history": setup.hours,
        **forms,
        **_compared(forms["otelkit"], forms["by_hand"]),
    }


def _compared(ours: dict[str, Any], hand: dict[str, Any]) -> dict[str, Any]:
    """Shares of the time that rules are evaluated, and their ratios."""
    groups = hand["groups"]
    quantiles = [name for name in groups if name.startswith(("base", "ladder"))]
    burns = [name for name in groups if name.startswith("burn")]

    def share(names: list[str], every: float | None = None) -> float:
        return sum(groups[name]["seconds"] / (every or _seconds(groups[name])) for name in names)

    cost = sum(group["seconds"] / _seconds(group) for group in ours["groups"].values())
    alerts = ours["groups"]["otelkit-alerts-slo"]
    forms = {
        # Every rule is one expression on raw series, as often as ours.
        "naive": share([*quantiles, "alerts"]),
        # The same, in groups that state no interval: all as often as the service is scraped.
        "naive_at_the_scrape_interval": share([*quantiles, "alerts"], SCRAPE_SECONDS),
        # Alerts read burn rates recorded from raw series, as a careful author has it.
        "naive_with_burn_rates_recorded": share([*quantiles, *burns]) + alerts["seconds"] / _seconds(alerts),
    }
    return {
        "share_of_time": {"otelkit": round(cost, 5), **{name: round(one, 5) for name, one in forms.items()}},
        "times_cheaper_than": {name: round(one / cost, 2) for name, one in forms.items()},
    }


def _seconds(group: Mapping[str, Any]) -> float:
    return Duration.parse(group["interval"]).seconds


# --- the rules by hand ---


def _by_hand() -> str:
    """The same quantiles, rates and alerts, each from the raw metrics in one expression; burn rates besides.

    Each as often as ours: what alerts look at moves every 30 s there. Without the alerts' minimum of calls,
    which would make them dearer still.
    """
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
        rules = [
            {"record": f"naive:burn_{name}_{window}", "expr": expr} for name, expr in _burns(window).items()
        ]
        interval = f"{max(30, min(120, int(window.seconds // 60)))}s"
        groups.append({"name": f"burn-{window}", "interval": interval, "rules": rules})
    alerts = []
    for alert in BURN_ALERTS:
        factor = alert.factor(Duration.parse("30d"))
        for name in _burns(alert.long):
            long, short = (f"({_burns(window)[name]}) > {factor}" for window in (alert.long, alert.short))
            alerts.append({"alert": "Burn", "expr": f"{long} and {short}", "labels": {"slo": name}})
    groups.append({"name": "alerts", "interval": "30s", "rules": alerts})
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)


def _burns(window: Duration) -> dict[str, str]:
    """Burn rates over a window, by objective, each from the raw metrics."""
    metric = semconv.METRIC_HTTP_REQUEST_DURATION
    calls, failing = f"{metric}_count", f'{metric}_count{{code=~"5.."}}'
    total, failed = (f"sum by (service) (rate({one}[{window}]))" for one in (calls, failing))
    found = {}
    for name, bound, budget in _SLOW:
        good = f'sum by (service) (rate({metric}_bucket{{le="{bound}"}}[{window}]))'
        found[name] = f"(1 - {good} / {total}) / {budget}"
    return {**found, "errors": f"{failed} / {total} / {_ERROR_BUDGET}"}


def _quantile(quantile: float, metric: str, window: str) -> str:
    return f"histogram_quantile({quantile}, sum by (le, service) (rate({metric}_bucket[{window}])))"


# --- Prometheus ---


class _Server:
    """One Prometheus on a folder's data, whose rules are replaced while it runs."""

    def __init__(self, directory: Path, binary: str) -> None:
        self._directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{address}"
        self._configuration = directory / "prometheus.yml"
        self._command = [
            binary,
            f"--config.file={self._configuration}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            "--web.enable-remote-write-receiver",
            "--log.level=error",
        ]

    def __enter__(self) -> _Server:
        self._configuration.write_text("{}\n")
        self._log = (self._directory / "log").open("wb")
        self._process = subprocess.Popen(self._command, stdout=self._log, stderr=self._log)
        for _ in range(600):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200:
                    return self
            if self._process.poll() is not None:
                break
            time.sleep(0.1)
        self.__exit__()
        raise RuntimeError(f"Prometheus does not start: {(self._directory / 'log').read_text()}")

    def __exit__(self, *exc: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(30)
        self._log.close()

    def measure(self, files: Mapping[str, str], target: str, seconds: float) -> dict[str, Any]:
        """Evaluate some rule files for a while."""
        intervals = {
            group["name"]: group["interval"]
            for text in files.values()
            for group in yaml.safe_load(text)["groups"]
        }
        self._load(files, target)
        began, cpu = time.monotonic(), self._metric("process_cpu_seconds_total")
        seen = []
        # The first rounds find nothing recorded yet.
        time.sleep(seconds / 3)
        while time.monotonic() < began + seconds:
            time.sleep(5)
            seen.append(self._by_group("prometheus_rule_group_last_duration_seconds"))
        cpu = self._metric("process_cpu_seconds_total") - cpu
        samples = self._by_group("prometheus_rule_group_last_evaluation_samples")
        failures = sum(self._by_group("prometheus_rule_evaluation_failures_total").values())
        # The quickest of several rounds: what else runs on the machine only ever adds to it.
        durations = {
            name: min(one[name] for one in seen if name in one) for name in sorted(set().union(*seen))
        }
        groups = {
            name: {"seconds": round(durations[name], 4), "interval": interval}
            for name, interval in intervals.items()
            if name in durations
        }
        worst = max(group["seconds"] / _seconds(group) for group in groups.values())
        return {
            "groups": groups,
            "not_evaluated": sorted(set(intervals) - set(durations)),
            "failures": failures,
            "samples_recorded_per_round": sum(samples.values()),
            "cpu_seconds_of_prometheus": round(cpu, 1),
            "worst_share_of_interval": round(worst, 4),
        }

    def _load(self, files: Mapping[str, str], target: str) -> None:
        """Replace the rules, all at one short interval, and scrape the target."""
        for old in self._directory.glob("*.rules.yaml"):
            old.unlink()
        for name, text in files.items():
            hastened = re.sub(r"^( +interval:) \S+$", rf"\1 {MEASURED_INTERVAL}", text, flags=re.MULTILINE)
            (self._directory / name).write_text(hastened)
        configuration = {
            "global": {"evaluation_interval": MEASURED_INTERVAL, "scrape_interval": f"{SCRAPE_SECONDS}s"},
            "rule_files": [str(self._directory / "*.rules.yaml")],
            "scrape_configs": [
                {"job_name": "b", "honor_labels": True, "static_configs": [{"targets": [target]}]},
            ],
        }
        self._configuration.write_text(yaml.safe_dump(configuration))
        before = self._metric("prometheus_config_last_reload_success_timestamp_seconds")
        self._process.send_signal(signal.SIGHUP)
        for _ in range(600):
            if self._metric("prometheus_config_last_reload_success_timestamp_seconds") > before:
                return
            time.sleep(0.1)
        raise RuntimeError(f"Prometheus refuses the rules: {(self._directory / 'log').read_text()}")

    def _metric(self, name: str) -> float:
        """A metric of Prometheus about itself, from its own page."""
        found = re.search(rf"^{name} (\S+)$", self._page(), flags=re.MULTILINE)
        return float(found[1]) if found else 0.0

    def _by_group(self, metric: str) -> dict[str, float]:
        """The same by rule group, of those that have been evaluated."""
        found: dict[str, float] = {}
        pattern = re.compile(rf'^{metric}{{rule_group="[^"]*;([^";]+)"}} (\S+)$', flags=re.MULTILINE)
        for group, value in pattern.findall(self._page()):
            if metric.endswith("_total") or float(value) > 0:
                found[group] = float(value)
        return found

    def _page(self) -> str:
        return httpx.get(f"{self.url}/metrics", timeout=30).text


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
