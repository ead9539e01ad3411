"""CPU time per token step: otelkit's whole pipeline, the OpenTelemetry SDK, and fastotel where it is
installed.

    python benchmarks/token_steps.py [--rounds 5] [--tokens conversation mooncake 256 1024] [--pause 2]

Every way records the same streams: one span for the generation, one child span for each token with its index,
all of them delivered over OTLP/HTTP to a collector in another process, which counts them. otelkit does all it
does in a service besides: metrics with exemplars, and the search for parameter changes. Each run is a process
of its own; rounds alternate between the ways, and the result is the median over rounds.

What a generation costs whatever its length, above all its own span by the SDK, is spread over its tokens, so
short ones cost more per token. Which lengths count is therefore taken from traces of real services: the
middles of the deciles of the output lengths of Azure's conversations (2023, 19,366 requests, mean 211 tokens)
and of Mooncake's (12,031 requests, mean 343). The lengths of a mix are read in turn. The goals count there,
and at two single lengths besides.

``request`` is CPU time of the thread that reads the stream, beyond reading it alone; ``background`` is that
of all other threads. The floor is what any per-token record costs: ``perf_counter_ns`` and ``list.append``.
``least`` is that floor with one span for each generation, with the same attributes, begun and ended through
the SDK's tracer and exported by the SDK, and none for its tokens.

Streams are read one after the other without pause, so that what is done in the background waits for longer
than in a service, and spans are held by the thousand. ``--pause`` has the reading thread sleep after each
5 ms, so many times as long as it has worked: the background then keeps up.

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
from typing import Any

from bars import bar
from collector import Collector

TIMES_LESS_THAN_SDK = 60.0
TIMES_LESS_THAN_FASTOTEL = 20.0
TIMES_THE_FLOOR = 3.0
MIXES = {
    "conversation": (41, 67, 85, 96, 113, 151, 217, 395, 411, 451),
    "mooncake": (10, 46, 156, 256, 322, 375, 423, 472, 543, 698),
}
"""Tokens of a generation: percentiles 5, 15 ... 95 of AzureLLMInferenceTrace_conv.csv (Azure Public Dataset,
CC-BY-4.0) and of Mooncake's conversation_trace.jsonl (FAST25 release, Apache-2.0)."""
LENGTHS = ("conversation", "mooncake", "256", "1024")
STEPS = {
    "bare": 300_000,
    "floor": 300_000,
    "least": 150_000,
    "otelkit": 150_000,
    "sdk": 12_000,
    "fastotel": 12_000,
}
"""Measured in one run, at least."""
WARM_UP = 10
BETWEEN_PAUSES = 0.005
"""Seconds."""

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


def least() -> tuple[Record, Finish]:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("benchmark")

    def record(stream: Stream) -> None:
        begin: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "some-model",
            "gen_ai.request.max_tokens": 256,
            "otelkit.parameters.fingerprint": "0123456789abcdef",
            "gen_ai.request.stream": True,
        }
        generation = tracer.start_span("chat some-model", kind=trace.SpanKind.CLIENT, attributes=begin)
        steps: list[int] = []
        stamp, now = steps.append, time.perf_counter_ns
        for _ in stream:
            stamp(now())
        end: dict[str, Any] = {
            "otelkit.step.count": len(steps),
            "gen_ai.response.time_to_first_chunk": (steps[0] - steps[-1]) / 1e9,
            "otelkit.time_per_output_token": (steps[-1] - steps[0]) / 1e9,
            "otelkit.outcome": "completed",
            "otelkit.repeated_token_share": 0.0,
        }
        generation.set_attributes(end)
        generation.end()

    def finish() -> None:
        assert provider.force_flush(60_000)

    return record, finish


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


WAYS = {"bare": bare, "floor": floor, "least": least, "otelkit": otelkit, "sdk": sdk, "fastotel": fastotel}


