"""What promtool does not see: metrics nobody has, averaged quantiles, bare counters, labels summed away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

import yaml

from otelkit import semconv
from otelkit.errors import UsageError
from otelkit.query.assemble import metric_names
from otelkit.spec import Spec

_COUNTED: Final = ("_total", "_count", "_sum", "_bucket")
_TAKES_COUNTERS: Final = frozenset(
    {
        "rate",
        "increase",
        "irate",
        "resets",
        "changes",
        "absent",
        "absent_over_time",
        "present_over_time",
        "group",
    }
)
"""Functions and aggregations for which it makes sense to be given a counter as it is."""
_AVERAGING: Final = frozenset({"avg", "sum", "avg_over_time", "sum_over_time"})

Labels = frozenset[str] | None
"""Labels that a vector can carry; None when that is not known."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a file, and where it stands."""

    where: str
    """``file:line``."""
    name: str
    expression: str
    labels: frozenset[str]
    """Labels that the rule itself adds."""
    records: bool


def read_rules(files: Mapping[str, str]) -> list[Rule]:
    """All rules of some files (name -> text), in order.

    Raises:
        UsageError: a file is no rule file.
    """
    found = []
    for name, text in files.items():
        try:
            document = yaml.safe_load(text) or {}
            nodes = yaml.compose(text, Loader=yaml.SafeLoader)
            lines = list(_rule_lines(nodes))
            rules = [rule for group in document.get("groups") or () for rule in group.get("rules") or ()]
            for line, rule in zip(lines, rules, strict=True):
                found.append(
                    Rule(
                        where=f"{name}:{line}",
                        name=rule.get("record") or rule["alert"],
                        expression=str(rule["expr"]),
                        labels=frozenset(rule.get("labels") or ()),
                        records="record" in rule,
                    )
                )
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{name}: is no file of Prometheus rules: {error}") from error
    return found


def known_metrics(spec: Spec) -> frozenset[str]:
    """Metrics that the services of a spec have, as far as their presets tell."""
    known = {semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP, "ALERTS"}
    for service in (*spec.resolved(), spec.service("*")):
        known |= set(metric_names(service))
        known |= {service.latency, *(series.metric for series in service.preset.means.values())}
        known |= {f"{series.metric}_bucket" for series in service.preset.means.values()}
        known |= {service.failures.metric} if service.failures else set()
    return frozenset(known)


def metrics_read(files: Mapping[str, str]) -> dict[str, str]:
    """Metrics that rules read and do not record themselves, with the place of the first rule that does.

    Raises:
        UsageError: a file is no rule file, or promql-parser is not installed.
    """
    promql_parser = _parser()
    rules = read_rules(files)
    recorded = {rule.name for rule in rules if rule.records}
    found: dict[str, str] = {}
    for rule in rules:
        with contextlib.suppress(ValueError):
            for name in _Reader({}).metrics(promql_parser.parse(rule.expression)):
                if name not in recorded:
                    found.setdefault(name, rule.where)
    return found


def lint(files: Mapping[str, str], metrics: frozenset[str]) -> list[str]:
    """Findings in rule files, one line each: ``file:line: rule: what is wrong``.

    Args:
        files: Name -> text.
        metrics: Every metric that exists besides what the rules record.

    Raises:
        UsageError: a file is no rule file, or promql-parser is not installed.
    """
    promql_parser = _parser()
    rules = read_rules(files)
    recorded: dict[str, Labels] = {}
    findings: list[str] = []
    parsed: list[tuple[Rule, Any]] = []
    for rule in rules:
        try:
            expression = promql_parser.parse(rule.expression)
        except ValueError as error:
            findings.append(f"{rule.where}: {rule.name}: is no PromQL: {error}")
            continue
        parsed.append((rule, expression))
        if rule.records:
            carried = _Reader(recorded).labels(expression)
            own = None if carried is None else carried | rule.labels
            before = recorded.get(rule.name, frozenset())
            recorded[rule.name] = None if own is None or before is None else before | own
    reader = _Reader(recorded)
    for rule, expression in parsed:
        messages = (*reader.problems(expression), *_unknown(reader, expression, metrics))
        findings += [f"{rule.where}: {rule.name}: {message}" for message in dict.fromkeys(messages)]
    return findings


def _parser() -> ModuleType:
    try:
        import promql_parser
    except ImportError:
        raise UsageError(
            "promql-parser is not installed, which reads the expressions",
            hint="pip install 'otelkit[lint]', or leave the check out with --no-lint.",
        ) from None
    module: ModuleType = promql_parser
    return module


def _unknown(reader: _Reader, expression: Any, metrics: frozenset[str]) -> Iterator[str]:
    for name in dict.fromkeys(reader.metrics(expression)):
        if name not in metrics and name not in reader.recorded:
            yield f"{name} is in no preset of the spec, and nothing records it"


