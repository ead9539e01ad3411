"""Keeps faults of telemetry away from the user's program, and makes them loud in tests.

In production a fault is counted and logged once per kind at WARNING; under pytest it is raised, so that no
test passes over it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_log = logging.getLogger("otelkit")
faults: Final[Counter[str]] = Counter()
"""Faults swallowed so far, by ``where: kind``."""


def is_testing() -> bool:
    """Whether a test of pytest is running now."""
    return "PYTEST_CURRENT_TEST" in os.environ


def fault(where: str) -> None:
    """Call in an ``except Exception`` block: raises the fault again under pytest, else counts it.

    Args:
        where: what was being done, for the log; never content of the request.
    """
    if is_testing():
        raise
    error = sys.exception()
    key = f"{where}: {type(error).__name__}"
    faults[key] += 1
    if faults[key] == 1:
        _log.warning(
            "otelkit could not %s; the program goes on, further faults of this kind are only counted", where
        )
        _log.debug("fault while trying to %s", where, exc_info=error)


@contextmanager
def guarded(where: str) -> Iterator[None]:
    """``with guarded("record a change"): ...``; for code off the request's path."""
    try:
        yield
    except Exception:
        fault(where)
