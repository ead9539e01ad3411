"""Objectives and alerts of many services, grouped so that equal ones share their rules."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from otelkit import semconv
from otelkit.rules.families import Family, any_of
from otelkit.spec import (
    BURN_ALERTS,
    DEFAULT_MIN_CALLS,
    Alert,
    BurnAlert,
    Duration,
    Matcher,
    ServiceMetrics,
    Slo,
    parse_matchers,
    selector,
)

_T = TypeVar("_T", Slo, Alert)
_WITH_EXPONENT: Final = 1e6
_LEVEL_WINDOW: Final = Duration.parse("5m")


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective of some services whose metrics are alike."""

    slo: Slo
    family: Family
    names: tuple[str, ...]
    """Empty where it is every service's."""

    @property
    def labels(self) -> dict[str, str]:
        labels = {semconv.LABEL_SLO: self.slo.label, semconv.LABEL_SLO_WINDOW: str(self.slo.window)}
        if self.slo.burn_alerts is not None:
            labels[semconv.LABEL_BURN_ALERTS] = " ".join(alert.name for alert in self.slo.alerts)
        if self.slo.min_calls != DEFAULT_MIN_CALLS:
            labels[semconv.LABEL_MIN_CALLS] = str(self.slo.min_calls)
        return labels

    def recorded(self, series: str, *extra: Matcher) -> str:
        """PromQL of recorded series of the objective's services."""
        return selector(series, (*_names(self.names), *extra))

    @property
    def bound(self) -> Matcher:
        """Picks the bucket at the threshold. Prometheus 3 writes whole bounds as 1.0, older ones as 1.

        From a million on it writes them with an exponent, and what it scrapes perhaps without.
        """
        text = f"{self.threshold:.12g}"
        if self.threshold >= _WITH_EXPONENT:
            digits, exponent = f"{self.threshold:.11e}".split("e")
            short = digits.rstrip("0").removesuffix(".")
            return Matcher("le", "=~", rf"{re.escape(text)}(\.0)?|{re.escape(f'{short}e{exponent}')}")
        if "." in text or "e" in text:
            return Matcher("le", "=", text)
        return Matcher("le", "=~", rf"{text}(\.0)?")

    @property
    def threshold(self) -> float:
        assert self.slo.latency is not None
        return self.family.metrics.in_own_unit(self.slo.latency)

    @property
    def failed(self) -> str:
        """PromQL of the counter of calls that failed by the objective's own matchers."""
        assert self.slo.matching is not None
        narrowed = _names(self.names, self.family.label) if self.family.fixed_name is None else ()
        return self.family.calls(*narrowed, *parse_matchers(self.slo.matching))


@dataclass(frozen=True, slots=True)
class Burning:
    """One burn-rate alert on all objectives over one window."""

    alert: BurnAlert
    window: Duration
    factor: str
    min_calls: int
    matchers: str
    """PromQL matchers, without braces."""


@dataclass(frozen=True, slots=True)
class Level:
    """One alert on a level, of some services whose metrics are alike."""

    alert: Alert
    family: Family
    names: tuple[str, ...]
    window: Duration
    """The window that the level is taken over."""

    @property
    def condition(self) -> str:
        """What must hold for the alert to fire, for people."""
        alert = self.alert
        if alert.latency_above is not None:
            quantile = semconv.quantile_text(alert.quantile).upper()
            return f"{quantile} above {alert.latency_above:g} s for {alert.for_}"
        calls = alert.matching or "failed calls"
        return f"{calls} above {100 * (alert.errors_above or 0):.12g} % for {alert.for_}"

    def recorded(self, series: str) -> str:
        return selector(series, _names(self.names))

    @property
    def matched(self) -> str:
        """PromQL of the counter of calls that the alert's own matchers pick."""
        assert self.alert.matching is not None
        narrowed = _names(self.names, self.family.label) if self.family.fixed_name is None else ()
        return self.family.calls(*narrowed, *parse_matchers(self.alert.matching))


def objectives(found: Sequence[Family]) -> list[Objective]:
    """Every objective once per family, with the services that have it."""
    return [
        Objective(slo, family, names) for slo, family, names in _grouped(found, lambda service: service.slos)
    ]


def with_equal_labels(found: Sequence[Objective]) -> list[list[Objective]]:
    """Objectives that one rule records: two rules of one name and equal labels are what promtool refuses."""
    grouped: dict[tuple[tuple[str, str], ...], list[Objective]] = {}
    for objective in found:
        grouped.setdefault(tuple(objective.labels.items()), []).append(objective)
    return list(grouped.values())


