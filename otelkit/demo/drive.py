"""The load and the script, run against the service side by side until the end, an interruption or a
failure."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otelkit.demo import load
from otelkit.demo.load import PlannedRequest, Sent
from otelkit.demo.progress import LoadProgress
from otelkit.demo.script import Script, ScriptedChange, SettingsFile
from otelkit.errors import OtelkitError

MOST_UNDER_WAY: Final = 80
"""Requests waiting for an answer at which the service has plainly fallen behind: minutes of work in the
queue."""


@dataclass(frozen=True, slots=True)
class AppliedChange:
    """A scripted change as it was made."""

    scripted: ScriptedChange
    old: Any
    applied_at: float
    """Unix seconds."""


@dataclass(slots=True)
class Driven:
    """What happened."""

    began_at: float
    """Unix seconds of the load's start."""
    ended_at: float = 0.0
    sent: list[Sent] = field(default_factory=list)
    applied: list[AppliedChange] = field(default_factory=list)
    interrupted: bool = False
    failure: OtelkitError | None = None
    """Why it ended before its time; None when it did not or was interrupted."""


async def drive(
    url: str,
    script: Script,
    requests: Sequence[PlannedRequest],
    settings: SettingsFile,
    *,
    check: Callable[[], None],
    most_under_way: int = MOST_UNDER_WAY,
) -> Driven:
    """Send the load and make the scripted changes.

    SIGINT and SIGTERM end it early, as does a failure; what was done until then is returned.

    Args:
        url: of the service's chat completion endpoint.
        check: called every second; raises ``OtelkitError`` when something that should run no longer does.
        most_under_way: requests waiting at which the service has fallen behind, which ends it.
    """
    driven = Driven(began_at=time.time())
    begin = time.monotonic()
    stop = asyncio.Event()

    def interrupt() -> None:
        driven.interrupted = True
        stop.set()

    loop = asyncio.get_running_loop()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in handlers:
        loop.add_signal_handler(number, interrupt)

    async def make_changes() -> None:
        values = dict(script.base)
        for change in script.changes:
            if await _stopped(stop, change.at - (time.monotonic() - begin)):
                return
            settings.change(change.parameter, change.value)
            driven.applied.append(AppliedChange(change, values[change.parameter], time.time()))
            values[change.parameter] = change.value

    async def watch(progress: LoadProgress) -> None:
        while not await _stopped(stop, 1.0):
            elapsed = time.monotonic() - begin
            sent = sum(request.at <= elapsed for request in requests)
            failed = sum(bool(one.error) for one in driven.sent)
            progress.update(elapsed, sent=sent, answered=len(driven.sent), failed=failed)
            try:
                check()
                if sent - len(driven.sent) > most_under_way:
                    raise OtelkitError(
                        f"this machine is too slow for the rate: after {elapsed:.0f} s, "
                        f"{sent - len(driven.sent)} requests were waiting for their answers.",
                        hint="Close other programs, or give a lower --rate.",
                    )
            except OtelkitError as error:
                driven.failure = error
                stop.set()

    try:
        with LoadProgress(script.seconds) as progress:
            others = [asyncio.create_task(make_changes()), asyncio.create_task(watch(progress))]
            await load.run(url, requests, stop=stop, on_sent=driven.sent.append)
            if not stop.is_set():
                await _stopped(stop, script.seconds - (time.monotonic() - begin))
            stop.set()
            await asyncio.gather(*others)
    finally:
        for number, handler in handlers.items():
            loop.remove_signal_handler(number)
            # asyncio leaves the system's default behind, not what was there before.
            signal.signal(number, handler)
    driven.ended_at = time.time()
    return driven


async def _stopped(stop: asyncio.Event, seconds: float) -> bool:
    """Wait for ``seconds`` or until ``stop`` is set; whether it is set."""
    try:
        await asyncio.wait_for(stop.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    return True
