"""Series and changes from the HTTP API of Prometheus, or of what speaks it (Thanos, Mimir)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Self

import httpx
import numpy as np

from otelkit import semconv
from otelkit.errors import BackendUnreachable
from otelkit.model import ParameterChange
from otelkit.query.assemble import metric_names
from otelkit.query.fleet import ROLLOUT_SECONDS, Settled, place_of
from otelkit.query.merge import Report, merge_reports
from otelkit.query.native import classic_series
from otelkit.query.panel import FloatArray
from otelkit.query.reader import Reader
from otelkit.query.samples import Grid, RawData, RawSeries
from otelkit.spec import Duration, Matcher, ServiceMetrics, Spec, selector

_MAX_POINTS: Final = 10_000
"""Points per series in one answer; Prometheus refuses more than 11,000."""
_RAW_CHUNK_SECONDS: Final = 3600.0
"""Raw samples read in one answer: bounds its size where scrapes are frequent."""
_MAX_MOMENTS: Final = 1_000
"""Moments at which it is looked whether a process was still there."""
_TIMEOUT_SECONDS: Final = 60.0


class PrometheusSource(Reader):
    """Reads recorded quantiles, and raw samples for everything that is counted.

    Args:
        url: Address of Prometheus, with any path prefix.
        spec: Which services there are and which metrics they have.
        client: An HTTP client to use, for instance with credentials; not closed here.
    """

    def __init__(self, url: str, spec: Spec, client: httpx.Client | None = None) -> None:
        super().__init__(spec)
        self._url = url.rstrip("/")
        self._own = client is None
        self._client = client or httpx.Client(timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this source opened."""
        if self._own:
            self._client.close()

    @property
    def address(self) -> str:
        return self._url

    def service_names(self, start: float, end: float) -> tuple[str, ...]:
        span = {"start": start, "end": end}
        listed = self.spec.resolved()
        names = {
            service.name
            for service in listed
            if service.own_selector
            and self._get(
                "series", {"match[]": selector(_calls(service), service.matchers), "limit": 1, **span}
            )
        }
        # One question per metric and label, however many services share them.
        asked: dict[tuple[str, str], set[str]] = {}
        for service in (*listed, self.spec.service("*")):
            if not service.own_selector:
                asked.setdefault((_calls(service), service.service_label), set()).add(service.name)
        for (metric, label), wanted in asked.items():
            found = {str(one) for one in self._get(f"label/{label}/values", {"match[]": metric, **span})}
            names |= found if "*" in wanted else found & wanted
        return tuple(sorted(names))

    def changes(self, start: float, end: float, service: str | None = None) -> tuple[ParameterChange, ...]:
        """Parameter changes first seen between two Unix times, oldest first; reports of one are merged.

        Raises:
            BackendUnreachable: Prometheus did not answer, or answered with an error.
        """
        metric = selector(
            semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP,
            () if service is None else (Matcher(semconv.LABEL_SERVICE, "=", service),),
        )
        # A change is reported by a scrape after it, and by other workers until the rollout ends.
        span = Duration.of(end - start + 2 * ROLLOUT_SECONDS)
        result = self._query(f"last_over_time({metric}[{span}])", end + ROLLOUT_SECONDS)
        reports = []
        for one in result:
            labels: Mapping[str, str] = one["metric"]
            series = RawSeries("", labels, np.array([], dtype=np.int64), np.array([]))
            reports.append(Report(series.target, labels, float(one["value"][1])))
        merged = merge_reports(reports, self._settled(start, end, service))
        return tuple(change for change in merged if start <= change.first_seen <= end)

    def _settled(self, start: float, end: float, service: str | None) -> list[Settled]:
        """What processes settled on, for parameters that have had more than one value."""
        named = () if service is None else (Matcher(semconv.LABEL_SERVICE, "=", service),)
        metric = selector(semconv.METRIC_PARAMETER_SETTLED, named)
        seconds = end - start + 2 * ROLLOUT_SECONDS
        span, until = Duration.of(seconds), end + ROLLOUT_SECONDS
        last = self._query(f"last_over_time({metric}[{span}])", until)
        values: dict[tuple[str, str, str], set[str]] = {}
        for one in last:
            values.setdefault(place_of(one["metric"]), set()).add(one["metric"].get(semconv.LABEL_VALUE, ""))
        moved = {place for place, texts in values.items() if len(texts) > 1}
        if not moved:
            return []
        step = Duration.of(max(self.spec.scrape_interval.seconds, seconds / _MAX_MOMENTS))
        parameters = "|".join(sorted({re.escape(parameter) for _, _, parameter in moved}))
        only = selector(
            semconv.METRIC_PARAMETER_SETTLED, (*named, Matcher(semconv.LABEL_PARAMETER, "=~", parameters))
        )
        seen = {
            _labels_key(one["metric"]): float(one["value"][1])
            for one in self._query(f"max_over_time(timestamp({only})[{span}:{step}])", until)
        }
        found = []
        for one in last:
            labels = one["metric"]
            if place_of(labels) in moved:
                since = float(one["value"][1])
                target = RawSeries("", labels, np.array([], dtype=np.int64), np.array([])).target
                found.append(Settled(target, labels, since, seen.get(_labels_key(labels), since)))
        return found

    def metric_names(self) -> frozenset[str]:
        """Names of all series that Prometheus has.

        Raises:
            BackendUnreachable: Prometheus did not answer, or answered with an error.
        """
        return frozenset(self._get("label/__name__/values", {}))

    def _scrape_seconds(self) -> float:
        return self.spec.scrape_interval.seconds

    def _raw(self, service: ServiceMetrics, start: float, end: float) -> list[RawSeries]:
        pattern = "|".join(re.escape(name) for name in metric_names(service, native=service.native))
        wanted = selector("", (Matcher("__name__", "=~", pattern), *service.matchers))
        floats: dict[tuple[tuple[str, str], ...], list[Any]] = {}
        histograms: dict[tuple[tuple[str, str], ...], list[Any]] = {}
        for chunk_start, chunk_end in _chunks(start, end, _RAW_CHUNK_SECONDS):
            for one in self._query(f"{wanted}[{Duration.of(chunk_end - chunk_start)}]", chunk_end):
                key = tuple(sorted(one["metric"].items()))
                if "values" in one:
                    floats.setdefault(key, []).extend(one["values"])
                if "histograms" in one:
                    histograms.setdefault(key, []).extend(one["histograms"])
        found = [_raw_series(dict(labels), samples) for labels, samples in floats.items()]
        for labels, samples in histograms.items():
            found += classic_series(dict(labels), samples)
        return found

    def _quantiles(
        self, service: ServiceMetrics, data: RawData, grid: Grid, window: float
    ) -> Mapping[float, FloatArray]:
        text = str(Duration.of(window))
        named = (Matcher(semconv.LABEL_SERVICE, "=", service.name),)
        buckets = selector(service.latency + ("" if service.native else "_bucket"), service.matchers)
        total = "sum" if service.native else "sum by (le)"
        scale = "" if service.seconds_per_unit == 1 else f" * {service.seconds_per_unit:g}"
        found: dict[float, FloatArray] = {}
        for quantile in semconv.RECORDED_QUANTILES:
            recorded = semconv.recorded_quantile(quantile, text)
            values = self._range(selector(recorded, named), grid)
            if values is None:
                self.warn(
                    f"{self._url} has no {recorded} of {service.name}: it was computed from the raw buckets"
                )
                values = self._range(
                    f"histogram_quantile({quantile}, {total} (rate({buckets}[{text}]))){scale}", grid
                )
            found[quantile] = values if values is not None else np.full(len(grid.times), np.nan)
        return found

    def _range(self, query: str, grid: Grid) -> FloatArray | None:
        """One series on the grid; None where Prometheus has none."""
        values = np.full(len(grid.times), np.nan)
        seen = False
        for first in range(0, len(grid.times), _MAX_POINTS):
            times = grid.times[first : first + _MAX_POINTS]
            answer = self._get(
                "query_range",
                {
                    "query": query,
                    "start": f"{times[0]:.3f}",
                    "end": f"{times[-1]:.3f}",
                    "step": f"{grid.step:.3f}",
                },
            )
            for one in answer["result"]:
                seen = True
                at = np.array([sample[0] for sample in one["values"]])
                index = first + np.round((at - times[0]) / grid.step).astype(int)
                values[index] = [float(sample[1]) for sample in one["values"]]
        return values if seen else None

    def _query(self, query: str, time: float) -> list[dict[str, Any]]:
        answer = self._get("query", {"query": query, "time": f"{time:.3f}"})
        result: list[dict[str, Any]] = answer["result"]
        return result

    def _get(self, path: str, parameters: Mapping[str, str | float | int]) -> Any:
        url = f"{self._url}/api/v1/{path}"
        try:
            response = self._client.get(url, params=parameters)
        except httpx.HTTPError as error:
            raise BackendUnreachable(
                f"Prometheus at {self._url} does not answer: {error or type(error).__name__}",
                hint="Is it running? Its address is --prometheus URL, or prometheus: in otelkit.yaml.",
            ) from error
        except httpx.InvalidURL as error:
            raise BackendUnreachable(
                f"{self._url!r} is not an address: {error}", hint="Write for instance http://127.0.0.1:9090."
            ) from error
        try:
            body = response.json()
            status = body["status"]
        except (ValueError, KeyError, TypeError):
            raise BackendUnreachable(
                f"{url} answered {response.status_code} and no JSON of Prometheus",
                hint="Does the address point at Prometheus itself, with its path prefix?",
            ) from None
        # A limit is only given where one answer is enough, and cutting the rest off is then no news.
        if "limit" not in parameters:
            for message in (*body.get("warnings", ()), *body.get("infos", ())):
                self.warn(f"Prometheus at {self._url}: {message}")
        if status != "success":
            problem = body.get("error", "unknown error")
            raise BackendUnreachable(
                f"Prometheus at {self._url} answered {response.status_code}: {problem}",
                hint=f"The query was {parameters.get('query', path)}",
            )
        return body["data"]


def _calls(service: ServiceMetrics) -> str:
    """The metric by whose series a service is known to be there."""
    return service.latency if service.native else f"{service.latency}_count"


def _labels_key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))


def _chunks(start: float, end: float, size: float) -> Iterator[tuple[float, float]]:
    at = start
    while at < end:
        yield at, min(at + size, end)
        at += size


def _raw_series(labels: Mapping[str, str], samples: list[Any]) -> RawSeries:
    return RawSeries(
        name=labels["__name__"],
        labels=labels,
        times_ms=np.array([round(float(sample[0]) * 1000) for sample in samples], dtype=np.int64),
        values=np.array([float(sample[1]) for sample in samples]),
    )
