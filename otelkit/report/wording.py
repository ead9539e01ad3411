"""How values, changes, effects and verdicts are put into words, for the terminal table and the HTML page."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final

from otelkit import semconv
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.model import UNSET, ParameterChange, ParameterValue, canonical, shares_note

VALUE_LENGTH: Final = 40
"""Characters of a parameter value that a label shows; the page and JSON carry the whole value."""

_RANK: Final = {
    Verdict.CAUSAL: 0,
    Verdict.CANNOT_SEPARATE: 1,
    Verdict.CORRELATED_ONLY: 2,
    Verdict.NO_EFFECT: 3,
}

_PATHS_UP: Final[Mapping[str, str]] = {
    "output_length": "longer outputs",
    "time_per_token": "slower tokens",
    "first_token": "later first token",
    "queueing": "queueing",
    "errors": "errors and retries",
}
_PATHS_DOWN: Final[Mapping[str, str]] = {
    "output_length": "shorter outputs",
    "time_per_token": "faster tokens",
    "first_token": "earlier first token",
    "queueing": "less queueing",
    "errors": "fewer errors and retries",
}


def printable(text: str) -> str:
    """``text`` without characters that would steer a terminal or reorder a line (control, bidirectional)."""
    return "".join(
        f"\\u{ord(char):04x}" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") else char
        for char in text
    )


def value_text(value: ParameterValue, *, length: int | None = None) -> str:
    """A parameter value for people: strings bare where that can't be mistaken for another value.

    Args:
        length: cut to that many characters with an ellipsis; None keeps all.
    """
    if value is UNSET:
        text = "not set"
    elif isinstance(value, str) and _reads_as_itself(value):
        text = printable(value)
    else:
        text = printable(canonical(value))
    return shorten(text, length) if length else text


def shorten(text: str, length: int) -> str:
    """``text`` cut to at most ``length`` characters, the last one an ellipsis where something is missing."""
    return text if len(text) <= length else text[: length - 1] + "…"


def _reads_as_itself(text: str) -> bool:
    if not text or text != text.strip() or text == "not set":
        return False
    try:
        json.loads(text)
    except ValueError:
        return True
    return False


def change_text(change: ParameterChange, *, arrow: str = "->", length: int | None = VALUE_LENGTH) -> str:
    """``max_tokens 256 -> 1024``; the scope is not part of it. Where shares shifted, those of the new value
    follow: ``temperature 0.7 -> 0.9 (5 % -> 60 % of requests)``."""
    old, new = value_text(change.old, length=length), value_text(change.new, length=length)
    return f"{printable(change.parameter)} {old} {arrow} {new}{shares_note(change.shares, arrow)}"


def milliseconds(seconds: float | None, *, signed: bool = False, decimals: int | None = None) -> str:
    """A duration as a number of milliseconds without its unit; ``-`` when it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    value = seconds * 1e3
    if decimals is None:
        decimals = _decimals(abs(value))
    text = f"{value:{'+' if signed else ''}.{decimals}f}"
    return text if float(text) else "0"


def _decimals(largest: float) -> int:
    return 0 if largest >= 10 or largest == 0 else 1 if largest >= 1 else 2


