"""`otelkit explain` on bundles: thresholds, what it is too early for, the other direction, calls to show."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli_explain import CHANGED, START, STEPS, otelkit, service

from otelkit.causal.windows import cut
from otelkit.model import CallSite, Generation, ParameterChange, SpanIdentity
from otelkit.query.bundle import write_bundle
from otelkit.query.panel import Panel
from otelkit.query.traces import write_generations
from otelkit.report import from_json

CHANGES = (
    ParameterChange("chat", "max_tokens", 256, 1024, CHANGED, CHANGED),
    ParameterChange("search", "seed", 1, 2, CHANGED - 250, CHANGED - 250),
)


@pytest.fixture(scope="module")
def panel() -> Panel:
    """A service that one change slowed, another that nothing moved."""
    services = {"chat": service("chat", 3.0, 1), "search": service("search", 1.0, 2)}
    return Panel(START + 5.0 * np.arange(1, STEPS + 1), 5.0, services)


def explained(directory: Path, *arguments: str | Path) -> dict[str, Any]:
    """The one explanation of chat as JSON."""
    done = otelkit(
        *("explain", "--bundle", directory, "--service", "chat", "--format", "json"),
        *arguments,
        cwd=directory,
    )
    assert done.returncode in (0, 3), done.stderr
    (explanation,) = json.loads(done.stdout)["explanations"]
    return dict(explanation, code=done.returncode)


@pytest.mark.parametrize(
    ("threshold", "crossed", "code"), [(0.12, True, 3), (60.0, False, 0)], ids=["crossed", "not crossed"]
)
def test_thresholds_are_shown_and_decide(
    panel: Panel, tmp_path: Path, threshold: float, crossed: bool, code: int
) -> None:
    """Broken if the table, JSON or page did not say whether a change is one to act on, or the exit code did
    not follow it."""
    write_bundle(tmp_path, panel, CHANGES, thresholds={"chat": {"max_tokens": threshold}})
    explanation = explained(tmp_path, "--page", "page.html")
    (finding,) = explanation["findings"]
    assert (finding["threshold_seconds"], finding["threshold_crossed"]) == (threshold, crossed)
    assert (finding["verdict"], explanation["code"]) == ("causal", code)
    table = otelkit("explain", "--bundle", tmp_path, "--service", "chat", cwd=tmp_path).stdout
    word = f"> {threshold * 1000:.0f} ms: {'crossed' if crossed else 'not crossed'}"
    assert word in table and "threshold" in table.splitlines()[1]
    assert word.replace(" ms", "\xa0ms").replace(">", "&gt;") in (tmp_path / "page.html").read_text()
    assert from_json({"version": 1, "explanations": [{k: v for k, v in explanation.items() if k != "code"}]})


def test_both_forms_of_a_bundle_give_the_same_verdicts(panel: Panel, tmp_path: Path) -> None:
    """Broken if a digit were lost on the way, or an incident kept as Parquet were another one."""
    write_bundle(tmp_path / "one", panel, CHANGES)
    done = otelkit(
        "explain",
        "--bundle",
        "one",
        "--save",
        "two",
        "--save-as",
        "parquet",
        "--service",
        "chat",
        cwd=tmp_path,
    )
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "two" / "series.parquet").exists()
    assert explained(tmp_path / "one") == explained(tmp_path / "two")


def test_a_young_change_is_too_early_with_the_time_when_it_is_known(panel: Panel, tmp_path: Path) -> None:
    """Broken if two minutes of data were judged for good, or nobody said when to ask again."""
    idle = replace(CHANGES[0], service="search", first_seen=CHANGED + 470, last_seen=CHANGED + 470)
    write_bundle(tmp_path, panel, [idle])
    done = otelkit("explain", "--bundle", tmp_path, "--service", "search", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    known = datetime.fromtimestamp(idle.last_seen + 900).strftime("%H:%M:%S")
    assert f"too early, known at {known}" in done.stdout
    done = otelkit("explain", "--bundle", tmp_path, "--service", "search", "--format", "json", cwd=tmp_path)
    (finding,) = json.loads(done.stdout)["explanations"][0]["findings"]
    assert finding["too_early_until_unix_seconds"] == pytest.approx(idle.last_seen + 900)
    assert finding["verdict"] == "cannot separate" and finding["reason"].startswith("So far: ")


def test_verdicts_on_growing_data_begin_too_early_and_then_stay(panel: Panel, tmp_path: Path) -> None:
    """Broken if a clear effect were claimed, taken back and claimed again as its data come in."""
    told = []
    for after in (30, 120, 480):
        directory = tmp_path / str(after)
        write_bundle(directory, cut(panel, -np.inf, CHANGED + after), CHANGES)
        (finding,) = explained(directory)["findings"]
        early = finding["too_early_until_unix_seconds"]
        assert early is None or early > CHANGED + after
        told.append("too early" if early else finding["verdict"])
    assert told[0] == "too early" and told[-1] == "causal"
    assert told == sorted(told, reverse=True), told


def test_a_jump_that_nobody_knows_a_cause_of(panel: Panel, tmp_path: Path) -> None:
    """Broken if whoever sees P99 jump could not ask what was changed before it."""
    write_bundle(tmp_path, panel, CHANGES)
    done = otelkit("explain", "--bundle", tmp_path, "--jumps", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert re.search(r"P99 of chat rose at \d\d:\d\d", done.stdout)
    first = next(line for line in done.stdout.splitlines() if "->" in line)
    assert first.split()[0] == "max_tokens" and int(first.split()[-2]) > 50
    assert re.search(r"unexplained: [\d.]+ %", done.stdout)
    at = datetime.fromtimestamp(CHANGED + 60, UTC).isoformat()
    done = otelkit("explain", "--bundle", tmp_path, "--at", at, "--format", "json", cwd=tmp_path)
    (jump,) = json.loads(done.stdout)["jumps"]
    assert jump["service"] == "chat" and abs(jump["at_unix_seconds"] - CHANGED) < 60
    assert jump["candidates"][0]["parameter"] == "max_tokens" and 0 < jump["unexplained_share"] < 0.5
    assert jump["effect_seconds"]["low"] > 0
    never = otelkit("explain", "--bundle", tmp_path, "--at", str(CHANGED - 2000), cwd=tmp_path)
    assert (never.returncode, never.stdout) == (0, "")
    assert "no jump of P99" in never.stderr


def test_a_jump_without_any_change_stays_unexplained(panel: Panel, tmp_path: Path) -> None:
    """Broken if a jump were put down to a change of an hour later, or missed for want of one."""
    write_bundle(tmp_path, panel, [])
    done = otelkit("explain", "--bundle", tmp_path, "--service", "chat", "--jumps", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "no parameter change was made before it" in done.stdout
    assert "unexplained: 100 %" in done.stdout


def call(at: float, seconds: float, number: int) -> Generation:
    """A call that began ``at`` Unix seconds, in four equal token steps."""
    start = round(at * 1e9)
    steps = [start + round(seconds * 1e9 * part / 4) for part in range(1, 5)]
    return Generation(
        CallSite("chat", "openai", "chat", "small"),
        start_ns=start,
        end_ns=steps[-1],
        step_ns=steps,
        streamed=True,
        parameters={"max_tokens": 256 if at < CHANGED else 1024},
        span=SpanIdentity(trace_id=number + 1, span_id=number + 1, sampled=True),
    )


def test_calls_from_a_file_are_shown_and_kept(panel: Panel, tmp_path: Path) -> None:
    """Broken if the page had no calls to compare, or a bundle lost them, or kept a day's file of them."""
    write_bundle(tmp_path / "one", panel, CHANGES)
    every = [call(CHANGED + n, 0.3 if n < 0 else 0.9, n + 100) for n in range(-90, 90)]
    write_generations(tmp_path / "traces.jsonl", every)
    common = ("--service", "chat", "--page", "page.html")
    for name in ("traces.jsonl", "."):
        (tmp_path / "page.html").unlink(missing_ok=True)
        done = otelkit(
            *("explain", "--bundle", "one", "--traces", name, "--save", "two"), *common, cwd=tmp_path
        )
        assert done.returncode == 3, done.stderr
        assert "One call before, one after" in (tmp_path / "page.html").read_text()
    assert len((tmp_path / "two" / "traces.jsonl").read_text().splitlines()) == 2
    otelkit("explain", "--bundle", "two", *common, cwd=tmp_path)
    assert "One call before, one after" in (tmp_path / "page.html").read_text()


