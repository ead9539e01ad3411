"""Load without an end, and settings that change on a schedule: what keeps the stack's dashboards alive.

Run as ``python -m otelkit.demo.endless --url URL --model-url URL --settings FILE``. The rate is chosen once,
from what the model carries. A service or a model that is away for a while costs requests, not the load.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

from otelkit.demo import calibrate, load
from otelkit.demo.drive import drive
from otelkit.demo.load import LoadReport, RateSpan
from otelkit.demo.model_server import SLOTS
from otelkit.demo.progress import say
from otelkit.demo.script import BASE_SETTINGS, Moves, Script, ScriptedChange, SettingsFile
from otelkit.errors import OtelkitError

ROUND_SECONDS: Final = 300.0
LONG_ANSWER: Final = 12
"""Tokens that answers are allowed between the two changes that move P99."""
UTILISATION: Final = 0.5
"""Share of what the machine carries: whoever looks at the dashboards works on the same machine."""
MEASURING_SECONDS: Final = 5.0
LOW_RATE: Final = 2.0
"""Requests a second below which the machine is measured again after each round: it may have been busy."""
MOST_UNDER_WAY: Final = 6 * SLOTS
"""Requests waiting at which the round is broken off: the machine has become slower since it was measured."""
_AGAIN_AFTER_SECONDS: Final = 5.0


def round_script(number: int, values: Mapping[str, Any]) -> Script:
    """What happens in one round of ``ROUND_SECONDS``.

    A change that does nothing, one that lengthens answers, a surge at whose start another change that does
    nothing is made, and the lengthening taken back.

    Args:
        number: of the round, from 0; shifts each step by a few seconds.
        values: settings in force when it begins.
    """
    chance = random.Random(number)

    def at(seconds: float) -> float:
        return round(seconds + chance.uniform(-4.0, 4.0), 3)

    surge = at(160)
    penalty = 0.0 if values["presence_penalty"] else 0.4
    return Script(
        seconds=ROUND_SECONDS,
        changes=(
            ScriptedChange(at(25), "presence_penalty", penalty, Moves.NOTHING),
            ScriptedChange(at(60), "max_tokens", LONG_ANSWER, Moves.UP),
            ScriptedChange(surge, "seed", chance.randrange(2, 10_000), Moves.NOTHING),
            ScriptedChange(at(230), "max_tokens", values["max_tokens"], Moves.DOWN),
        ),
        surges=(RateSpan(surge, surge + 35, 1.5),),
        base=values,
        utilisation=UTILISATION,
    )


async def run(url: str, model_url: str, settings_path: Path, *, rate: float | None) -> None:
    """Send load and change settings until a signal ends it.

    Args:
        url: of the service's chat completions.
        model_url: of the model's, which is measured in the service's place, so that the service's metrics
            begin with the load.
        rate: requests a second; None takes it from what the machine carries.

    Raises:
        OtelkitError: the settings can't be written.
    """
    values = dict(BASE_SETTINGS)
    try:
        settings = SettingsFile(settings_path, values)
    except OSError as error:
        raise OtelkitError(
            f"{settings_path}: can't be written: {error.strerror}.", hint="Name another file: --settings FILE"
        ) from error
    chosen = await _rate(model_url, rate)
    number = 0
    while True:
        script = round_script(number, values)
        requests = load.plan(rate=chosen, seconds=script.seconds, seed=number + 1, surges=script.surges)
        driven = await drive(url, script, requests, settings, check=_nothing, most_under_way=MOST_UNDER_WAY)
        seconds = min(driven.ended_at - driven.began_at, script.seconds)
        say(f"round {number + 1}: {LoadReport.of(requests, driven.sent, seconds=seconds)}")
        if driven.interrupted:
            return
        if driven.failure is not None:
            say(f"{driven.failure.message} Going on with the next round.")
        if driven.failure is not None or chosen < LOW_RATE:
            chosen = await _rate(model_url, rate)
        values |= {made.scripted.parameter: made.scripted.value for made in driven.applied}
        if values["max_tokens"] != BASE_SETTINGS["max_tokens"]:
            # The round broke off between its two changes.
            values["max_tokens"] = BASE_SETTINGS["max_tokens"]
            settings.replace(values)
        number += 1


async def _rate(model_url: str, wanted: float | None) -> float:
    while True:
        try:
            capacity = await calibrate.measure(
                model_url, seconds=MEASURING_SECONDS, seed=1, longest_answer=LONG_ANSWER
            )
            chosen = calibrate.choose_rate(capacity, utilisation=UTILISATION, wanted=wanted)
        except OtelkitError as error:
            # A model that is away comes back, and a machine that is too slow may be busy with something else.
            say(f"{error.message} Trying again.")
            await asyncio.sleep(_AGAIN_AFTER_SECONDS)
        else:
            say(f"load: {chosen:.2f} requests/s, in rounds of {ROUND_SECONDS:.0f} s")
            return chosen


def _nothing() -> None:
    """Whether the others run is their supervisor's business."""


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def main() -> None:
    """Entry point of the process."""
    parser = argparse.ArgumentParser(description="Endless load, and settings that change on a schedule.")
    parser.add_argument("--url", required=True, help="the service's chat completions")
    parser.add_argument("--model-url", required=True, help="the model's chat completions")
    parser.add_argument("--settings", type=Path, required=True, help="the service's JSON file of parameters")
    parser.add_argument(
        "--rate", type=float, default=0.0, help="requests a second; 0: as the machine carries"
    )
    arguments = parser.parse_args()
    # As the first process of a container it gets no default action for signals.
    signal.signal(signal.SIGTERM, _end)
    try:
        asyncio.run(run(arguments.url, arguments.model_url, arguments.settings, rate=arguments.rate or None))
    except OtelkitError as error:
        sys.exit(f"load: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
