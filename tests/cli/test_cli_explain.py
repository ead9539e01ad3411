"""`otelkit explain`, through the real command, on an incident bundle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from otelkit.model import ParameterChange
from otelkit.query.bundle import write_bundle
from otelkit.query.bundle_reader import read_bundle
from otelkit.query.panel import Panel, ServiceSeries
from otelkit.report import from_json

START = 1_790_000_000.0
STEPS = 240
CHANGED = START + 5 * 120 + 2
BOUNDS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.6, 2.4, 3.2, np.inf])


def otelkit(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("otelkit")), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def service(name: str, factor: float, seed: int) -> ServiceSeries:
    """Steps of 5 s, 20 calls in each, three times the latency (by ``factor``) from the middle on."""
    random = np.random.default_rng(seed)
    counts = np.zeros((STEPS, len(BOUNDS)))
    for row in range(STEPS):
        median = 0.25 * (factor if row >= STEPS // 2 else 1.0)
        calls = random.lognormal(np.log(median), 0.3, random.poisson(20))
        counts[row] = np.bincount(np.searchsorted(BOUNDS, calls), minlength=len(BOUNDS))
    quantiles = {}
    for quantile in (0.99, 0.95, 0.5):
        trailing = np.array([counts[max(0, row - 5) : row + 1].sum(axis=0) for row in range(STEPS)])
        cumulative = np.cumsum(trailing, axis=1) / trailing.sum(axis=1, keepdims=True)
        place = (cumulative < quantile).sum(axis=1)
        quantiles[quantile] = BOUNDS[np.minimum(place, len(BOUNDS) - 2)]
    return ServiceSeries(name, quantiles, 30.0, BOUNDS, counts, {"arrivals": counts.sum(axis=1) / 5})


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A service that one change slowed, another that nothing moved."""
    directory = tmp_path_factory.mktemp("incident")
    panel = Panel(
        START + 5.0 * np.arange(1, STEPS + 1),
        5.0,
        {"chat": service("chat", 3.0, 1), "search": service("search", 1.0, 2)},
    )
    changes = [
        ParameterChange("chat", "max_tokens", 256, 1024, CHANGED, CHANGED),
        ParameterChange("search", "seed", 1, 2, CHANGED - 250, CHANGED - 250),
    ]
    write_bundle(directory, panel, changes)
    return directory


def test_a_bundle_is_explained_as_a_table(incident: Path, tmp_path: Path) -> None:
    """The main job from a kept incident: the cause is named, and scripts hear of it by the exit code."""
    done = otelkit("explain", "--bundle", incident, "--service", "chat", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("P99  ")
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("max_tokens 256 -> 1024")]
    assert "causal" in row
    assert "seed" not in done.stdout
    assert done.stderr == ""


def test_every_changed_service_is_explained_and_nothing_found_is_no_finding(
    incident: Path, tmp_path: Path
) -> None:
    """Without --service all changes are judged; a change without effect must not stop a pipeline."""
    both = otelkit("explain", "--bundle", incident, cwd=tmp_path)
    assert "service chat" in both.stdout and "service search" in both.stdout
    idle = otelkit("explain", "--bundle", incident, "--service", "search", cwd=tmp_path)
    assert idle.returncode == 0, idle.stdout
    assert "seed 1 -> 2" in idle.stdout


def test_json_page_and_saved_bundle(incident: Path, tmp_path: Path) -> None:
    """One call gives what a chat bot, a post-mortem and a regression test need, stdout holding JSON alone."""
    done = otelkit(
        *("explain", "--bundle", incident, "--service", "chat", "--format", "json"),
        *("--page", "page.html", "--save", "kept"),
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    (explanation,) = from_json(json.loads(done.stdout))
    assert explanation.service == "chat"
    assert [finding.verdict.value for finding in explanation.findings] == ["causal"]
    assert "page: page.html" in done.stderr and "bundle: kept" in done.stderr
    assert "max_tokens" in (tmp_path / "page.html").read_text()
    kept = otelkit("explain", "--bundle", "kept", "--service", "chat", "--format", "json", cwd=tmp_path)
    assert kept.stdout == done.stdout
    assert read_bundle(tmp_path / "kept").changes == read_bundle(incident).changes


def test_faults_of_a_bundle_end_with_all_of_them(incident: Path, tmp_path: Path) -> None:
    """A broken bundle is told by file and line on stderr, never a traceback."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "bundle.json").write_text((incident / "bundle.json").read_text())
    (broken / "series.csv").write_text("time,service,p99_seconds\nx,chat,1\n1,chat,y\n")
    done = otelkit("explain", "--bundle", "broken", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[:3] == [
        "otelkit: broken/series.csv:2: time: 'x' is no number of Unix seconds",
        "broken/series.csv:3: p99_seconds: 'y' is no number of 0 or more",
        "broken/series.csv: holds no row that could be read",
    ]
    assert "broken/changes.jsonl: can't be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--bundle", "{incident}", "--since", "1h"), 2, "--since can't be given with it"),
        (("--bundle", "{incident}", "--service", "cat"), 1, "Services with data then: chat, search."),
        (("--bundle", "{incident}", "--page", "page.html"), 2, "a page is about one service"),
        (("--bundle", "{incident}", "--service", "chat", "--page", "no/page.html"), 2, "can't be written"),
        (("--bundle", "{incident}", "--save", "{home}"), 2, "is not empty and holds no bundle.json"),
        (("--since", "1h", "--until", "2h"), 2, "--until lies before --since"),
        (("--prometheus", "http://127.0.0.1:9"), 4, "does not answer"),
    ],
)
def test_what_makes_no_sense_is_refused(
    incident: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """Each wrong call ends in one sentence that says what to do, with the exit code of its kind."""
    (tmp_path / "mine.txt").write_text("")
    filled = [argument.format(incident=incident, home=tmp_path) for argument in arguments]
    done = otelkit("explain", *filled, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
