"""Services that one rule can cover: the fewer rules, the fewer passes over the raw series."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from otelkit.spec import Matcher, ServiceMetrics, Spec, selector


@dataclass(frozen=True, slots=True)
class Family:
    """One or more services whose rules differ in nothing but the value of the label ``service``."""

    metrics: ServiceMetrics
    """Of any one member; its name and matchers are not to be used."""
    names: tuple[str, ...]
    """The members, sorted; empty when the family covers whatever services have the metrics."""
    matchers: tuple[Matcher, ...]
    """Pick the members' series; empty where no rule of another family could meet the same service."""

    @property
    def fixed_name(self) -> str | None:
        """Value of the label ``service`` where the series themselves do not carry it."""
        return self.names[0] if self.metrics.own_selector else None

    @property
    def label(self) -> str:
        """The label that names the service in the metrics."""
        return self.metrics.service_label

    @property
    def buckets(self) -> str:
        """PromQL of the latency buckets."""
        return selector(f"{self.metrics.latency}_bucket", self.matchers)

    def counter(self, quantity: str) -> str | None:
        """PromQL of the counter of ``requests`` (ended), ``errors``, ``input_tokens`` or ``output_tokens``.

        None where the metrics do not tell.
        """
        calls = f"{self.metrics.latency}_count"
        if quantity == "requests":
            return selector(calls, self.matchers)
        if quantity == "errors":
            failed = self.metrics.errors
            return selector(calls, (*self.matchers, *failed)) if failed else None
        series = self.metrics.preset.means.get(quantity)
        return selector(f"{series.metric}_sum", (*self.matchers, *series.matchers)) if series else None


def families(spec: Spec) -> tuple[Family, ...]:
    """Group the services of a spec; one family that covers any service where the spec lists none.

    A family is left without matchers only when it is alone. Otherwise a service that has the metrics of two
    presets would be recorded twice under one name, with two meanings.
    """
    services = spec.resolved()
    if not services:
        return (Family(metrics=spec.service("*"), names=(), matchers=()),)
    members: dict[tuple[object, ...], list[ServiceMetrics]] = {}
    for one in services:
        members.setdefault(_likeness(one), []).append(one)
    found = []
    for alike in members.values():
        names = tuple(one.name for one in alike)
        if alike[0].own_selector:
            matchers = alike[0].matchers
        elif len(members) == 1:
            matchers = ()
        else:
            matchers = (_any_of(alike[0].service_label, names),)
        found.append(Family(metrics=alike[0], names=names, matchers=matchers))
    return tuple(sorted(found, key=lambda family: (family.metrics.latency, family.names)))


def rules(found: Sequence[Family]) -> list[tuple[Family, ...]]:
    """Families that go into one rule: all that carry their service's name, and each of the others alone.

    Two rules of one name and equal labels are what promtool calls duplicates.
    """
    named = tuple(family for family in found if family.fixed_name is None)
    alone = [(family,) for family in found if family.fixed_name is not None]
    return [named, *alone] if named else list(alone)


def _likeness(one: ServiceMetrics) -> tuple[object, ...]:
    same = (
        one.preset.name,
        one.latency,
        one.unit,
        one.service_label,
        one.errors,
        one.base_window,
        one.windows,
    )
    return (one.name, *same) if one.own_selector else same


def _any_of(label: str, names: Sequence[str]) -> Matcher:
    if len(names) == 1:
        return Matcher(label, "=", names[0])
    return Matcher(label, "=~", "|".join(re.escape(name) for name in names))
