"""The causal graph of a service: from parameters through mechanisms to P99."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from otelkit.analyse.looks import Judgement
from otelkit.analyse.restore import NOT_SPLIT
from otelkit.causal import Verdict
from otelkit.model import label_text

_DRAWN: Final = 0.01
"""Share of an effect below which a mechanism is not drawn."""
P99: Final = "p99"
"""Id of the node that all edges lead to."""


@dataclass(frozen=True, slots=True)
class Node:
    id: str
    title: str
    subtitle: str
    kind: str
    """``parameter``, ``mechanism`` or ``service``."""
    verdict: str
    """Empty unless a parameter."""
    seconds: float
    """Of effect that pass through it; of the P99 node P99 itself."""


@dataclass(frozen=True, slots=True)
class Edge:
    source: str
    target: str
    verdict: str
    seconds: float
    confidence: float
    """0 to 1; of several changes that share the edge, that of the one with most seconds along it."""

    @property
    def id(self) -> str:
        return f"{self.source}:{self.target}"


def parts(judgement: Judgement) -> dict[str, float]:
    """Seconds of a change's effect by mechanism, which add up to the effect; empty where it is not known.

    ``not_split`` holds what no path was found for.
    """
    finding = judgement.finding
    if finding is None or finding.effect is None:
        return {}
    effect = finding.effect.value
    paths = {path: share.value * effect for path, share in finding.mechanism.items()}
    return paths | {NOT_SPLIT: effect - sum(paths.values())}


def graph(service: str, judgements: Iterable[Judgement], p99: float | None) -> tuple[list[Node], list[Edge]]:
    """Nodes and edges; both ends of every edge are nodes.

    Args:
        judgements: of the service's changes.
        p99: seconds; without it there is nothing that edges could lead to, and so no graph.
    """
    shown = [one for one in judgements if one.finding is not None and one.finding.effect is not None]
    if p99 is None or not shown:
        return [], []
    nodes = [Node(P99, "P99", service, "service", "", p99)]
    edges: list[Edge] = []
    through: dict[str, list[Edge]] = {}
    for one in shown:
        nodes.append(_parameter(one))
        edges += _edges_of(one)
    for edge in edges:
        if edge.target != P99:
            through.setdefault(edge.target, []).append(edge)
    for path, coming in sorted(through.items()):
        seconds = sum(edge.seconds for edge in coming)
        surest = max(coming, key=lambda edge: abs(edge.seconds))
        nodes.append(Node(path, path.replace("_", " "), "", "mechanism", "", seconds))
        edges.append(Edge(path, P99, surest.verdict, seconds, surest.confidence))
    return nodes, edges


def _parameter(judgement: Judgement) -> Node:
    change, finding = judgement.change, judgement.finding
    assert finding is not None and finding.effect is not None
    values = f"{label_text(change.old)} → {label_text(change.new)}"
    return Node(change.id, change.parameter, values, "parameter", judgement.verdict, finding.effect.value)


def _edges_of(judgement: Judgement) -> Iterator[Edge]:
    """To mechanisms where the change is a cause, else straight to P99."""
    finding = judgement.finding
    assert finding is not None and finding.effect is not None
    source, verdict = judgement.change.id, judgement.verdict
    confidence = 1.0 - (1.0 if finding.q_value is None else finding.q_value)
    if finding.verdict is not Verdict.CAUSAL:
        yield Edge(source, P99, verdict, finding.effect.value, confidence)
        return
    for path, seconds in parts(judgement).items():
        if abs(seconds) < _DRAWN * abs(finding.effect.value):
            continue
        yield Edge(source, path, verdict, seconds, confidence)
