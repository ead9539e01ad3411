"""What the processes of a fleet settled on, side by side: finds changes that no single process saw, because
each process began with the new value, and tells a change from processes that each vary on their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otelkit import semconv
from otelkit.query.samples import Target

ROLLOUT_SECONDS: Final = 900.0
"""Processes that take up the same value further apart than this make two changes."""
PREVAILS: Final = 2 / 3
"""Share of processes from which a value is the fleet's."""
COMPLETE: Final = 0.95
"""Share of processes at which a rollout has ended."""
LASTING_SECONDS: Final = 60.0
"""Time for which a value must have prevailed to be the old one: a fleet that starts up is all sorts."""
_UNANIMOUS: Final = 0.75
"""Share of the processes that report a change from which they agree on which."""
_SEVERAL: Final = 3
_PART: Final = 0.25
"""So many processes, and such a share of the fleet, are believed if they agree, whatever the others do: at a
site that is rarely used not every process gets to see enough."""

Place = tuple[str, str, str]
"""Service, scope and parameter."""


@dataclass(frozen=True, slots=True)
class Settled:
    """One process' word that its requests have had a value for a time."""

    target: Target
    labels: Mapping[str, str]
    since: float
    """Unix seconds."""
    until: float
    """Unix seconds of the last sample."""

    @property
    def place(self) -> Place:
        return place_of(self.labels)

    @property
    def value(self) -> str:
        """Label text of the value, or ``VARIES``."""
        return self.labels.get(semconv.LABEL_VALUE, "")


@dataclass(frozen=True, slots=True)
class Flip:
    """The fleet's value moved; times in Unix seconds."""

    place: Place
    old: str
    new: str
    first_seen: float
    last_seen: float
    targets: frozenset[Target]


def place_of(labels: Mapping[str, str]) -> Place:
    return (
        labels.get(semconv.LABEL_SERVICE, ""),
        labels.get(semconv.LABEL_SCOPE, ""),
        labels.get(semconv.LABEL_PARAMETER, ""),
    )


class Fleet:
    """The settled values of all processes over time."""

    def __init__(self, settled: Iterable[Settled]) -> None:
        self._places: dict[Place, dict[Target, list[Settled]]] = {}
        for one in settled:
            if not one.since:  # written to a file for good, and no longer so
                continue
            self._places.setdefault(one.place, {}).setdefault(one.target, []).append(one)
        for processes in self._places.values():
            for target, states in processes.items():
                processes[target] = _last_words(states)

    def flips(self) -> list[Flip]:
        """Every time that the value of most processes gave way to another that then most had.

        A time in which most processes vary the parameter ends what was before: there is no old value.
        """
        found = []
        for place, processes in self._places.items():
            if len({one.value for states in processes.values() for one in states} - {semconv.VARIES}) > 1:
                found += _flips(place, processes)
        return found

    def withdraws(self, place: Place, target: Target, first_seen: float, *, is_shift: bool) -> bool:
        """Whether a process that reported a change has found since that its requests varied already, or that
        they have done so from then on, and are doing so still; which is no contradiction where only shares
        shifted."""
        states: Sequence[Settled] = self._places.get(place, {}).get(target, ())
        state = next((one for one in reversed(states) if one.since <= first_seen), None)
        if state is None or state.value != semconv.VARIES or state.until < first_seen:
            return False
        return state.since < first_seen or (not is_shift and state is states[-1])

    def contradicts(
        self, place: Place, old: str, new: str, movers: set[Target], reporters: set[Target], first_seen: float
    ) -> bool:
        """Whether a change is but the variation that other processes have too.

        Args:
            movers: processes that report the change.
            reporters: processes that report any change of the parameter in that time.
        """
        start, end = first_seen - ROLLOUT_SECONDS, first_seen + ROLLOUT_SECONDS
        others = [
            values
            for target, states in self._places.get(place, {}).items()
            if target not in movers
            and (values := {one.value for one in states if one.until >= start and one.since <= end})
        ]
        if not others:
            return False
        if len(movers) >= _UNANIMOUS * len(reporters):
            several = len(movers) >= _SEVERAL and len(movers) >= _PART * (len(movers) + len(others))
            if several or len(movers) > len(others):
                return False
        return sum(values <= {old, new} for values in others) < PREVAILS * len(others)


