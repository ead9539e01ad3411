"""CPU time that instrumentation adds to each streamed chunk of the openai client, for otelkit and its peers.

    python benchmarks/stream_overhead.py [--peers openllmetry ...] [--traces-only] [--restarts 3]
                                         [--rounds 2] [--chunks 100 400]

The client reads the same chat completions from a mocked transport, bare and instrumented, in two processes of
one virtual environment. They take turns every 400 chunks, since the client alone needs fifty times more than
what is looked for, and a busy machine is not equally fast for long. A turn's CPU time (``time.process_time``:
all threads) reaches from the end of the process's turn before; after ten turns all that waits is delivered,
and the CPU time of that counted too. All are kept on one processor. What is added per chunk is the median
difference of two turns, and the median of a delivery spread over its chunks. The processes of all ways live
side by side and every round goes through all of them; after some rounds all are started anew, as two
processes are never laid out alike.

All do the same work: spans go to a collector in another process, which counts what arrives; metrics are kept
in memory and read by nobody; texts are not recorded. otelkit looks for parameter changes and sends a span for
every token besides. ``least`` is no peer: it is the SDK with one empty span a call, and shows what a process
with the SDK costs more than one without it, and how much of a difference can be told apart from nothing at
all. ``--traces-only`` spares peers the metrics, but not otelkit.

Peers are installed by pip into virtual environments under ``.cache``, each with the newest openai that it
accepts; one that can't be installed, or delivers nothing, is named in ``skipped``.

What a stream costs whatever its length, above all its own span by the SDK, is spread over its chunks, so two
lengths are measured, and the goal counts at each. ``per_further_chunk_ns`` tells what a chunk alone adds.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from collector import Collector

TIMES_LESS_THAN_BEST_PEER: Final = 15.0
LENGTHS: Final = [100, 400]
"""Chunks of a stream: one with the role, one with the finish reason, and one for each token between them."""
CHUNKS_IN_TURN: Final = 400
TURNS_TO_DELIVERY: Final = 10
DELIVERIES_IN_ROUND: Final = {"otelkit": 4, "least": 4}
"""One for others: a small difference needs more turns to be seen."""
WARM_UP_TURNS: Final = 5
FOLDER: Final = Path(__file__).resolve().parent
TRACES_ONLY: Final = "BENCHMARK_TRACES_ONLY"
"""Environment variable of the children: peers get no meter provider."""
CACHE: Final = FOLDER.parent / ".cache" / "stream_overhead"

Finish = Callable[[], object]


class Unusable(Exception):  # noqa: N818 - it is no error of the benchmark
    """Why a peer can't be measured."""


# --- ways to instrument, each in a process of its own ------------------------------------------------------
def bare() -> Finish:
    return lambda: None


def otelkit() -> Finish:
    import otelkit as package

    handle = package.instrument()
    assert handle is not None
    return lambda: handle.flush(60)


def _sdk() -> Finish:
    """The SDK as a peer's users set it up."""
    from opentelemetry import metrics, trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    if TRACES_ONLY not in os.environ:
        metrics.set_meter_provider(MeterProvider(metric_readers=[InMemoryMetricReader()]))
    return lambda: provider.force_flush(60_000)


def least() -> Finish:
    """The SDK, one span for each call, and a generator that hands the chunks on: less can't be added."""
    from openai.resources.chat.completions import Completions
    from opentelemetry import trace

    finish = _sdk()
    tracer = trace.get_tracer("benchmark")
    create = Completions.create

    def read(stream: Any, span: trace.Span) -> Iterator[Any]:
        yield from stream
        span.end()

    def recorded(*arguments: Any, **parameters: Any) -> Any:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini"}
        span = tracer.start_span("chat gpt-4o-mini", kind=trace.SpanKind.CLIENT, attributes=attributes)
        return read(create(*arguments, **parameters), span)

    Completions.create = recorded  # type: ignore[method-assign, assignment]
    return finish


def openllmetry() -> Finish:
    os.environ["TRACELOOP_TRACE_CONTENT"] = "false"
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    finish = _sdk()
    OpenAIInstrumentor().instrument()
    return finish


