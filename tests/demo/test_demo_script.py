"""The script of changes, and the settings file it edits."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from otelkit.demo.script import (
    BASE_SETTINGS,
    DEFAULT_MINUTES,
    FEWEST_CALLS,
    FEWEST_MINUTES,
    LONGEST_MINUTES,
    Moves,
    SettingsFile,
    default_script,
)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("minutes", [FEWEST_MINUTES, DEFAULT_MINUTES, 20.0])
def test_script_has_every_kind_of_event_in_order(seed: int, minutes: float) -> None:
    """Broken if a run lacked a cause, an idle change, a reverted change or the surge, or they ran into each
    other."""
    script = default_script(minutes=minutes, seed=seed)
    moves = [change.moves for change in script.changes]
    assert moves == [Moves.NOTHING, Moves.UP, Moves.NOTHING, Moves.UP, Moves.DOWN]
    times = [0.0, *(change.at for change in script.changes), script.seconds]
    stretch = minutes / DEFAULT_MINUTES
    assert all(b - a >= 25 * stretch for a, b in itertools.pairwise(times))
    assert script.changes[4].value == script.changes[1].value, "the last change takes the one before it back"
    (surge,) = script.surges
    assert surge.start == script.changes[2].at and surge.end < script.changes[3].at


def test_slow_machine_is_given_more_time() -> None:
    """Broken if a slow machine's verdicts rested on too few calls, or its user waited without end."""
    script = default_script()
    assert script.at_rate(10.0) is script
    stretched = script.at_rate(1.0)
    assert stretched.seconds == pytest.approx(FEWEST_CALLS)
    assert stretched.changes[3].at / stretched.seconds == pytest.approx(script.changes[3].at / script.seconds)
    assert stretched.surges[0].end - stretched.surges[0].start == pytest.approx(
        40 * FEWEST_CALLS / script.seconds
    )
    assert script.at_rate(0.1).seconds == pytest.approx(LONGEST_MINUTES * 60)
    asked = default_script(minutes=4.0)
    assert asked.at_rate(0.1) is asked, "who asks for four minutes gets four"


def test_script_is_what_its_seed_says() -> None:
    """Broken if a run could not be repeated, or every run were the same."""
    assert default_script(seed=3) == default_script(seed=3)
    assert default_script(seed=3).changes != default_script(seed=4).changes


def test_heaviest_settings_are_the_longest_answers() -> None:
    """Broken if the machine were measured under settings lighter than those the load meets."""
    script = default_script()
    assert script.heaviest["max_tokens"] == max(
        c.value for c in script.changes if c.parameter == "max_tokens"
    )
    assert script.heaviest["temperature"] == BASE_SETTINGS["temperature"]


def test_settings_file_is_never_half_written(tmp_path: Path) -> None:
    """Broken if the service could read an empty or partial file."""
    path = tmp_path / "settings.json"
    settings = SettingsFile(path, BASE_SETTINGS)
    before = path.stat().st_ino
    settings.change("max_tokens", 99)
    assert path.stat().st_ino != before, "the file is replaced, not written over"
    assert json.loads(path.read_text()) == {**BASE_SETTINGS, "max_tokens": 99}
    assert [entry.name for entry in tmp_path.iterdir()] == ["settings.json"]
