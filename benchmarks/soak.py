"""A million token steps through otelkit's whole pipeline, with the collector down in the middle third.

    python benchmarks/soak.py [--steps 1000000] [--tokens 256]

Shows that memory stays flat, and that no span is lost without being counted: spans written must equal spans
delivered plus spans dropped, and the collector must have exactly the delivered ones. A warm-up with an outage
of its own comes first, so that buffers have had their full size.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from collector import Collector

GROWTH_BYTES = 1_000_000
WARM_UP_SHARE = 0.3
PENDING = 48
SAMPLES = 10
SETTLE_SECONDS = 120.0
BUFFER_BYTES = 4 * 1024 * 1024


def resident_bytes() -> int:
    """Memory in use: garbage is collected first, and what the allocator holds in reserve is given back."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Soak:
    """Streams through otelkit, against a collector that can be taken down."""

    def __init__(self, collector: Collector, tokens: int) -> None:
        import otelkit

        self._otelkit = otelkit
        handle = otelkit.instrument()
        assert handle is not None
        self._handle = handle
        self._collector = collector
        self._stream = [f"token {number} " for number in range(tokens)]

    def thirds(self, steps: int) -> dict[str, float]:
        """Record ``steps`` steps while the collector is up, down, and up again.

        Returns:
            Median of resident bytes in each third.
        """
        medians = {}
        for phase in ("up", "down", "up again"):
            if phase == "down":
                self._collector.stop()
            elif phase == "up again":
                self._collector.start()
            samples = []
            for _ in range(SAMPLES):
                self._record(steps // 3 // SAMPLES)
                if phase != "down":
                    self._flush()
                samples.append(resident_bytes())
            medians[phase] = statistics.median(samples)
            print(f"collector {phase}: {medians[phase] / 1e6:.1f} MB resident", file=sys.stderr)
        return medians

    def _record(self, steps: int) -> None:
        for number in range(steps // len(self._stream)):
            watched = self._otelkit.watch(
                iter(self._stream), model="some-model", parameters={"seed": number % 7}
            )
            for _ in watched:
                pass
            while self._handle.sink.pending() > PENDING:  # as fast as it goes, no faster
                time.sleep(0.001)

    def _flush(self) -> None:
        if not self._handle.flush(SETTLE_SECONDS):
            raise SystemExit("spans were still waiting after two minutes with a running collector")

    def numbers(self) -> dict[str, float]:
        """otelkit's own counters, dropped spans by reason."""
        from prometheus_client import REGISTRY

        found: dict[str, float] = {}
        for family in REGISTRY.collect():
            for sample in family.samples:
                if sample.name.startswith("otelkit_spans_") and sample.name.endswith("_total"):
                    name = sample.name.removeprefix("otelkit_spans_").removesuffix("_total")
                    reason = sample.labels.get("reason")
                    found[f"{name}: {reason}" if reason else name] = sample.value
        return found


def soak(steps: int, tokens: int) -> dict[str, Any]:
    with Collector() as collector:
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_LOGS_EXPORTER": "none",
            "OTELKIT_TOKEN_SPANS_PER_SECOND": "inf",
            "OTELKIT_EXPORT_BUFFER_BYTES": str(BUFFER_BYTES),
        }
        run = Soak(collector, tokens)
        print("warm-up", file=sys.stderr)
        warm = run.thirds(int(steps * WARM_UP_SHARE))
        began = time.monotonic()
        thirds = run.thirds(steps)
        seconds = time.monotonic() - began
        growth = thirds["up again"] - warm["up again"]
        numbers = run.numbers()
        taken = collector.totals()["spans"]
    dropped = sum(value for name, value in numbers.items() if name.startswith("dropped"))
    missing = numbers["written"] - numbers["delivered"] - dropped
    return {
        "steps": steps,
        "seconds": round(seconds, 1),
        "resident_bytes": {"warm-up": warm, "run": thirds},
        "spans": {**numbers, "in the collector": taken},
        "bars": [
            {
                "name": "growth of memory, bytes",
                "value": growth,
                "goal": f"<= {GROWTH_BYTES}",
                "ok": growth <= GROWTH_BYTES,
            },
            {
                "name": "spans neither delivered nor dropped",
                "value": missing,
                "goal": "<= 0",
                "ok": missing == 0,
            },
            {
                "name": "spans delivered that the collector has not, or has twice",
                "value": abs(numbers["delivered"] - taken),
                "goal": "<= 0",
                "ok": numbers["delivered"] == taken,
            },
            {"name": "spans dropped in the outage", "value": dropped, "goal": ">= 1", "ok": dropped >= 1},
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--tokens", type=int, default=256, help="token steps per generation")
    arguments = parser.parse_args()
    print(json.dumps(soak(arguments.steps, arguments.tokens)))


if __name__ == "__main__":
    main()