def interval_text(interval: Interval | None, *, unit: str = "") -> str:
    """``+221 [180, 262]`` in milliseconds; ``-`` when there is no estimate.

    Args:
        unit: put behind the estimate, for a sentence: ``+221 ms [180, 262]``.
    """
    if interval is None or not math.isfinite(interval.value):
        return "-"
    ends = [abs(end) for end in (interval.value, interval.low, interval.high) if math.isfinite(end)]
    decimals = _decimals(max(ends) * 1e3)
    value = milliseconds(interval.value, signed=True, decimals=decimals) + (f" {unit}" if unit else "")
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return value
    low, high = (milliseconds(end, decimals=decimals) for end in (interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def seconds_text(seconds: float | None) -> str:
    """A lag or window: ``27 s``, ``4 min 10 s``, ``6 h``; ``-`` when it is not known."""
    if seconds is None or not math.isfinite(seconds):
        return "-"
    if 0 < abs(seconds) < 1:
        return f"{seconds * 1e3:.0f} ms"
    whole = round(seconds)
    if abs(whole) < 120:
        return f"{whole} s"
    sign, whole = ("-" if whole < 0 else ""), abs(whole)
    parts = ((whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    shown = [f"{amount} {unit}" for amount, unit in parts if amount][:2]
    return sign + " ".join(shown)


def correlation_text(value: float | None) -> str:
    """Pearson's r with two decimals."""
    return "-" if value is None or not math.isfinite(value) else f"{value:.2f}"


def probability_text(value: float | None) -> str:
    """A p or q value: two significant digits, never a false zero."""
    if value is None or not math.isfinite(value):
        return "-"
    if value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if value < 0.01 else f"{value:.2f}"


def percent_text(share: float | None, *, signed: bool = False) -> str:
    """A share as a percentage: 0.59 is ``59 %``."""
    if share is None or not math.isfinite(share):
        return "-"
    value = share * 100
    text = f"{value:{'+' if signed else ''}.{0 if abs(value) >= 1 else 1}f}"
    return f"{text if float(text) else '0'} %"


def path_name(path: str, share: float, effect: float) -> str:
    """A mechanism path in words, by the direction in which it moved P99."""
    names = _PATHS_UP if share * effect >= 0 else _PATHS_DOWN
    return names.get(path, path.replace("_", " "))


def mechanism_text(finding: Finding) -> str:
    """``91 % longer outputs, 9 % queueing``; empty where the effect was not split."""
    if finding.effect is None:
        return ""
    shares = sorted(finding.mechanism.items(), key=lambda item: -abs(item[1].value))
    parts = [
        f"{percent_text(share.value)} {path_name(path, share.value, finding.effect.value)}"
        for path, share in shares
        if abs(share.value) >= 0.02
    ]
    return ", ".join(parts)


def verdict_text(finding: Finding) -> str:
    """The verdict, or that it is too early for one."""
    return finding.verdict.value if finding.known_at is None else semconv.VERDICT_TOO_EARLY


def threshold_text(finding: Finding) -> str:
    """``> 120 ms: crossed``; ``-`` where no threshold is stated for the parameter. ``not by it`` where
    something else moved P99."""
    if finding.threshold is None:
        return "-"
    crossed = finding.crosses_threshold
    if crossed is None:
        word = "unknown" if finding.effect is None else "may be crossed"
    elif finding.verdict is Verdict.CORRELATED_ONLY:
        word = "not by it"
    else:
        word = "crossed" if crossed else "not crossed"
    return f"> {milliseconds(finding.threshold)} ms: {word}"


def by_importance(explanation: Explanation) -> list[Finding]:
    """Findings with what moved P99 first: by verdict, then by size of effect, then by time."""

    def key(finding: Finding) -> tuple[int, float, float]:
        size = abs(finding.effect.value) if finding.effect else 0.0
        return _RANK[finding.verdict], -size if math.isfinite(size) else 0.0, finding.change.first_seen

    return sorted(explanation.findings, key=key)


class Clock:
    """Local times of one report: one offset from UTC throughout, stated once, as precise as the span needs.

    Args:
        start, end: span of the report, Unix seconds; not numbers where there is no data.
        zone: time zone; None is the machine's own.
    """

    def __init__(self, start: float, end: float, zone: tzinfo | None = None) -> None:
        if not (math.isfinite(start) and math.isfinite(end)):
            start = end = 0.0
        first = datetime.fromtimestamp(start, UTC).astimezone(zone)
        # One fixed offset: a report over a daylight-saving switch must not show the same time twice.
        self.offset = first.utcoffset() or timedelta()
        self._zone = timezone(self.offset)
        one_day = self._at(start).date() == self._at(end).date()
        self._format = ("%H:%M:%S" if end - start <= 3600 else "%H:%M") if one_day else "%Y-%m-%d %H:%M"

    def _at(self, unix_seconds: float) -> datetime:
        return datetime.fromtimestamp(unix_seconds, self._zone)

    def text(self, unix_seconds: float) -> str:
        """The time as short as the span allows: ``14:02``, ``14:02:07`` or ``2026-11-30 14:02``."""
        return self._at(unix_seconds).strftime(self._format)

    def full(self, unix_seconds: float) -> str:
        """``2026-11-30 14:02:07``; says so when the time is not a number."""
        if not math.isfinite(unix_seconds):
            return "unknown"
        return self._at(unix_seconds).strftime("%Y-%m-%d %H:%M:%S")

    @property
    def offset_text(self) -> str:
        """``UTC+02:00``."""
        minutes = round(self.offset.total_seconds() / 60)
        return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
