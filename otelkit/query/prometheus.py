"""Series and changes from the HTTP API of Prometheus, or of Thanos, Mimir or VictoriaMetrics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx
import numpy as np

from otelkit import semconv
from otelkit.errors import BackendUnreachable
from otelkit.model import ParameterChange
from otelkit.query.assemble import metric_names
from otelkit.query.connection import Api, in_pieces
from otelkit.query.fleet import ROLLOUT_SECONDS, Settled, place_of
from otelkit.query.merge import Report, merge_reports
from otelkit.query.native import classic_series
from otelkit.query.panel import FloatArray
from otelkit.query.reader import Reader
from otelkit.query.samples import Grid, RawData, RawSeries, Target
from otelkit.spec import Duration, Matcher, ServiceMetrics, Spec, selector

_MAX_POINTS: Final = 10_000
"""Points per series in one answer; Prometheus refuses more than 11,000."""
_FEWEST_POINTS: Final = 100
"""A server that gives up on so few is asked no further."""
_RAW_CHUNK_SECONDS: Final = 3600.0
"""Raw samples read in one answer: bounds its size where scrapes are frequent."""
_SMALLEST_CHUNK_SECONDS: Final = 60.0
_MAX_MOMENTS: Final = 1_000
"""Moments at which it is looked whether a process was still there."""


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One call that a latency histogram kept the trace of."""

    trace_id: str
    """32 hexadecimal digits."""
    time: float
    """Unix seconds at which it ended."""
    seconds: float
    """Its latency."""


