"""`otelkit explain` against a real Prometheus: what it read can be kept, and gives the same verdict again."""

from __future__ import annotations

import json
import signal
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


def test_a_page_scraped_meanwhile_gives_a_verdict(tmp_path: Path) -> None:
    """Broken if a service that no Prometheus scrapes could not be asked about."""
    chat, search = ScriptedService("chat", 1), ScriptedService("search", 2)
    with serve(chat) as one, serve(search) as other:
        pages = ("--metrics", one, "--metrics", other, "--for", "16s")
        command = [str(Path(sys.executable).with_name("otelkit")), "explain", *pages]
        running = subprocess.Popen(
            [*command, "--save", "kept", "--format", "json"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        began = time.time()
        while running.poll() is None and time.time() < began + 90:
            if time.time() > began + 9 and not changed(chat):
                chat.change("max_tokens", "256", "1024", time.time())
            chat.call(0.6 if changed(chat) else 0.15)
            search.call(0.1)
            time.sleep(0.01)
        out, err = running.communicate(timeout=60)
    assert running.returncode in (0, 3), err
    assert "Ctrl-C ends that early" in err
    (explanation,) = json.loads(out)["explanations"]
    (finding,) = explanation["findings"]
    assert (explanation["service"], finding["change"]["parameter"]) == ("chat", "max_tokens")
    assert (tmp_path / "kept" / "bundle.json").exists()


def changed(service: ScriptedService) -> bool:
    return bool(next(iter(service.changed.collect())).samples)


def test_ctrl_c_explains_what_was_read(tmp_path: Path) -> None:
    """Broken if somebody who has seen enough had to wait twenty minutes, or lost everything."""
    chat = ScriptedService("chat", 1)
    with serve(chat) as page:
        running = subprocess.Popen(
            [str(Path(sys.executable).with_name("otelkit")), "explain", "--metrics", page],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stderr is not None
        while "Ctrl-C" not in (line := running.stderr.readline()):
            assert line, "the command ended"
        end = time.time() + 6
        while time.time() < end:
            chat.call()
            time.sleep(0.02)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert "no parameter change was seen in this span" in out
    assert "Traceback" not in err


def test_pages_that_say_nothing_are_told(tmp_path: Path) -> None:
    """Broken if a wrong address, or a page without calls, ended in a traceback or after twenty minutes."""
    silent = explain(tmp_path, "--metrics", "http://127.0.0.1:9/metrics")
    assert silent.returncode == 4 and "does not answer" in silent.stderr
    with serve(ScriptedService("chat", 1)) as page:
        idle = explain(tmp_path, "--metrics", page, "--for", "1s")
    assert idle.returncode == 1 and "has no latency of any service" in idle.stderr
