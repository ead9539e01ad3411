"""The demo's service: an ordinary service that knows nothing of otelkit."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from demo_servers import FakeModel, serving

from otelkit import semconv
from otelkit.demo import load, service, stack
from otelkit.demo.load import PlannedRequest
from otelkit.demo.otlp_receiver import OtlpReceiver
from otelkit.demo.supervise import Supervisor, free_port
from otelkit.query.traces import read_spans


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"max_tokens": 8, "temperature": 0.5, "unknown": 1}))
    return path


@pytest.fixture
def url(model: FakeModel, settings: Path, tmp_path: Path) -> Iterator[str]:
    """The service as a process of its own, in front of the fake model."""
    port = free_port()
    with serving(model.app()) as model_url, Supervisor(tmp_path) as supervisor:
        stack.start_service(
            supervisor,
            model=stack.ModelServer("small", f"{model_url}/v1"),
            settings=settings,
            port=port,
            telemetry=None,
        )
        yield stack.chat_url(port)


def ask(url: str, wish: int) -> tuple[int, str]:
    """Chunks of one answer, and the error."""

    async def one() -> tuple[int, str]:
        async with httpx.AsyncClient() as client:
            return await load.send(client, url, PlannedRequest(0.0, "hello", wish))

    return asyncio.run(one())


def test_callers_get_at_most_the_cap(url: str, model: FakeModel) -> None:
    """Broken if the demo's main setting did not bound answers, or a caller's own wish were ignored."""
    assert [ask(url, 100), ask(url, 3)] == [(9, ""), (4, "")]
    assert [asked["max_tokens"] for asked in model.asked] == [8, 3]
    assert model.asked[0]["temperature"] == 0.5 and model.asked[0]["model"] == "small"
    assert "unknown" not in model.asked[0] and "top_p" not in model.asked[0]


def test_changed_settings_are_in_force_at_once(url: str, model: FakeModel, settings: Path) -> None:
    """Broken if an operator's change needed a restart, or a broken file took the settings away."""
    ask(url, 100)
    settings.write_text(json.dumps({"max_tokens": 16, "seed": 4}))
    ask(url, 100)
    settings.write_text("{ half a fi")
    ask(url, 100)
    assert [asked["max_tokens"] for asked in model.asked] == [8, 16, 16]
    assert [asked.get("seed") for asked in model.asked] == [None, 4, 4]


def test_model_s_errors_reach_the_caller(url: str, model: FakeModel) -> None:
    """Broken if a failing model looked like an empty answer."""
    model.status = 400
    assert ask(url, 5) == (0, "HTTP 400")
    assert httpx.post(url, content=b"no json").status_code == 400


def test_service_imports_nothing_of_otelkit() -> None:
    """Broken if the demo proved less than it says: that an unchanged service is observed."""
    tree = ast.parse(Path(service.__file__).read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
    assert not [name for name in imported if name.split(".")[0] == "otelkit"]


def test_service_is_observed_without_knowing_of_it(model: FakeModel, settings: Path, tmp_path: Path) -> None:
    """Broken if `otelkit run` did not record this service: spans, metrics, and the change made to it."""
    port, metrics_port = free_port(), free_port()
    with (
        serving(model.app()) as model_url,
        OtlpReceiver(tmp_path) as receiver,
        Supervisor(tmp_path) as supervisor,
    ):
        stack.start_service(
            supervisor,
            model=stack.ModelServer("small", f"{model_url}/v1"),
            settings=settings,
            port=port,
            telemetry=stack.telemetry_environment(
                otlp=receiver.endpoint, metrics_port=metrics_port, objectives=(0.1, 0.5)
            ),
        )
        for _ in range(20):
            ask(stack.chat_url(port), 100)
        settings.write_text(json.dumps({"max_tokens": 16, "temperature": 0.5}))
        for _ in range(20):
            ask(stack.chat_url(port), 100)
        deadline = time.monotonic() + 10
        page = ""
        while "otelkit_parameter_change_timestamp_seconds{" not in page and time.monotonic() < deadline:
            time.sleep(0.1)
            page = httpx.get(
                f"http://127.0.0.1:{metrics_port}/metrics", headers={"accept": "application/openmetrics-text"}
            ).text
    assert 'parameter="max_tokens"' in page and 'old="8"' in page and 'new="16"' in page
    assert 'le="0.11"' in page, "objectives make buckets finer"
    assert "trace_id=" in page, "exemplars are there"
    spans = list(read_spans(tmp_path / "traces.jsonl"))
    steps = [span for span in spans if span["name"] == semconv.TOKEN_STEP_SPAN]
    generations = {span["spanId"] for span in spans if span["name"] != semconv.TOKEN_STEP_SPAN}
    assert len(generations) == 40
    assert len(steps) == 20 * 8 + 20 * 16 and {step["parentSpanId"] for step in steps} == generations


def test_service_ends_politely(settings: Path, tmp_path: Path) -> None:
    """Broken if SIGTERM skipped the exit handlers, by which the last telemetry is sent."""
    port = free_port()
    code = (
        "import atexit, runpy, sys; atexit.register(print, 'exit handlers ran', flush=True);"
        "sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", code, service.__file__, "--model-url", "http://127.0.0.1:9/v1"]
    command += ["--model", "m", "--settings", str(settings), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health")
                break
            except httpx.HTTPError:
                time.sleep(0.05)
        process.terminate()
        output, _ = process.communicate(timeout=20)
    assert "exit handlers ran" in output
    assert process.returncode == 0
