"""What the queries of a dashboard ask for, and what of that nobody writes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from otelkit import semconv
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview.fetch import Span
from otelkit.dashboards.preview.prometheus import PrometheusApi, QueryError
from otelkit.dashboards.preview.variables import Variables, label_values, resolve

_OURS: Final = re.compile(r"(?:otelkit_|gen_ai_)")
_RECORDED: Final = re.compile(r"service(?:_le|_parameter|_slo)?:")
"""A level that others' rules use as well: only what looks like a slip of the pen in one of ours is ours."""
_SUFFIXES: Final = ("", "_total", "_bucket", "_count", "_sum", "_created")
_IN_STRINGS: Final = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`")
_NO_METRICS: Final = re.compile(
    r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|#[^\n]*"
)
_NAME: Final = re.compile(r"(?<![\w:.$])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()")
_KEYWORDS: Final = frozenset(
    {"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "by", "without", "on", "ignoring"}
    | {"group_left", "group_right"}
)
_AGO: Final = 3600.0
"""Seconds of the newest data in which values for variables are looked for."""


def expressions(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every Prometheus query of a dashboard, with the panel that asks it, as ``panel 'title'``."""
    for panel in panels_of(document):
        for target in panel.get("targets", []):
            if target.get("expr"):
                yield named(panel), target["expr"]


def named(panel: Mapping[str, Any]) -> str:
    """How findings speak of a panel."""
    return f"panel {panel.get('title') or panel.get('id')!r}"


def without_strings(expr: str) -> str:
    """A query with all its texts empty."""
    return _IN_STRINGS.sub('""', expr)


def metrics_asked(expr: str) -> frozenset[str]:
    """Names of the metrics in a query; those given by a matcher of ``__name__`` or a variable are left
    out."""
    names = _NAME.findall(_NO_METRICS.sub(" ", without_strings(expr)))
    return frozenset(name for name in names if name.lower() not in _KEYWORDS)


def unknown_metrics(document: Mapping[str, Any], known: Collection[str] | None = None) -> list[str]:
    """Metrics that a dashboard asks for and nobody writes, each as ``panel: metric, nearest known name``.

    Args:
        known: names that a Prometheus has; None judges only names in otelkit's own name spaces, by what it
            writes.
    """
    findings = []
    for where, expr in _everything_asked(document):
        for name in sorted(metrics_asked(expr)):
            nearest = _nearest(name, known)
            if nearest is not None:
                hint = f"did you mean {nearest!r}?" if nearest else "nothing writes it"
                findings.append(f"{where}: unknown metric {name!r}; {hint}")
    return list(dict.fromkeys(findings))


def findings_at(document: Mapping[str, Any], api: PrometheusApi, now: float) -> list[str]:
    """What a dashboard asks for and a Prometheus does not have or refuses, each as ``panel: what``.

    Args:
        now: Unix seconds at which queries are asked.

    Raises:
        BackendUnreachable: Prometheus does not answer.
    """
    span = Span(now - _AGO, now, 15.0)
    variables = resolve(document, api, span.start, span.end, {})
    filled = Variables({**variables.texts, **span.built_in(15.0)})
    findings = [
        *variables.problems,
        *unknown_metrics(document, set(api.label_values("__name__", "", 0, now))),
    ]
    for where, expr in expressions(document):
        try:
            api.at(filled.replace(expr), now)
        except QueryError as error:
            findings.append(f"{where}: {error}: {expr}")
    return findings


def _everything_asked(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from expressions(document)
    for variable in document.get("templating", {}).get("list", []):
        if variable.get("type") == "query" and (asked := label_values(variable.get("query"))):
            yield f"variable {variable['name']!r}", asked.selector
    for mark in document.get("annotations", {}).get("list", []):
        expr = (mark.get("target") or {}).get("expr") or mark.get("expr")
        if isinstance(expr, str):
            yield f"annotation {mark.get('name')!r}", expr


def _nearest(name: str, known: Collection[str] | None) -> str | None:
    """The name that was probably meant, empty where none is near; None when nothing is wrong."""
    if known is not None:
        return None if name in known else next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")
    if _RECORDED.match(name):
        if any(name.startswith(prefix) for prefix in _recorded()):
            return None
        return next(iter(difflib.get_close_matches(name, _recorded(), n=1, cutoff=0.85)), None)
    if not _OURS.match(name) or any(name.removesuffix(suffix) in _names() for suffix in _SUFFIXES):
        return None
    suffix = next((one for one in _SUFFIXES if one and name.endswith(one)), "")
    close = difflib.get_close_matches(name.removesuffix(suffix), sorted(_names()), n=1)
    return close[0] + suffix if close else ""


def _names() -> frozenset[str]:
    return frozenset(value for name, value in vars(semconv).items() if name.startswith("METRIC_"))


def _recorded() -> tuple[str, ...]:
    """Beginnings of the names of recorded series; windows follow."""
    kinds = (
        semconv.RECORDED_LATENCY,
        semconv.RECORDED_LATENCY_MS,
        semconv.RECORDED_FIRST_TOKEN,
        semconv.RECORDED_TOKEN_TIME,
    )
    of_kinds = [
        name
        for kind in kinds
        for name in (
            *(semconv.recorded_quantile(q, metric=kind) for q in semconv.RECORDED_QUANTILES),
            semconv.recorded_bucket_rate("", kind),
            semconv.recorded_histogram_rate("", kind),
        )
    ]
    others = [
        value for name, value in vars(semconv).items() if name.startswith("RECORDED_") and ":" in str(value)
    ]
    return (*of_kinds, semconv.recorded_burn_rate(""), *others)
