"""The causal graph and the split of an effect, for any verdicts."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otelkit.analyse.graph import graph, parts
from otelkit.analyse.looks import Judgement
from otelkit.causal import Finding, Interval, Verdict
from otelkit.model import ParameterChange

# Machines under load draw slowly.
unhurried = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
numbers = st.floats(-10, 10)
intervals = numbers.map(lambda value: Interval(value, value - 1, value + 1))


@st.composite
def judgements(draw: st.DrawFn) -> list[Judgement]:
    result = []
    for number in range(draw(st.integers(0, 6))):
        change = ParameterChange("chat", f"p{number}", "a", "b", 1000.0 + number, 1000.0 + number)
        paths = draw(st.dictionaries(st.sampled_from(["output_length", "queueing", "other"]), intervals))
        finding = Finding(
            change,
            draw(st.sampled_from(Verdict)),
            "because",
            effect=draw(st.none() | intervals),
            q_value=draw(st.none() | st.floats(0, 1)),
            mechanism=paths,
        )
        result.append(Judgement(change, draw(st.sampled_from([None, finding])), 1.0, 1.0))
    return result


@unhurried
@given(judgements(), st.none() | st.floats(0, 100))
def test_every_edge_ends_at_nodes(some: list[Judgement], p99: float | None) -> None:
    """Grafana refuses a whole node graph for one edge that ends nowhere, or one id that is there twice."""
    nodes, edges = graph("chat", some, p99)
    ids = [node.id for node in nodes]
    assert len(set(ids)) == len(ids)
    assert {edge.source for edge in edges} | {edge.target for edge in edges} <= set(ids)
    assert len({edge.id for edge in edges}) == len(edges)
    assert all(0 <= edge.confidence <= 1 for edge in edges)


@unhurried
@given(judgements())
def test_parts_add_up_to_the_effect(some: list[Judgement]) -> None:
    """Seconds of the effect would be missing from the stacked bars, or shown twice."""
    for one in some:
        if one.finding is not None and one.finding.effect is not None:
            assert math.isclose(sum(parts(one).values()), one.finding.effect.value, abs_tol=1e-9)
        else:
            assert parts(one) == {}
