"""``otelkit analyse`` as a process, against a real Prometheus that scrapes its page."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from analyse_history import Scene, wait_for
from prometheus_client.parser import text_string_to_metric_families

from otelkit import semconv
from otelkit.dashboards import documents
from otelkit.dashboards.preview import Span
from otelkit.spec import Spec

pytestmark = pytest.mark.prometheus
OTELKIT = str(Path(sys.executable).with_name("otelkit"))


@contextlib.contextmanager
def serving(scene: Scene, *, ready: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """The analyser, once its page is there, or once it has done its first round."""
    command = [
        *(OTELKIT, "analyse", "--serve", "--prometheus", scene.server.url),
        *("--port", str(scene.page_port), "--interval", "1s"),
    ]
    process = subprocess.Popen(command, cwd=scene.server.directory, stderr=subprocess.DEVNULL)
    try:
        path = "ready" if ready else "healthy"
        wait_for(lambda: httpx.get(f"{address(scene)}/-/{path}").status_code == 200)
        yield process
    finally:
        process.kill()
        process.wait()


def address(scene: Scene) -> str:
    return f"http://127.0.0.1:{scene.page_port}"


def page(scene: Scene) -> dict[str, list[Any]]:
    """Metric -> its samples."""
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(httpx.get(f"{address(scene)}/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


def verdicts(scene: Scene) -> dict[str, str]:
    """Parameter -> verdict."""
    samples = page(scene)[semconv.METRIC_CHANGE_VERDICT]
    return {one.labels[semconv.LABEL_PARAMETER]: one.labels[semconv.LABEL_VERDICT] for one in samples}


def run(scene: Scene, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [OTELKIT, "analyse", "--prometheus", scene.server.url, *arguments]
    return subprocess.run(
        command, cwd=scene.server.directory, capture_output=True, text=True, check=False, timeout=100
    )


def test_printed_once(scene: Scene) -> None:
    """A pipeline could not stop on a change that made P99 worse, or a reader not see when more is known."""
    done = run(scene, "--format", "json")
    assert done.returncode == 3, done.stderr
    found = {one["parameter"]: one for one in json.loads(done.stdout)["changes"]}
    assert found["max_tokens"]["verdict"] == "causal"
    assert 0.5 < found["max_tokens"]["effect_seconds"]["value"] < 2.5
    assert found["max_tokens"]["next_look"] is None
    assert found["seed"]["next_look"] > found["seed"]["first_seen"]
    table = run(scene, "--changes", "1")
    assert table.returncode == 0
    assert "seed 1 -> 2" in table.stdout
    assert "max_tokens" not in table.stdout


def test_an_analyser_among_others(scene: Scene) -> None:
    """Blank dashboards; verdicts that vanish with Prometheus in the very incident, or with a restart."""
    with serving(scene) as first:
        wait_for(lambda: scene.server.query(semconv.METRIC_CAUSAL_EDGE_CONFIDENCE))
        _dashboards_show_all(scene)

        before = verdicts(scene)
        scene.server.stop()
        wait_for(lambda: stale(scene) == 1)
        assert verdicts(scene) == before
        assert httpx.get(f"{address(scene)}/-/healthy").status_code == 200
        scene.server.start()
        wait_for(lambda: stale(scene) == 0)
        assert verdicts(scene)["max_tokens"] == before["max_tokens"]

        told = page(scene)
        wait_for(lambda: len(scene.server.query(semconv.METRIC_CHANGE_EFFECT)) >= 2)
        first.send_signal(signal.SIGTERM)
        assert first.wait(20) == 0
    with serving(scene):
        again = page(scene)
    for name in (*_OF_CHANGE, semconv.METRIC_CHANGE_MECHANISM):
        old, new = (
            {str(sorted(one.labels.items())): one.value for one in each[name] if _is_old(one)}
            for each in (told, again)
        )
        assert new == pytest.approx(old)
    assert again[semconv.METRIC_P99_BEFORE][0].value == told[semconv.METRIC_P99_BEFORE][0].value


_OF_CHANGE = (
    semconv.METRIC_CHANGE_VERDICT,
    semconv.METRIC_CHANGE_JUDGED,
    semconv.METRIC_CHANGE_EFFECT,
    semconv.METRIC_CHANGE_EFFECT_LOW,
    semconv.METRIC_CHANGE_EFFECT_HIGH,
    semconv.METRIC_CHANGE_Q_VALUE,
)


def _is_old(sample: Any) -> bool:
    """Whether a sample is about a change whose verdict is final."""
    return bool(sample.labels[semconv.LABEL_PARAMETER] != "seed")


def stale(scene: Scene) -> float:
    value: float = page(scene)[semconv.METRIC_ANALYSER_STALE][0].value
    return value


def _dashboards_show_all(scene: Scene) -> None:
    """A label or name that differs by one character would leave the causal dashboard blank."""
    from panel_results import results

    span = Span(scene.now - 6000, time.time(), 15)
    document = documents(Spec())["otelkit-causal"]
    found = results(document, scene.server.url, span, {"service": ["chat"]})
    (table,) = found.frames["Verdict on each change"]
    titles = [field.title for field in table.fields]
    values = zip(*(field.values for field in table.fields), strict=True)
    rows = {row["Parameter"]: row for row in (dict(zip(titles, one, strict=True)) for one in values)}
    assert len(rows) == 3
    assert {name: rows[name]["Verdict"] for name in ("max_tokens", "temperature")} == {
        "max_tokens": "causal",
        "temperature": "no effect",
    }
    causal = rows["max_tokens"]
    assert causal["at least"] < causal["Effect on P99"] < causal["at most"]
    frames = found.frames["Causal graph"]
    nodes = next(frame for frame in frames if not frame.named("source")).rows()
    edges = next(frame for frame in frames if frame.named("source")).rows()
    ids = {row["id"] for row in nodes}
    assert len(ids) == len(nodes)
    assert {row["source"] for row in edges} | {row["target"] for row in edges} <= ids
    assert {"p99", "output_length"} <= ids
    for panel in ("Before it moved", "After", "Unexplained", "Movement", "Causal changes"):
        assert f"{panel} / A" not in found.empty
    assert "Through what: effect of causal changes by mechanism / A" not in found.empty


def test_it_may_start_before_prometheus(scene: Scene) -> None:
    """In a stack that starts all at once, the analyser would end because it was first."""
    scene.server.stop()
    assert run(scene).returncode == 4
    with serving(scene, ready=False):
        wait_for(lambda: stale(scene) == 1)
        assert httpx.get(f"{address(scene)}/-/ready").status_code == 503
        scene.server.start()
        wait_for(lambda: httpx.get(f"{address(scene)}/-/ready").status_code == 200)
        assert verdicts(scene)["max_tokens"] == "causal"
