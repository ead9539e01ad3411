"""What is wrong with a dashboard's JSON before anybody looks at it: rules that need no Grafana and no
Prometheus."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from otelkit import semconv
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.panels import COLUMNS

Rule = Callable[[Mapping[str, Any]], Iterator[str]]

_WITHOUT_TARGETS: Final = frozenset({"row", "text"})
_WITHOUT_UNIT: Final = frozenset({"row", "text", "table", "heatmap", "nodeGraph"})
"""Kinds of panel that state units by column, axis or field, or have none."""
_IN_RATE: Final = re.compile(r"\b(?:rate|irate|increase)\($")
_RANGE: Final = re.compile(r"\b(?:rate|irate|increase)\([a-zA-Z_:][\w:]*(?:\{[^}]*\})?\[([^\]]+)\]")
_COUNTER: Final = re.compile(r"\b([a-zA-Z_][\w]*_(?:total|bucket|count|sum))\b")
_VARIABLE: Final = re.compile(r"\$\{?([a-zA-Z_]\w*)")
_OURS: Final = re.compile(r"\b(?:otelkit_|gen_ai_)\w+|\bservice(?:_le|_parameter)?:[\w:]+")
_SUFFIXES: Final = ("", "_total", "_bucket", "_count", "_sum", "_created")


def lint(document: Mapping[str, Any]) -> list[str]:
    """All findings, each as ``panel: what is wrong``; empty when there are none."""
    return [finding for rule in RULES for finding in rule(document)]


def unknown_metrics(document: Mapping[str, Any], known: Collection[str] | None = None) -> list[str]:
    """Metrics that a dashboard asks for and nobody writes, each as ``panel: metric, nearest known name``.

    Args:
        known: names that a Prometheus has; None judges only names in otelkit's own name spaces, by what it
        writes.
    """
    findings = []
    for panel, expr in _expressions(document):
        bare = _without_strings(expr)
        for name in sorted(set(_OURS.findall(bare))):
            if _is_known(name, known):
                continue
            suffix = (
                next((one for one in _SUFFIXES if one and name.endswith(one)), "") if known is None else ""
            )
            close = difflib.get_close_matches(name.removesuffix(suffix), sorted(known or _names()), n=1)
            hint = f"did you mean {close[0] + suffix!r}?" if close else "nothing writes it"
            findings.append(f"{_name(panel)}: unknown metric {name!r}; {hint}")
    return findings


def _is_known(name: str, known: Collection[str] | None) -> bool:
    if name in _labels():
        return True
    if known is not None:
        return name in known
    recorded = any(name.startswith(prefix) for prefix in _recorded())
    return recorded or any(name.removesuffix(suffix) in _names() for suffix in _SUFFIXES)


def _names() -> frozenset[str]:
    return frozenset(value for name, value in vars(semconv).items() if name.startswith("METRIC_"))


def _labels() -> frozenset[str]:
    return frozenset(value for name, value in vars(semconv).items() if name.startswith("LABEL_"))


def _recorded() -> tuple[str, ...]:
    kinds = (semconv.RECORDED_LATENCY, semconv.RECORDED_LATENCY_MS)
    quantiles = [semconv.recorded_quantile(q) for q in semconv.RECORDED_QUANTILES]
    buckets = [semconv.recorded_bucket_rate("", kind) for kind in kinds]
    others = [
        value for name, value in vars(semconv).items() if name.startswith("RECORDED_") and ":" in str(value)
    ]
    return (*quantiles, *buckets, *others)


def _titles(document: Mapping[str, Any]) -> Iterator[str]:
    if not document.get("title") or not document.get("description"):
        yield "dashboard: has no title or no description"
    for panel in panels_of(document):
        if not panel.get("title"):
            yield f"{_name(panel)}: has no title"
        if panel["type"] not in _WITHOUT_TARGETS and not panel.get("description"):
            yield f"{_name(panel)}: has no description that says what to do"


def _targets(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if panel["type"] in _WITHOUT_TARGETS:
            continue
        if not panel.get("targets"):
            yield f"{_name(panel)}: has no target"
        refs = Counter(target.get("refId") for target in panel.get("targets", []))
        yield from (f"{_name(panel)}: refId {ref!r} is used {n} times" for ref, n in refs.items() if n > 1)


def _units(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if panel["type"] not in _WITHOUT_UNIT and not _defaults(panel).get("unit"):
            yield f"{_name(panel)}: has no unit"


def _no_data(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if panel["type"] not in _WITHOUT_TARGETS and not _defaults(panel).get("noValue"):
            yield f"{_name(panel)}: says nothing where there is no data (noValue)"


def _datasources(document: Mapping[str, Any]) -> Iterator[str]:
    variables = {v["name"] for v in _variables(document) if v["type"] == "datasource"}
    if not variables:
        yield "dashboard: has no variable for its data source"
    for panel in panels_of(document):
        for target in panel.get("targets", []):
            uid = (target.get("datasource") or {}).get("uid", "")
            if not (match := _VARIABLE.fullmatch(uid.removesuffix("}"))) or match.group(1) not in variables:
                yield f"{_name(panel)}: data source {uid!r} is not a variable of the dashboard"


def _ids(document: Mapping[str, Any]) -> Iterator[str]:
    ids = Counter(panel.get("id") for panel in panels_of(document))
    yield from (f"dashboard: panel id {number} is used {n} times" for number, n in ids.items() if n > 1)
    titles = Counter(panel["title"] for panel in panels_of(document) if panel["type"] != "row")
    yield from (f"dashboard: {n} panels are called {title!r}" for title, n in titles.items() if n > 1)


def _grid(document: Mapping[str, Any]) -> Iterator[str]:
    cells: dict[tuple[int, int], str] = {}
    for panel in document.get("panels", []):
        at = panel["gridPos"]
        if at["x"] + at["w"] > COLUMNS:
            yield f"{_name(panel)}: reaches beyond the {COLUMNS} columns"
        others = set()
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in cells:
                    others.add(cells[x, y])
                cells[x, y] = _name(panel)
        yield from (f"{_name(panel)}: lies over {other}" for other in sorted(others))


def _rates(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        for target in panel.get("targets", []):
            expr = target.get("expr", "")
            # The whole span for a value at its end, unless a subquery makes a curve of it again.
            whole = target.get("instant") and ":$__rate_interval]" not in expr
            wanted = "$__range" if whole else "$__rate_interval"
            for window in _RANGE.findall(expr):
                if window != wanted:
                    yield f"{_name(panel)}: rate over [{window}] instead of [{wanted}]"


def _counters(document: Mapping[str, Any]) -> Iterator[str]:
    for panel, expr in _expressions(document):
        bare = _without_strings(expr)
        for match in _COUNTER.finditer(bare):
            if not _IN_RATE.search(bare[: match.start()]):
                yield f"{_name(panel)}: {match.group(1)} is a counter; show its rate"


def _variables_used(document: Mapping[str, Any]) -> Iterator[str]:
    defined = {variable["name"] for variable in _variables(document)}
    text = str(list(panels_of(document)))
    text += str(document.get("annotations")) + str([v.get("query") for v in _variables(document)])
    used = {name for name in _VARIABLE.findall(text) if not name.startswith("__")}
    for panel, expr in _expressions(document):
        for name in sorted(set(_VARIABLE.findall(expr)) - defined):
            if not name.startswith("__"):
                yield f"{_name(panel)}: ${name} is not a variable of the dashboard"
    hidden = {v["name"] for v in _variables(document) if v["type"] == "datasource"}
    yield from (f"dashboard: variable {name!r} is not used" for name in sorted(defined - used - hidden))


def _many_values(document: Mapping[str, Any]) -> Iterator[str]:
    several = {v["name"] for v in _variables(document) if v.get("multi") or v.get("includeAll")}
    for panel, expr in _expressions(document):
        for label, name in re.findall(r'(\w+)="\$\{?(\w+)\}?"', expr):
            if name in several:
                yield f'{_name(panel)}: {label}="${name}" fails for several values; write {label}=~"${name}"'


RULES: Final[tuple[Rule, ...]] = (
    _titles,
    _targets,
    _units,
    _no_data,
    _datasources,
    _ids,
    _grid,
    _rates,
    _counters,
    _variables_used,
    _many_values,
)


def _name(panel: Mapping[str, Any]) -> str:
    return f"panel {panel.get('title') or panel.get('id')!r}"


def _defaults(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = panel.get("fieldConfig", {}).get("defaults", {})
    return defaults


def _variables(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = document.get("templating", {}).get("list", [])
    return variables


def _expressions(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    for panel in panels_of(document):
        for target in panel.get("targets", []):
            if target.get("expr"):
                yield panel, target["expr"]


def _without_strings(expr: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', expr)
