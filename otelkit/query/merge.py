"""One change seen by many workers is one change, with the time at which each end of the rollout was seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otelkit import semconv
from otelkit.model import UNSET, ChangeSource, ParameterChange, canonical
from otelkit.query.samples import Target

ROLLOUT_SECONDS: Final = 300.0
"""Reports of the same step further apart than this are two changes."""


@dataclass(frozen=True, slots=True)
class Report:
    """One process' word that a parameter changed."""

    target: Target
    labels: Mapping[str, str]
    first_seen: float
    """Unix seconds."""


def merge_reports(reports: Iterable[Report]) -> tuple[ParameterChange, ...]:
    """Changes behind the reports, oldest first.

    A process that reports the same step twice has made it twice, so its second report begins another change.
    """
    groups: dict[tuple[str, ...], list[Report]] = {}
    keys = (
        semconv.LABEL_SERVICE,
        semconv.LABEL_SCOPE,
        semconv.LABEL_PARAMETER,
        semconv.LABEL_OLD,
        semconv.LABEL_NEW,
    )
    for report in sorted(reports, key=lambda one: (one.first_seen, one.target)):
        groups.setdefault(tuple(report.labels.get(key, "") for key in keys), []).append(report)
    changes = [_change(rollout) for same in groups.values() for rollout in _rollouts(same)]
    return tuple(sorted(changes, key=lambda one: (one.first_seen, one.service, one.parameter, one.id)))


def _rollouts(reports: list[Report]) -> list[list[Report]]:
    rollouts: list[list[Report]] = []
    for report in reports:
        for rollout in rollouts:
            near = report.first_seen - rollout[-1].first_seen <= ROLLOUT_SECONDS
            if near and all(other.target != report.target for other in rollout):
                rollout.append(report)
                break
        else:
            rollouts.append([report])
    return rollouts


def _change(rollout: list[Report]) -> ParameterChange:
    labels = rollout[0].labels
    return ParameterChange(
        service=labels.get(semconv.LABEL_SERVICE, ""),
        parameter=labels.get(semconv.LABEL_PARAMETER, ""),
        old=_value(labels.get(semconv.LABEL_OLD, "")),
        new=_value(labels.get(semconv.LABEL_NEW, "")),
        first_seen=rollout[0].first_seen,
        last_seen=rollout[-1].first_seen,
        scope=labels.get(semconv.LABEL_SCOPE, ""),
        origin=labels.get(semconv.LABEL_ORIGIN, ""),
        source=_source(labels.get(semconv.LABEL_SOURCE, "")),
        workers=len(rollout),
    )


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
