"""The switch between versions of the GenAI conventions, in processes of their own as it is read on import."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from otelkit import semconv

PROGRAM = """
import json
import prometheus_client
import otelkit
from otelkit import semconv, testing
from otelkit.emit.metrics import GenerationMetrics
from otelkit.spec.presets import GEN_AI

registry = prometheus_client.CollectorRegistry()
metrics = GenerationMetrics(registry)
with testing.recording() as recorded:
    for _ in otelkit.watch(iter("abc"), model="m", parameters={"reasoning_effort": "low", "top_k": 5}):
        pass
(generation,) = recorded.generations
metrics.started(generation.call_site)
metrics.ended(generation, traced=False)
page = prometheus_client.generate_latest(registry).decode()
counts = {line.partition("{")[0] for line in page.splitlines() if "_seconds_count{" in line}
means = {series.metric for series in GEN_AI.means.values()}
read = {GEN_AI.latency} | {name for name in means if name.endswith("_seconds")}
print(json.dumps([sorted(counts), sorted(read), sorted(recorded.spans[0].attributes)]))
"""


def written_and_read(opt_in: str) -> list[list[str]]:
    """Names of histograms on a page, names that rules and analyses read, and names of a span's attributes."""
    environment = {**os.environ, semconv.OPT_IN_VARIABLE: opt_in}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    names: list[list[str]] = json.loads(result.stdout)
    return names


@pytest.mark.parametrize(
    ("opt_in", "newer"),
    [
        ("", False),
        ("http,database", False),
        ("gen_ai_latest_experimental", True),
        ("http, gen_ai_latest_experimental", True),
    ],
)
def test_opt_in(opt_in: str, newer: bool) -> None:
    """Broken: the switch does nothing, is on unasked, or rules read other names than services write."""
    written, read, attributes = written_and_read(opt_in)
    old = sorted(name for name in semconv.NEWER_NAMES if name.startswith("gen_ai_client"))
    expected = sorted(semconv.NEWER_NAMES[name] for name in old) if newer else old
    assert [name.removesuffix("_count") for name in written if name.startswith("gen_ai")] == expected
    assert read == expected
    assert ("gen_ai.request.reasoning.level" in attributes) is newer
    assert ("otelkit.request.reasoning_effort" in attributes) is not newer
    assert "gen_ai.request.top_k" in attributes
