"""What an earlier analyser had found, from its own metrics in Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otelkit import semconv
from otelkit.analyse.looks import Judgement
from otelkit.analyse.state import Movement, Restored
from otelkit.causal import Finding, Interval, Verdict
from otelkit.model import ParameterChange
from otelkit.query.connection import Api
from otelkit.spec import Duration

NOT_SPLIT: Final = "not_split"
"""The mechanism that holds what is left of an effect once its paths are taken off."""
_NUMBERS: Final = (
    semconv.METRIC_CHANGE_JUDGED,
    semconv.METRIC_CHANGE_EFFECT,
    semconv.METRIC_CHANGE_EFFECT_LOW,
    semconv.METRIC_CHANGE_EFFECT_HIGH,
    semconv.METRIC_CHANGE_LAG,
    semconv.METRIC_CHANGE_PEARSON_R,
    semconv.METRIC_CHANGE_P_VALUE,
    semconv.METRIC_CHANGE_Q_VALUE,
)
_OF_SERVICE: Final = {
    semconv.METRIC_P99_BEFORE: "p99_before",
    semconv.METRIC_P99_AFTER: "p99_after",
    semconv.METRIC_P99_UNEXPLAINED: "unexplained",
}
_ONE_VERDICT: Final = ("job", "instance", semconv.LABEL_CHANGE_ID, semconv.LABEL_VERDICT)
"""Labels by which one verdict on one page is told from others."""


@dataclass
class _Series:
    """All series of one verdict on one page."""

    labels: Mapping[str, str]
    numbers: dict[str, float] = field(default_factory=dict)
    paths: dict[str, float] = field(default_factory=dict)
    """Mechanism -> seconds."""


def restored(api: Api, at: float, keep_seconds: float) -> Restored:
    """The newest that an analyser's page had before a Unix time.

    The changes in it have texts for values and no rollout: who knows the change puts it in.

    Raises:
        BackendUnreachable: Prometheus did not answer.
    """
    span = Duration.of(keep_seconds)
    verdicts: dict[tuple[str, ...], _Series] = {}
    for name in (*_NUMBERS, semconv.METRIC_CHANGE_MECHANISM):
        query = f"last_over_time({name}[{span}])"
        for one in api.get("query", {"query": query, "time": f"{at:.3f}"})["result"]:
            labels, value = one["metric"], float(one["value"][1])
            key = tuple(labels.get(label, "") for label in _ONE_VERDICT)
            series = verdicts.setdefault(key, _Series(labels))
            if name == semconv.METRIC_CHANGE_MECHANISM:
                series.paths[labels.get(semconv.LABEL_MECHANISM, "")] = value
            else:
                series.numbers[name] = value
    known: dict[str, Judgement] = {}
    for series in verdicts.values():
        change_id = series.labels.get(semconv.LABEL_CHANGE_ID, "")
        judgement = _judgement(series)
        if judgement is not None:
            before = known.get(change_id)
            if before is None or before.looked_until < judgement.looked_until:
                known[change_id] = judgement
    numbers: dict[str, dict[str, float]] = {}
    for name, field_name in _OF_SERVICE.items():
        query = f"last_over_time({name}[{span}])"
        for one in api.get("query", {"query": query, "time": f"{at:.3f}"})["result"]:
            service = one["metric"].get(semconv.LABEL_SERVICE, "")
            numbers.setdefault(service, {})[field_name] = float(one["value"][1])
    return Restored(known, {service: Movement(**values) for service, values in numbers.items()})


def _judgement(series: _Series) -> Judgement | None:
    """None for what was no verdict yet, or for one that this version does not know."""
    labels, numbers = series.labels, series.numbers
    verdict = next((one for one in Verdict if one.value == labels.get(semconv.LABEL_VERDICT)), None)
    judged_at = numbers.get(semconv.METRIC_CHANGE_JUDGED)
    if verdict is None or judged_at is None:
        return None
    change = ParameterChange(
        service=labels.get(semconv.LABEL_SERVICE, ""),
        parameter=labels.get(semconv.LABEL_PARAMETER, ""),
        old=labels.get(semconv.LABEL_OLD, ""),
        new=labels.get(semconv.LABEL_NEW, ""),
        first_seen=judged_at,
        last_seen=judged_at,
    )
    value, low, high = (
        numbers.get(name)
        for name in (
            semconv.METRIC_CHANGE_EFFECT,
            semconv.METRIC_CHANGE_EFFECT_LOW,
            semconv.METRIC_CHANGE_EFFECT_HIGH,
        )
    )
    effect = None if value is None or low is None or high is None else Interval(value, low, high)
    finding = Finding(
        change=change,
        verdict=verdict,
        reason="Found before the analyser was started.",
        effect=effect,
        lag_seconds=numbers.get(semconv.METRIC_CHANGE_LAG),
        pearson_r=numbers.get(semconv.METRIC_CHANGE_PEARSON_R),
        p_value=numbers.get(semconv.METRIC_CHANGE_P_VALUE),
        q_value=numbers.get(semconv.METRIC_CHANGE_Q_VALUE),
        mechanism=_shares(series.paths, effect),
    )
    return Judgement(change, finding, judged_at, judged_at)


def _shares(paths: Mapping[str, float], effect: Interval | None) -> dict[str, Interval]:
    """Shares of the effect by path; how sure they are is not in the metrics."""
    if effect is None or effect.value == 0:
        return {}
    shares = {path: seconds / effect.value for path, seconds in paths.items() if path != NOT_SPLIT}
    return {path: Interval(share, share, share) for path, share in shares.items()}
