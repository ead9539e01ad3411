"""`otelkit explain` against a real Prometheus: what it read can be kept, and gives the same verdict again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live import ScriptedService, prometheus, serve

from otelkit.spec import load_spec

SPEC = """
services:
- {name: chat, preset: gen_ai}
- {name: search, preset: gen_ai}
base_window: 5m
windows: [5s, 10s]
scrape_interval: 1s
evaluation_interval: 1s
"""


def explain(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("otelkit")), "explain", *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.prometheus
def test_live_verdict_is_kept_and_replayed(prometheus_binary: Path, tmp_path: Path) -> None:
    """What is lost on the way from Prometheus into a bundle would change the verdict."""
    (tmp_path / "otelkit.yaml").write_text(SPEC)
    data = tmp_path / "prometheus"
    data.mkdir()
    chat, search = ScriptedService("chat", 1), ScriptedService("search", 2)
    with (
        serve(chat) as one,
        serve(search) as other,
        prometheus(prometheus_binary, data, load_spec(tmp_path / "otelkit.yaml"), [one, other]) as url,
    ):
        began = time.time()
        for median in (0.15, 0.6):
            half = time.time()
            if median == 0.6:
                chat.change("max_tokens", "256", "1024", half)
            while time.time() < half + 8:
                chat.call(median)
                search.call(0.1)
                time.sleep(0.01)
        time.sleep(2)
        since = ("--since", f"{began:.3f}", "--prometheus", url)
        live = explain(tmp_path, *since, "--format", "json", "--save", "kept", "--page", "page.html")
        unknown = explain(tmp_path, *since, "--service", "nobody")
    assert live.returncode in (0, 3), live.stderr
    (explanation,) = json.loads(live.stdout)["explanations"]
    (finding,) = explanation["findings"]
    assert (finding["change"]["parameter"], finding["change"]["old"]) == ("max_tokens", 256)
    assert finding["effect_seconds"]["value"] > 0.2
    replayed = explain(tmp_path, "--bundle", "kept", "--service", "chat", "--format", "json")
    assert json.loads(replayed.stdout) == json.loads(live.stdout)
    assert replayed.returncode == live.returncode
    assert "max_tokens" in (tmp_path / "page.html").read_text()
    assert unknown.returncode == 1
    assert "Services with data then: chat, search." in unknown.stderr
