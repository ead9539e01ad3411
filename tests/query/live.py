"""A scripted /metrics page over real HTTP, and a real Prometheus that scrapes it."""

from __future__ import annotations

import contextlib
import http.server
import random
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import yaml
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from otelkit import rules, semconv
from otelkit.spec import Spec

BOUNDS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


class ScriptedService:
    """A process with otelkit's metrics: traffic on demand, restarts, and times at which its page fails."""

    def __init__(self, service: str, seed: int) -> None:
        self.service = service
        self.random = random.Random(seed)
        self.down = False
        self._lock = threading.Lock()
        self.calls: list[float] = []
        """Latency in seconds of every call that ended, in order; restarts do not clear it."""
        self.ended: list[float] = []
        """Unix seconds at which each of them ended."""
        self.restart()

    def restart(self) -> None:
        """Begin anew with every counter at zero."""
        self.registry = CollectorRegistry()
        labels = ["service", "error_type"]
        name = semconv.METRIC_OPERATION_DURATION
        self.duration = Histogram(name, "d", labels, buckets=BOUNDS, registry=self.registry)
        self.tokens = Histogram(
            semconv.METRIC_TOKEN_USAGE,
            "t",
            ["service", "gen_ai_token_type"],
            buckets=(1, 64, 4096),
            registry=self.registry,
        )
        self.started = Counter(semconv.METRIC_GENERATIONS_STARTED, "s", ["service"], registry=self.registry)
        self.running = Gauge(semconv.METRIC_GENERATIONS_IN_FLIGHT, "f", ["service"], registry=self.registry)
        self.changed = Gauge(
            semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP,
            "c",
            ["service", "parameter", "old", "new", "source", "scope", "change_id"],
            registry=self.registry,
        )
        self.running.labels(self.service).set(3)
        self.started.labels(self.service)

    def call(self, median: float = 0.15, *, error: str = "") -> None:
        latency = self.random.lognormvariate(0, 0.8) * median
        with self._lock:
            self.calls.append(latency)
            self.ended.append(time.time())
            self.started.labels(self.service).inc()
            self.duration.labels(self.service, error).observe(latency)
            self.tokens.labels(self.service, "output").observe(20)
            self.tokens.labels(self.service, "input").observe(100)

    def page(self) -> bytes:
        """The metrics as of one moment: no call is in one of them and not yet in another."""
        with self._lock:
            return generate_latest(self.registry)

    def change(self, parameter: str, old: str, new: str, at: float) -> None:
        self.changed.labels(self.service, parameter, old, new, "observed", "", f"{parameter}{new}").set(at)


@contextlib.contextmanager
def serve(service: ScriptedService) -> Iterator[str]:
    """Serve a service's page on a free port; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A scraper that ran out of patience has hung up.
            with contextlib.suppress(ConnectionError):
                if service.down:
                    self.send_error(503)
                    return
                body = service.page()
                self.send_response(200)
                self.send_header("content-type", CONTENT_TYPE_LATEST)
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def prometheus(binary: Path, directory: Path, spec: Spec, pages: list[str]) -> Iterator[str]:
    """A Prometheus with the spec's rules that scrapes some pages; yields its address.

    Where the spec says that histograms are native, Prometheus makes them so on scraping.
    """
    for name, text in rules.generate(spec).items():
        (directory / name).write_text(text)
    targets = [page.removeprefix("http://").removesuffix("/metrics") for page in pages]
    configuration = {
        "global": {
            "scrape_interval": str(spec.scrape_interval),
            "scrape_timeout": str(spec.scrape_interval),
            "evaluation_interval": str(spec.evaluation_interval),
        },
        "rule_files": [str(directory / "*.rules.yaml")],
        "scrape_configs": [
            {
                "job_name": "test",
                "static_configs": [{"targets": targets}],
                **({"convert_classic_histograms_to_nhcb": True} if spec.native else {}),
            }
        ],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(binary),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--scrape.discovery-reload-interval=100ms",
                "--enable-feature=native-histograms,exemplar-storage",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    answer = httpx.get(f"{url}/api/v1/query", params={"query": "sum(up)"}, timeout=1)
                    found = answer.json()["data"]["result"] if answer.status_code == 200 else []
                    if found and float(found[0]["value"][1]) == len(pages):
                        break
                if time.monotonic() > deadline or process.poll() is not None:
                    raise RuntimeError((directory / "log").read_text())
                time.sleep(0.05)
            yield url
        finally:
            process.terminate()
            process.wait(20)
