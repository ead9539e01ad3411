"""One change seen by many workers is one change, with the time at which each end of the rollout was seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from otelkit import semconv
from otelkit.model import UNSET, ChangeSource, ParameterChange, almost_equal, canonical
from otelkit.query.fleet import ROLLOUT_SECONDS, Fleet, Flip, Settled, place_of
from otelkit.query.samples import Target

_STEP: Final = (
    semconv.LABEL_SERVICE,
    semconv.LABEL_SCOPE,
    semconv.LABEL_PARAMETER,
    semconv.LABEL_OLD,
    semconv.LABEL_NEW,
)


@dataclass(frozen=True, slots=True)
class Report:
    """One process' word that a parameter changed."""

    target: Target
    labels: Mapping[str, str]
    first_seen: float
    """Unix seconds."""


def merge_reports(reports: Iterable[Report], settled: Iterable[Settled] = ()) -> tuple[ParameterChange, ...]:
    """Changes behind the reports, oldest first.

    A process that reports the same step twice has made it twice, so its second report begins another change.

    Args:
        settled: what each process' call sites have used. Adds changes that no process saw as it began with
            the new value, and takes away what the other processes contradict.
    """
    groups: dict[tuple[str, ...], list[Report]] = {}
    fleet = Fleet(settled)
    told = sorted(reports, key=lambda one: (one.first_seen, one.target))
    shifted = {_step(report) for report in told if _shares(report) is not None}
    for report in told:
        if not _is_withdrawn(report, fleet, is_shift=_step(report) in shifted):
            groups.setdefault(_step(report), []).append(report)
    flips = [flip for flip in fleet.flips() if not almost_equal(_value(flip.old), _value(flip.new))]
    rollouts = [rollout for same in groups.values() for rollout in _rollouts(same, flips)]
    rollouts = [rollout for rollout in rollouts if not _is_contradicted(rollout, told, fleet)]
    changes = _with_flips(rollouts, flips)
    return tuple(sorted(changes, key=lambda one: (one.first_seen, one.service, one.parameter, one.id)))


def _rollouts(reports: list[Report], flips: list[Flip]) -> list[list[Report]]:
    """Reports of one step, in order, by rollout. One that the fleet took back in between has ended: other
    processes, begun with the old value, then make the step anew."""
    backward = [flip.first_seen for flip in flips if _is_undone(reports[0], flip)]
    rollouts: list[list[Report]] = []
    for report in reports:
        for rollout in reversed(rollouts):
            latest = rollout[-1].first_seen
            near = report.first_seen - latest <= ROLLOUT_SECONDS
            near = near and not any(latest < at <= report.first_seen for at in backward)
            if near and all(other.target != report.target or _goes_on(other, report) for other in rollout):
                rollout.append(report)
                break
        else:
            rollouts.append([report])
    return rollouts


def _is_undone(report: Report, flip: Flip) -> bool:
    """Whether a flip brings the old value of a report's step back."""
    service, scope, parameter = place_of(report.labels)
    return (
        (service, parameter) == (flip.place[0], flip.place[2])
        and scope in ("", flip.place[1])
        and report.labels.get(semconv.LABEL_OLD, "") == flip.new
    )


def _goes_on(earlier: Report, later: Report) -> bool:
    """Whether a process' second report of a step is more of the same: the new value's share grew again."""
    before, after = _shares(earlier), _shares(later)
    return before is not None and (after is None or after[1] > before[1])


def _step(report: Report) -> tuple[str, ...]:
    return tuple(report.labels.get(key, "") for key in _STEP)


def _is_withdrawn(report: Report, fleet: Fleet, *, is_shift: bool) -> bool:
    return _is_observed(report) and fleet.withdraws(
        place_of(report.labels), report.target, report.first_seen, is_shift=is_shift
    )


def _is_observed(report: Report) -> bool:
    """Also where it is known that callers asked for the new value: their requests were observed."""
    source = _source(report.labels.get(semconv.LABEL_SOURCE, ""))
    return source in (ChangeSource.OBSERVED, ChangeSource.HEADER)


