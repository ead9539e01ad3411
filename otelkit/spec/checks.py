"""What must hold between several keys of a spec: above all, that every alert could fire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from otelkit.spec.durations import Duration
from otelkit.spec.model import Service, Spec
from otelkit.spec.objectives import BURN_ALERTS, Alert, Slo
from otelkit.spec.resolved import ServiceMetrics

_SAMPLES_FOR_A_RATE: Final = 2
_LONGEST_INTERVAL: Final = Duration.parse("2m")
_T = TypeVar("_T")
Place = tuple[str | int, ...]
Problem = tuple[Place, str]


def cross_checks(spec: Spec) -> Iterator[Problem]:
    """Yield (place, what is wrong and what to do) for each contradiction."""
    yield from _names(spec)
    yield from _intervals(spec)
    yield from _windows(spec)
    for place, slo in _each(spec, "slos"):
        yield from _burn_alerts(place, slo)
    yield from _twice(spec)
    for place, service, resolved in _services(spec):
        if service is not None and resolved.sharpened and not resolved.recorded_by_otelkit:
            yield (
                (*place, "latency", "sharpened"),
                f"otelkit can't sharpen {resolved.latency}, which it does not write; "
                "state the bounds that it has: latency: {buckets: [...]}",
            )
            continue
        for where, slo in _own(place, service, "slos", resolved.slos):
            if slo.latency is not None:
                yield from _threshold(where, "latency", slo.latency, resolved, exact=True)
            elif slo.matching is None and not resolved.tells_failures:
                yield (
                    where,
                    f"preset {resolved.preset.name} can't tell failed calls; say which with matching:",
                )
        for where, alert in _own(place, service, "alerts", resolved.alerts):
            yield from _level(where, alert, resolved)


def _names(spec: Spec) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, service in enumerate(spec.services):
        if service.name in first:
            place = ("services", index, "name")
            yield (
                place,
                f"{service.name!r} is also the name of service {first[service.name]}; give each its own",
            )
        first.setdefault(service.name, index)
    for index, service in enumerate(spec.services):
        for key in ("controls", "depends_on"):
            for position, other in enumerate(getattr(service, key) or ()):
                if other == service.name:
                    yield ("services", index, key, position), f"{other!r} is the service itself; name another"


def _intervals(spec: Spec) -> Iterator[Problem]:
    """Prometheus forgets a series five minutes after its last sample; one sample may be lost."""
    for key in ("scrape_interval", "evaluation_interval"):
        interval = getattr(spec, key)
        if interval > _LONGEST_INTERVAL:
            yield (
                (key,),
                f"{interval} leaves gaps in series, which Prometheus forgets after five minutes; "
                f"use {_LONGEST_INTERVAL} or less",
            )


def _windows(spec: Spec) -> Iterator[Problem]:
    def each() -> Iterator[tuple[Place, Duration]]:
        for index, window in enumerate(spec.windows):
            # Windows that the file does not state are too short because of what it does.
            yield ("windows", index) if "windows" in spec.model_fields_set else ("scrape_interval",), window
        yield ("base_window",), spec.base_window
        for number, service in enumerate(spec.services):
            if service.base_window:
                yield ("services", number, "base_window"), service.base_window
            for index, window in enumerate(service.windows or ()):
                yield ("services", number, "windows", index), window

    for place, window in each():
        if spec.scrape_interval > _LONGEST_INTERVAL:
            return
        if window.seconds < _SAMPLES_FOR_A_RATE * spec.scrape_interval.seconds:
            enough = Duration.of(4 * spec.scrape_interval.seconds)
            yield (
                place,
                f"{window} holds fewer than two scrapes at scrape_interval {spec.scrape_interval}; "
                f"use {enough} or more, or scrape more often",
            )


def _burn_alerts(place: Place, slo: Slo) -> Iterator[Problem]:
    """Burn-rate alerts that could never fire, or that would fire while the budget lasts."""
    if not slo.alerts:
        longest = min(alert.long.seconds / alert.budget_share for alert in BURN_ALERTS)
        yield (*place, "window"), f"{slo.window} is too short to alert on; use {Duration.of(longest)} or more"
    for alert in slo.alerts:
        factor = alert.factor(slo.window)
        needed = factor * slo.budget
        others = [one.name for one in slo.alerts if one.factor(slo.window) * slo.budget < 1]
        if needed >= 1:
            leave = f", or keep only burn_alerts: [{', '.join(others)}]" if others else ""
            yield (
                (*place, "burn_alerts"),
                f"{alert.name} would need {needed:.0%} of calls to break the objective, so it can never "
                f"fire: it waits for the budget of {slo.budget:g} to burn {factor:g} times too fast. "
                f"Allow less than {1 / factor:.2%}{leave}",
            )
        elif factor < 1:
            yield (
                (*place, "burn_alerts"),
                f"{alert.name} would fire at {factor:g} times the rate that {slo.window} sustains, "
                "that is while the objective holds; leave it out or use a longer window",
            )


def _threshold(
    place: Place, key: str, seconds: float, service: ServiceMetrics, *, exact: bool
) -> Iterator[Problem]:
    """A threshold that the buckets can't show: between two bounds, or beyond the last of them."""
    if service.native:
        return
    if service.buckets is None:
        if exact:
            stated = "state them with latency: {buckets: [...]}"
            yield (*place, key), f"the bucket bounds of {service.latency} are not known; {stated}"
        return
    threshold, bounds, unit = service.in_own_unit(seconds), service.buckets, service.unit
    if threshold > bounds[-1] or (not exact and threshold >= bounds[-1]):
        yield (
            (*place, key),
            f"{threshold:g} {unit} lies at or beyond the last bucket bound of {service.latency} "
            f"({bounds[-1]:g} {unit}), above which latency is not told apart, so the alert can never fire; "
            "use a lower threshold, or state the service's bounds with latency: {buckets: [...]}",
        )
    elif exact and threshold not in bounds:
        above = next(bound for bound in bounds if bound > threshold)
        below = max((bound for bound in bounds if bound < threshold), default=0.0)
        sharpened = ",".join(f"{one:g}" for one in sorted({*service.sharpened, seconds}))
        sharpen = (
            f" set OTELKIT_LATENCY_SLO_SECONDS={sharpened} in the service and "
            f"latency: {{sharpened: [{sharpened}]}} here,"
            if service.recorded_by_otelkit
            else ""
        )
        yield (
            (*place, key),
            f"{service.latency} has no bucket bound at {threshold:g} {unit}; the nearest are {below:g} and "
            f"{above:g}. Use one of them,{sharpen} or state its bounds: latency: {{buckets: [...]}}",
        )


