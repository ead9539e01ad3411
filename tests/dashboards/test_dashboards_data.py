"""Every panel against a real Prometheus that holds everything a dashboard can show."""

from __future__ import annotations

from typing import Any

import pytest
from dashboards_history import CHAT, SEARCH, SPEC, FilledPrometheus
from panel_results import results

from otelkit.dashboards import documents
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview import Span

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]


def _span(filled: FilledPrometheus) -> Span:
    return Span(filled.start, filled.end, 15)


def _rows(frame: Any) -> list[dict[str, Any]]:
    titles = [field.title for field in frame.fields]
    return [
        dict(zip(titles, row, strict=True)) for row in zip(*(f.values for f in frame.fields), strict=True)
    ]


@pytest.mark.parametrize("uid", documents(SPEC))
def test_every_target_returns_data(uid: str, filled: FilledPrometheus) -> None:
    """A query with a wrong label, name or join would be an empty panel for every user."""
    found = results(documents(SPEC)[uid], filled.url, _span(filled))
    assert found.problems == []
    assert found.empty == []


@pytest.mark.parametrize("chosen", [[CHAT], [CHAT, SEARCH]])
def test_dashboards_of_many_services_work_for_one_and_for_several(
    chosen: list[str], filled: FilledPrometheus
) -> None:
    """A dashboard would work with the first service only, or with All only."""
    found = results(documents(SPEC)["otelkit-overview"], filled.url, _span(filled), {"service": chosen})
    assert found.problems == []
    (table,) = found.frames["Services"]
    assert {row["Service"] for row in _rows(table)} == set(chosen)


def test_the_verdict_table_has_a_row_for_every_change(filled: FilledPrometheus) -> None:
    """A change that it is too early for, or has no lag, would vanish; or a change would have two rows."""
    found = results(documents(SPEC)["otelkit-causal"], filled.url, _span(filled), {"service": [CHAT]})
    (table,) = found.frames["Verdict on each change"]
    rows = {(row["Parameter"], row["Old"], row["New"]): row for row in _rows(table)}
    assert len(rows) == len(_rows(table)) == 4
    assert {change: row["Verdict"] for change, row in rows.items()} == {
        ("max_tokens", "64", "256"): "causal",
        ("temperature", "0.7", "0.9"): "correlated only",
        ("seed", "1", "2"): "no effect",
        ("max_tokens", "256", "128"): "too early",
    }
    causal = rows["max_tokens", "64", "256"]
    assert (causal["Effect on P99"], causal["at least"], causal["at most"]) == (6.55, 5.9, 7.2)
    assert (causal["Lag"], causal["Crossed"]) == (12.0, 1.0)
    assert rows["seed", "1", "2"]["Lag"] is None
    assert rows["seed", "1", "2"]["Crossed"] == 0.0
    # An effect of 210 ms, which something else made: nobody is to act on the change.
    assert rows["temperature", "0.7", "0.9"]["Crossed"] == 0.0
    assert rows["max_tokens", "256", "128"]["Crossed"] is None


def test_parameter_values_follow_one_another(filled: FilledPrometheus) -> None:
    """P99 would be shown under a value that was not in effect at the time."""
    document = documents(SPEC)["otelkit-parameters"]
    chosen = {"service": [CHAT], "parameter": ["max_tokens"]}
    found = results(document, filled.url, _span(filled), chosen)
    (table,) = found.frames["By value"]
    p99 = {row["Value"]: row["P99"] for row in _rows(table)}
    assert set(p99) == {"64", "256", "128"}
    assert p99["64"] < p99["128"] < p99["256"]
    (knee,) = found.frames["The knee: what a higher value buys, and what it costs"]
    assert next(field for field in knee.fields if field.name == "value").values == [64.0, 128.0, 256.0]
    lanes = {
        frame.fields[1].title: frame.fields[0].values
        for frame in found.frames["Value of $parameter in effect"]
    }
    assert max(lanes["64"]) < min(lanes["256"]) < max(lanes["256"]) < min(lanes["128"])


def test_the_shift_around_a_change_peaks_at_it(filled: FilledPrometheus) -> None:
    """Before and after would be swapped, or the peak lie three minutes beside its cause."""
    found = results(documents(SPEC)["otelkit-causal"], filled.url, _span(filled), {"service": [CHAT]})
    (frame,) = found.frames["Shift of P99 within ±3 minutes"]
    shift = {
        at: value for at, value in zip(*(f.values for f in frame.fields), strict=True) if value is not None
    }
    peak = max(shift, key=lambda at: shift[at])
    (table,) = found.frames["Verdict on each change"]
    changed = next(row["Changed"] for row in _rows(table) if row["New"] == "256")
    assert abs(peak - changed) <= 120_000


def test_edges_of_the_graphs_end_at_nodes(filled: FilledPrometheus) -> None:
    """Grafana refuses a whole node graph for one edge that ends nowhere."""
    for uid, title in (("otelkit-causal", "Causal graph"), ("otelkit-topology", "Who calls whom")):
        frames = results(documents(SPEC)[uid], filled.url, _span(filled)).frames[title]
        nodes = next(frame for frame in frames if not frame.named("source"))
        edges = next(frame for frame in frames if frame.named("source"))
        ids = {row["id"] for row in nodes.rows()}
        assert len(ids) == len(nodes.rows())
        assert {row["source"] for row in edges.rows()} | {row["target"] for row in edges.rows()} <= ids
        assert all(row["mainstat"] is not None for row in [*nodes.rows(), *edges.rows()])


def test_edges_with_many_errors_are_marked(filled: FilledPrometheus) -> None:
    """The edge at which calls fail would look like all others."""
    frames = results(documents(SPEC)["otelkit-topology"], filled.url, _span(filled)).frames["Who calls whom"]
    edges = next(frame for frame in frames if frame.named("source"))
    red = {row["target"] for row in edges.rows() if row["color"] == "red"}
    assert red == {"openai/large-1", SEARCH}
    assert all((row["secondarystat"] > 0.05) == (row["color"] == "red") for row in edges.rows())


def test_a_dashboard_says_something_for_a_service_that_does_not_exist(filled: FilledPrometheus) -> None:
    """Blank panels would leave a reader guessing whether anything is wrong."""
    document = documents(SPEC)["otelkit-causal"]
    found = results(document, filled.url, _span(filled), {"service": ["no-such-service"]})
    assert any("no-such-service is none of its values" in problem for problem in found.problems)
    for panel in panels_of(document):
        if panel["type"] not in ("row", "text"):
            assert len(panel["fieldConfig"]["defaults"]["noValue"]) >= 1
