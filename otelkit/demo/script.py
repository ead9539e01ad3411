"""What the demo does to its service, and when: the truth that the verdicts are compared with.

Nobody tells otelkit any of it. The service's settings file changes as an operator would change it, and
traffic surges as traffic does. The truth is written into the run's folder for whoever wants to compare.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from otelkit.demo.load import RateSpan

FEWEST_MINUTES: Final = 2.0
"""Below this the script's steps come so close that no window tells them apart."""
DEFAULT_MINUTES: Final = 5.5
LONGEST_MINUTES: Final = 7.5
"""How long a slow machine may take unasked."""
FEWEST_CALLS: Final = 400

BASE_SETTINGS: Final[Mapping[str, Any]] = {
    "max_tokens": 3,
    "temperature": 0.7,
    "top_p": 0.95,
    "presence_penalty": 0.0,
    "seed": 1,
}


class Moves(Enum):
    """What a change really does to P99."""

    UP = "up"
    DOWN = "down"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ScriptedChange:
    """A setting of the service that is changed ``at`` seconds from the start of the load."""

    at: float
    parameter: str
    value: Any
    moves: Moves


@dataclass(frozen=True, slots=True)
class Script:
    """All that happens in a run."""

    seconds: float
    changes: tuple[ScriptedChange, ...]
    surges: tuple[RateSpan, ...]
    base: Mapping[str, Any]
    utilisation: float = 0.7
    """Share of what the machine carries under the heaviest settings that the load takes outside of surges."""
    fewest_calls: int = 0
    """Calls that a verdict needs; where the rate gives fewer, the script is stretched."""
    longest_seconds: float = 0.0
    """Never stretched beyond this; 0 for never stretched."""

    @property
    def heaviest(self) -> dict[str, Any]:
        """The settings under which an answer takes longest."""
        most = max([self.base["max_tokens"], *(c.value for c in self.changes if c.parameter == "max_tokens")])
        return {**self.base, "max_tokens": most}

    def at_rate(self, rate: float) -> Script:
        """The script stretched, if need be, so that ``rate`` requests a second give enough calls."""
        wanted = min(self.fewest_calls / rate, self.longest_seconds)
        return self.stretched(wanted / self.seconds) if wanted > self.seconds else self

    def stretched(self, factor: float) -> Script:
        """The same script with all times multiplied by ``factor``."""
        return replace(
            self,
            seconds=self.seconds * factor,
            changes=tuple(replace(one, at=one.at * factor) for one in self.changes),
            surges=tuple(replace(one, start=one.start * factor, end=one.end * factor) for one in self.surges),
        )


def default_script(*, minutes: float | None = None, seed: int = 1) -> Script:
    """The demo's script; ``seed`` moves each step by a few seconds.

    One change that does nothing, one that lengthens answers, a surge of traffic at whose start another change
    that does nothing is made (whoever goes by coincidence blames it), and one change that is reverted.

    Args:
        minutes: how long it lasts; None takes the usual time, and more of it on a slow machine.
    """
    chance = random.Random(seed)

    def at(seconds: float) -> float:
        return round(seconds + chance.uniform(-5.0, 5.0), 3)

    surge = at(175)
    script = Script(
        seconds=DEFAULT_MINUTES * 60,
        changes=(
            ScriptedChange(at(55), "presence_penalty", 0.4, Moves.NOTHING),
            ScriptedChange(at(105), "max_tokens", 8, Moves.UP),
            ScriptedChange(surge, "seed", chance.randrange(2, 10_000), Moves.NOTHING),
            ScriptedChange(at(250), "max_tokens", 16, Moves.UP),
            ScriptedChange(at(293), "max_tokens", 8, Moves.DOWN),
        ),
        surges=(RateSpan(surge, surge + 40, 1.6),),
        base=BASE_SETTINGS,
    )
    if minutes is None:
        return replace(script, fewest_calls=FEWEST_CALLS, longest_seconds=LONGEST_MINUTES * 60)
    return script.stretched(minutes / DEFAULT_MINUTES)


class SettingsFile:
    """The service's settings file, as an operator edits it."""

    def __init__(self, path: Path, base: Mapping[str, Any]) -> None:
        self.path = path
        self._values = dict(base)
        self._write()

    def change(self, parameter: str, value: Any) -> None:
        """Set one parameter; the file is replaced at once, so that nobody reads half of it."""
        self._values[parameter] = value
        self._write()

    def replace(self, values: Mapping[str, Any]) -> None:
        """Set all parameters."""
        self._values = dict(values)
        self._write()

    def _write(self) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(self._values, indent=2) + "\n", encoding="utf-8")
        fresh.replace(self.path)