def _level(place: Place, alert: Alert, service: ServiceMetrics) -> Iterator[Problem]:
    if alert.latency_above is not None:
        yield from _threshold(place, "latency_above", alert.latency_above, service, exact=False)
    elif alert.matching is None and not service.tells_failures:
        yield place, f"preset {service.preset.name} can't tell failed calls; say which with matching:"


def _twice(spec: Spec) -> Iterator[Problem]:
    """Two objectives, or alerts, of one service and one label would overwrite each other's series."""
    for key in ("slos", "alerts"):
        seen: dict[tuple[Place, str], int] = {}
        for place, one in _each(spec, key):
            mark = (place[:-1], one.label)
            if mark in seen:
                yield place, f"has the same name as {key}.{seen[mark]} ({one.label}); give each its own name:"
            seen.setdefault(mark, int(place[-1]))


def _each(spec: Spec, key: str) -> Iterator[tuple[Place, Any]]:
    """Objectives (or alerts) as they stand in the file."""
    yield from (((key, index), one) for index, one in enumerate(getattr(spec, key)))
    for number, service in enumerate(spec.services):
        yield from (
            (("services", number, key, index), one) for index, one in enumerate(getattr(service, key) or ())
        )


def _services(spec: Spec) -> Iterator[tuple[Place, Service | None, ServiceMetrics]]:
    if not spec.services:
        yield (), None, spec.service("*")
    for number, service in enumerate(spec.services):
        yield ("services", number), service, spec.resolve(service)


def _own(
    place: Place, service: Service | None, key: str, found: tuple[_T, ...]
) -> Iterator[tuple[Place, _T]]:
    """Objectives or alerts of a service, each with the place where the file states it."""
    stated_here = service is not None and getattr(service, key) is not None
    for index, one in enumerate(found):
        yield ((*place, key, index) if stated_here else (key, index)), one
