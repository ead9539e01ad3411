"""The services that ``rules.py`` has a Prometheus watch: their history, and their live page."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from otelkit import semconv
from otelkit.spec import PRESETS

SCRAPE_SECONDS: Final = 15
HEAD_SECONDS: Final = 65 * 60
"""History that lies in memory, as the last hours do in a Prometheus that has been running for long. All
series have it, and it fills every window of a quantile. What is older lies in blocks, and is had only of what
burn rates are computed from, in either form."""
_SLICE_SECONDS: Final = 60
_BUDGET_SECONDS: Final = 30
_CALLS_PER_SCRAPE: Final = 30.0
_FAILED_PER_SCRAPE: Final = 0.003
SEED: Final = 7


class Fleet:
    """Healthy services whose counters grow steadily, each as several processes with calls of two codes.

    Args:
        hours: History of what burn rates are computed from.
    """

    def __init__(self, services: int, instances: int, hours: float) -> None:
        self.services, self.instances = services, instances
        random = np.random.default_rng(SEED)
        bounds = (*(PRESETS["http"].buckets or ()), float("inf"))
        metric = semconv.METRIC_HTTP_REQUEST_DURATION
        self.names: list[str] = []
        paces: list[float] = []
        for service in range(services):
            for instance in range(instances):
                for code, pace in (("200", _CALLS_PER_SCRAPE), ("500", _FAILED_PER_SCRAPE)):
                    labels = f'service="s{service:03}",instance="i{instance}",job="b",code="{code}"'
                    for bound, share in zip(bounds, _healthy(random, bounds), strict=True):
                        le = "+Inf" if np.isinf(bound) else repr(bound)
                        self.names.append(f'{metric}_bucket{{{labels},le="{le}"}}')
                        paces.append(float(share * pace))
                    self.names += [f"{metric}_count{{{labels}}}", f"{metric}_sum{{{labels}}}"]
                    paces += [pace, pace / 2]
        self.paces = np.array(paces)
        self.now = int(time.time())
        self.began = self.now - int(hours * 3600) - 300
        self.header = f"# TYPE {metric} histogram\n"

    def values(self, at: float) -> list[float]:
        """The counters at a Unix time."""
        values: list[float] = np.floor(self.paces * ((at - self.began) / SCRAPE_SECONDS)).tolist()
        return values

    def page(self) -> bytes:
        now = self.values(time.time())
        lines = (f"{name} {value:.0f}\n" for name, value in zip(self.names, now, strict=True))
        return (self.header + "".join(lines)).encode()

    def write_blocks(self, directory: Path, promtool: str) -> None:
        """Write the history before the head's as blocks of Prometheus into ``directory / "data"``."""
        text = directory / "history.om"
        written: set[str] = set()
        times = range(self.began, self.now - HEAD_SECONDS, SCRAPE_SECONDS)
        with text.open("w") as file:
            file.write(self.header)
            for name, pace in zip(self.names, self.paces.tolist(), strict=True):
                if "_count{" in name or 'le="0.5"' in name or 'le="2.5"' in name:
                    file.writelines(
                        f"{name} {int(pace * ((at - self.began) / SCRAPE_SECONDS))} {at}\n" for at in times
                    )
            for name, value, every in self._recorded():
                metric = name.split("{")[0]
                file.write(f"# TYPE {metric} gauge\n" if metric not in written else "")
                written.add(metric)
                file.writelines(f"{name} {value} {at}\n" for at in times[:: every // SCRAPE_SECONDS])
            file.write("# EOF\n")
        blocks = ["tsdb", "create-blocks-from", "openmetrics", str(text), str(directory / "data")]
        subprocess.run([promtool, *blocks], check=True, capture_output=True)
        text.unlink()

    def push_head(self, directory: Path, promtool: str, url: str) -> None:
        """Send the last hour of all series to a Prometheus that scrapes nothing yet, oldest first."""
        recorded = list(self._recorded())
        for start in range(self.now - HEAD_SECONDS, self.now, _SLICE_SECONDS):
            times = range(start, min(start + _SLICE_SECONDS, self.now), SCRAPE_SECONDS)
            scraped = (zip(self.names, self.values(at), [at] * len(self.names), strict=True) for at in times)
            ruled = (
                ((name, value, at) for name, value, every in recorded if not (at - start) % every)
                for at in times
            )
            # promtool gives every series a job, unless that is empty; only what is scraped has one.
            for job, samples in (("b", scraped), ("", ruled)):
                page = directory / "slice.prom"
                with page.open("w") as file:
                    for at_once in samples:
                        file.writelines(f"{name} {value:.12g} {at}000\n" for name, value, at in at_once)
                command = [
                    promtool,
                    "push",
                    "metrics",
                    f"--label=job={job}",
                    f"{url}/api/v1/write",
                    str(page),
                ]
                subprocess.run(command, check=True, capture_output=True)
                page.unlink()

    def _recorded(self) -> Iterator[tuple[str, float, int]]:
        """What our rules would have recorded meanwhile, of the series that burn rates are computed from.

        Series, value, and the seconds between its samples.
        """
        for service in range(self.services):
            label = f'service="s{service:03}"'
            calls = _CALLS_PER_SCRAPE * self.instances / SCRAPE_SECONDS
            yield f"{semconv.RECORDED_REQUESTS}5m{{{label}}}", calls, SCRAPE_SECONDS
        for metric in (semconv.RECORDED_BROKEN, semconv.RECORDED_BUDGET_USE):
            for slo in ("fast", "tail", "errors"):
                for service in range(self.services):
                    yield (
                        f'{metric}{{service="s{service:03}",slo="{slo}",slo_window="30d"}}',
                        0.0,
                        _BUDGET_SECONDS,
                    )

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


def _healthy(random: np.random.Generator, bounds: tuple[float, ...]) -> Any:
    """Share of calls below each bound, of a service that keeps its objectives."""
    latencies = np.sort(random.lognormal(np.log(random.uniform(0.05, 0.1)), 0.5, 2000))
    return np.searchsorted(latencies, bounds, side="right") / len(latencies)
