"""Template variables: their values at a Prometheus, and their place in queries, as Grafana has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otelkit.dashboards.preview.prometheus import PrometheusApi, QueryError
from otelkit.errors import UsageError

_USE: Final = re.compile(r"\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\]")
_LABEL_VALUES: Final = re.compile(r"\s*label_values\((?:(?P<selector>.*),)?\s*(?P<label>\w+)\s*\)\s*", re.S)
_JAVASCRIPT: Final = re.compile(r"/(?P<body>.*)/(?P<flags>\w*)", re.S)
ALL: Final = "$__all"


@dataclass(frozen=True, slots=True)
class LabelValues:
    """A variable's query for the values of a label."""

    label: str
    selector: str
    """Of the series that are looked at; empty for all."""


def label_values(query: Any) -> LabelValues | None:
    """What a variable asks for; None when that is something else than ``label_values(...)``."""
    text = query.get("query") if isinstance(query, Mapping) else query
    match = _LABEL_VALUES.fullmatch(text) if isinstance(text, str) else None
    return LabelValues(match["label"], (match["selector"] or "").strip()) if match else None


@dataclass(slots=True)
class Variables:
    """What stands for each variable in a query, and what is said of it."""

    texts: dict[str, str] = field(default_factory=dict)
    """Name -> what replaces it in a query."""
    shown: dict[str, str] = field(default_factory=dict)
    """Label -> value for people."""
    problems: list[str] = field(default_factory=list)

    def replace(self, text: str) -> str:
        """Put in what is known; names that are not variables stay as they are, as in Grafana."""

        def value(match: re.Match[str]) -> str:
            return self.texts.get(match[1] or match[2] or match[3], match[0])

        return _USE.sub(value, text)


def resolve(
    document: Mapping[str, Any],
    api: PrometheusApi,
    start: float,
    end: float,
    chosen: Mapping[str, Sequence[str]],
) -> Variables:
    """Choose a value for every variable: the one asked for, else the dashboard's own, else the first.

    Args:
        chosen: name -> values asked for.

    Raises:
        UsageError: a variable was asked for that the dashboard does not have.
    """
    variables = Variables()
    templates = document.get("templating", {}).get("list", [])
    unknown = sorted(set(chosen) - {template["name"] for template in templates})
    if unknown:
        known = ", ".join(template["name"] for template in templates) or "none"
        raise UsageError(f"the dashboard has no variable {unknown[0]!r}; it has {known}")
    for template in templates:
        if template["type"] == "datasource":
            continue
        name, label = template["name"], template.get("label") or template["name"]
        options = _options(template, api, start, end, variables)
        values = list(chosen.get(name, ())) or _default(template, options)
        variables.texts[name] = _text(template, values)
        variables.shown[label] = "All" if values == [ALL] else ", ".join(values) or "nothing"
        if not options and template["type"] == "query" and name not in chosen:
            asked = variables.replace(str(template.get("query")))
            variables.problems.append(f"variable {label!r} selects nothing: {asked} has no values here")
        elif options and (missing := [value for value in values if value not in (*options, ALL)]):
            variables.problems.append(f"variable {label!r}: {', '.join(missing)} is none of its values here")
    return variables


def _options(
    template: Mapping[str, Any], api: PrometheusApi, start: float, end: float, variables: Variables
) -> list[str]:
    if template["type"] != "query":
        return [str(option["value"]) for option in template.get("options", [])]
    asked = label_values(template.get("query"))
    if asked is None:
        variables.problems.append(f"variable {template['name']!r}: only label_values(...) can be previewed")
        return []
    try:
        values = api.label_values(asked.label, variables.replace(asked.selector), start, end)
    except QueryError as error:
        variables.problems.append(f"variable {template['name']!r}: {error}")
        return []
    if wanted := template.get("regex"):
        try:
            values = _picked(values, wanted)
        except re.error as error:
            variables.problems.append(f"variable {template['name']!r}: regex {wanted}: {error}")
    if template.get("sort") in (3, 4):
        values.sort(key=_number)
    return values


def _picked(values: Sequence[str], wanted: str) -> list[str]:
    """Values that a variable's regex leaves, each cut down to the group ``value`` or the first one."""
    match = _JAVASCRIPT.fullmatch(wanted)
    body, flags = (match["body"], match["flags"]) if match else (wanted, "")
    pattern = re.compile(body.replace("(?<", "(?P<").replace("(?P<=", "(?<=").replace("(?P<!", "(?<!"))
    if "i" in flags:
        pattern = re.compile(pattern.pattern, re.IGNORECASE)
    picked = []
    for value in values:
        if found := pattern.search(value):
            groups = found.groupdict()
            cut = groups["value"] if "value" in groups else found[1] if pattern.groups else value
            picked.append(cut if cut is not None else value)
    return list(dict.fromkeys(picked))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")


def _default(template: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    current = (template.get("current") or {}).get("value")
    values = [str(value) for value in (current if isinstance(current, list) else [current]) if value]
    if values and (values == [ALL] or not options or values[0] in options):
        return values
    if template.get("includeAll"):
        return [ALL]
    return list(options[:1])


def _text(template: Mapping[str, Any], values: Sequence[str]) -> str:
    if list(values) == [ALL]:
        return str(template.get("allValue") or ".*")
    if template.get("multi") or template.get("includeAll"):
        escaped = [re.escape(value).replace("\\", "\\\\") for value in values]
        return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
    return "".join(values[:1]).replace("\\", "\\\\").replace('"', '\\"')
