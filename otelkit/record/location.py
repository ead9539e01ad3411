"""Finds the user's code that asked for a generation."""

from __future__ import annotations

import sys
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
_MAX_KNOWN: Final = 4096


class _Known(dict[int, tuple[CodeType, str]]):
    """By identity of a code object, which is kept beside it: what to call it; empty for one that is passed
    over. To ask for the name of each frame's module would take several times as long."""


_known: Final[dict[str, _Known]] = {}
"""By package that is skipped."""


def caller(skip: str, depth: int = 2) -> str:
    """``file.py:function`` of the innermost frame that belongs to neither ``skip`` nor a wrapper; empty if
    there is none.

    Args:
        skip: top-level package of the provider's client.
        depth: how many functions are surely passed over: this one, the adapter's that asks, and those that it
            knows of.
    """
    known = _known.get(skip) or _known.setdefault(skip, _Known())
    frame: FrameType | None = sys._getframe(depth)
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        code = frame.f_code
        found = known.get(id(code))
        if found is None:
            found = _look_at(known, skip, frame)
        if found[1]:
            return found[1]
        frame = frame.f_back
    return ""


def _look_at(known: _Known, skip: str, frame: FrameType) -> tuple[CodeType, str]:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    code = frame.f_code
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    name = ""
    if package != skip and package not in _SKIPPED_PACKAGES:
        name = f"{code.co_filename.replace(chr(92), '/').rpartition('/')[2]}:{code.co_qualname}"
    found = known[id(code)] = code, name
    return found
