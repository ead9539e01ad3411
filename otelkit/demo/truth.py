"""What the script really did, written down for comparison once the run is over; no stage of otelkit reads
it."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otelkit.demo.drive import Driven
from otelkit.demo.load import LoadReport, Sent
from otelkit.demo.script import Script


def write(path: Path, script: Script, driven: Driven, held: LoadReport, *, seed: int, rate: float) -> None:
    """Write the changes as they were made, the surges, and the latencies that callers saw between them."""
    document = {
        "seed": seed,
        "rate": rate,
        "began_at": driven.began_at,
        "ended_at": driven.ended_at,
        "load": {
            "planned": held.planned,
            "sent": held.sent,
            "late": held.late,
            "failed": held.errors,
            "seconds": held.seconds,
        },
        "changes": [
            {
                "parameter": change.scripted.parameter,
                "old": change.old,
                "new": change.scripted.value,
                "at": change.applied_at,
                "moves_p99": change.scripted.moves.value,
            }
            for change in driven.applied
        ],
        "surges": [
            {
                "start": driven.began_at + surge.start,
                "end": driven.began_at + surge.end,
                "factor": surge.factor,
            }
            for surge in script.surges
        ],
        "seen_by_callers": _phases(script, driven),
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _phases(script: Script, driven: Driven) -> list[dict[str, Any]]:
    """Exact latencies between any two steps of the script, by the time a request was sent."""
    steps = {0.0, *(c.applied_at - driven.began_at for c in driven.applied)}
    steps |= {edge for surge in script.surges for edge in (surge.start, surge.end)}
    steps.add(script.seconds)
    # A surge and the change made at its start are milliseconds apart.
    edges = [
        step
        for step, before in zip(sorted(steps), [-1.0, *sorted(steps)], strict=False)
        if step - before >= 1
    ]
    phases = []
    for begin, end in itertools.pairwise(edges):
        answered = [one for one in driven.sent if begin <= one.started < end and not one.error]
        latencies = sorted(one.ended - one.started for one in answered)
        phases.append(
            {
                "from": driven.began_at + begin,
                "to": driven.began_at + end,
                "answers": len(latencies),
                "p50_seconds": _quantile(latencies, 0.5),
                "p99_seconds": _quantile(latencies, 0.99),
                "mean_chunks": _mean(answered),
            }
        )
    return phases


def _quantile(ascending: Sequence[float], quantile: float) -> float | None:
    if not ascending:
        return None
    return ascending[min(len(ascending) - 1, math.ceil(quantile * len(ascending)) - 1)]


def _mean(answered: Sequence[Sent]) -> float | None:
    return sum(one.chunks for one in answered) / len(answered) if answered else None
