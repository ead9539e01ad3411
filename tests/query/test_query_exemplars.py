"""Exemplars from a real Prometheus, reached as Mimir is: under a prefix, with a tenant and a token."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from live import ScriptedService, prometheus, serve
from promql_stand_in import Question, Reply, error, forwarded, stand_in

from otelkit.query import PrometheusSource
from otelkit.spec import Duration, Spec

SPEC = Spec(
    scrape_interval=Duration.parse("1s"),
    evaluation_interval=Duration.parse("1s"),
    windows=(Duration.parse("3s"),),
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.prometheus
def test_a_real_prometheus_behind_a_gate_gives_what_it_gives_directly(
    prometheus_binary: Path, tmp_path: Path
) -> None:
    """Broken if a prefix, a tenant's header, a token or a limit of the server changed or lost data, or the
    traces that the histogram keeps were not found."""
    service = ScriptedService("chat", 1)
    with (
        serve(service) as page,
        prometheus(prometheus_binary, tmp_path, SPEC, [page]) as url,
    ):
        start = time.time()
        while time.time() < start + 5:
            service.call()
            time.sleep(0.02)
        service.duration.labels("chat", "").observe(0.7, {"trace_id": TRACE})
        service.change("max_tokens", "8", "24", start + 2)
        time.sleep(2.5)

        def gate(question: Question) -> Reply:
            if server.headers[-1].get("x-scope-orgid") != "team-a":
                return Reply(401, "no org id")
            if question.get("query", "").endswith("[1h]"):
                return error(422, "the query time range exceeds the limit")
            return forwarded(url, question, "/prometheus")

        with (
            stand_in(gate) as server,
            PrometheusSource(f"{server.url}/prometheus", SPEC, headers={"X-Scope-OrgID": "team-a"}) as far,
            PrometheusSource(url, SPEC) as near,
        ):
            panels = [source.panel(None, start + 1, start + 6, 1) for source in (far, near)]
            one, other = (panel.services["chat"] for panel in panels)
            assert one.bucket_counts is not None and other.bucket_counts is not None
            assert one.bucket_counts.tolist() == other.bucket_counts.tolist()
            assert one.bucket_counts.sum() > 100
            assert far.changes(start, start + 10) == near.changes(start, start + 10)
            (exemplar,) = far.exemplars("chat", start, time.time())
            assert (exemplar.trace_id, exemplar.seconds) == (TRACE, pytest.approx(0.7))