def test_faulty_traces_are_told(panel: Panel, tmp_path: Path) -> None:
    """Broken if a wrong file ended in a traceback, or in a page that silently lacks its calls."""
    write_bundle(tmp_path / "one", panel, CHANGES)
    (tmp_path / "bad.jsonl").write_text('{"resourceSpans": []}\nnot that\n[1]\n')
    explain = ("explain", "--bundle", "one", "--service", "chat", "--page", "page.html", "--traces")
    done = otelkit(*explain, "bad.jsonl", cwd=tmp_path)
    assert done.returncode == 1
    assert "bad.jsonl:2: is no OTLP JSON" in done.stderr and "bad.jsonl:3: is no OTLP JSON" in done.stderr
    assert otelkit(*explain, "missing.jsonl", cwd=tmp_path).returncode == 2
    assert otelkit(*explain, "http://127.0.0.1:9", cwd=tmp_path).returncode == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--for", "5m"), "--for can't be given with it"),
        (("--metrics", "http://x", "--since", "1h"), "--since can't be given with it"),
        (("--metrics", "http://x", "--prometheus", "http://y"), "--prometheus can't be given with it"),
        (("--bundle", ".", "--metrics", "http://x"), "--metrics can't be given with it"),
        (("--save-as", "parquet"), "there is no --save"),
        (("--jumps", "--page", "x.html"), "--page can't be given with it"),
        (("--header", "no value"), "has no name and value"),
        (("--at", "25:99"), "is no time"),
        (("--at", "quarter past"), "is no time"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Broken if one of two were silently ignored."""
    done = otelkit("explain", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def test_nothing_of_the_environment_is_needed(panel: Panel, tmp_path: Path) -> None:
    """Broken if a bundle could only be read where a terminal, a spec or a Prometheus is."""
    write_bundle(tmp_path, panel, CHANGES)
    assert "OTELKIT_PROMETHEUS" not in os.environ
    done = otelkit("explain", "--bundle", tmp_path, "--service", "chat", cwd=tmp_path)
    assert done.returncode == 3 and "otelkit.yaml" not in done.stderr


def test_changes_that_can_not_be_judged_are_told(panel: Panel, tmp_path: Path) -> None:
    """Broken if changes outside the data, given twice, or of a service without series were dropped silently,
    judged twice, or ended in a traceback."""
    real = CHANGES[0]
    moved = [replace(real, first_seen=at, last_seen=at) for at in (START - 9e4, START + 9e4)]
    write_bundle(tmp_path, panel, [*moved, real, real, replace(real, service="nobody")])
    done = otelkit("explain", "--bundle", tmp_path, "--service", "chat", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "service 'nobody' was changed, but has no series" in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("max_tokens")]
    assert len(rows) == 3
    assert sum("causal: " in row for row in rows) == 1
    assert any("before the data begins" in row for row in rows)
    assert any("too early" in row and "data's end" in row for row in rows)


@pytest.mark.parametrize("value", ["0.4", ""], ids=["constant", "unknown"])
def test_series_that_say_nothing_give_no_verdict(tmp_path: Path, value: str) -> None:
    """Broken if a stale or empty series ended in a traceback, or in a verdict, in any form of output."""
    write_bundle(
        tmp_path,
        Panel(np.array([]), 15.0, {}),
        [replace(CHANGES[0], first_seen=START + 1500, last_seen=START + 1500)],
    )
    (tmp_path / "bundle.json").write_text(
        '{"version": 1, "step_seconds": 15, "services": {"chat": {"window_seconds": 60}}}'
    )
    rows = "".join(f"{START + 15 * n:.0f},chat,{value}\n" for n in range(200))
    (tmp_path / "series.csv").write_text("time,service,p99_seconds\n" + rows)
    done = otelkit("explain", "--bundle", tmp_path, "--page", "page.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "cannot separate" in done.stdout and "Traceback" not in done.stderr
    assert "<html" in (tmp_path / "page.html").read_text()
    jumps = otelkit("explain", "--bundle", tmp_path, "--jumps", cwd=tmp_path)
    assert jumps.returncode == 0 and "no jump" in jumps.stderr


def test_where_nothing_could_be_kept_nothing_is_read(tmp_path: Path) -> None:
    """Broken if twenty minutes of scraping were lost to a folder that does not exist."""
    for place in (("--page", "no/page.html"), ("--save", "/proc/here")):
        done = otelkit("explain", "--metrics", "http://127.0.0.1:9/metrics", *place, cwd=tmp_path)
        assert done.returncode == 2 and "can't be written" in done.stderr, done.stderr
