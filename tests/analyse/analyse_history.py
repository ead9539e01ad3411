"""A Prometheus with hours of scripted history, and room for a page that it scrapes."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import yaml

from otelkit import rules, semconv
from otelkit.model import ParameterChange, label_text
from otelkit.spec import Spec

STEP = 15
BOUNDS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 2.5, 3.2, 4.0, 6.0)


@dataclass
class Scripted:
    """A service with steady traffic; its latency is multiplied by ``factor`` from Unix time ``at`` on."""

    name: str
    at: float = float("inf")
    factor: float = 1.0
    changes: Sequence[ParameterChange] = field(default_factory=tuple)
    calls_per_step: int = 45


def change(service: str, parameter: str, old: object, new: object, at: float) -> ParameterChange:
    return ParameterChange(service, parameter, old, new, at, at)


def openmetrics(services: Sequence[Scripted], start: float, end: float, seed: int = 1) -> str:
    """All series of the services with time stamps, a point every ``STEP`` seconds."""
    dice = np.random.default_rng(seed)
    times = np.arange(start, end + 1, STEP)
    families: dict[str, tuple[str, list[str]]] = {}

    def add(family: str, kind: str, name: str, labels: dict[str, str], values: np.ndarray) -> None:
        said = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels.items())
        lines = families.setdefault(family, (kind, []))[1]
        lines += [
            f"{name}{{{said}}} {value!r} {at:.0f}"
            for at, value in zip(times.tolist(), values.tolist(), strict=True)
            if value == value
        ]

    for service in services:
        target = {"job": "services", "instance": service.name, "service": service.name}
        factor = np.where(times > service.at, service.factor, 1.0)
        calls = dice.poisson(service.calls_per_step, len(times))
        duration, tokens = semconv.METRIC_OPERATION_DURATION, semconv.METRIC_TOKEN_USAGE
        latencies = [
            by * 0.2 * dice.lognormal(0, 0.5, number) for by, number in zip(factor, calls, strict=True)
        ]
        for bound in (*BOUNDS, float("inf")):
            below = np.array([(some <= bound).sum() for some in latencies])
            le = "+Inf" if bound == float("inf") else repr(bound)
            add(duration, "histogram", f"{duration}_bucket", target | {"le": le}, below.cumsum())
        add(duration, "histogram", f"{duration}_count", target, calls.cumsum())
        add(duration, "histogram", f"{duration}_sum", target, np.array([s.sum() for s in latencies]).cumsum())
        of_output = target | {semconv.LABEL_TOKEN_TYPE: "output"}
        drawn = calls * factor * dice.normal(100, 3, len(times))
        add(tokens, "histogram", f"{tokens}_bucket", of_output | {"le": "+Inf"}, calls.cumsum())
        add(tokens, "histogram", f"{tokens}_count", of_output, calls.cumsum())
        add(tokens, "histogram", f"{tokens}_sum", of_output, drawn.cumsum())
        started = semconv.METRIC_GENERATIONS_STARTED
        add(started, "counter", f"{started}_total", target, calls.cumsum())
        for one in service.changes:
            labels = target | {
                semconv.LABEL_PARAMETER: one.parameter,
                semconv.LABEL_OLD: label_text(one.old),
                semconv.LABEL_NEW: label_text(one.new),
                semconv.LABEL_SOURCE: one.source.value,
                semconv.LABEL_SCOPE: one.scope,
                semconv.LABEL_CHANGE_ID: one.id,
            }
            name = semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP
            add(name, "gauge", name, labels, np.where(times >= one.first_seen, one.first_seen, np.nan))
    text = [
        line for family, (kind, lines) in families.items() for line in (f"# TYPE {family} {kind}", *lines)
    ]
    return "\n".join([*text, "# EOF\n"])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fill(promtool: Path, directory: Path, text: str) -> None:
    """Put a history into ``directory / 'data'``."""
    page = directory / "history.om"
    page.write_text(text, encoding="utf-8")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", page, directory / "data"],
        check=True,
        capture_output=True,
    )


@dataclass
class Server:
    """A Prometheus that can be stopped and started again over its data."""

    binary: Path
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            str(self.binary),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--scrape.discovery-reload-interval=100ms",
            "--log.level=warn",
        ]
        with (self.directory / "prometheus.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for(lambda: httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=20)
        return [(one["metric"], float(one["value"][1])) for one in answer.json()["data"]["result"]]


@contextlib.contextmanager
def prometheus(
    binary: Path, directory: Path, *, spec: Spec | None = None, scrape: int | None = None
) -> Iterator[Server]:
    """A Prometheus over ``directory / 'data'``.

    Args:
        spec: Its rules are loaded.
        scrape: Port of a page that is scraped each second.
    """
    for name, text in rules.generate(spec).items() if spec else ():
        (directory / name).write_text(text)
    targets = [{"targets": [f"127.0.0.1:{scrape}"]}] if scrape else []
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "*.rules.yaml")],
        "scrape_configs": [{"job_name": "analyser", "static_configs": targets}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    server = Server(binary, directory, free_port())
    try:
        server.start()
        yield server
    finally:
        server.stop()


def wait_for(done: object, seconds: float = 60) -> None:
    """Until a callable gives something true; HTTP errors count as not yet."""
    assert callable(done)
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(httpx.HTTPError):
            if done():
                return
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


class Scene:
    """What is in the history: two judged changes of ``chat``, and one that is too new."""

    def __init__(self, server: Server, page_port: int, now: float) -> None:
        self.server, self.page_port, self.now = server, page_port, now