def openlit() -> Finish:
    # Its ``init`` would fetch a price list from the network and instrument HTTP clients besides.
    from openlit import OpenlitConfig
    from openlit.instrumentation.openai import OpenAIInstrumentor
    from openlit.otel.metrics import setup_meter

    finish = _sdk()
    OpenlitConfig()
    spared = TRACES_ONLY in os.environ
    if not spared:
        OpenlitConfig.metrics_dict, problem = setup_meter("default", "default", None, None, None)
        assert problem is None, problem
    OpenAIInstrumentor().instrument(disable_metrics=spared, capture_message_content=False)
    return finish


def openinference() -> Finish:
    os.environ |= {"OPENINFERENCE_HIDE_INPUTS": "true", "OPENINFERENCE_HIDE_OUTPUTS": "true"}
    from openinference.instrumentation.openai import OpenAIInstrumentor

    finish = _sdk()
    OpenAIInstrumentor().instrument()
    return finish


def official() -> Finish:
    from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor

    finish = _sdk()
    OpenAIInstrumentor().instrument()
    return finish


WAYS: Final = {
    "bare": bare,
    "otelkit": otelkit,
    "least": least,
    "openllmetry": openllmetry,
    "openlit": openlit,
    "openinference": openinference,
    "official": official,
}
PEERS: Final = {
    "openllmetry": "opentelemetry-instrumentation-openai>=0.62",
    "openlit": "openlit>=1.45",
    "openinference": "openinference-instrumentation-openai>=0.1.66",
    "official": "opentelemetry-instrumentation-genai-openai>=1.3b0",
}
"""Lower bounds keep pip from going back to an old release that knows no newer openai."""
REQUIREMENTS: Final = ("openai", "opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http")


def _events(chunks: int) -> bytes:
    """A chat completion's stream, as the API sends it."""

    def event(delta: dict[str, str], finish: str | None = None) -> str:
        document = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "gpt-4o-mini",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }
        return f"data: {json.dumps(document)}\n\n"

    tokens = [event({"content": f"token {number} "}) for number in range(chunks - 2)]
    begin, end = event({"role": "assistant", "content": ""}), event({}, "stop")
    return "".join([begin, *tokens, end, "data: [DONE]\n\n"]).encode()


def _reader() -> Callable[[bytes], int]:
    """A function that has the client read one stream, and counts its chunks."""
    import openai

    # The client's HTTP library is httpx or httpx2, by its version.
    http = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]
    body = b""

    def answer(request: object) -> Any:
        return http.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    client = openai.OpenAI(
        api_key="none", http_client=openai.DefaultHttpxClient(transport=http.MockTransport(answer))
    )

    def read(events: bytes) -> int:
        nonlocal body
        body = events
        count = 0
        for _ in client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[{"role": "user", "content": "Say something."}],
            temperature=0.7,
            max_tokens=512,
            stream=True,
        ):
            count += 1
        return count

    return read


