"""Ways to switch recording on, several at once, and other instrumentations beside ours: nothing is
doubled."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import openai_wire
import pytest
from openai import OpenAI
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from wire_server import Wire

from otelkit import semconv
from otelkit.testing import Recorded

MESSAGES: Any = [{"role": "user", "content": "secret"}]
OTELKIT_RUN = (sys.executable, "-c", "from otelkit.cli.main import main; main()", "run", "--")
INSTRUMENT = shutil.which("opentelemetry-instrument", path=str(Path(sys.executable).parent))

ANOTHER = [
    {semconv.OPERATION_NAME: "chat", semconv.REQUEST_MODEL: "m", semconv.REQUEST_TEMPERATURE: 0.1},
    {semconv.LEGACY_SYSTEM: "openai", semconv.REQUEST_MODEL: "m"},
    {semconv.OPENINFERENCE_KIND: semconv.OPENINFERENCE_LLM},
]
"""What the official instrumentations, OpenLLMetry's older ones, and OpenInference put on a span at its
start."""


@pytest.mark.parametrize("attributes", ANOTHER)
@pytest.mark.parametrize("streamed", [False, True])
def test_span_of_another_instrumentation_is_joined(
    attributes: dict[str, Any], streamed: bool, wire: Wire, recorded: Recorded
) -> None:
    """Broken: one call has two generation spans, or ours ends or overwrites the other's."""
    wire.answer = (
        openai_wire.stream("a", "b") if streamed else lambda exchange: exchange.json(openai_wire.completion())
    )
    tracer = recorded.tracer_provider.get_tracer("another")
    with OpenAI(base_url=wire.url, api_key="k") as client:
        with tracer.start_as_current_span(
            "theirs", kind=SpanKind.CLIENT, attributes=attributes, end_on_exit=False
        ) as theirs:
            result: Any = client.chat.completions.create(
                model="m", messages=MESSAGES, stream=streamed, temperature=0.5
            )
        if streamed:
            list(result)
        assert theirs.is_recording()
        theirs.end()
    (span,) = recorded.spans
    (generation,) = recorded.wait(1)
    assert generation.span is not None
    assert generation.span.span_id == span.context.span_id
    assert len(generation.step_ns) == (2 if streamed else 0)
    assert span.attributes is not None
    assert span.attributes[semconv.OUTCOME] == "completed"
    assert span.attributes[semconv.REQUEST_TEMPERATURE] == attributes.get(semconv.REQUEST_TEMPERATURE, 0.5)


def test_spans_around_a_generation_are_parents(wire: Wire, recorded: Recorded) -> None:
    """Broken: the span of an agent, which carries the same attributes, is taken for that of the
    generation."""
    wire.answer = lambda exchange: exchange.json(openai_wire.completion())
    tracer = recorded.tracer_provider.get_tracer("agents")
    attributes = {semconv.OPERATION_NAME: "invoke_agent", semconv.REQUEST_MODEL: "m"}
    with (
        OpenAI(base_url=wire.url, api_key="k") as client,
        tracer.start_as_current_span("agent", attributes=attributes) as agent,
    ):
        client.chat.completions.create(model="m", messages=MESSAGES)
        assert trace.get_current_span() is agent
    generation, around = recorded.spans
    assert generation.parent is not None
    assert generation.parent.span_id == around.context.span_id


def spans_of(program: str, *command: str, tmp_path: Path, **environment: str) -> list[dict[str, Any]]:
    """Run ``program`` and collect the spans that it exports to the console."""
    script = tmp_path / "service.py"
    script.write_text(program)
    result = subprocess.run(
        [*command, sys.executable, str(script)],
        env={
            **os.environ,
            "OTEL_TRACES_EXPORTER": "console",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    decoder, text, spans = json.JSONDecoder(), result.stdout.strip(), []
    while text:
        span, end = decoder.raw_decode(text)
        spans.append(span)
        text = text[end:].strip()
    return spans


def service(wire: Wire, first_lines: str = "") -> str:
    call = textwrap.dedent(f"""
        from openai import OpenAI
        client = OpenAI(base_url={wire.url!r}, api_key="k")
        for _ in client.chat.completions.create(
            model="m", messages=[{{"role": "user", "content": "x"}}], stream=True
        ):
            pass
    """)
    return first_lines + call


def generations(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [span for span in spans if span["name"] == "chat m"]


@pytest.mark.skipif(INSTRUMENT is None, reason="opentelemetry-instrumentation is not installed")
@pytest.mark.parametrize("way", ["opentelemetry-instrument", "both", "all three"])
def test_switched_on_in_several_ways(way: str, wire: Wire, tmp_path: Path) -> None:
    """Broken: `opentelemetry-instrument` does not find us, or two ways at once record a call twice."""
    assert INSTRUMENT is not None
    wire.answer = openai_wire.stream("a", "b")
    command = (INSTRUMENT,) if way == "opentelemetry-instrument" else (INSTRUMENT, *OTELKIT_RUN)
    first = "import otelkit; otelkit.instrument()\n" if way == "all three" else ""
    spans = spans_of(service(wire, first), *command, tmp_path=tmp_path)
    assert len(generations(spans)) == 1


def test_switched_on_in_code_under_otelkit_run(wire: Wire, tmp_path: Path) -> None:
    """Broken: `otelkit.instrument()` in a program that `otelkit run` starts."""
    wire.answer = openai_wire.stream("a", "b")
    first = "import otelkit; otelkit.instrument()\n"
    assert len(generations(spans_of(service(wire, first), *OTELKIT_RUN, tmp_path=tmp_path))) == 1


def test_stream_held_at_the_end_of_the_program(wire: Wire, tmp_path: Path) -> None:
    """Broken: a program that ends with a stream in a global variable exports no span for it."""
    wire.answer = openai_wire.stream("a", "b")
    program = (
        service(wire).replace("for _ in client", "stream = client").replace("):\n    pass", ")\nnext(stream)")
    )
    compile(program, "service.py", "exec")
    (span,) = generations(spans_of(program, *OTELKIT_RUN, tmp_path=tmp_path))
    assert span["attributes"][semconv.OUTCOME] == "ended_early"
