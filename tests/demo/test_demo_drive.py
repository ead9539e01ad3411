"""The load and the script side by side, and the ways in which they end early."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path

import pytest
from demo_servers import FakeModel, serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otelkit.demo import truth
from otelkit.demo.drive import Driven, drive
from otelkit.demo.load import LoadReport, PlannedRequest, RateSpan
from otelkit.demo.script import Moves, Script, ScriptedChange, SettingsFile
from otelkit.errors import OtelkitError

SCRIPT = Script(
    seconds=3.0,
    changes=(
        ScriptedChange(1.0, "max_tokens", 5, Moves.UP),
        ScriptedChange(2.0, "max_tokens", 2, Moves.DOWN),
    ),
    surges=(RateSpan(1.0005, 1.5, 2.0),),
    base={"max_tokens": 2},
)
REQUESTS = [PlannedRequest(0.1 * n, "hello", 9) for n in range(30)]


def fine() -> None:
    """All that should run does."""


def driven_by(
    url: str, settings: SettingsFile, requests: list[PlannedRequest] = REQUESTS, most_under_way: int = 80
) -> Driven:
    """The script run against ``url``."""
    chat = f"{url}/v1/chat/completions"
    return asyncio.run(drive(chat, SCRIPT, requests, settings, check=fine, most_under_way=most_under_way))


def test_changes_are_made_at_their_times_and_told_in_the_truth(tmp_path: Path) -> None:
    """Broken if the truth that verdicts are compared with were not what was really done."""
    settings = SettingsFile(tmp_path / "settings.json", SCRIPT.base)
    with serving(FakeModel().app()) as url:
        driven = driven_by(url, settings)
    assert not driven.interrupted and driven.failure is None
    # Never early; how late depends on what else the machine does.
    assert 2.9 < driven.ended_at - driven.began_at < 30.0
    assert json.loads(settings.path.read_text()) == {"max_tokens": 2}
    held = LoadReport.of(REQUESTS, driven.sent, seconds=3.0)
    assert (held.planned, held.sent, held.errors) == (30, 30, 0)
    truth.write(tmp_path / "truth.json", SCRIPT, driven, held, seed=1, rate=10.0)
    document = json.loads((tmp_path / "truth.json").read_text())
    up, down = document["changes"]
    assert (up["old"], up["new"], up["moves_p99"]) == (2, 5, "up")
    assert (down["old"], down["new"], down["moves_p99"]) == (5, 2, "down")
    assert up["at"] - document["began_at"] > 0.9 and up["at"] + 0.3 < down["at"]
    assert all(phase["answers"] > 0 for phase in document["seen_by_callers"])
    assert sum(phase["answers"] for phase in document["seen_by_callers"]) <= 30


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_and_keep_what_was_done(tmp_path: Path, number: signal.Signals) -> None:
    """Broken if Ctrl-C or a polite kill lost the run, or took the handlers of whoever called it away."""
    settings = SettingsFile(tmp_path / "settings.json", SCRIPT.base)
    before = signal.getsignal(number)
    with serving(FakeModel().app()) as url:
        timer = threading.Timer(1.3, os.kill, (os.getpid(), number))
        timer.start()
        driven = driven_by(url, settings)
        timer.join()
    assert driven.interrupted and driven.failure is None
    assert 5 < len(driven.sent) < 25
    assert [change.scripted.value for change in driven.applied] == [5]
    assert signal.getsignal(number) == before


def test_dead_child_ends_it_with_its_error(tmp_path: Path) -> None:
    """Broken if the demo went on for minutes after its service had crashed."""

    def check() -> None:
        raise OtelkitError("the service ended with exit code 1")

    settings = SettingsFile(tmp_path / "settings.json", SCRIPT.base)
    with serving(FakeModel().app()) as url:
        driven = asyncio.run(drive(f"{url}/v1/chat/completions", SCRIPT, REQUESTS, settings, check=check))
    assert driven.failure is not None and "exit code 1" in driven.failure.message
    assert driven.ended_at - driven.began_at < 2.5


def test_machine_that_falls_behind_ends_it(tmp_path: Path) -> None:
    """Broken if queues could grow for minutes without a word."""

    async def never(request: Request) -> Response:
        await asyncio.sleep(2.5)
        return Response(status_code=503)

    settings = SettingsFile(tmp_path / "settings.json", SCRIPT.base)
    with serving(Starlette(routes=[Route("/v1/chat/completions", never, methods=["POST"])])) as url:
        driven = driven_by(url, settings, most_under_way=5)
    assert driven.failure is not None
    assert "too slow for the rate" in driven.failure.message and "--rate" in driven.failure.hint
