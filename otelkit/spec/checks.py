"""What must hold between several keys of a spec."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otelkit.spec.durations import Duration
from otelkit.spec.model import Spec

_SAMPLES_FOR_A_RATE: Final = 2
Problem = tuple[tuple[str | int, ...], str]


def cross_checks(spec: Spec) -> Iterator[Problem]:
    """Yield (place, what is wrong and what to do) for each contradiction."""
    first: dict[str, int] = {}
    for index, service in enumerate(spec.services):
        if service.name in first:
            yield (
                ("services", index, "name"),
                f"{service.name!r} is also the name of service {first[service.name]}; give each its own",
            )
        first.setdefault(service.name, index)
    for place, window in _windows(spec):
        if window.seconds < _SAMPLES_FOR_A_RATE * spec.scrape_interval.seconds:
            yield (
                place,
                f"{window} holds fewer than two scrapes at scrape_interval {spec.scrape_interval}; "
                f"use {Duration.of(4 * spec.scrape_interval.seconds)} or more, or scrape more often",
            )


def _windows(spec: Spec) -> Iterator[tuple[tuple[str | int, ...], Duration]]:
    yield ("base_window",), spec.base_window
    for index, window in enumerate(spec.windows):
        yield ("windows", index), window
    for number, service in enumerate(spec.services):
        if service.base_window:
            yield ("services", number, "base_window"), service.base_window
        for index, window in enumerate(service.windows or ()):
            yield ("services", number, "windows", index), window
