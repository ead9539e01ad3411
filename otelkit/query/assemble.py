"""From raw series of one service to bucket counts and covariates on a grid; the same for every source."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from otelkit import semconv
from otelkit.query.panel import FloatArray
from otelkit.query.promql import histogram_quantile, rate
from otelkit.query.samples import Grid, RawData, RawSeries
from otelkit.spec import Matcher, Series, ServiceMetrics, Spec


def metric_names(service: ServiceMetrics, *, native: bool = False) -> tuple[str, ...]:
    """Names of all raw series that one service's panel is made from, sorted.

    Args:
        native: Histograms are one series each, without ``_bucket``, ``_count`` and ``_sum``.
    """
    preset = service.preset
    names = {series.metric for series in (preset.arrivals, preset.in_flight) if series}
    if native:
        return tuple(sorted(names | {service.latency, *(series.metric for series in preset.means.values())}))
    names |= {f"{service.latency}_{part}" for part in ("bucket", "count")}
    for series in preset.means.values():
        names |= {f"{series.metric}_sum", f"{series.metric}_count"}
    return tuple(sorted(names))


def families_to_scrape(spec: Spec) -> tuple[str, ...]:
    """Names of the metric families, without suffixes, that the services of a spec are read from."""
    families = {semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP, semconv.METRIC_PARAMETER_SETTLED}
    for service in (*spec.resolved(), spec.service("*")):
        preset = service.preset
        families.add(service.latency)
        families |= {series.metric for series in preset.means.values()}
        families |= {
            series.metric.removesuffix("_total") for series in (preset.arrivals, preset.in_flight) if series
        }
    return tuple(sorted(families))


def bucket_counts(data: RawData, service: ServiceMetrics, grid: Grid) -> tuple[FloatArray, FloatArray] | None:
    """Bounds in seconds (B,) and calls that ended by step and bucket (T, B); None without bucket series.

    Each child of the histogram is made non-cumulative over its own bounds before children are added, so that
    processes with different bounds do not spoil each other.
    """
    children: dict[tuple[tuple[str, str], ...], list[tuple[float, RawSeries]]] = {}
    for series in data.named(f"{service.latency}_bucket"):
        rest = tuple(sorted((key, value) for key, value in series.labels.items() if key != "le"))
        children.setdefault(rest, []).append((float(series.labels["le"]), series))
    if not children:
        return None
    bounds = np.array(sorted({bound for child in children.values() for bound, _ in child}))
    counts = np.zeros((len(grid.times), len(bounds)))
    for child in children.values():
        child.sort(key=lambda pair: pair[0])
        cumulative = np.stack([data.increments(series, grid) for _, series in child], axis=1)
        single = np.diff(cumulative, axis=1, prepend=0.0)
        counts[:, np.searchsorted(bounds, [bound for bound, _ in child])] += np.maximum(single, 0.0)
    counts[~data.known(grid)] = np.nan
    return bounds * service.seconds_per_unit, counts


def covariates(data: RawData, service: ServiceMetrics, grid: Grid) -> dict[str, FloatArray]:
    """Load, errors, tokens and partial latencies per step, those that the service's metrics tell."""
    preset = service.preset
    found: dict[str, FloatArray] = {}
    calls = data.named(f"{service.latency}_count")
    if calls:
        found["completions"] = data.total_increments(calls, grid) / grid.step
        if service.errors:
            failed = [series for series in calls if _all_match(service.errors, series)]
            found["errors"] = data.total_increments(failed, grid) / grid.step
    if preset.arrivals and (begun := _of(data, preset.arrivals)):
        found["arrivals"] = data.total_increments(begun, grid) / grid.step
    if preset.in_flight and (running := _of(data, preset.in_flight)):
        found["in_flight"] = data.gauge(running, grid)
    for name, series in preset.means.items():
        sums, numbers = (
            _of(data, Series(f"{series.metric}_{part}", series.matchers)) for part in ("sum", "count")
        )
        if sums and numbers:
            count = data.total_increments(numbers, grid)
            with np.errstate(invalid="ignore", divide="ignore"):
                mean = data.total_increments(sums, grid) / count
            found[name] = np.where(count > 0, mean, np.nan)
    return found


def quantiles(
    data: RawData, service: ServiceMetrics, grid: Grid, window_seconds: float, wanted: Iterable[float]
) -> dict[float, FloatArray]:
    """What recording rules would have recorded at each time of the grid, computed from the samples."""
    window_ms = round(window_seconds * 1000)
    by_bound: dict[float, list[FloatArray]] = {}
    for series in data.named(f"{service.latency}_bucket"):
        rates = rate(series.times_ms, series.values, grid.times_ms, window_ms)
        by_bound.setdefault(float(series.labels["le"]), []).append(rates)
    bounds = np.array(sorted(by_bound))
    cumulative = np.full((len(grid.times), len(bounds)), np.nan)
    for column, bound in enumerate(bounds):
        rates = np.stack(by_bound[bound])
        present = ~np.isnan(rates)
        cumulative[:, column] = np.where(
            present.any(axis=0), np.where(present, rates, 0.0).sum(axis=0), np.nan
        )
    return {
        quantile: histogram_quantile(quantile, bounds, cumulative) * service.seconds_per_unit
        for quantile in wanted
    }


def _of(data: RawData, series: Series) -> list[RawSeries]:
    return [one for one in data.named(series.metric) if _all_match(series.matchers, one)]


def _all_match(matchers: Iterable[Matcher], series: RawSeries) -> bool:
    return all(matcher.matches(series.labels) for matcher in matchers)
