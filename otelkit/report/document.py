"""Verdicts as a versioned JSON document, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.errors import DataError
from otelkit.model import UNSET, ChangeSource, ParameterChange, ParameterValue
from otelkit.query.panel import FloatArray

VERSION: Final = 1


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


Number = Annotated[float | None, AfterValidator(_finite_or_none)]
"""JSON has no NaN and no infinity: what is not a number is null."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class IntervalDocument(_Part):
    """An estimate with its 95 % interval."""

    value: Number
    low: Number
    high: Number


class ChangeDocument(_Part):
    id: str
    service: str
    parameter: str
    old: Any
    """The value; null also when the parameter was not set, which ``old_is_unset`` tells apart."""
    old_is_unset: bool
    new: Any
    new_is_unset: bool
    first_seen_unix_seconds: float
    last_seen_unix_seconds: float
    scope: str
    source: ChangeSource
    workers: int
    origin: str
    effective_at_unix_seconds: Number
    shares: tuple[float, float] | None = None
    """Share (0 to 1) of requests with the new value before and after, where shares shifted; else null."""


class FindingDocument(_Part):
    change: ChangeDocument
    verdict: Verdict
    reason: str
    effect_ms: IntervalDocument | None
    """The same as ``effect_seconds``, rounded to microseconds, for people and dashboards."""
    effect_seconds: IntervalDocument | None
    effect_ratio: IntervalDocument | None
    lag_seconds: Number
    pearson_r: Number
    p_value: Number
    q_value: Number
    mechanism_shares: dict[str, IntervalDocument]
    placebo_effects_seconds: list[Number] | None
    threshold_seconds: Number = None
    """Effect on P99 from which a change of this parameter is one to act on; null where none is stated."""
    threshold_crossed: bool | None = None
    """Whether this change (causal) moved P99 by as much; false also where something else did. Null without a
    threshold, and where it can't be said."""
    too_early_until_unix_seconds: Number = None
    """What data must reach before the verdict can be given; null where it is given."""


class ExplanationDocument(_Part):
    service: str
    start_unix_seconds: Number
    """Null where there is no data at all."""
    end_unix_seconds: Number
    p99_before_seconds: Number
    p99_after_seconds: Number
    moved_at_unix_seconds: Number
    unexplained_seconds: Number
    findings: list[FindingDocument]
    counterfactual_seconds: list[Number] | None
    counterfactual_low_seconds: list[Number] | None
    counterfactual_high_seconds: list[Number] | None
    method: str
    warnings: list[str]


class Document(_Part):
    version: Literal[1]
    explanations: list[ExplanationDocument]


