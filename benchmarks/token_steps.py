"""CPU time per token step: otelkit's whole pipeline, the OpenTelemetry SDK, and fastotel where it is
installed.

    python benchmarks/token_steps.py [--rounds 5] [--tokens 256 1024]

Every way records the same streams: one span for the generation, one child span for each token with its index,
all of them delivered over OTLP/HTTP to a collector in another process, which counts them. otelkit does all it
does in a service besides: metrics with exemplars, and the search for parameter changes. Each run is a process
of its own; rounds alternate between the ways, and the result is the median over rounds.

What a generation costs whatever its length, above all its own span by the SDK, is spread over its tokens, so
short ones cost more per token: two lengths are measured.

``request`` is CPU time of the thread that reads the stream, beyond reading it alone; ``background`` is that
of all other threads. The floor is what any per-token record costs: ``perf_counter_ns`` and ``list.append``.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from collector import Collector

TIMES_LESS_THAN_SDK = 60.0
TIMES_LESS_THAN_FASTOTEL = 20.0
TIMES_THE_FLOOR = 3.0
LENGTHS = (256, 1024)
STEPS = {"bare": 300_000, "floor": 300_000, "otelkit": 150_000, "sdk": 12_000, "fastotel": 12_000}
"""Measured in one run."""
WARM_UP = 8

Stream = list[str]
Record = Callable[[Stream], None]
Finish = Callable[[], None]


def bare() -> tuple[Record, Finish]:
    def record(stream: Stream) -> None:
        for _ in stream:
            pass

    return record, lambda: None


def floor() -> tuple[Record, Finish]:
    def record(stream: Stream) -> None:
        stamp, now = [].append, time.perf_counter_ns
        for _ in stream:
            stamp(now())

    return record, lambda: None


def otelkit() -> tuple[Record, Finish]:
    import otelkit as package

    handle = package.instrument()
    assert handle is not None

    def record(stream: Stream) -> None:
        for _ in package.watch(
            iter(stream),
            model="some-model",
            provider="openai",
            operation="chat",
            parameters={"max_tokens": 256},
        ):
            pass

    def finish() -> None:
        assert handle.flush(60)

    return record, finish


def _with_processor(processor: Any) -> tuple[Record, Finish]:
    """A span for each token as any user of the SDK would write it."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("benchmark")

    def record(stream: Stream) -> None:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "some-model"}
        generation = tracer.start_span("chat some-model", kind=trace.SpanKind.CLIENT, attributes=attributes)
        context = trace.set_span_in_context(generation)
        for index, _ in enumerate(stream):
            tracer.start_span("token_step", context, attributes={"otelkit.step.index": index}).end()
        generation.end()

    def finish() -> None:
        assert provider.force_flush(60_000)

    return record, finish


def sdk() -> tuple[Record, Finish]:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return _with_processor(BatchSpanProcessor(OTLPSpanExporter()))


def fastotel() -> tuple[Record, Finish]:
    from fastotel import OTLPSpanProcessor

    return _with_processor(OTLPSpanProcessor())


WAYS = {"bare": bare, "floor": floor, "otelkit": otelkit, "sdk": sdk, "fastotel": fastotel}


