"""The generated stack on a real Docker engine, with images built from Debian's and PyPI's packages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PORTS = (
    "PROMETHEUS_PORT",
    "OTLP_GRPC_PORT",
    "OTLP_HTTP_PORT",
    "ANALYSER_PORT",
    "ALERTMANAGER_PORT",
    "DEMO_PORT",
    "TEMPO_PORT",
    "GRAFANA_PORT",
)
IMAGES = {
    "PROMETHEUS_IMAGE": "otelkit-test/prometheus",
    "ALERTMANAGER_IMAGE": "otelkit-test/alertmanager",
    "OTEL_COLLECTOR_IMAGE": "otelkit-test/collector",
    "OTELKIT_IMAGE": "otelkit-test/analyser",
    "OTELKIT_DEMO_IMAGE": "otelkit-test/demo",
}
SPEC = """
windows: [30s, 1m, 5m]
scrape_interval: 5s
evaluation_interval: 5s
alerts:
  - {latency_above: 10ms, for: 5s}
"""
ALERTMANAGER = """
route: {receiver: hook, group_wait: 1s, group_interval: 5s, repeat_interval: 1m}
receivers: [{name: hook, webhook_configs: [{url: "http://webhook:9000/"}]}]
"""


def docker(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Standard output of a docker command; its complaint where it fails."""
    command = [str(ROOT / "scripts" / "with-tools"), "docker", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr[-3000:]}"
    return done.stdout


def eventually(what: str, check: Callable[[], Any], seconds: float = 120) -> Any:
    """What ``check`` gives once it gives something true; HTTP errors and failed asserts count as not yet."""
    deadline = time.monotonic() + seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            if found := check():
                return found
        except (httpx.HTTPError, AssertionError, LookupError) as error:
            last = error
        time.sleep(0.5)
    raise AssertionError(f"not within {seconds:.0f} s: {what} ({last})")


@dataclass
class Stack:
    """The running stack."""

    directory: Path
    """Where its compose.yaml is."""
    project: str
    environment: Mapping[str, str]

    @classmethod
    def generated(cls, directory: Path, model: Path, ports: Sequence[int]) -> Stack:
        """Write it with a spec of the tests' own; nothing is started."""
        (directory / "otelkit.yaml").write_text(SPEC)
        otelkit = str(Path(sys.executable).with_name("otelkit"))
        command = [otelkit, "generate", "compose", "--spec", "otelkit.yaml", "-o", "compose"]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
        (directory / "compose" / "alertmanager" / "alertmanager.yml").write_text(ALERTMANAGER)
        environment = {
            **os.environ,
            **IMAGES,
            **{name: str(port) for name, port in zip(PORTS, ports, strict=True)},
            "COMPOSE_PROFILES": "demo,alerts",
            "OTELKIT_MODEL_FILE": str(model),
            "OTELKIT_DEMO_RATE": "0",
            "OTELKIT_DASHBOARDS": str(ROOT / "dashboards"),
            "OTELKIT_TEST_WEBHOOK": str(HERE / "webhook.py"),
        }
        return cls(directory / "compose", f"otelkit-test-{os.getpid()}", environment)

    def compose(self, *arguments: str) -> str:
        files = ("-f", str(self.directory / "compose.yaml"), "-f", str(HERE / "compose.test.yaml"))
        return docker("compose", "-p", self.project, *files, *arguments, environment=self.environment)

    def port(self, name: str) -> int:
        return int(self.environment[name])

    def logs(self, service: str) -> str:
        return self.compose("logs", "--no-color", "--no-log-prefix", service)

    def query(self, query: str, at: float | None = None) -> list[dict[str, Any]]:
        parameters = {"query": query} | ({} if at is None else {"time": f"{at:.3f}"})
        result: list[dict[str, Any]] = self.ask("query", parameters)["result"]
        return result

    def ask(self, path: str, parameters: Mapping[str, Any] | None = None) -> Any:
        """An answer of Prometheus."""
        url = f"http://127.0.0.1:{self.port('PROMETHEUS_PORT')}/api/v1/{path}"
        answer = httpx.get(url, params=parameters, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def containers(self) -> dict[str, dict[str, Any]]:
        """Service -> what the engine says of its container."""
        of_project = f"label=com.docker.compose.project={self.project}"
        ids = docker("ps", "--all", "--quiet", "--filter", of_project).split()
        found = json.loads(docker("inspect", *ids)) if ids else []
        return {one["Config"]["Labels"]["com.docker.compose.service"]: one for one in found}

    def kill(self, *services: str) -> None:
        """As the kernel would: the engine must not take it for its user's wish."""
        containers = self.containers()
        for service in services:
            os.kill(containers[service]["State"]["Pid"], signal.SIGKILL)

    def unwell(self) -> dict[str, str]:
        """Services whose container does not run, or is not healthy."""
        states = {name: one["State"] for name, one in self.containers().items()}
        return {
            name: state.get("Health", {}).get("Status", state["Status"])
            for name, state in states.items()
            if not state["Running"] or state.get("Health", {}).get("Status", "healthy") != "healthy"
        }

    def samples(self, selector: str, start: float, end: float) -> list[tuple[float, float]]:
        """Raw samples of one series in ``(start, end]``, Unix seconds."""
        found = self.query(f"{selector}[{round((end - start) * 1000)}ms]", end)
        assert len(found) == 1, found
        return [(float(at), float(value)) for at, value in found[0]["values"]]