def budgets(found: Sequence[Objective]) -> list[tuple[str, float]]:
    """PromQL of the recorded rate of calls that broke an objective, and the share that may, for each budget.

    By name of the objective, whatever metrics the calls were counted from; a name that stands for one budget
    everywhere needs no list of services.
    """
    grouped: dict[tuple[str, float], list[str]] = {}
    for objective in found:
        grouped.setdefault((objective.slo.label, objective.slo.budget), []).extend(objective.names)
    shared = Counter(label for label, _ in grouped)
    return [
        (
            selector(
                semconv.RECORDED_BROKEN,
                (
                    Matcher(semconv.LABEL_SLO, "=", label),
                    *(_names(sorted(names)) if shared[label] > 1 else ()),
                ),
            ),
            budget,
        )
        for (label, budget), names in sorted(grouped.items())
    ]


def with_equal_alerts(found: Sequence[Level]) -> list[list[Level]]:
    """Levels that one rule alerts on."""
    grouped: dict[Alert, list[Level]] = {}
    for level in found:
        grouped.setdefault(level.alert, []).append(level)
    return list(grouped.values())


def burning(found: Sequence[Objective]) -> list[Burning]:
    """The burn-rate alerts that the objectives call for."""
    alerts = []
    restricted = any(objective.slo.burn_alerts is not None for objective in found)
    several = len({objective.slo.min_calls for objective in found}) > 1
    for window, min_calls in sorted({(one.slo.window, one.slo.min_calls) for one in found}):
        wanted = {
            alert
            for objective in found
            if (objective.slo.window, objective.slo.min_calls) == (window, min_calls)
            for alert in objective.slo.alerts
        }
        for alert in BURN_ALERTS:
            if alert not in wanted:
                continue
            matchers = [Matcher(semconv.LABEL_SLO_WINDOW, "=", str(window))]
            # Objectives that have every alert, or the default number of calls, carry no such label.
            if restricted:
                matchers.append(Matcher(semconv.LABEL_BURN_ALERTS, "=~", f"|.*{alert.name}.*"))
            if several:
                stated = "" if min_calls == DEFAULT_MIN_CALLS else str(min_calls)
                matchers.append(Matcher(semconv.LABEL_MIN_CALLS, "=", stated))
            text = ",".join(str(matcher) for matcher in matchers)
            alerts.append(Burning(alert, window, f"{alert.factor(window):g}", min_calls, text))
    return alerts


def burn_windows(found: Sequence[Burning]) -> list[Duration]:
    """All windows that burn rates are needed over, ascending."""
    return sorted({window for one in found for window in (one.alert.short, one.alert.long)})


def levels(found: Sequence[Family]) -> list[Level]:
    """Every level alert once per family, with the services that have it."""
    return [
        Level(alert, family, names, _window(family))
        for alert, family, names in _grouped(found, lambda service: service.alerts)
    ]


def _window(family: Family) -> Duration:
    """Levels are taken over five minutes, or over the longest short window where that is not recorded."""
    recorded = family.metrics.windows
    return _LEVEL_WINDOW if _LEVEL_WINDOW in recorded else recorded[-1]


def absences(found: Sequence[Family]) -> list[tuple[str, str]]:
    """Name and PromQL of the latency of each listed service whose absence is to be told."""
    return sorted(
        (one.name, selector(one.latency + ("" if one.native else "_count"), one.matchers))
        for family in found
        for one in family.members
        if one.alert_when_absent
    )


def _grouped(
    found: Sequence[Family], stated: Callable[[ServiceMetrics], tuple[_T, ...]]
) -> list[tuple[_T, Family, tuple[str, ...]]]:
    """What services state, each once per family, with the names of the services that state it."""
    grouped: dict[tuple[_T, int], list[str]] = {}
    for index, family in enumerate(found):
        if not family.members:
            grouped.update({(one, index): [] for one in stated(family.metrics)})
        for member in family.members:
            for one in stated(member):
                grouped.setdefault((one, index), []).append(member.name)
    ordered = sorted(grouped.items(), key=lambda item: (item[0][0].label, item[0][1], item[1]))
    return [(one, found[index], tuple(names)) for (one, index), names in ordered]


def _names(names: Sequence[str], label: str = semconv.LABEL_SERVICE) -> tuple[Matcher, ...]:
    return (any_of(label, names),) if names else ()