class _Reader:
    """Walks expressions of promql-parser, knowing which labels recorded series carry."""

    def __init__(self, recorded: Mapping[str, Labels]) -> None:
        self.recorded = recorded

    def metrics(self, node: Any) -> Iterator[str]:
        if _kind(node) == "VectorSelector" and _name(node):
            yield _name(node)
        for child in _children(node):
            yield from self.metrics(child)

    def labels(self, node: Any) -> Labels:
        """Labels that the value of an expression can carry."""
        kind = _kind(node)
        if kind == "VectorSelector":
            return self.recorded.get(_name(node)) if _name(node) else None
        if kind == "AggregateExpr":
            return self._aggregated(node)
        if kind == "Call":
            return self._called(node)
        if kind == "BinaryExpr":
            return self._combined(node)
        inner = _children(node)
        return self.labels(inner[0]) if inner else frozenset()

    def problems(self, node: Any, inside: str = "") -> Iterator[str]:
        """What is wrong within an expression; ``inside`` is the function around it."""
        kind = _kind(node)
        if kind == "VectorSelector":
            yield from self._selected(node, inside)
        elif kind == "AggregateExpr":
            yield from self._aggregation(node)
            inside = str(node.op)
        elif kind == "Call":
            yield from self._averaged(node.func.name, node.args)
            inside = node.func.name
        elif kind == "BinaryExpr":
            yield from self._matched(node)
            inside = ""
        for child in _children(node):
            yield from self.problems(child, inside)

    def _selected(self, node: Any, inside: str) -> Iterator[str]:
        name = _name(node)
        carried = self.recorded.get(name)
        if ":" not in name and name.endswith(_COUNTED) and inside not in _TAKES_COUNTERS:
            yield f"{name} is a counter: take its rate, its value only tells when the process began"
        if name in self.recorded and carried is not None:
            for matcher in node.matchers.matchers:
                if matcher.name not in carried and matcher.name != "__name__":
                    yield f"{name} carries no label {matcher.name}, so the selector never matches as meant"

    def _aggregation(self, node: Any) -> Iterator[str]:
        yield from self._averaged(str(node.op), [node.expr])
        carried = self.labels(node.expr)
        if carried is not None and node.modifier is not None and _is_by(node.modifier):
            for label in node.modifier.labels:
                if label not in carried:
                    yield f"{node.op} by {label}, which was summed away before"

    def _averaged(self, function: str, arguments: list[Any]) -> Iterator[str]:
        if function not in _AVERAGING:
            return
        for argument in arguments:
            for name in self.metrics(argument):
                if ":quantile" in name:
                    yield f"{function} of {name}: the mean of quantiles is no quantile; sum buckets instead"

    def _matched(self, node: Any) -> Iterator[str]:
        matching = node.modifier.matching if node.modifier is not None else None
        if matching is None or not _is_include(matching):
            return
        for side in (node.lhs, node.rhs):
            carried = self.labels(side)
            for label in matching.labels:
                if carried is not None and label not in carried:
                    yield f"{node.op} on {label}, which one side does not carry"

    def _aggregated(self, node: Any) -> Labels:
        if node.modifier is None:
            return frozenset()
        if _is_by(node.modifier):
            return frozenset(node.modifier.labels)
        inner = self.labels(node.expr)
        return None if inner is None else inner - frozenset(node.modifier.labels)

    def _called(self, node: Any) -> Labels:
        name, arguments = node.func.name, list(node.args)
        if name in ("label_replace", "label_join"):
            inner = self.labels(arguments[0])
            return None if inner is None else inner | {arguments[1].val}
        if name in ("absent", "absent_over_time"):
            return None
        vectors = [one for one in arguments if _kind(one) not in ("NumberLiteral", "StringLiteral")]
        inner = self.labels(vectors[-1]) if vectors else frozenset()
        return inner - {"le"} if name == "histogram_quantile" and inner is not None else inner

    def _combined(self, node: Any) -> Labels:
        sides = [side for side in (node.lhs, node.rhs) if _kind(side) != "NumberLiteral"]
        if len(sides) < 2:
            return self.labels(sides[0]) if sides else frozenset()
        left, right = (self.labels(side) for side in sides)
        if str(node.op).startswith("or"):
            return None if left is None or right is None else left | right
        return left


def _children(node: Any) -> list[Any]:
    kind = _kind(node)
    if kind == "BinaryExpr":
        return [node.lhs, node.rhs]
    if kind == "Call":
        return list(node.args)
    if kind == "MatrixSelector":
        return [node.vector_selector]
    return [node.expr] if kind in ("AggregateExpr", "ParenExpr", "SubqueryExpr", "UnaryExpr") else []


def _name(selector: Any) -> str:
    """The metric that is selected; names with dots are told as a matcher. Empty where it is no one metric."""
    if selector.name:
        return str(selector.name)
    matchers = selector.matchers.matchers
    named = (one for one in matchers if one.name == "__name__" and str(one.op) == "MatchOp.Equal")
    return next((str(one.value) for one in named), "")


def _kind(node: Any) -> str:
    return type(node).__name__


def _is_by(modifier: Any) -> bool:
    return str(modifier.type).endswith("By")


def _is_include(matching: Any) -> bool:
    return str(matching.type).endswith("Include")


def _rule_lines(root: yaml.Node | None) -> Iterator[int]:
    """The line of each rule, in the order in which the file lists them."""
    for group in _items(_member(root, "groups")):
        for rule in _items(_member(group, "rules")):
            yield rule.start_mark.line + 1


def _member(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                found: yaml.Node = value
                return found
    return None


def _items(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
