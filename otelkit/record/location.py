"""Finds the user's code that asked for a generation."""

from __future__ import annotations

import sys
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final

_SKIPPED_PACKAGES: Final = frozenset(
    {
        "otelkit", "wrapt", "opentelemetry", "openinference", "openlit", "traceloop", "contextlib",
        "functools", "asyncio", "concurrent", "threading", "tenacity", "backoff",
    }
)  # fmt: skip
"""Between the user's code and the provider's client: wrappers, retries, event loops. The client itself is
skipped too."""
_MAX_DEPTH: Final = 60


@lru_cache(maxsize=1024)
def _describe(code: CodeType) -> str:
    return f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{code.co_qualname}"


def caller(skip: str) -> str:
    """``file.py:function`` of the innermost frame that belongs to neither ``skip`` nor a wrapper; empty if
    there is none.

    Args:
        skip: top-level package of the provider's client.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package != skip and package not in _SKIPPED_PACKAGES:
            return _describe(frame.f_code)
        frame = frame.f_back
    return ""
