"""Verdicts as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation, Interval
from otelkit.errors import DataError
from otelkit.model import UNSET
from otelkit.report import from_json, json_schema, to_json


def test_document_comes_back_as_the_same_explanation() -> None:
    """An incident kept as JSON must say next year what it says today."""
    explanation = sample.sample_explanation()
    text = json.dumps(to_json([explanation]), allow_nan=False)
    (again,) = from_json(json.loads(text))
    assert_same(again, explanation)


def assert_same(again: object, original: object) -> None:
    """Equality of dataclasses that hold arrays."""
    for field in fields(original):  # type: ignore[arg-type]
        left, right = getattr(again, field.name), getattr(original, field.name)
        if isinstance(right, np.ndarray):
            np.testing.assert_array_equal(left, right)
        elif field.name == "findings":
            assert len(left) == len(right)
            for one, other in zip(left, right, strict=True):
                assert_same(one, other)
        else:
            assert left == right, field.name


def test_no_nan_and_no_infinity_leave_the_program() -> None:
    """NaN is not JSON: one of them makes the whole document unreadable to jq and browsers."""
    finding = replace(
        sample.sample_findings()[0],
        change=sample.change("limits", math.nan, {"a": [math.inf, object]}, 1),
        effect=Interval(math.nan, -math.inf, math.inf),
        pearson_r=math.nan,
        placebo_effects=np.array([0.1, math.nan]),
    )
    document = to_json([sample.sample_explanation(findings=(finding,), unexplained_seconds=math.nan)])
    json.dumps(document, allow_nan=False)
    (first,) = document["explanations"][0]["findings"]
    assert first["effect_seconds"] == {"value": None, "low": None, "high": None}
    assert first["pearson_r"] is None
    assert first["placebo_effects_seconds"] == [0.1, None]
    assert first["change"]["old"] == "NaN"


def test_unset_and_null_stay_apart() -> None:
    """A parameter that was not given differs from one given as null."""
    finding = sample.finding()
    finding = replace(finding, change=sample.change("seed", UNSET, None, 5))
    document = to_json([sample.sample_explanation(findings=(finding,))])
    (again,) = from_json(document)
    assert again.findings[0].change.old is UNSET
    assert again.findings[0].change.new is None


def test_keys_are_stable() -> None:
    """Scripts read these names; changing one is a new version of the document."""
    document = to_json([sample.sample_explanation()])
    (explanation,) = document["explanations"]
    finding = explanation["findings"][1]
    assert document["version"] == 1
    assert sorted(explanation) == [
        "counterfactual_high_seconds",
        "counterfactual_low_seconds",
        "counterfactual_seconds",
        "end_unix_seconds",
        "findings",
        "method",
        "moved_at_unix_seconds",
        "p99_after_seconds",
        "p99_before_seconds",
        "service",
        "start_unix_seconds",
        "unexplained_seconds",
        "warnings",
    ]
    assert sorted(finding) == [
        "change",
        "effect_ms",
        "effect_ratio",
        "effect_seconds",
        "lag_seconds",
        "mechanism_shares",
        "p_value",
        "pearson_r",
        "placebo_effects_seconds",
        "q_value",
        "reason",
        "threshold_crossed",
        "threshold_seconds",
        "too_early_until_unix_seconds",
        "verdict",
    ]
    assert finding["effect_ms"] == {"value": 221.0, "low": 180.0, "high": 262.0}
    assert finding["verdict"] == "causal"


def test_an_explanation_without_data_is_valid_json() -> None:
    """Where there was no data, the engine knows no span either: NaN, which JSON has no word for."""
    document = to_json([Explanation("chat", math.nan, math.nan, ())])
    json.dumps(document, allow_nan=False)
    (again,) = from_json(document)
    assert math.isnan(again.start) and math.isnan(again.end)


def test_an_empty_explanation_has_every_key() -> None:
    """A reader must be able to index without asking first."""
    empty = to_json([Explanation("chat", 0, 60, ())])["explanations"][0]
    full = to_json([sample.sample_explanation()])["explanations"][0]
    assert sorted(empty) == sorted(full)


def test_faults_in_a_document_are_all_named() -> None:
    """One fault a run makes a hand-edited incident a long evening."""
    document = to_json([sample.sample_explanation()])
    document["explanations"][0]["findings"][0]["verdict"] = "guilty"
    document["explanations"][0]["service"] = 7
    document["explanations"][0]["typo"] = 1
    with pytest.raises(DataError) as caught:
        from_json(document)
    for place in ("explanations.0.findings.0.verdict", "explanations.0.service", "explanations.0.typo"):
        assert place in str(caught.value)


def test_another_version_is_refused() -> None:
    """Reading a later version as this one would misread it silently."""
    with pytest.raises(DataError, match="version is 2, this otelkit reads version 1"):
        from_json({"version": 2, "explanations": []})


def test_schema_describes_the_document() -> None:
    """The schema that we hand out must name what the document holds."""
    schema = json_schema()
    assert schema["required"] == ["version", "explanations"]
    assert set(schema["$defs"]["FindingDocument"]["properties"]) == set(
        to_json([sample.sample_explanation()])["explanations"][0]["findings"][0]
    )
