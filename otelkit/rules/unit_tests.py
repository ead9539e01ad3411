"""Unit tests of generated rules for ``promtool test rules``: scenarios by family, objective and alert."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import yaml

from otelkit import semconv
from otelkit.query.promql import histogram_quantile
from otelkit.rules.examples import Calls, counter, matching, not_matching
from otelkit.rules.expectations import (
    Clock,
    Test,
    gives,
    label_matchers,
    nothing,
    of_service,
    recorded,
    whole_test,
)
from otelkit.rules.families import Distribution, Family, families, kind
from otelkit.rules.generate import HEADER
from otelkit.rules.objectives import levels, objectives
from otelkit.spec import Duration, Service, ServiceMetrics, Spec, escaped, parse_matchers

_SPREAD: Final = {1: 60, 2: 36, 3: 4}
"""Calls per scrape by bucket: P50, P95 and P99 fall into three different ones."""
_PARTIAL_BOUNDS: Final = np.array([0.01, 0.02, 0.05, 0.1, np.inf])
_ROLLOUT: Final = 300

_T = TypeVar("_T")
_PART: Final = "part"
"""A label that keeps two sets of series of one service apart, as those of two processes are."""
_BURN_RATE_OVER: Final = 300
"""Seconds of calls that burn rates are made from."""


class Maker(Protocol):
    """Makes input series whose counters go on in a given way."""

    def __call__(self, shape: str, calls: int = 60) -> list[dict[str, str]]:
        """Series of so many calls per scrape; the shape is as in :meth:`Calls.latency`."""


def unit_tests(spec: Spec, files: dict[str, str]) -> dict[str, str]:
    """Test files for the rule ``files`` of a spec: file name -> text. They lie in a folder beside the rules.

    Services whose matchers are too intricate to make series for are left out, with a comment that says so.
    """
    order = [group["name"] for text in files.values() for group in (yaml.safe_load(text)["groups"] or ())]
    comments: list[str] = []
    tests = [
        *_recorded(spec, comments),
        *_changes(spec),
        *_objectives(spec, comments),
        *_levels(spec, comments),
    ]
    tests += list(_absences(spec, comments))
    document = {
        "rule_files": [f"../{name}" for name in files],
        "evaluation_interval": str(_step(spec)),
        "group_eval_order": order,
        "tests": tests,
    }
    notes = "".join(f"# Not tested: {escaped(comment)}\n" for comment in dict.fromkeys(comments))
    return {"otelkit.test.yaml": HEADER + notes + yaml.safe_dump(document, sort_keys=False, width=1000)}


def tested_part(spec: Spec) -> Spec:
    """The spec with one service of each kind, objectives and alerts: what holds for it holds for the rest.

    Tests of the rules of a thousand services with selectors of their own would take promtool an hour.
    """

    def likeness(service: Service) -> tuple[object, ...]:
        resolved = spec.resolve(service)
        return (*kind(resolved), resolved.slos, resolved.alerts, resolved.alert_when_absent)

    return spec.model_copy(update={"services": tuple(_once(spec.services, likeness))})


def _step(spec: Spec) -> Duration:
    """How often tests evaluate rules: seldom, to be quick, but at least once a window."""
    shortest = min(member.windows[0] for member, _ in _representatives(spec))
    return max(spec.evaluation_interval, min(Duration.parse("1m"), shortest))


def _representatives(spec: Spec) -> Iterator[tuple[ServiceMetrics, Family]]:
    """One service of each kind: the rules of the others say the same under other names."""
    for family in _once(families(spec), lambda family: kind(family.metrics)):
        yield (family.members[0] if family.members else spec.service("example")), family


def _once(found: Iterable[_T], likeness: Callable[[_T], tuple[object, ...]]) -> list[_T]:
    """The first of each kind."""
    first: dict[tuple[object, ...], _T] = {}
    for each in found:
        first.setdefault(likeness(each), each)
    return list(first.values())


def _recorded(spec: Spec, comments: list[str]) -> Iterator[Test]:
    for member, family in _representatives(spec):
        try:
            calls = Calls(member, family, not_matching(member.errors) if member.errors else {})
            failing = Calls(member, family, matching(member.errors)) if member.errors else None
        except ValueError as error:
            comments.append(f"recording rules of {member.name}: {error}")
            continue
        yield from _steady(spec, calls, failing)
        yield _interrupted(spec, calls)
        yield _idle(spec, calls)
        yield from _splits(spec, calls)


def _steady(spec: Spec, calls: Calls, failing: Calls | None) -> Iterator[Test]:
    """Quantiles, rates, errors and tokens of calls that end at a steady pace, a tenth of them failing."""
    member, family, clock = calls.member, calls.family, Clock(spec)
    count = clock.scrapes(member.windows[-1].seconds + _step(spec).seconds) + 4
    shape = f"0+{{}}x{count}"
    series = calls.latency({index: 9 * number for index, number in _SPREAD.items()}, shape)
    if failing:
        series += failing.latency(_SPREAD, shape)
    checks = []
    parts: list[tuple[Distribution, Any]] = [(family.latency, calls.bounds * member.seconds_per_unit)]
    for distribution in family.distributions[1:]:
        series += Calls(member, family).histogram(distribution, _PARTIAL_BOUNDS, _SPREAD, shape)
        parts.append((distribution, _PARTIAL_BOUNDS))
    for distribution, bounds in parts:
        for quantile in semconv.RECORDED_QUANTILES:
            value = _quantile(quantile, bounds)
            for window in member.windows:
                name = semconv.recorded_quantile(quantile, str(window), distribution.quantity)
                checks.append(recorded(clock.at(count), name, member.name, value))
    checks.append(
        recorded(
            clock.at(count),
            semconv.RECORDED_P99,
            member.name,
            _quantile(0.99, calls.bounds) * member.seconds_per_unit,
        )
    )
    if member.failures:
        series.append(_failures(member, {}, sum(_SPREAD.values()), shape))
    share = 10 if failing else 9
    per_second = sum(_SPREAD.values()) / spec.scrape_interval.seconds
    for window in member.windows:
        checks.append(
            recorded(clock.at(count), f"{semconv.RECORDED_REQUESTS}{window}", member.name, share * per_second)
        )
        if member.tells_failures:
            checks.append(
                recorded(clock.at(count), f"{semconv.RECORDED_ERRORS}{window}", member.name, per_second)
            )
            checks.append(
                recorded(clock.at(count), f"{semconv.RECORDED_ERROR_RATIO}{window}", member.name, 1 / share)
            )
    for name, quantity in (
        (semconv.RECORDED_INPUT_TOKENS, "input_tokens"),
        (semconv.RECORDED_OUTPUT_TOKENS, "output_tokens"),
    ):
        tokens = member.preset.means.get(quantity)
        if tokens and not member.native:
            labels = {**matching(member.matchers), **matching(tokens.matchers)}
            series.append(counter(f"{tokens.metric}_sum", labels, 300, shape))
            expected = 300 / spec.scrape_interval.seconds
            checks += [
                recorded(clock.at(count), f"{name}{window}", member.name, expected)
                for window in member.windows
            ]
    yield whole_test(spec, f"{member.name}: recorded values of steady calls", series, checks)


def _interrupted(spec: Spec, calls: Calls) -> Test:
    """A restart and a gap: P99 is what it was before, and none while a window holds no scrape."""
    member, clock = calls.member, Clock(spec)
    window = member.windows[0]
    filled = clock.scrapes(window.seconds + _step(spec).seconds) + 2
    gap = filled + clock.scrapes(300)
    shape = f"0+{{}}x{filled} 0+{{}}x{filled} _x{gap} 0+{{}}x{filled}"
    name = semconv.recorded_quantile(0.99, str(window))
    value = _quantile(0.99, calls.bounds) * member.seconds_per_unit
    after_reset = 2 * filled + 1
    checks = [
        recorded(clock.at(filled), name, member.name, value),
        recorded(clock.at(filled + 2), name, member.name, value),
        recorded(clock.at(after_reset), name, member.name, value),
        recorded(clock.at(after_reset + gap), name, member.name, None),
        recorded(clock.at(after_reset + gap + filled), name, member.name, value),
        nothing(
            clock.at(after_reset + 2), f"{semconv.RECORDED_REQUESTS}{window}{of_service(member.name)} < 0"
        ),
    ]
    return whole_test(spec, f"{member.name}: a restart and a gap", calls.latency(_SPREAD, shape), checks)


def _idle(spec: Spec, calls: Calls) -> Test:
    """No traffic: no quantile, no ratio, and no alert."""
    member, clock = calls.member, Clock(spec)
    count = clock.scrapes(900)
    series = calls.latency(_SPREAD, f"1+0x{count}")
    service = of_service(member.name)
    checks = [
        nothing(clock.at(count), f"{semconv.recorded_quantile(0.99, str(member.windows[0]))}{service} >= 0"),
        nothing(clock.at(count), f"{semconv.RECORDED_ERROR_RATIO}{member.windows[0]}{service}"),
        nothing(clock.at(count), f"ALERTS{service}"),
    ]
    return whole_test(spec, f"{member.name}: no traffic", series, checks)


def _splits(spec: Spec, calls: Calls) -> Iterator[Test]:
    """P99 by a label: there for a few values, gone when there are too many."""
    member, clock = calls.member, Clock(spec)
    for label in member.split_by:
        window = member.windows[-1]
        count = clock.scrapes(window.seconds + _step(spec).seconds) + 2
        name = semconv.recorded_split(label, str(window))
        for values in (2, spec.split_limit + 1):
            series = []
            for index in range(values):
                one = Calls(member, calls.family, {**calls.labels, label: f"value{index}"})
                series += one.latency(_SPREAD, f"0+{{}}x{count}")
            query = f"count({name}{of_service(member.name)})"
            expected = float(values) if values <= spec.split_limit else None
            yield whole_test(
                spec,
                f"{member.name}: {values} values of {label}",
                series,
                [gives(clock.at(count), query, expected)],
            )


def _changes(spec: Spec) -> Iterator[Test]:
    """Two workers report one change: it counts once, for five minutes."""
    clock = Clock(spec)
    first = clock.scrapes(60)
    count = clock.scrapes(_ROLLOUT + 180)
    labels = {"service": "example", "parameter": "max_tokens", "old": "8", "new": "24"}
    metric = semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP
    seen = first * spec.scrape_interval.seconds
    series = [
        {
            "series": f"{metric}{{{label_matchers({**labels, 'instance': worker})}}}",
            "values": f"_x{first} {seen:g}x{count}",
        }
        for worker in ("a", "b")
    ]
    query = f'{semconv.RECORDED_CHANGES}{{service="example",parameter="max_tokens"}}'
    checks = [
        gives(clock.at(first + clock.scrapes(120)), f"sum({query})", 1.0),
        gives(clock.at(first + clock.scrapes(_ROLLOUT + 60)), f"sum({query})", None),
    ]
    yield whole_test(spec, "a change that two workers report", series, checks)


def _objectives(spec: Spec, comments: list[str]) -> Iterator[Test]:
    """Each burn-rate alert fires while every call breaks the objective, not while none does, not for one call
    alone, and ends soon after the breaking does."""
    for objective in _once(objectives(families(spec)), lambda o: (o.slo, *kind(o.family.metrics))):
        member = _member(spec, objective.family, objective.names)
        try:
            slo = objective.slo
            kept, broken = _opposites(objective.family, member, slo.latency, slo.matching)
        except ValueError as error:
            comments.append(f"objective {objective.slo.label} of {member.name}: {error}")
            continue
        clock = Clock(spec)
        count = clock.scrapes(900)
        # Other objectives may break with this one, so only its own alerts are looked at.
        own = {"service": member.name, semconv.LABEL_SLO: objective.slo.label}
        firing = (
            f'count(ALERTS{{alertname="OtelkitErrorBudgetBurn",alertstate="firing",{label_matchers(own)}}})'
        )
        number = float(len(objective.slo.alerts))
        title = f"{member.name}: objective {objective.slo.label}"
        yield whole_test(
            spec, f"{title} is kept", kept(f"0+{{}}x{count}"), [gives(clock.at(count), firing, None)]
        )
        # The first to fire is the first to end, when its short window holds no broken call any more.
        first = objective.slo.alerts[0]
        over = count + clock.scrapes(first.short.seconds + 2 * _BURN_RATE_OVER + 2 * _step(spec).seconds)
        own |= {"windows": first.name}
        first_firing = (
            f'ALERTS{{alertname="OtelkitErrorBudgetBurn",alertstate="firing",{label_matchers(own)}}}'
        )
        series = broken(f"0+{{}}x{count}") + kept(f"_x{count} 0+{{}}x{over - count}")
        checks = [gives(clock.at(count), firing, number), nothing(clock.at(over), first_firing)]
        yield whole_test(spec, f"{title} is broken, and recovers", series, checks)
        if slo.min_calls > 1:
            checks = [gives(clock.at(clock.scrapes(minute * 60)), firing, None) for minute in (2, 4, 6)]
            yield whole_test(spec, f"{title} is broken by one call", broken("0+{}x1", 1), checks)


def _opposites(
    family: Family, member: ServiceMetrics, seconds: float | None, matching_calls: str | None
) -> tuple[Maker, Maker]:
    """Makers of series of calls that are all fast and all slow, or that all succeed and all fail.

    Args:
        seconds: What separates fast from slow; None where it is about failing.
        matching_calls: Which calls fail, if not those that the service's own matchers pick.

    Raises:
        ValueError: there is no such series.
    """
    if seconds is None and matching_calls is None and member.failures:
        kept, broken = Calls(member, family, {_PART: "kept"}), Calls(member, family, {_PART: "broken"})
        return (
            lambda shape, calls=60: kept.latency({0: calls}, shape),
            lambda shape, calls=60: [
                *broken.latency({0: calls}, shape),
                _failures(member, {_PART: "broken"}, calls, shape),
            ],
        )
    if seconds is None:
        failed = parse_matchers(matching_calls) if matching_calls else member.errors
        good, bad = not_matching(failed), matching(failed)
        slow = 0
    else:
        good = bad = not_matching(member.errors) if member.errors else {}
        slow = -1
        if Calls(member, family).bounds[0] * member.seconds_per_unit > seconds:
            raise ValueError(f"{seconds:g} s lies below the first bucket bound")
    return (
        lambda shape, calls=60: Calls(member, family, good | {_PART: "kept"}).latency({0: calls}, shape),
        lambda shape, calls=60: Calls(member, family, bad | {_PART: "broken"}).latency({slow: calls}, shape),
    )


def _failures(member: ServiceMetrics, labels: Mapping[str, str], calls: int, shape: str) -> dict[str, str]:
    """Series of a counter of calls that failed."""
    assert member.failures is not None
    asked = {**matching(member.matchers), **matching(member.failures.matchers), **labels}
    return counter(member.failures.metric, asked, calls, shape)


def _levels(spec: Spec, comments: list[str]) -> Iterator[Test]:
    """Each level alert fires once its condition has lasted, not before, and not while it does not hold."""
    for level in _once(levels(families(spec)), lambda o: (o.alert, *kind(o.family.metrics))):
        member = _member(spec, level.family, level.names)
        try:
            alert = level.alert
            below, above = _opposites(level.family, member, alert.latency_above, alert.matching)
        except ValueError as error:
            comments.append(f"alert {level.condition} of {member.name}: {error}")
            continue
        clock = Clock(spec)
        pending = clock.scrapes(level.alert.for_.seconds / 2)
        count = clock.scrapes(level.window.seconds + level.alert.for_.seconds + 2 * _step(spec).seconds)
        labels = label_matchers({"service": member.name, "condition": level.condition})
        firing = f'count(ALERTS{{alertstate="firing",{labels}}})'
        title = f"{member.name}: {level.condition}"
        yield whole_test(
            spec, f"{title}, not so", below(f"0+{{}}x{count}"), [gives(clock.at(count), firing, None)]
        )
        checks = [gives(clock.at(pending), firing, None), gives(clock.at(count), firing, 1.0)]
        yield whole_test(spec, f"{title}, so", above(f"0+{{}}x{count}"), checks)


def _absences(spec: Spec, comments: list[str]) -> Iterator[Test]:
    """A service that vanishes is told ten minutes later, and not while it is there."""
    for member, family in _representatives(spec):
        if not family.members or not member.alert_when_absent:
            continue
        try:
            calls = Calls(member, family)
            clock = Clock(spec)
            there = clock.scrapes(900)
            series = calls.latency(_SPREAD, f"0+{{}}x{there} _x{clock.scrapes(1200)}")
        except ValueError as error:
            comments.append(f"absence of {member.name}: {error}")
            continue
        labels = label_matchers({"alertname": "OtelkitServiceAbsent", "service": member.name})
        firing = f'count(ALERTS{{alertstate="firing",{labels}}})'
        checks = [
            gives(clock.at(there), firing, None),
            gives(clock.at(there + clock.scrapes(300 + 600 + 120)), firing, 1.0),
        ]
        yield whole_test(spec, f"{member.name}: its metric vanishes", series, checks)


def _member(spec: Spec, family: Family, names: tuple[str, ...]) -> ServiceMetrics:
    return spec.service(names[0]) if names else spec.service("example")


def _quantile(quantile: float, bounds: Any) -> float:
    counts = np.zeros(len(bounds))
    for index, number in _SPREAD.items():
        counts[index] += number
    return float(histogram_quantile(quantile, bounds, np.cumsum(counts)[None, :])[0])
