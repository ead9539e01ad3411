"""Series and changes from plain /metrics pages, scraped in process: no Prometheus, the same numbers."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self
from urllib.parse import urlsplit

import httpx
import numpy as np

from otelkit import semconv
from otelkit.errors import BackendUnreachable
from otelkit.model import ParameterChange
from otelkit.query.assemble import families_to_scrape, metric_names, quantiles
from otelkit.query.fleet import Settled
from otelkit.query.merge import Report, merge_reports
from otelkit.query.pages import ACCEPT, PageReader
from otelkit.query.panel import FloatArray
from otelkit.query.reader import Reader
from otelkit.query.samples import Grid, RawData, RawSeries
from otelkit.spec import ServiceMetrics, Spec

_SHORTEST_TIMEOUT_SECONDS: Final = 2.0
_Key = tuple[str, tuple[tuple[str, str], ...]]


class _Stored:
    """Samples of one series, growing."""

    __slots__ = ("times_ms", "values")

    def __init__(self) -> None:
        self.times_ms = array("q")
        self.values = array("d")


class ScrapeSource(Reader):
    """Scrapes pages at a fixed interval in its own thread; keeps the series that the spec needs in memory.

    Args:
        urls: Addresses of /metrics pages.
        spec: Which services there are and which metrics they have.
        interval: Seconds between scrapes.
        client: An HTTP client to use; not closed here.
        clock: Unix seconds.
    """

    def __init__(
        self,
        urls: Sequence[str],
        spec: Spec,
        *,
        interval: float = 1.0,
        client: httpx.Client | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(spec)
        self._urls = tuple(urls)
        self._interval = interval
        self._own = client is None
        self._client = client or httpx.Client(timeout=max(interval, _SHORTEST_TIMEOUT_SECONDS))
        self._clock = clock
        self._pages = PageReader(families_to_scrape(spec))
        self._series: dict[_Key, _Stored] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failures: dict[str, str] = {}
        self._answered: set[str] = set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return ", ".join(self._urls)

    def start(self) -> None:
        """Begin to scrape in the background; a page that does not answer leaves a gap."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="otelkit-scrape", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End scraping; what was scraped can still be read."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """End scraping and close the connections that this source opened."""
        self.stop()
        if self._own:
            self._client.close()

    def scrape(self) -> None:
        """Scrape every page once, now."""
        for url in self._urls:
            at = self._clock()
            try:
                response = self._client.get(url, headers={"accept": ACCEPT})
                response.raise_for_status()
                samples = list(self._pages.samples(response.text, response.headers.get("content-type", "")))
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                self._failures[url] = str(error) or type(error).__name__
                continue
            self._answered.add(url)
            self._keep(urlsplit(url).netloc, round(at * 1000), samples)

    def service_names(self, start: float, end: float) -> tuple[str, ...]:
        names = set()
        listed = {service.name: service for service in self.spec.resolved()}
        default = self.spec.service("*")
        for labels in self._labels_of(f"{default.latency}_count", start, end):
            name = labels.get(default.service_label, "")
            if name:
                listed.setdefault(name, self.spec.service(name))
        for name, service in listed.items():
            for labels in self._labels_of(f"{service.latency}_count", start, end):
                if all(matcher.matches(labels) for matcher in service.matchers):
                    names.add(name)
                    break
        return tuple(sorted(names))

    def changes(self, start: float, end: float, service: str | None = None) -> tuple[ParameterChange, ...]:
        """Parameter changes first seen between two Unix times, oldest first; reports of one are merged.

        Raises:
            BackendUnreachable: no page has ever answered.
        """
        self.demand_an_answer()
        reports = [
            Report(series.target, series.labels, float(series.values[-1]))
            for series in self._read(semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP, -np.inf, np.inf)
            if service is None or series.labels.get(semconv.LABEL_SERVICE) == service
        ]
        settled = [
            one
            for series in self._read(semconv.METRIC_PARAMETER_SETTLED, -np.inf, np.inf)
            if service is None or series.labels.get(semconv.LABEL_SERVICE) == service
            for one in _settled(series)
        ]
        merged = merge_reports(reports, settled)
        return tuple(change for change in merged if start <= change.first_seen <= end)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.scrape()
            due = max(due + self._interval, time.monotonic())
            self._stop.wait(due - time.monotonic())

    def _keep(self, instance: str, at_ms: int, samples: list[tuple[str, dict[str, str], float]]) -> None:
        with self._lock:
            for name, labels, value in samples:
                key = (name, (*sorted(labels.items()), ("instance", instance)))
                stored = self._series.get(key)
                if stored is None:
                    stored = self._series[key] = _Stored()
                stored.times_ms.append(at_ms)
                stored.values.append(value)

    def demand_an_answer(self) -> None:
        """Say which page never answered; one that failed now and then is only a warning.

        Raises:
            BackendUnreachable: a page has never answered.
        """
        for url, failure in self._failures.items():
            if url in self._answered:
                self.warn(f"{url} did not answer every scrape; the last failure was: {failure}")
                continue
            raise BackendUnreachable(
                f"the metrics page {url} does not answer: {failure}",
                hint="Is the service running, and does it publish metrics there? Open the address to see.",
            )

    def _scrape_seconds(self) -> float:
        return self._interval

    def _raw(self, service: ServiceMetrics, start: float, end: float) -> list[RawSeries]:
        self.demand_an_answer()
        return [
            series
            for name in metric_names(service)
            for series in self._read(name, start, end)
            if all(matcher.matches(series.labels) for matcher in service.matchers)
        ]

    def _quantiles(
        self, service: ServiceMetrics, data: RawData, grid: Grid, window: float
    ) -> Mapping[float, FloatArray]:
        return quantiles(data, service, grid, window, semconv.RECORDED_QUANTILES)

    def _labels_of(self, name: str, start: float, end: float) -> list[Mapping[str, str]]:
        return [series.labels for series in self._read(name, start, end)]

    def _read(self, name: str, start: float, end: float) -> list[RawSeries]:
        """Series of a name with samples in ``(start, end]`` (Unix seconds), copied."""
        found = []
        with self._lock:
            for (metric, labels), stored in self._series.items():
                if metric != name:
                    continue
                times = np.array(stored.times_ms, dtype=np.int64)
                inside = (times > start * 1000) & (times <= end * 1000)
                if inside.any():
                    values = np.array(stored.values)[inside]
                    found.append(RawSeries(name, dict(labels), times[inside], values))
        return found


def _settled(series: RawSeries) -> list[Settled]:
    """A series' periods: a process may come back to a value, or be replaced on the same address."""
    times = series.times_ms / 1000
    ends = np.append(np.flatnonzero(np.diff(series.values)), len(times) - 1)
    return [
        Settled(series.target, series.labels, float(series.values[end]), float(times[end])) for end in ends
    ]
