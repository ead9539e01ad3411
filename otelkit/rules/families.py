"""Services that one rule can cover: the fewer rules, the fewer passes over the raw series."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from otelkit import semconv
from otelkit.spec import Matcher, Series, ServiceMetrics, Spec, selector

_PARTIAL = (
    ("time_to_first_chunk", semconv.RECORDED_FIRST_TOKEN),
    ("time_per_output_chunk", semconv.RECORDED_TOKEN_TIME),
)


@dataclass(frozen=True, slots=True, order=True)
class Distribution:
    """A histogram that quantiles are recorded of."""

    recorded: str
    """What it is called in recorded series, with the unit of its bounds (``latency_milliseconds``)."""
    quantity: str
    """What its quantiles are called, in seconds (``latency_seconds``)."""
    native: bool
    milliseconds: bool

    def rate_name(self, window: object) -> str:
        """Name of its recorded rate over a window."""
        name = semconv.recorded_histogram_rate if self.native else semconv.recorded_bucket_rate
        return name(str(window), self.recorded)


@dataclass(frozen=True, slots=True)
class Family:
    """One or more services whose rules differ in nothing but the value of the label ``service``."""

    metrics: ServiceMetrics
    """Of any one member; its name and matchers are not to be used."""
    members: tuple[ServiceMetrics, ...]
    """By name; empty when the family covers whatever services have the metrics."""
    matchers: tuple[Matcher, ...]
    """Pick the members' series; empty where no rule of another family could meet the same service."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def fixed_name(self) -> str | None:
        """Value of the label ``service`` where the series themselves do not carry it."""
        return self.members[0].name if self.metrics.own_selector else None

    @property
    def label(self) -> str:
        """The label that names the service in the metrics."""
        return self.metrics.service_label

    @property
    def latency(self) -> Distribution:
        milliseconds = self.metrics.unit == "ms"
        recorded = semconv.RECORDED_LATENCY_MS if milliseconds else semconv.RECORDED_LATENCY
        return Distribution(recorded, semconv.RECORDED_LATENCY, self.metrics.native, milliseconds)

    @property
    def distributions(self) -> tuple[Distribution, ...]:
        """Latency, and the times to first token and per token where the metrics have them."""
        partial = (
            Distribution(recorded, recorded, self.metrics.native, False)
            for covariate, recorded in _PARTIAL
            if covariate in self.metrics.preset.means
        )
        return (self.latency, *partial)

    def histogram(self, distribution: Distribution, *extra: Matcher) -> str:
        """PromQL of a distribution's raw series: buckets, or the native histogram."""
        suffix = "" if self.metrics.native else "_bucket"
        partial = self._partial(distribution)
        own = partial.matchers if partial else ()
        return selector(self.metric(distribution) + suffix, (*self.matchers, *own, *extra))

    def metric(self, distribution: Distribution) -> str:
        """Name of a distribution's histogram, without suffix."""
        partial = self._partial(distribution)
        return partial.metric if partial else self.metrics.latency

    def _partial(self, distribution: Distribution) -> Series | None:
        """The series of a part of latency; None of latency itself."""
        covariates = {recorded: covariate for covariate, recorded in _PARTIAL}
        covariate = covariates.get(distribution.recorded)
        return self.metrics.preset.means[covariate] if covariate else None

    def counter(self, quantity: str) -> str | None:
        """PromQL that counts ``requests`` (ended), ``errors``, ``input_tokens`` or ``output_tokens``.

        None where the metrics do not tell. Of a native histogram it is the histogram itself.
        """
        if quantity == "requests":
            return self.calls()
        if quantity == "errors":
            if self.metrics.errors:
                return self.calls(*self.metrics.errors)
            failures = self.metrics.failures
            return selector(failures.metric, (*self.matchers, *failures.matchers)) if failures else None
        series = self.metrics.preset.means.get(quantity)
        if series is None:
            return None
        suffix = "" if self.metrics.native else "_sum"
        return selector(series.metric + suffix, (*self.matchers, *series.matchers))

    def calls(self, *which: Matcher) -> str:
        """PromQL of the counter of calls that ended, limited to some of them."""
        suffix = "" if self.metrics.native else "_count"
        return selector(self.metrics.latency + suffix, dict.fromkeys((*self.matchers, *which)))

    def read_from_native(self, quantity: str) -> str:
        """The function that takes a quantity out of a native histogram; empty for classic ones."""
        if not self.metrics.native or (quantity == "errors" and not self.metrics.errors):
            return ""
        return "histogram_sum" if quantity.endswith("_tokens") else "histogram_count"


def families(spec: Spec) -> tuple[Family, ...]:
    """Group the services of a spec; one family that covers any service where the spec lists none.

    A family is left without the names of its services only when it is alone. Otherwise a service that has the
    metrics of two presets would be recorded twice under one name, with two meanings.
    """
    services = spec.resolved()
    if not services:
        any_service = spec.service("*")
        return (Family(metrics=any_service, members=(), matchers=any_service.preset.always),)
    members: dict[tuple[object, ...], list[ServiceMetrics]] = {}
    for one in services:
        members.setdefault(_likeness(one), []).append(one)
    found = []
    for alike in members.values():
        if alike[0].own_selector:
            matchers = alike[0].matchers
        elif len(members) == 1:
            matchers = alike[0].preset.always
        else:
            matchers = (any_of(alike[0].service_label, [one.name for one in alike]), *alike[0].preset.always)
        found.append(Family(metrics=alike[0], members=tuple(alike), matchers=matchers))
    return tuple(sorted(found, key=lambda family: (family.metrics.latency, family.names)))


def in_one_rule(found: Sequence[Family]) -> list[tuple[Family, ...]]:
    """Families that go into one rule: all that carry their service's name, and each of the others alone.

    Two rules of one name and equal labels are what promtool calls duplicates.
    """
    named = tuple(family for family in found if family.fixed_name is None)
    alone: Iterator[tuple[Family, ...]] = ((family,) for family in found if family.fixed_name is not None)
    return [named, *alone] if named else list(alone)


def any_of(label: str, names: Sequence[str]) -> Matcher:
    """A matcher of any of several values."""
    if len(names) == 1:
        return Matcher(label, "=", names[0])
    return Matcher(label, "=~", "|".join(_literal(name) for name in names))


def _literal(name: str) -> str:
    # Unlike re.escape this leaves spaces and hyphens alone, which RE2 does not need escaped.
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", name)


def _likeness(one: ServiceMetrics) -> tuple[object, ...]:
    return (one.name, *kind(one)) if one.own_selector else kind(one)


def kind(one: ServiceMetrics) -> tuple[object, ...]:
    """Equal for services whose rules differ in names and selectors only."""
    return (
        one.own_selector,
        one.preset.name,
        one.latency,
        one.unit,
        one.native,
        one.service_label,
        one.errors,
        one.failures,
        one.base_window,
        one.windows,
        one.split_by,
    )
