"""What is wrong with a dashboard's JSON before anybody looks at it: rules that need no Grafana and no
Prometheus."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.panels import COLUMNS
from otelkit.dashboards.queries import expressions, named, without_strings

Rule = Callable[[Mapping[str, Any]], Iterator[str]]

_WITHOUT_TARGETS: Final = frozenset({"row", "text", "dashlist", "news", "alertlist", "annolist"})
_WITHOUT_UNIT: Final = frozenset(
    {*_WITHOUT_TARGETS, "table", "heatmap", "nodeGraph", "logs", "traces", "geomap", "canvas"}
)
"""Kinds of panel that state units by column, axis or field, or have none."""
_LEFT_BEHIND: Final = {
    "graph": "grafanalib's TimeSeries",
    "singlestat": "grafanalib's Stat",
    "grafana-piechart-panel": "grafanalib's PieChartv2",
    "natel-discrete-panel": "grafanalib's StateTimeline",
    "grafana-worldmap-panel": "Grafana's geomap",
}
"""Kinds of panel that Grafana has replaced -> what with."""
_OF_GRAFANA: Final = frozenset(
    {*_WITHOUT_UNIT, *_LEFT_BEHIND, "timeseries", "stat", "gauge", "bargauge", "barchart", "piechart"}
    | {"histogram", "state-timeline", "status-history", "trend", "xychart", "candlestick", "flamegraph"}
)
_IN_RATE: Final = re.compile(r"\b(?:rate|irate|increase)\($")
_RANGE: Final = re.compile(r"\b(?:rate|irate|increase)\([a-zA-Z_:][\w:]*(?:\{[^}]*\})?\[([^\]]+)\]")
_COUNTER: Final = re.compile(r"\b([a-zA-Z_][\w]*_(?:total|bucket|count|sum))\b")
_VARIABLE: Final = re.compile(r"\$\{?([a-zA-Z_]\w*)")
_USE: Final = re.compile(r"\$(?:[a-zA-Z_]\w*|\{[^}]*\})|\[\[\w+\]\]")
_IN_RANGE: Final = re.compile(rf"([\[:]\s*|\boffset\s+-?)(?:{_USE.pattern})")


def lint(document: Mapping[str, Any]) -> list[str]:
    """All findings, each as ``panel: what is wrong``; empty when there are none."""
    return [finding for rule in RULES for finding in rule(document)]


def _kinds(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        kind = panel.get("type")
        if kind in _LEFT_BEHIND:
            yield (
                f"{named(panel)}: is a {kind!r}, which Grafana has left behind and converts as well as it "
                f"can; use {_LEFT_BEHIND[kind]}"
            )
        elif kind == "heatmap" and "dataFormat" in panel:
            yield (
                f"{named(panel)}: is a heatmap as before Grafana 9, which converts it as well as it can; use "
                "otelkit.dashboards.grafana.Heatmap"
            )
        elif kind not in _OF_GRAFANA:
            yield f"{named(panel)}: needs the plugin {kind!r} in Grafana, or shows nothing"


def _is_judged(panel: Mapping[str, Any]) -> bool:
    """Whether the panel's settings stand where Grafana has them now."""
    return panel.get("type") in _OF_GRAFANA - _LEFT_BEHIND.keys() and "dataFormat" not in panel


def _titles(document: Mapping[str, Any]) -> Iterator[str]:
    if not document.get("title") or not document.get("description"):
        yield "dashboard: has no title or no description"
    for panel in panels_of(document):
        if not panel.get("title"):
            yield f"{named(panel)}: has no title"
        if panel["type"] not in _WITHOUT_TARGETS and not panel.get("description"):
            yield f"{named(panel)}: has no description that says what to do"


