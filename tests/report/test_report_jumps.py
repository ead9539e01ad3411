"""The other direction in words and as JSON, the band, thresholds, and what it is too early for."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC
from html import unescape

import numpy as np
import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.causal.jumps import Candidate, Jump
from otelkit.report import from_json, jumps_to_json, render_jumps, render_page, render_table, to_json
from otelkit.report.band import with_band

JUMP = Jump(
    at=sample.START + 142,
    effect_ratio=Interval(0.59, 0.45, 0.72),
    effect=Interval(0.243, 0.18, 0.31),
    candidates=(
        Candidate(sample.change("max_tokens", 256, 1024, 115), 0.93, 27.0),
        Candidate(sample.change("model", "a\x1b[31m", None, 60, service="search"), 0.03, 82.0),
    ),
    unexplained=0.04,
)


def test_a_jump_is_told_with_what_came_before_it() -> None:
    """Broken if the paragraph lacked the size, a change, its odds, or what stays unexplained."""
    text = render_jumps({"chat": [JUMP]}, sample.START, sample.START + 330, zone=UTC)
    assert [" ".join(line.split()) for line in text.splitlines()] == [
        "P99 of chat rose at 14:02:22: +243 ms [180, 310] (+59 %)",
        "change before it service at earlier by made it",
        "max_tokens 256 -> 1024 chat 14:01:55 27 s 93 %",
        "model a\\u001b[31m -> null search 14:01:00 82 s 3 %",
        "unexplained: 4 %, +10 ms of it (no change that is on record made it)",
    ]


def test_a_fall_without_any_change_is_told_as_such() -> None:
    """Broken if an improvement were called a rise, or an unknown size printed."""
    fall = replace(
        JUMP, effect_ratio=Interval(-0.3, -0.4, -0.2), effect=Interval(math.nan, math.nan, math.nan)
    )
    text = render_jumps({"chat": [replace(fall, candidates=(), unexplained=1.0)]}, 0, 1, zone=UTC)
    assert "P99 of chat fell at" in text and "nan" not in text
    assert "no parameter change was made before it" in text and "unexplained: 100 % (no change" in text


def test_jumps_as_json_are_json() -> None:
    """Broken if NaN got into the document, or a program could not find a change by its id."""
    document = jumps_to_json({"chat": [replace(JUMP, effect=Interval(math.nan, math.nan, math.nan))]})
    (jump,) = json.loads(json.dumps(document, allow_nan=False))["jumps"]
    assert jump["effect_seconds"] == {"value": None, "low": None, "high": None}
    assert jump["candidates"][0]["id"] == JUMP.candidates[0].change.id
    assert jump["unexplained_share"] == 0.04


def explanation(**more: object) -> Explanation:
    return sample.sample_explanation(counterfactual_low=None, counterfactual_high=None, **more)


def test_the_band_is_as_wide_as_the_effects_are_uncertain() -> None:
    """Broken if the counterfactual were drawn without its band, or as certain before a change as after it."""
    panel = sample.sample_panel()
    banded = with_band(explanation(), panel)
    assert banded.counterfactual is not None
    assert banded.counterfactual_low is not None and banded.counterfactual_high is not None
    known = np.isfinite(banded.counterfactual)
    before, after = panel.times < sample.START + 130, (panel.times > sample.START + 200) & known
    np.testing.assert_array_equal(
        banded.counterfactual_low[before & known], banded.counterfactual[before & known]
    )
    ratio = next(one.effect_ratio for one in banded.findings if one.verdict is Verdict.CAUSAL)
    assert ratio is not None
    np.testing.assert_allclose(
        banded.counterfactual_low[after] * (1 + ratio.high), banded.counterfactual[after] * (1 + ratio.value)
    )
    np.testing.assert_allclose(
        banded.counterfactual_high[after] * (1 + ratio.low), banded.counterfactual[after] * (1 + ratio.value)
    )
    given = sample.sample_explanation()
    assert with_band(given, panel) is given


def finding(**more: object) -> Finding:
    return sample.finding(**{"effect": Interval(0.1, 0.05, 0.15), "verdict": Verdict.CAUSAL, **more})


RISE = Interval(0.1, 0.05, 0.15)


@pytest.mark.parametrize(
    ("verdict", "threshold", "effect", "words", "crossed"),
    [
        (Verdict.CAUSAL, 0.085, RISE, "> 85 ms: crossed", True),
        (Verdict.CAUSAL, 0.085, Interval(-0.1, -0.15, -0.05), "> 85 ms: crossed", True),
        (Verdict.CAUSAL, 0.12, RISE, "> 120 ms: may be crossed", None),
        (Verdict.CAUSAL, 0.2, RISE, "> 200 ms: not crossed", False),
        (Verdict.CAUSAL, 0.2, None, "> 200 ms: unknown", None),
        (Verdict.CORRELATED_ONLY, 0.085, RISE, "> 85 ms: not by it", False),
        (Verdict.CANNOT_SEPARATE, 0.085, RISE, "> 85 ms: may be crossed", None),
        (Verdict.NO_EFFECT, 0.2, RISE, "> 200 ms: not crossed", False),
    ],
)
def test_thresholds_are_held_against_the_effect(
    verdict: Verdict, threshold: float, effect: Interval | None, words: str, crossed: bool | None
) -> None:
    """Broken if a change to act on could not be told from one that is not, in the table, in JSON or on the
    page: one that something else moved P99 beside is nothing to act on, however far P99 moved."""
    one = explanation(findings=(finding(verdict=verdict, threshold=threshold, effect=effect),))
    (told,) = to_json([one])["explanations"][0]["findings"]
    assert told["threshold_crossed"] is crossed
    assert words in render_table([one], width=200, color=False, zone=UTC)
    assert words in " ".join(render_table([one], width=60, color=False, zone=UTC).split())
    assert words in unescape(render_page(one, sample.sample_panel(), zone=UTC)).replace("\xa0", " ")
    assert from_json(to_json([one]))[0].findings[0].threshold == threshold


def test_too_early_is_said_in_every_form() -> None:
    """Broken if a verdict that may yet change looked final, or nobody knew when to ask again."""
    early = finding(verdict=Verdict.CANNOT_SEPARATE, known_at=sample.START + 900)
    one = explanation(findings=(early,))
    assert "too early, known at 14:15:00" in render_table([one], width=200, color=False, zone=UTC)
    page = unescape(render_page(one, sample.sample_panel(), zone=UTC))
    assert "known at 14:15:00" in page and ">1 too early<" in page.replace("</i>", ">")
    assert "It is too early to judge temperature 0.7 → 0.9; it will be known at 14:15:00." in page
    mixed = explanation(findings=(early, replace(early, known_at=None)))
    assert "2 cannot separate (1 too early)" in unescape(render_page(mixed, sample.sample_panel(), zone=UTC))
    assert from_json(to_json([one]))[0].findings[0].known_at == early.known_at
