"""Requests of one call site, fed to a detector of observed parameter changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otelkit.model import CallSite, ParameterChange
from otelkit.record.observed import ChangeDetector

SITE = CallSite("chat", "openai", "chat", "m", "app.py:reply")
Parameters = dict[str, Any]


def detect(requests: int, parameters: Callable[[int], Parameters]) -> list[tuple[int, ParameterChange]]:
    """Feed requests 0, 1, 2 ... at one a second; returns (request that proved it, change)."""
    detector = ChangeDetector()
    return [
        (number, change)
        for number in range(requests)
        for change in detector.observe(SITE, parameters(number), float(number))
    ]