class PrometheusSource(Reader):
    """Reads recorded quantiles, and raw samples for everything that is counted.

    Args:
        url: Address of Prometheus, with any path prefix.
        spec: Which services there are and which metrics they have.
        client: An HTTP client to use, for instance with credentials; not closed here. Without one,
            credentials are those of the environment (``otelkit.query.connection``).
        headers: Sent with each question, above those of the environment.

    Raises:
        UsageError: the environment's credentials can't be read.
    """

    def __init__(
        self,
        url: str,
        spec: Spec,
        client: httpx.Client | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(spec)
        self._api = Api(url, self.warn, client=client, headers=headers)
        self._get = self._api.get

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that this source opened."""
        self._api.close()

    @property
    def address(self) -> str:
        return self._api.shown

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
        reports = [
            Report(_target(labels), labels, value)
            for labels, value in self._newest("last_over_time", metric, start, end)
        ]
        merged = merge_reports(reports, self._settled(start, end, service))
        return tuple(change for change in merged if start <= change.first_seen <= end)

    def exemplars(self, service: str, start: float, end: float) -> tuple[Exemplar, ...]:
        """Calls of a service whose traces are known, oldest first; none where no exemplars are kept."""
        known = self.spec.service(service)
        buckets = selector(known.latency + ("" if known.native else "_bucket"), known.matchers)
        try:
            answer = self._get("query_exemplars", {"query": buckets, "start": start, "end": end})
        except BackendUnreachable as error:
            self.warn(f"no exemplars: {error.message}")
            return ()
        found = [
            Exemplar(
                trace_id=str(one["labels"][semconv.EXEMPLAR_TRACE_ID]),
                time=float(one["timestamp"]),
                seconds=float(one["value"]) * known.seconds_per_unit,
            )
            for series in answer or ()
            for one in series.get("exemplars", ())
            if semconv.EXEMPLAR_TRACE_ID in one.get("labels", ())
        ]
        return tuple(sorted(found, key=lambda one: one.time))

    def _settled(self, start: float, end: float, service: str | None) -> list[Settled]:
        """What processes settled on, for parameters that have had more than one value."""
        named = () if service is None else (Matcher(semconv.LABEL_SERVICE, "=", service),)
        metric = selector(semconv.METRIC_PARAMETER_SETTLED, named)
        last = self._newest("last_over_time", metric, start, end)
        values: dict[tuple[str, str, str], set[str]] = {}
        for labels, _ in last:
            values.setdefault(place_of(labels), set()).add(labels.get(semconv.LABEL_VALUE, ""))
        moved = {place for place, texts in values.items() if len(texts) > 1}
        if not moved:
            return []
        step = Duration.of(max(self.spec.scrape_interval.seconds, (end - start) / _MAX_MOMENTS))
        parameters = "|".join(sorted({re.escape(parameter) for _, _, parameter in moved}))
        only = selector(
            semconv.METRIC_PARAMETER_SETTLED, (*named, Matcher(semconv.LABEL_PARAMETER, "=~", parameters))
        )
        seen = {
            _labels_key(labels): value
            for labels, value in self._newest("max_over_time", f"timestamp({only})", start, end, f":{step}")
        }
        return [
            Settled(_target(labels), labels, since, seen.get(_labels_key(labels), since))
            for labels, since in last
            if place_of(labels) in moved
        ]

    def _newest(
        self, function: str, metric: str, start: float, end: float, step: str = ""
    ) -> list[tuple[Mapping[str, str], float]]:
        """Labels and value of each series that a function over time gives for the span, a rollout around it.

        A server may refuse long ranges: it is then asked in pieces, and of a series the latest piece counts.
        Its value may be less than those before: a process may find that requests have varied since long ago.
        """

        def ask(since: float, until: float) -> list[dict[str, Any]]:
            span = Duration.of(until - since)
            return self._query(f"{function}({metric}[{span}{step}])", until)

        found: dict[tuple[tuple[str, str], ...], tuple[Mapping[str, str], float]] = {}
        first, last = start - ROLLOUT_SECONDS, end + ROLLOUT_SECONDS
        for answer in in_pieces(ask, first, last, last - first, _SMALLEST_CHUNK_SECONDS):
            for one in answer:
                found[_labels_key(one["metric"])] = one["metric"], float(one["value"][1])
        return list(found.values())

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

        def ask(since: float, until: float) -> list[dict[str, Any]]:
            return self._query(f"{wanted}[{Duration.of(until - since)}]", until)

        for answer in in_pieces(ask, start, end, _RAW_CHUNK_SECONDS, _SMALLEST_CHUNK_SECONDS):
            for one in answer:
                key = tuple(sorted(one["metric"].items()))
                if "values" in one:
                    floats.setdefault(key, []).extend(one["values"])
                if "histograms" in one:
                    histograms.setdefault(key, []).extend(one["histograms"])
        found = [_raw_series(dict(labels), samples) for labels, samples in floats.items()]
        for labels, samples in histograms.items():
            found += classic_series(dict(labels), _each_once(samples))
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
                    f"{self.address} has no {recorded} of {service.name}: computed from the raw buckets"
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

        def ask(first: float, last: float) -> Any:
            times = grid.times[int(first) : int(last)]
            span = {"start": f"{times[0]:.3f}", "end": f"{times[-1]:.3f}", "step": f"{grid.step:.3f}"}
            # VictoriaMetrics moves the ends of a range for the sake of its cache unless it may not use it.
            return self._get("query_range", {"query": query, **span, "nocache": 1})

        for answer in in_pieces(ask, 0, len(grid.times), _MAX_POINTS, _FEWEST_POINTS):
            for one in answer["result"]:
                seen = True
                at = np.array([float(sample[0]) for sample in one["values"]])
                index = np.round((at - grid.times[0]) / grid.step).astype(int)
                inside = (index >= 0) & (index < len(values))
                values[index[inside]] = np.array([float(sample[1]) for sample in one["values"]])[inside]
        return values if seen else None

    def _query(self, query: str, time: float) -> list[dict[str, Any]]:
        answer = self._get("query", {"query": query, "time": f"{time:.3f}"})
        result: list[dict[str, Any]] = answer["result"]
        return result


def _calls(service: ServiceMetrics) -> str:
    """The metric by whose series a service is known to be there."""
    return service.latency if service.native else f"{service.latency}_count"


def _labels_key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, value) for name, value in labels.items() if name != "__name__"))


def _target(labels: Mapping[str, str]) -> Target:
    return RawSeries("", labels, np.array([], dtype=np.int64), np.array([])).target


def _each_once(samples: list[Any]) -> list[Any]:
    """Samples in order of time, each once: ranges of Prometheus 2 share their ends."""
    return list(
        {float(sample[0]): sample for sample in sorted(samples, key=lambda one: float(one[0]))}.values()
    )


def _raw_series(labels: Mapping[str, str], samples: list[Any]) -> RawSeries:
    samples = _each_once(samples)
    return RawSeries(
        name=labels["__name__"],
        labels=labels,
        times_ms=np.array([round(float(sample[0]) * 1000) for sample in samples], dtype=np.int64),
        values=np.array([float(sample[1]) for sample in samples]),
    )
