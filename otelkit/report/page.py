"""An explanation as one self-contained HTML page that asks no server for anything: it can be mailed, kept."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Any, Final

import numpy as np

from otelkit import semconv
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.causal.verdicts import SURELY_NONE
from otelkit.echarts import shell
from otelkit.model import shares_note
from otelkit.query.panel import Panel
from otelkit.report import page_data
from otelkit.report.band import with_band
from otelkit.report.exemplars import Exemplars, exemplar_data, exemplar_rows
from otelkit.report.headline import headline
from otelkit.report.wording import (
    Clock,
    by_importance,
    correlation_text,
    interval_text,
    mechanism_text,
    milliseconds,
    path_name,
    percent_text,
    printable,
    probability_text,
    seconds_text,
    threshold_text,
    value_text,
    verdict_text,
)

_SCRIPTS: Final = ("marks.js", "timeline.js", "evidence.js", "page.js")
_EVIDENCE_SHOWN: Final = 12
"""Changes listed with their evidence; where there are more, the rest is folded away."""
_OPEN_AT_FIRST: Final = 2
"""Evidence of so many causal changes is unfolded when the page opens."""
_MEANINGS: Final = {
    Verdict.CAUSAL: "moved P99 from the change on; no load, other service or other change explains it",
    Verdict.CORRELATED_ONLY: "P99 moved, but something else explains it; the reason names it",
    Verdict.CANNOT_SEPARATE: "changes overlap or data is thin; the reason says what would settle it",
    Verdict.NO_EFFECT: "an effect as large as the margin of what counts as none is improbable "
    f"(below {1 - SURELY_NONE:.0%})",
}


def render_page(
    explanation: Explanation,
    panel: Panel,
    *,
    title: str | None = None,
    exemplars: Exemplars | None = None,
    zone: tzinfo | None = None,
) -> str:
    """Render what is known of one service's P99 as an HTML document.

    The same arguments give the same bytes.

    Args:
        panel: the series that the explanation was made from; P99, other quantiles and load are drawn from it.
        title: of the document; by default the service's name and what the page is.
        exemplars: a generation before and one after, to be drawn side by side.
        zone: time zone of all times shown; None is the machine's own. The page states the offset from UTC.

    Raises:
        ValueError: the explanation's counterfactual is not on the panel's grid.
    """
    clock = Clock(explanation.start, explanation.end, zone)
    explanation = with_band(explanation, panel)
    numbers = {id(finding): number for number, finding in enumerate(_in_time(explanation), 1)}
    ranked = [(numbers[id(finding)], finding) for finding in by_importance(explanation)]
    rows = _rows(ranked, clock)
    why_empty = page_data.why_empty(explanation, panel)
    return shell.render(
        "otelkit.report",
        "page.html.j2",
        scripts=_SCRIPTS,
        filters={"unbroken": _unbroken},
        title=title or f"{printable(explanation.service)}: what moved P99",
        headline=headline(explanation, clock, arrow="→", p99_read=not why_empty),
        service=printable(explanation.service),
        clock=clock,
        explanation=explanation,
        figures=_figures(explanation, panel),
        counts=_counts(explanation),
        meanings=[
            (page_data.VERDICT_KEYS[verdict], verdict.value, text) for verdict, text in _MEANINGS.items()
        ],
        rows=rows,
        evidence=[row for row in rows if row["placebo"] or row["mechanism"]],
        evidence_shown=_EVIDENCE_SHOWN,
        why_empty=why_empty,
        facts=_facts(explanation, panel),
        exemplars=exemplar_rows(exemplars) if exemplars else [],
        data=_data(explanation, panel, clock, ranked, rows, exemplars),
    )


def _in_time(explanation: Explanation) -> list[Finding]:
    return sorted(explanation.findings, key=lambda finding: finding.change.first_seen)


def _unbroken(text: str) -> str:
    """``text`` in which a number stays on one line with its unit, and an interval with its other end."""
    text = re.sub(r"(\[-?[\d.]+,) (?=-?[\d.]+\])", "\\1\N{NO-BREAK SPACE}", text)
    return re.sub(r"(?<=\d) (?=%|(?:ms|s|min|h|d)\b)", "\N{NO-BREAK SPACE}", text)


def _figures(explanation: Explanation, panel: Panel) -> list[tuple[str, str]]:
    """The sum that the headline stands on: before, after, what changes caused, what is left."""
    if explanation.p99_before is None:
        series = panel.services.get(explanation.service)
        p99 = None if series is None else series.quantiles.get(0.99)
        if p99 is None or not np.isfinite(p99).any():
            return []
        return [("P99, median of the span", f"{milliseconds(float(np.nanmedian(p99)))} ms")]
    before, after = explanation.p99_before, explanation.p99_after
    causal = [
        finding.effect.value
        for finding in explanation.findings
        if finding.verdict is Verdict.CAUSAL and finding.effect is not None
    ]
    figures = [("P99 before", milliseconds(before)), ("P99 after", milliseconds(after))]
    if before is not None and after is not None and explanation.moved_at is not None:
        figures.append(("Movement", milliseconds(after - before, signed=True)))
        if causal:
            figures.append(("Sum of causal effects", milliseconds(sum(causal), signed=True)))
    figures.append(("Unexplained", milliseconds(explanation.unexplained_seconds, signed=True)))
    return [(name, f"{text} ms") for name, text in figures if text != "-"]


def _counts(explanation: Explanation) -> list[dict[str, Any]]:
    counted = Counter(finding.verdict for finding in explanation.findings)
    early = sum(finding.known_at is not None for finding in explanation.findings)
    words = {verdict: verdict.value for verdict in page_data.VERDICT_KEYS}
    if early == counted[Verdict.CANNOT_SEPARATE]:
        words[Verdict.CANNOT_SEPARATE] = semconv.VERDICT_TOO_EARLY
    elif early:
        words[Verdict.CANNOT_SEPARATE] += f" ({early} {semconv.VERDICT_TOO_EARLY})"
    return [
        {"key": key, "word": words[verdict], "count": counted[verdict]}
        for verdict, key in page_data.VERDICT_KEYS.items()
        if counted[verdict]
    ]


def _rows(ranked: Sequence[tuple[int, Finding]], clock: Clock) -> list[dict[str, Any]]:
    scale = _Scale.over([finding.effect for _, finding in ranked])
    opened = 0
    rows = []
    for number, finding in ranked:
        change = finding.change
        placebo = page_data.placebo(finding)
        has_evidence = bool(placebo or finding.mechanism)
        unfold = has_evidence and finding.verdict is Verdict.CAUSAL and opened < _OPEN_AT_FIRST
        opened += unfold
        rows.append(
            {
                "n": number,
                "key": page_data.VERDICT_KEYS[finding.verdict],
                "verdict": verdict_text(finding),
                "known_at": "" if finding.known_at is None else clock.text(finding.known_at),
                "threshold": "" if finding.threshold is None else threshold_text(finding),
                "crossed": finding.crosses_threshold,
                "parameter": printable(change.parameter),
                "old": value_text(change.old),
                "new": value_text(change.new),
                "values_short": f"{value_text(change.old, length=40)} → {value_text(change.new, length=40)}"
                + shares_note(change.shares, "→"),
                "scope": printable(change.scope),
                "source": change.source.value.replace("_", " "),
                "at": clock.text(change.first_seen),
                "at_full": clock.full(change.first_seen),
                "rollout": seconds_text(change.last_seen - change.first_seen)
                if change.last_seen > change.first_seen
                else "",
                "workers": change.workers,
                "effect": interval_text(finding.effect),
                "ratio": percent_text(finding.effect_ratio.value, signed=True)
                if finding.effect and finding.effect_ratio
                else "",
                "bar": scale.bar(finding.effect) if scale else None,
                "lag": seconds_text(finding.lag_seconds),
                "r": correlation_text(finding.pearson_r),
                "p": probability_text(finding.p_value),
                "q": probability_text(finding.q_value),
                "mechanism_text": mechanism_text(finding),
                "reason": printable(finding.reason).replace(" -> ", " → "),
                "placebo": placebo,
                "mechanism": _mechanism(finding),
                "open": unfold,
            }
        )
    return rows


class _Scale:
    """Maps milliseconds to percent of a bar's width, zero always on it."""

    def __init__(self, low: float, high: float) -> None:
        margin = (high - low) * 0.04
        self._low, self._span = low - margin, (high - low) + 2 * margin

    @classmethod
    def over(cls, intervals: Sequence[Interval | None]) -> _Scale | None:
        """The scale on which all the intervals can be compared; None when there is nothing to draw."""
        ends = [0.0]
        for interval in intervals:
            if interval is not None:
                ends += [end for end in (interval.low, interval.value, interval.high) if math.isfinite(end)]
        return cls(min(ends), max(ends)) if max(ends) > min(ends) else None

    def _percent(self, value: float) -> float:
        return round(100 * (value - self._low) / self._span, 2)

    def bar(self, interval: Interval | None) -> Mapping[str, float] | None:
        """Left ends and widths in percent: the zero line, the interval, the estimate."""
        if interval is None or not all(map(math.isfinite, (interval.low, interval.value, interval.high))):
            return None
        low, high = self._percent(interval.low), self._percent(interval.high)
        return {
            "zero": self._percent(0.0),
            "left": low,
            "width": round(high - low, 2),
            "value": self._percent(interval.value),
        }