def measure(way: str, length: str, pause: float) -> dict[str, float]:
    """In a process of its own: CPU nanoseconds per token of the reading thread, and of all threads."""
    mix = MIXES.get(length) or (int(length),)
    streams = [[f"token {number} " for number in range(tokens)] for tokens in mix]
    record, finish = WAYS[way]()
    warm_up = WARM_UP // len(mix)
    for _ in range(warm_up):
        for stream in streams:
            record(stream)
    finish()
    turns = -(-STEPS[way] // sum(mix))
    thread, process, began = time.thread_time_ns(), time.process_time_ns(), time.perf_counter()
    for _ in range(turns):
        for stream in streams:
            record(stream)
            worked = time.perf_counter() - began
            if pause and worked > BETWEEN_PAUSES:
                time.sleep(pause * worked)
                began = time.perf_counter()
    in_thread = time.thread_time_ns() - thread
    finish()
    in_process = time.process_time_ns() - process
    steps = turns * sum(mix)
    return {"thread": in_thread / steps, "process": in_process / steps, "steps": steps + warm_up * sum(mix)}


def run(way: str, length: str, pause: float, collector: Collector) -> dict[str, float]:
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
    command = [sys.executable, __file__, "--way", way, "--tokens", length, "--pause", str(pause)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    arrived = collector.totals()["steps"] - before["steps"]
    if way not in ("bare", "floor", "least") and arrived != result["steps"]:
        raise SystemExit(f"{way}: {result['steps']:.0f} token spans were made, {arrived} arrived")
    return result


def compare(rounds: int, lengths: Sequence[str], pause: float) -> dict[str, Any]:
    """All ways at all lengths of a generation, ``rounds`` times in turn."""
    ways = [way for way in WAYS if way != "fastotel" or importlib.util.find_spec("fastotel")]
    results: dict[tuple[str, str], list[dict[str, float]]] = {}
    with Collector() as collector:
        for number in range(rounds):
            for tokens in lengths:
                for way in ways:
                    results.setdefault((tokens, way), []).append(run(way, tokens, pause, collector))
                    print(f"round {number + 1}/{rounds}: {way}, {tokens}", file=sys.stderr)
    tables, bars = {}, []
    for tokens in lengths:
        table = _table({way: results[tokens, way] for way in ways})
        tables[tokens] = table
        bars += _bars(table, tokens)
        for way, costs in table.items():
            text = "  ".join(f"{name} {value:9.0f}" for name, value in costs.items())
            print(f"{tokens:12} {way:10} {text}", file=sys.stderr)
    return {
        "rounds": rounds,
        "pause": pause,
        "mixes": MIXES,
        "by_tokens_per_generation": tables,
        "bars": bars,
    }


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


def _bars(table: dict[str, dict[str, float]], length: str) -> list[dict[str, Any]]:
    ours, floor_ns = table["otelkit"], table["floor"]["request_ns"]
    sdk_ratio = table["sdk"]["total_ns"] / ours["total_ns"]
    tokens = f"{length} mix" if length in MIXES else f"{length} tokens"
    bars = [
        bar(f"times less CPU than the SDK, {tokens}", sdk_ratio, at_least=TIMES_LESS_THAN_SDK),
        bar(
            f"request thread in times the floor, {tokens}",
            ours["request_ns"] / floor_ns,
            at_most=TIMES_THE_FLOOR,
        ),
    ]
    if "fastotel" in table:
        ratio = table["fastotel"]["total_ns"] / ours["total_ns"]
        bars.append(bar(f"times less CPU than fastotel, {tokens}", ratio, at_least=TIMES_LESS_THAN_FASTOTEL))
    return bars


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--tokens",
        nargs="+",
        default=LENGTHS,
        metavar="LENGTH",
        help="token steps of a generation: numbers, or names of mixes",
    )
    parser.add_argument("--pause", type=float, default=0.0, help="times as long as the reader has worked")
    parser.add_argument("--way", choices=WAYS, help="measure one way in this process")
    arguments = parser.parse_args()
    if arguments.way:
        print(json.dumps(measure(arguments.way, arguments.tokens[0], arguments.pause)))
    else:
        print(json.dumps(compare(arguments.rounds, arguments.tokens, arguments.pause)))


if __name__ == "__main__":
    main()
