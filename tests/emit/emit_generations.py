"""Finished generations for tests of emission."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from otelkit.model import CallSite, Generation, SpanIdentity

SITE = CallSite("chat", "openai", "chat", "some-model")
START = 1_764_000_000_000_000_000


_numbers = itertools.count(1)


def identity(sampled: bool = True, trace_state: str = "") -> SpanIdentity:
    """Another trace and span at each call, spread like random ones, the same in every run."""
    digest = hashlib.sha256(str(next(_numbers)).encode()).digest()
    return SpanIdentity(
        int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big"), sampled, trace_state
    )


def generation(steps: int = 10, gap_ns: int = 10_000_000, start_ns: int = START, **other: Any) -> Generation:
    """A streamed generation whose steps are ``gap_ns`` apart."""
    times = [start_ns + (i + 1) * gap_ns for i in range(steps)]
    fields: dict[str, Any] = {
        "call_site": SITE,
        "start_ns": start_ns,
        "end_ns": times[-1] if times else start_ns + gap_ns,
        "step_ns": times,
        "streamed": True,
        "output_tokens": steps,
        "span": identity(),
    }
    return Generation(**{**fields, **other})