def _mechanism(finding: Finding) -> list[dict[str, Any]]:
    if finding.effect is None or not finding.mechanism:
        return []
    scale = _Scale.over(list(finding.mechanism.values()))
    if scale is None:
        return []
    shares = sorted(finding.mechanism.items(), key=lambda item: -abs(item[1].value))
    rows = [
        {
            "name": path_name(path, share.value, finding.effect.value),
            "share": percent_text(share.value),
            "range": f"[{percent_text(share.low)}, {percent_text(share.high)}]",
            "ms": milliseconds(share.value * finding.effect.value, signed=True),
            "bar": scale.bar(share),
        }
        for path, share in shares
    ]
    rest = 1 - sum(share.value for share in finding.mechanism.values())
    if abs(rest) >= 0.01:
        ms = milliseconds(rest * finding.effect.value, signed=True)
        rows.append({"name": "not split", "share": percent_text(rest), "range": "", "ms": ms, "bar": None})
    return rows


def _facts(explanation: Explanation, panel: Panel) -> list[tuple[str, str]]:
    """What data the verdicts rest on, for a reader who has to judge them."""
    series = panel.services.get(explanation.service)
    facts = [("Points", f"{len(panel.times)}, one every {seconds_text(panel.step_seconds)}")]
    if series is not None:
        facts.append(("Quantiles over a trailing window of", seconds_text(series.window_seconds)))
        p99 = series.quantiles.get(0.99)
        if p99 is not None and len(p99):
            facts.append(("Gaps in P99", percent_text(float(np.mean(~np.isfinite(p99))))))
        if series.bucket_bounds is not None:
            counts = "with counts" if series.bucket_counts is not None else "without counts"
            facts.append(("Latency buckets", f"{len(series.bucket_bounds)}, {counts}"))
        held = ", ".join(name.replace("_", " ") for name in sorted(series.covariates))
        facts.append(("Covariates", held or "none"))
    depends = panel.dependencies.get(explanation.service, ())
    controls = sorted(set(panel.services) - {explanation.service} - set(depends))
    facts.append(("Other services in the data", ", ".join(map(printable, controls)) or "none"))
    if depends:
        facts.append(("Depends on", ", ".join(map(printable, depends))))
    return facts


def _data(
    explanation: Explanation,
    panel: Panel,
    clock: Clock,
    ranked: Sequence[tuple[int, Finding]],
    rows: Sequence[Mapping[str, Any]],
    exemplars: Exemplars | None,
) -> dict[str, Any]:
    return {
        "curves": page_data.curves(explanation, panel, clock),
        "marks": page_data.marks(sorted(ranked, key=lambda pair: pair[0]), panel, clock),
        "placebos": {f"change-{row['n']}": row["placebo"] for row in rows if row["placebo"]},
        "graph": page_data.graph(ranked, explanation.service),
        "exemplars": exemplar_data(exemplars) if exemplars else [],
    }