def serve(way: str) -> None:
    """Read streams, or deliver what was recorded, as told on stdin; answer with the CPU time in ns of this
    process since the last answer."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a peer may print
    if hasattr(os, "sched_setaffinity"):  # two processors are seldom equally fast on a shared machine
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    finish = WAYS[way]()
    read = _reader()
    print(importlib.metadata.version("openai"), file=answers, flush=True)
    bodies: dict[int, bytes] = {}
    last = time.process_time_ns()
    for line in sys.stdin:
        streams, chunks = map(int, line.split())
        if streams:
            events = bodies.setdefault(chunks, _events(chunks))
            counts = {read(events) for _ in range(streams)}
            assert counts == {chunks}, f"{way}: {chunks} chunks were sent, {counts} arrived"
        else:
            finish()
        now = time.process_time_ns()
        print(now - last, file=answers, flush=True)
        last = now


# --- the comparison ----------------------------------------------------------------------------------------
class Child:
    """One way in a process that reads streams when asked."""

    def __init__(self, python: str, way: str, collector: Collector) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL_", "OTELKIT_"))}
        environment = {
            **clean,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_LOGS_EXPORTER": "none",
            # Nothing is delivered before it is asked for: then its CPU time is seen apart.
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
            # Streams are read faster here than any model writes them, and no span may be lost.
            "OTELKIT_TOKEN_SPANS_PER_SECOND": "inf",
            "OTELKIT_EXPORT_BUFFER_BYTES": str(1 << 30),
        }
        self._way = way
        self._collector = collector
        self._generations = self._tokens = 0
        """Recorded since the last delivery."""
        self._process = subprocess.Popen(
            [python, str(Path(__file__)), "--way", way],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.openai = self._answer()
        """Version of the client."""

    def turn(self, chunks: int) -> int:
        """Have ``CHUNKS_IN_TURN`` chunks read, in streams of ``chunks``; CPU ns.

        Raises:
            Unusable: the process ended.
        """
        streams = max(1, CHUNKS_IN_TURN // chunks)
        spent = int(self._ask(streams, chunks))
        self._generations += streams
        self._tokens += streams * (chunks - 2)
        return spent

    def deliver(self) -> int:
        """Have everything delivered that was recorded; CPU ns.

        Raises:
            Unusable: the process ended, or spans are missing.
        """
        before = self._collector.totals()
        spent = int(self._ask(0, 0))
        arrived = self._collector.totals() - before
        generations = 0 if self._way == "bare" else self._generations
        tokens = self._tokens if self._way == "otelkit" else 0
        self._generations = self._tokens = 0
        if arrived["steps"] != tokens or arrived["spans"] - arrived["steps"] < generations:
            raise Unusable(f"of {generations} spans and {tokens} for tokens arrived {dict(arrived)}")
        return spent

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, streams: int, chunks: int) -> str:
        assert self._process.stdin is not None
        print(streams, chunks, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unusable(f"its process ended with status {self._process.wait()}; see stderr")
        return line.strip()


@dataclass
class Costs:
    """CPU ns per chunk, of one way and one length of a stream."""

    bare: list[float] = field(default_factory=list)
    """Of each turn of the bare client."""
    added: list[float] = field(default_factory=list)
    """Of each turn of the instrumented client, beyond that of the bare one next to it."""
    delivery: list[float] = field(default_factory=list)

    def total(self) -> float:
        return statistics.median(self.added) + statistics.median(self.delivery)


@dataclass
class Pair:
    """A way and the bare client in the same virtual environment."""

    bare: Child
    instrumented: Child

    def measure(self, chunks: int, costs: Costs) -> None:
        """Let the two take turns up to a delivery."""
        read = max(1, CHUNKS_IN_TURN // chunks) * chunks
        for number in range(TURNS_TO_DELIVERY):
            children = (self.bare, self.instrumented)
            spent = {child: child.turn(chunks) for child in (children if number % 2 else children[::-1])}
            costs.bare.append(spent[self.bare] / read)
            costs.added.append((spent[self.instrumented] - spent[self.bare]) / read)
        delivery = self.instrumented.deliver() - self.bare.deliver()
        costs.delivery.append(delivery / (read * TURNS_TO_DELIVERY))


@contextmanager
def _pair(python: str, way: str, lengths: list[int], collector: Collector) -> Iterator[Pair]:
    with ExitStack() as stack:
        children = []
        for name in ("bare", way):
            child = Child(python, name, collector)
            stack.callback(child.close)
            for chunks in lengths * WARM_UP_TURNS:
                child.turn(chunks)
            child.deliver()
            children.append(child)
        yield Pair(*children)


def _python(peer: str) -> str:
    """Interpreter of the virtual environment that has ``peer``, made when there is none yet."""
    requirements = (PEERS[peer], *REQUIREMENTS)
    digest = hashlib.sha256(" ".join((sys.version, *requirements)).encode()).hexdigest()[:8]
    folder = CACHE / f"{peer}-{digest}"
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        print(f"installing {peer} into {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        done = subprocess.run([*command, *requirements], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            raise Unusable(f"pip can't install it: {' '.join(errors) or done.stderr[-500:]}")
        complete.touch()
    return str(python)


def compare(peers: Sequence[str], restarts: int, rounds: int, lengths: list[int]) -> dict[str, Any]:
    """All ways at all lengths of a stream, in turn."""
    skipped: dict[str, str] = {}
    pythons = {"otelkit": sys.executable, "least": sys.executable}
    for peer in peers:
        try:
            pythons[peer] = _python(peer)
        except Unusable as reason:
            skipped[peer] = str(reason)
    found: defaultdict[tuple[str, int], Costs] = defaultdict(Costs)
    versions: dict[str, str] = {}
    with Collector() as collector:
        for restart in range(restarts):
            with ExitStack() as stack:
                pairs: dict[str, Pair] = {}
                for way in [way for way in pythons if way not in skipped]:
                    print(f"start {restart + 1}/{restarts}: {way}", file=sys.stderr)
                    try:
                        pairs[way] = stack.enter_context(_pair(pythons[way], way, lengths, collector))
                    except Unusable as reason:
                        if way == "otelkit":
                            raise
                        skipped[way] = str(reason)
                        continue
                    versions[way] = pairs[way].instrumented.openai
                for number in range(rounds):
                    print(f"start {restart + 1}/{restarts}, round {number + 1}/{rounds}", file=sys.stderr)
                    for chunks, (way, pair) in product(lengths, pairs.items()):
                        for _ in range(DELIVERIES_IN_ROUND.get(way, 1)):
                            pair.measure(chunks, found[way, chunks])
    ways = [way for way in pythons if way not in skipped]
    table = {way: _row({chunks: found[way, chunks] for chunks in lengths}) for way in ways}
    for way, row in table.items():
        print(f"{way:14} {json.dumps(row)}", file=sys.stderr)
    return {
        "ways": {way: {"openai": versions[way], **row} for way, row in table.items()},
        "skipped": skipped,
        "bars": [bar for chunks in lengths for bar in _bars(table, chunks)],
    }


def _row(found: dict[int, Costs]) -> dict[str, Any]:
    """Medians, in CPU ns per chunk; the quartiles tell how far single turns are apart."""
    row: dict[str, Any] = {}
    for chunks, costs in found.items():
        quartiles = statistics.quantiles(costs.added, n=4)
        row[f"{chunks}_chunks"] = {
            "bare_ns": round(statistics.median(costs.bare)),
            "added_per_chunk_ns": round(costs.total()),
            "of_this_delivery_ns": round(statistics.median(costs.delivery)),
            "quartiles_of_turns_ns": [round(quartiles[0]), round(quartiles[-1])],
            "turns": len(costs.added),
        }
    short, long = min(found), max(found)
    if short < long:
        further = (found[long].total() * long - found[short].total() * short) / (long - short)
        row["per_further_chunk_ns"] = round(further)
    return row


def _bars(table: dict[str, dict[str, Any]], chunks: int) -> list[dict[str, Any]]:
    added = {way: row[f"{chunks}_chunks"]["added_per_chunk_ns"] for way, row in table.items()}
    ours = added.pop("otelkit")
    del added["least"]
    if not added:
        return []
    best = min(added, key=lambda way: added[way])
    # Nothing measurable counts as one nanosecond.
    times = added[best] / max(1, ours)
    return [
        {
            "name": f"times less CPU than the best peer ({best}), {chunks} chunks",
            "value": round(times, 2),
            "goal": f">= {TIMES_LESS_THAN_BEST_PEER:g}",
            "ok": times >= TIMES_LESS_THAN_BEST_PEER,
        }
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", choices=PEERS, nargs="*", default=list(PEERS))
    parser.add_argument("--traces-only", action="store_true", help="let peers keep no metrics")
    parser.add_argument("--restarts", type=int, default=3, help="times that all processes are started")
    parser.add_argument("--rounds", type=int, default=2, help="after each start")
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=LENGTHS, help="lengths of a stream, 3 or more"
    )
    parser.add_argument("--way", choices=WAYS, help="serve one way in this process")
    arguments = parser.parse_args()
    if arguments.way:
        serve(arguments.way)
    else:
        if arguments.traces_only:
            os.environ[TRACES_ONLY] = "1"
        print(json.dumps(compare(arguments.peers, arguments.restarts, arguments.rounds, arguments.chunks)))


if __name__ == "__main__":
    main()