def _last_words(states: Sequence[Settled]) -> list[Settled]:
    """What a process says of each time in the end, oldest first: once it has seen more requests, it may say
    that they have varied since long ago."""
    words: list[Settled] = []
    for one in sorted(states, key=lambda one: (one.until, one.since)):
        while words and words[-1].since >= one.since:
            words.pop()
        words.append(one)
    return words


def _state(states: Sequence[Settled], at: float) -> Settled:
    """The newest by a time at which there was one."""
    return next((one for one in reversed(states) if one.since <= at), states[0])


def _flips(place: Place, processes: Mapping[Target, Sequence[Settled]]) -> list[Flip]:
    found: list[Flip] = []
    begins = {one.since for states in processes.values() for one in states}
    times = sorted(begins | _departures(processes))
    prevailing, begun, before = "", times[0], 0
    for index, at in enumerate(times):
        value, number = _prevailing(processes, at)
        if value == semconv.VARIES:
            prevailing = ""
        elif value and value != prevailing:
            if prevailing and at - begun >= LASTING_SECONDS:
                end = _complete(processes, value, before, times[index:])
                flip = _flip(place, processes, prevailing, value, begun, end)
                if (at in begins and flip.targets) or _is_taken_up(flip, number, begun):
                    found.append(flip)
            prevailing, begun = value, at
        if value == prevailing:
            before = number
    return found


def _departures(processes: Mapping[Target, Sequence[Settled]]) -> set[float]:
    """Times at which processes have been gone for certain, while others went on: two fleets stand side by
    side until the old one is taken down."""
    ends = [states[-1].until for states in processes.values()]
    newest = max(ends)
    return {gone for end in ends if (gone := end + LASTING_SECONDS) < newest}


def _is_taken_up(flip: Flip, number: int, begun: float) -> bool:
    """Whether most of those that are left came with the value later than the old one prevailed: a fleet of
    two parts, of which one is made smaller, changes nothing."""
    return 2 * len(flip.targets) >= number and flip.first_seen - begun >= LASTING_SECONDS


def _shares(processes: Mapping[Target, Sequence[Settled]], at: float) -> tuple[Counter[str], int]:
    values: Counter[str] = Counter()
    for states in processes.values():
        if states[0].since <= at:
            state = _state(states, at)
            if state.until >= at or state is not states[-1]:
                values[state.value] += 1
    return values, values.total()


def _prevailing(processes: Mapping[Target, Sequence[Settled]], at: float) -> tuple[str, int]:
    """The value of most processes, and of how many; empty while there is none."""
    values, total = _shares(processes, at)
    value, number = values.most_common(1)[0] if values else ("", 0)
    return (value, number) if total and number >= PREVAILS * total else ("", 0)


def _complete(
    processes: Mapping[Target, Sequence[Settled]], value: str, before: int, times: Sequence[float]
) -> float:
    """When nearly all processes had the value, as many as had the one before: where all are replaced at once,
    the first to come is all there is. Where they never are so many, when nearly all had it; how far the
    rollout came where that is later than it lasts."""
    nearly_all = []
    for at in times:
        if at > times[0] + ROLLOUT_SECONDS:
            break
        values, total = _shares(processes, at)
        if values[value] >= COMPLETE * total:
            if values[value] >= COMPLETE * before:
                return at
            nearly_all.append(at)
    return nearly_all[0] if nearly_all else times[0]


def _flip(
    place: Place,
    processes: Mapping[Target, Sequence[Settled]],
    old: str,
    new: str,
    begun: float,
    end: float,
) -> Flip:
    taken = {
        target: min(since)
        for target, states in processes.items()
        if (since := [one.since for one in states if one.value == new and begun < one.since <= end])
    }
    times = taken.values()
    return Flip(place, old, new, min(times, default=begun), max(times, default=begun), frozenset(taken))