def measure(way: str, tokens: int) -> dict[str, float]:
    """In a process of its own: CPU nanoseconds per token of the reading thread, and of all threads."""
    stream = [f"token {number} " for number in range(tokens)]
    record, finish = WAYS[way]()
    for _ in range(WARM_UP):
        record(stream)
    finish()
    generations = max(1, STEPS[way] // tokens)
    thread, process = time.thread_time_ns(), time.process_time_ns()
    for _ in range(generations):
        record(stream)
    in_thread = time.thread_time_ns() - thread
    finish()
    in_process = time.process_time_ns() - process
    steps = generations * tokens
    return {"thread": in_thread / steps, "process": in_process / steps, "steps": steps + WARM_UP * tokens}


def run(way: str, tokens: int, collector: Collector) -> dict[str, float]:
    """One run in a child process, with a check that every span has arrived."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OTELKIT_"))}
    environment = {
        **clean,
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_LOGS_EXPORTER": "none",
        # Streams are read faster here than any model writes them. Losing spans is cheap, so nobody may.
        "OTEL_BSP_MAX_QUEUE_SIZE": "1000000",
        "OTELKIT_TOKEN_SPANS_PER_SECOND": "inf",
        "OTELKIT_EXPORT_BUFFER_BYTES": str(1 << 30),
    }
    before = collector.totals()
    command = [sys.executable, str(Path(__file__)), "--way", way, "--tokens", str(tokens)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    arrived = collector.totals()["steps"] - before["steps"]
    if way not in ("bare", "floor") and arrived != result["steps"]:
        raise SystemExit(f"{way}: {result['steps']:.0f} token spans were made, {arrived} arrived")
    return result


def compare(rounds: int, lengths: Sequence[int]) -> dict[str, Any]:
    """All ways at all lengths of a generation, ``rounds`` times in turn."""
    ways = [way for way in WAYS if way != "fastotel" or importlib.util.find_spec("fastotel")]
    results: dict[tuple[int, str], list[dict[str, float]]] = {}
    with Collector() as collector:
        for number in range(rounds):
            for tokens in lengths:
                for way in ways:
                    results.setdefault((tokens, way), []).append(run(way, tokens, collector))
                    print(f"round {number + 1}/{rounds}: {way}, {tokens} tokens", file=sys.stderr)
    tables, bars = {}, []
    for tokens in lengths:
        table = _table({way: results[tokens, way] for way in ways})
        tables[tokens] = table
        bars += _bars(table, tokens)
        for way, costs in table.items():
            text = "  ".join(f"{name} {value:9.0f}" for name, value in costs.items())
            print(f"{tokens:5} tokens  {way:10} {text}", file=sys.stderr)
    return {"rounds": rounds, "by_tokens_per_generation": tables, "bars": bars}


def _table(results: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    """Median over rounds, in CPU nanoseconds per token step, by way."""
    read = statistics.median(result["thread"] for result in results["bare"])
    return {
        way: {
            "request_ns": statistics.median(result["thread"] - read for result in found),
            "background_ns": statistics.median(result["process"] - result["thread"] for result in found),
            "total_ns": statistics.median(result["process"] - read for result in found),
        }
        for way, found in results.items()
        if way != "bare"
    }


def _bars(table: dict[str, dict[str, float]], tokens: int) -> list[dict[str, Any]]:
    ours, floor_ns = table["otelkit"], table["floor"]["request_ns"]
    sdk_ratio = table["sdk"]["total_ns"] / ours["total_ns"]
    bars = [
        _bar(f"times less CPU than the SDK, {tokens} tokens", sdk_ratio, at_least=TIMES_LESS_THAN_SDK),
        _bar(
            f"request thread in times the floor, {tokens} tokens",
            ours["request_ns"] / floor_ns,
            at_most=TIMES_THE_FLOOR,
        ),
    ]
    if "fastotel" in table:
        ratio = table["fastotel"]["total_ns"] / ours["total_ns"]
        bars.append(
            _bar(f"times less CPU than fastotel, {tokens} tokens", ratio, at_least=TIMES_LESS_THAN_FASTOTEL)
        )
    return bars


def _bar(
    name: str, value: float, *, at_least: float | None = None, at_most: float | None = None
) -> dict[str, Any]:
    met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    goal = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
    return {"name": name, "value": round(value, 2), "goal": goal, "ok": met}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--tokens",
        type=int,
        nargs="+",
        default=LENGTHS,
        help="token steps per generation, one or more lengths",
    )
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.tokens[0])))
    else:
        print(json.dumps(compare(arguments.rounds, arguments.tokens)))


if __name__ == "__main__":
    main()