def _is_contradicted(rollout: list[Report], told: list[Report], fleet: Fleet) -> bool:
    labels, first_seen = rollout[0].labels, rollout[0].first_seen
    if not _is_observed(rollout[0]):
        return False
    place = place_of(labels)
    reporters = {
        report.target
        for report in told
        if place_of(report.labels) == place and abs(report.first_seen - first_seen) <= ROLLOUT_SECONDS
    }
    return fleet.contradicts(
        place,
        labels.get(semconv.LABEL_OLD, ""),
        labels.get(semconv.LABEL_NEW, ""),
        {report.target for report in rollout},
        reporters,
        first_seen,
    )


def _with_flips(rollouts: list[list[Report]], flips: list[Flip]) -> list[ParameterChange]:
    """Changes of the rollouts; flips of the fleet's value count into theirs, or are changes of their own."""
    joined: dict[int, list[Flip]] = {}
    alone = []
    for flip in flips:
        near = {
            index: abs(rollout[0].first_seen - flip.first_seen)
            for index, rollout in enumerate(rollouts)
            if _same(flip, rollout)
        }
        if near:
            joined.setdefault(min(near, key=near.__getitem__), []).append(flip)
        else:
            alone.append(_from_flip(flip))
    return alone + [_change(rollout, joined.get(index, [])) for index, rollout in enumerate(rollouts)]


def _same(flip: Flip, rollout: list[Report]) -> bool:
    service, scope, parameter = place_of(rollout[0].labels)
    return (
        (service, parameter) == (flip.place[0], flip.place[2])
        and scope in ("", flip.place[1])
        and rollout[0].labels.get(semconv.LABEL_NEW, "") == flip.new
        and rollout[0].first_seen - ROLLOUT_SECONDS <= flip.last_seen
        and flip.first_seen <= rollout[-1].first_seen + ROLLOUT_SECONDS
    )


def _from_flip(flip: Flip) -> ParameterChange:
    service, scope, parameter = flip.place
    return ParameterChange(
        service=service,
        parameter=parameter,
        old=_value(flip.old),
        new=_value(flip.new),
        first_seen=flip.first_seen,
        last_seen=flip.last_seen,
        scope=scope,
        workers=len(flip.targets),
    )


def _change(rollout: list[Report], flips: list[Flip]) -> ParameterChange:
    """The change of a rollout; it keeps the time, and so the id, of the earliest report.

    Where shares shifted, no request marks the moment and each process guesses it: of many guesses the
    earliest is wrong, so the eighth part of them is passed over.
    """
    shares = _mean_shares(rollout)
    earliest = rollout[0] if shares is None else rollout[len(rollout) // 8]
    labels = earliest.labels
    return ParameterChange(
        service=labels.get(semconv.LABEL_SERVICE, ""),
        parameter=labels.get(semconv.LABEL_PARAMETER, ""),
        old=_value(labels.get(semconv.LABEL_OLD, "")),
        new=_value(labels.get(semconv.LABEL_NEW, "")),
        first_seen=earliest.first_seen,
        last_seen=max([rollout[-1].first_seen, *(flip.last_seen for flip in flips)]),
        scope=labels.get(semconv.LABEL_SCOPE, ""),
        origin=labels.get(semconv.LABEL_ORIGIN, ""),
        source=_source(labels.get(semconv.LABEL_SOURCE, "")),
        workers=len({report.target for report in rollout}.union(*(flip.targets for flip in flips))),
        shares=shares,
    )


def _mean_shares(rollout: list[Report]) -> tuple[float, float] | None:
    """Of the processes; None where the settled value simply moved in as many of them."""
    first = {report.target: report for report in reversed(rollout)}
    last = {report.target: report for report in rollout}
    before = [_shares(report) for report in first.values()]
    known = [shares for shares in before if shares is not None]
    after = [shares[1] if (shares := _shares(report)) else 1.0 for report in last.values()]
    if 2 * sum(_shares(report) is not None for report in last.values()) <= len(last) or not known:
        return None
    return round(fmean(shares[0] for shares in known), 2), round(fmean(after), 2)


def _shares(report: Report) -> tuple[float, float] | None:
    before, comma, after = report.labels.get(semconv.LABEL_SHARES, "").partition(",")
    try:
        return (float(before), float(after)) if comma else None
    except ValueError:
        return None


def _value(text: str) -> Any:
    """The value behind its canonical text; the text itself where it was cut short."""
    if text == canonical(UNSET):
        return UNSET
    try:
        return json.loads(text)
    except ValueError:
        return text


def _source(text: str) -> ChangeSource:
    try:
        return ChangeSource(text)
    except ValueError:
        return ChangeSource.OBSERVED