def to_json(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """Verdicts as plain JSON types; every key is always there, null where nothing is known.

    Times are Unix seconds, durations seconds; ``effect_ms`` alone is in milliseconds.
    """
    document = Document(version=VERSION, explanations=[_explanation_document(one) for one in explanations])
    return document.model_dump(mode="json")


def from_json(document: Mapping[str, Any]) -> tuple[Explanation, ...]:
    """The explanations that ``to_json`` wrote.

    Raises:
        DataError: the document is of another version or malformed; names every problem with its place.
    """
    version = document.get("version")
    if version != VERSION:
        raise DataError(
            f"verdict document: version is {version!r}, this otelkit reads version {VERSION}",
            hint="write it again with this version of otelkit, or read it with the one that wrote it",
        )
    try:
        parsed = Document.model_validate(document)
    except ValidationError as error:
        problems = [
            f"verdict document: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"
            for problem in error.errors()
        ]
        raise DataError(
            "\n".join(problems), hint="the document is not what `otelkit explain` writes"
        ) from None
    return tuple(_explanation(one) for one in parsed.explanations)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of what ``to_json`` returns."""
    return Document.model_json_schema(mode="serialization")


def _interval_document(
    interval: Interval | None, scale: float = 1.0, digits: int | None = None
) -> IntervalDocument | None:
    if interval is None:
        return None
    numbers = (interval.value * scale, interval.low * scale, interval.high * scale)
    value, low, high = (
        round(number, digits) if digits and math.isfinite(number) else number for number in numbers
    )
    return IntervalDocument(value=value, low=low, high=high)


def _json_value(value: ParameterValue) -> Any:
    """A parameter value as JSON types; what JSON has no form for becomes text."""
    if value is UNSET:
        return None
    return json.loads(json.dumps(value, default=repr), parse_constant=str)


def _numbers(array: FloatArray | None) -> list[float | None] | None:
    return None if array is None else [float(value) for value in array]


def _change_document(change: ParameterChange) -> ChangeDocument:
    return ChangeDocument(
        id=change.id,
        service=change.service,
        parameter=change.parameter,
        old=_json_value(change.old),
        old_is_unset=change.old is UNSET,
        new=_json_value(change.new),
        new_is_unset=change.new is UNSET,
        first_seen_unix_seconds=change.first_seen,
        last_seen_unix_seconds=change.last_seen,
        scope=change.scope,
        source=change.source,
        workers=change.workers,
        origin=change.origin,
        effective_at_unix_seconds=change.effective_at,
        shares=change.shares,
    )


def _finding_document(finding: Finding) -> FindingDocument:
    shares = {path: _interval_document(share) for path, share in finding.mechanism.items()}
    return FindingDocument(
        change=_change_document(finding.change),
        verdict=finding.verdict,
        reason=finding.reason,
        effect_ms=_interval_document(finding.effect, 1e3, 3),
        effect_seconds=_interval_document(finding.effect),
        effect_ratio=_interval_document(finding.effect_ratio),
        lag_seconds=finding.lag_seconds,
        pearson_r=finding.pearson_r,
        p_value=finding.p_value,
        q_value=finding.q_value,
        mechanism_shares={path: share for path, share in shares.items() if share is not None},
        placebo_effects_seconds=_numbers(finding.placebo_effects),
        threshold_seconds=finding.threshold,
        threshold_crossed=finding.crosses_threshold,
        too_early_until_unix_seconds=finding.known_at,
    )


def _explanation_document(explanation: Explanation) -> ExplanationDocument:
    return ExplanationDocument(
        service=explanation.service,
        start_unix_seconds=explanation.start,
        end_unix_seconds=explanation.end,
        p99_before_seconds=explanation.p99_before,
        p99_after_seconds=explanation.p99_after,
        moved_at_unix_seconds=explanation.moved_at,
        unexplained_seconds=explanation.unexplained_seconds,
        findings=[_finding_document(finding) for finding in explanation.findings],
        counterfactual_seconds=_numbers(explanation.counterfactual),
        counterfactual_low_seconds=_numbers(explanation.counterfactual_low),
        counterfactual_high_seconds=_numbers(explanation.counterfactual_high),
        method=explanation.method,
        warnings=list(explanation.warnings),
    )


def _number(number: float | None) -> float:
    return math.nan if number is None else number


def _array(numbers: Sequence[float | None] | None) -> FloatArray | None:
    return None if numbers is None else np.array([_number(number) for number in numbers], dtype=float)


def _interval(document: IntervalDocument | None) -> Interval | None:
    if document is None:
        return None
    return Interval(_number(document.value), _number(document.low), _number(document.high))


def _change(document: ChangeDocument) -> ParameterChange:
    return ParameterChange(
        service=document.service,
        parameter=document.parameter,
        old=UNSET if document.old_is_unset else document.old,
        new=UNSET if document.new_is_unset else document.new,
        first_seen=document.first_seen_unix_seconds,
        last_seen=document.last_seen_unix_seconds,
        scope=document.scope,
        source=document.source,
        workers=document.workers,
        origin=document.origin,
        effective_at=document.effective_at_unix_seconds,
        shares=document.shares,
    )


def _finding(document: FindingDocument) -> Finding:
    shares = {path: _interval(share) for path, share in document.mechanism_shares.items()}
    return Finding(
        change=_change(document.change),
        verdict=document.verdict,
        reason=document.reason,
        effect=_interval(document.effect_seconds),
        effect_ratio=_interval(document.effect_ratio),
        lag_seconds=document.lag_seconds,
        pearson_r=document.pearson_r,
        p_value=document.p_value,
        q_value=document.q_value,
        mechanism={path: share for path, share in shares.items() if share is not None},
        placebo_effects=_array(document.placebo_effects_seconds),
        threshold=document.threshold_seconds,
        known_at=document.too_early_until_unix_seconds,
    )


def _explanation(document: ExplanationDocument) -> Explanation:
    return Explanation(
        service=document.service,
        start=_number(document.start_unix_seconds),
        end=_number(document.end_unix_seconds),
        findings=tuple(_finding(finding) for finding in document.findings),
        p99_before=document.p99_before_seconds,
        p99_after=document.p99_after_seconds,
        moved_at=document.moved_at_unix_seconds,
        unexplained_seconds=document.unexplained_seconds,
        counterfactual=_array(document.counterfactual_seconds),
        counterfactual_low=_array(document.counterfactual_low_seconds),
        counterfactual_high=_array(document.counterfactual_high_seconds),
        method=document.method,
        warnings=tuple(document.warnings),
    )
