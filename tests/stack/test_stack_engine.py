"""The generated stack on a real Docker engine: it records, judges and alerts, and heals when it is killed.

The tests build on each other's time and stand in order: what takes minutes is waited for last.
"""

from __future__ import annotations

import json
import re
import time

import pytest
from stack_engine import Stack, eventually

from otelkit import semconv

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]
RUNNING = {"prometheus", "otel-collector", "analyser", "alertmanager", "model", "demo", "load", "webhook"}


def test_everything_is_healthy_and_confined(stack: Stack) -> None:
    """A part would not start, or run with rights that it does not need."""
    containers = stack.containers()
    assert set(containers) == RUNNING
    assert stack.unwell() == {}
    for name in RUNNING - {"webhook"}:
        one = containers[name]
        assert one["Config"]["User"].split(":")[0] not in ("", "0", "root"), name
        host = one["HostConfig"]
        assert host["ReadonlyRootfs"], name
        assert host["CapDrop"] == ["ALL"], name
        assert host["Memory"] > 0, name
        assert all("docker.sock" not in mount["Source"] for mount in one["Mounts"]), name
        bound = [port["HostIp"] for ports in (host["PortBindings"] or {}).values() for port in ports]
        assert set(bound) <= {"127.0.0.1"}, name


def test_targets_are_up_and_rules_work(stack: Stack) -> None:
    """Prometheus would run and record nothing."""

    def targets() -> dict[str, str]:
        active = stack.ask("targets")["activeTargets"]
        return {one["labels"]["job"]: one["health"] for one in active}

    wanted = {"demo", "prometheus", "analyser", "alertmanager"}
    # The stand-in for the collector has no page.
    eventually("all targets are up", lambda: {job for job, up in targets().items() if up == "up"} == wanted)
    groups = eventually("rules are loaded", lambda: stack.ask("rules")["groups"])
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 20
    eventually(
        "all rules were evaluated",
        lambda: all(
            rule["health"] == "ok" for group in stack.ask("rules")["groups"] for rule in group["rules"]
        ),
    )
    p99 = f'{semconv.recorded_quantile(0.99, "30s")}{{service="chat"}}'
    eventually("P99 is recorded", lambda: any(float(one["value"][1]) > 0 for one in stack.query(p99)))


def test_an_alert_reaches_a_receiver(stack: Stack) -> None:
    """Nobody would be told."""

    def alerts() -> list[dict[str, str]]:
        bodies = [json.loads(line) for line in stack.logs("webhook").splitlines() if line.startswith("{")]
        return [alert["labels"] for body in bodies for alert in body["alerts"]]

    labels = eventually("the webhook got an alert", alerts, 180)
    latency = eventually(
        "the alert on latency", lambda: [one for one in alerts() if one["alertname"] == "OtelkitHighLatency"]
    )
    assert labels
    assert latency[0]["service"] == "chat"


def exemplars(stack: Stack, start: float, end: float) -> set[str]:
    """Trace ids of the exemplars between two Unix times."""
    query = f"{semconv.METRIC_OPERATION_DURATION}_bucket"
    found = stack.ask("query_exemplars", {"query": query, "start": start, "end": end})
    return {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}


def received(stack: Stack) -> set[str]:
    """Trace ids that the collector has got spans of."""
    return set(re.findall(r"\b[0-9a-f]{32}\b", stack.logs("otel-collector")))


def test_a_trace_of_an_exemplar_reached_the_collector(stack: Stack) -> None:
    """A click on a slow call would open nothing."""
    now = time.time()
    found = eventually("exemplars are kept", lambda: exemplars(stack, now - 600, time.time()))
    eventually("an exemplar's trace was received", lambda: found & received(stack))


def test_spans_of_a_time_without_a_collector_arrive(stack: Stack) -> None:
    """A restart of the collector would leave holes in the traces of every service."""
    stack.compose("stop", "--timeout", "5", "otel-collector")
    start = time.time()
    found = eventually("calls end without it", lambda: exemplars(stack, start, time.time()))
    end = time.time()
    stack.compose("start", "otel-collector")
    eventually("their spans come later", lambda: exemplars(stack, start, end) <= received(stack))
    assert found


def test_a_change_is_seen_and_judged(stack: Stack) -> None:
    """The stack would record and never answer the question that it is there for."""
    seen = eventually(
        "a change of max_tokens is seen",
        lambda: stack.query(f'{semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP}{{parameter="max_tokens"}}'),
        180,
    )
    change_id = min(seen, key=lambda one: float(one["value"][1]))["metric"]["change_id"]
    verdicts = f'{semconv.METRIC_CHANGE_VERDICT}{{change_id="{change_id}"}}'
    first = eventually("it is on the analyser's page", lambda: stack.query(verdicts), 60)
    assert first[0]["metric"]["service"] == "chat"
    eventually(
        "it is found to be a cause",
        lambda: any(one["metric"]["verdict"] == "causal" for one in stack.query(verdicts)),
        420,
    )
    (effect,) = stack.query(f'{semconv.METRIC_CHANGE_EFFECT}{{change_id="{change_id}"}}')
    assert float(effect["value"][1]) > 0
    assert stack.query(f'{semconv.METRIC_CAUSAL_NODE}{{service="chat",id="p99"}}')


KILLED = [*([name] for name in sorted(RUNNING - {"webhook"})), sorted(RUNNING)]


@pytest.mark.parametrize("killed", KILLED, ids=lambda names: names[0] if len(names) == 1 else "all")
def test_it_heals_when_killed(stack: Stack, killed: list[str]) -> None:
    """A crash would need somebody to get up, or take with it what was recorded before."""
    own = f'{{job="prometheus",__name__="{semconv.METRIC_UP}"}}'
    demo = f'{semconv.METRIC_UP}{{job="demo"}}'
    now = time.time()
    # The scrape under way is what may be lost: one interval of each job.
    before = [stack.samples(own, now - 120, now - 15), stack.samples(demo, now - 60, now - 1)]
    pids = {name: stack.containers()[name]["State"]["Pid"] for name in killed}
    stack.kill(*killed)
    eventually(
        "the engine started it again",
        lambda: all(
            one["State"]["Running"] and one["State"]["Pid"] != pids[name]
            for name, one in stack.containers().items()
            if name in killed
        ),
        60,
    )
    eventually(f"all is well again: {stack.unwell()}", lambda: stack.unwell() == {}, 180)
    eventually("the service is scraped", lambda: float(stack.query(demo)[0]["value"][1]) == 1)
    after = [stack.samples(own, now - 120, now - 15), stack.samples(demo, now - 60, now - 1)]
    assert after == before


def test_all_flows_again(stack: Stack) -> None:
    """Everything would look healthy, and nothing new come through."""
    since = time.time()
    calls = f'sum(increase({semconv.METRIC_OPERATION_DURATION}_count{{service="chat"}}[1m]))'
    # Nothing at all while the service has not been scraped twice since.
    eventually("calls are counted", lambda: any(float(one["value"][1]) > 2 for one in stack.query(calls)))
    eventually(
        "spans are received", lambda: stack.compose("logs", "--since", "10s", "otel-collector").strip()
    )
    known = f"timestamp({semconv.METRIC_CHANGE_VERDICT}) > {since:.0f}"
    eventually(
        "verdicts are there again, the old ones too",
        lambda: {"causal"} & {one["metric"]["verdict"] for one in stack.query(known)},
    )