def _targets(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if panel["type"] in _WITHOUT_TARGETS:
            continue
        if not panel.get("targets"):
            yield f"{named(panel)}: has no target"
        refs = Counter(target.get("refId") for target in panel.get("targets", []))
        yield from (f"{named(panel)}: refId {ref!r} is used {n} times" for ref, n in refs.items() if n > 1)


def _units(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if _is_judged(panel) and panel["type"] not in _WITHOUT_UNIT and not _defaults(panel).get("unit"):
            yield f"{named(panel)}: has no unit"


def _no_data(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        if (
            _is_judged(panel)
            and panel["type"] not in _WITHOUT_TARGETS
            and not _defaults(panel).get("noValue")
        ):
            yield f"{named(panel)}: says nothing where there is no data (noValue)"


def _datasources(document: Mapping[str, Any]) -> Iterator[str]:
    variables = {v["name"] for v in _variables(document) if v["type"] == "datasource"}
    if not variables:
        yield "dashboard: has no variable for its data source"
    for panel in panels_of(document):
        if panel["type"] in _WITHOUT_TARGETS:
            continue
        for target in panel.get("targets", []):
            uid = str((target.get("datasource") or {}).get("uid", ""))
            if not (match := _VARIABLE.fullmatch(uid.removesuffix("}"))) or match.group(1) not in variables:
                said = f"data source {uid!r} is not" if uid else "has no data source; name"
                yield f"{named(panel)}: {said} a variable of the dashboard"


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
            yield f"{named(panel)}: reaches beyond the {COLUMNS} columns"
        others = set()
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in cells:
                    others.add(cells[x, y])
                cells[x, y] = named(panel)
        yield from (f"{named(panel)}: lies over {other}" for other in sorted(others))


def _rates(document: Mapping[str, Any]) -> Iterator[str]:
    for panel in panels_of(document):
        for target in panel.get("targets", []):
            expr = target.get("expr", "")
            # The whole span for a value at its end, unless a subquery makes a curve of it again.
            whole = target.get("instant") and ":$__rate_interval]" not in expr
            wanted = "$__range" if whole else "$__rate_interval"
            for window in _RANGE.findall(expr):
                if window != wanted:
                    yield f"{named(panel)}: rate over [{window}] instead of [{wanted}]"


def _counters(document: Mapping[str, Any]) -> Iterator[str]:
    for where, expr in expressions(document):
        bare = without_strings(expr)
        for match in _COUNTER.finditer(bare):
            if not _IN_RATE.search(bare[: match.start()]):
                yield f"{where}: {match.group(1)} is a counter; show its rate"


def _variables_used(document: Mapping[str, Any]) -> Iterator[str]:
    defined = {variable["name"] for variable in _variables(document)}
    text = str(list(panels_of(document)))
    text += str(document.get("annotations")) + str([v.get("query") for v in _variables(document)])
    used = {name for name in _VARIABLE.findall(text) if not name.startswith("__")}
    for where, expr in expressions(document):
        for name in sorted(set(_VARIABLE.findall(expr)) - defined):
            if not name.startswith("__"):
                yield f"{where}: ${name} is not a variable of the dashboard"
    hidden = {v["name"] for v in _variables(document) if v["type"] in ("datasource", "adhoc")}
    yield from (f"dashboard: variable {name!r} is not used" for name in sorted(defined - used - hidden))


def _many_values(document: Mapping[str, Any]) -> Iterator[str]:
    several = {v["name"] for v in _variables(document) if v.get("multi") or v.get("includeAll")}
    for where, expr in expressions(document):
        for label, name in re.findall(r'(\w+)="\$\{?(\w+)\}?"', expr):
            if name in several:
                yield f'{where}: {label}="${name}" fails for several values; write {label}=~"${name}"'


def _syntax(document: Mapping[str, Any]) -> Iterator[str]:
    """Only where the parser is installed: it is an extra."""
    if importlib.util.find_spec("promql_parser") is None:
        return
    import promql_parser

    for where, expr in expressions(document):
        faults = []
        # A variable may stand for a metric or for a number; in a range it stands for a duration.
        for stand_in in ("x", "1"):
            try:
                promql_parser.parse(_filled(expr, stand_in))
            except ValueError as error:
                faults.append(" ".join(str(error).split()))
        if len(faults) == 2:
            yield f"{where}: is no PromQL: {faults[0]}: {expr}"


def _filled(expr: str, stand_in: str) -> str:
    in_ranges = _IN_RANGE.sub(lambda match: f"{match[1]}5m", expr)
    return _USE.sub(stand_in, in_ranges)


RULES: Final[tuple[Rule, ...]] = (
    _kinds,
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
    _syntax,
)


def _defaults(panel: Mapping[str, Any]) -> Mapping[str, Any]:
    defaults: Mapping[str, Any] = panel.get("fieldConfig", {}).get("defaults", {})
    return defaults


def _variables(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    variables: list[dict[str, Any]] = document.get("templating", {}).get("list", [])
    return variables
