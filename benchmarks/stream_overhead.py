"""CPU time that instrumentation adds to each streamed chunk of the openai client, for otelkit and its peers.

    python benchmarks/stream_overhead.py [--peers openllmetry ...] [--traces-only] [--restarts 4]
                                         [--chunks 100 400]

The client reads the same chat completions from a mocked transport, with instrumentation and without, in one
process per way: two streams at once, ten chunks of the one and ten of the other in turn, so that what else
runs on the machine slows both alike, and each turn at another depth of the interpreter's stack (see
``stream_ways.DEPTHS``). Two processes would not do: they are never laid out alike, which makes the client
alone differ by more than what is looked for. All are kept on one processor. What is added per chunk has two
parts: the difference of two streams in CPU time of the thread that reads, of each turn the mean of the middle
half of the streams of a process; and the CPU time of all other threads, that of the delivery included, which
is summed from one delivery to the next, as it may be put off from one stream to a later one.

One process still differs from the next by half a microsecond a chunk, so there are several of the ways that
cost little, new ones at each start, and of processes the mean of the middle half counts as well. The
processes of all ways live side by side, and each is measured in turn; then come the further ones of the ways
that cost little, one after the other, to read only.

All do the same work: spans go to a collector in another process, which counts what arrives; metrics are kept
in memory and read by nobody; texts are not recorded. All are delivered after 20,000 chunks with
instrumentation, which take two to four seconds: left alone, the SDK and otelkit deliver every five. otelkit
looks for parameter changes and sends a span for every token besides. Three ways are no peers: ``least`` is
the SDK with one empty span a call; ``stamps`` that with the time of every chunk; ``floor``, in
``stream_floor.py``, the least that gives every token a span. ``--traces-only`` spares peers the metrics, but
not otelkit.

Peers are installed by pip into virtual environments under ``.cache``, each with the newest openai that it
accepts; one that can't be installed, or delivers nothing, is named in ``skipped``.

What a stream costs whatever its length, above all its own span by the SDK, is spread over its chunks, so two
lengths are measured, and the goal counts at each. ``per_further_chunk_ns`` tells what a chunk alone adds.

Progress goes to stderr. The last line on stdout is one JSON object; ``bars`` has the goals and whether they
were met, and as ``floor_value`` what ``floor`` has there: where that is below the goal, nothing can meet it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final

from collector import Collector
from stream_ways import PEERS, REQUIREMENTS, TRACES_ONLY

TIMES_LESS_THAN_BEST_PEER: Final = 15.0
LENGTHS: Final = [100, 400]
"""Chunks of a stream: one with the role, one with the finish reason, and one for each token between them."""
CHUNKS_TO_DELIVERY: Final = 20_000
"""One delivery takes one or two milliseconds, whatever is in it."""
CHUNKS_IN_PAIRS: Final = 4_000
"""In streams that are read beside one without instrumentation."""
CHUNKS_TO_WARM_UP: Final = 1_000
OURS: Final = {"otelkit": 4, "floor": 4, "least": 2, "stamps": 2}
"""Ways that cost little, and how many processes of each there are at each start. Of a peer there is one."""
FOLDER: Final = Path(__file__).resolve().parent
CACHE: Final = FOLDER.parent / ".cache" / "stream_overhead"


class Unusable(Exception):  # noqa: N818 - it is no error of the benchmark
    """Why a peer can't be measured."""


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
        self._process = subprocess.Popen(
            [python, str(FOLDER / "stream_ways.py"), way],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.openai = self._answer()
        """Version of the client."""

    def warm_up(self, lengths: Sequence[int]) -> None:
        for chunks in lengths:
            self._ask(max(2, CHUNKS_TO_WARM_UP // chunks), 0, chunks)
        self._ask(0, 0, 0)

    def measure(self, chunks: int, costs: Costs) -> None:
        """Read streams of so many chunks without instrumentation and with it, and deliver what was recorded.

        Raises:
            Unusable: the process ended, or spans are missing.
        """
        before = self._collector.totals()
        pairs, background = self.read(chunks, costs)
        further = max(0, CHUNKS_TO_DELIVERY // chunks - pairs)
        background += self._ask(0, further, chunks)[1]
        streams = pairs + further
        background += self._deliver(before, streams, streams * (chunks - 2))
        costs.background.append(background / (chunks * streams))

    def read(self, chunks: int, costs: Costs) -> tuple[int, int]:
        """Read streams of so many chunks without instrumentation and with it.

        Returns:
            How many streams were read with it, and CPU ns of other threads.
        """
        pairs = max(2, CHUNKS_IN_PAIRS // chunks)
        spent, others = self._ask(pairs, 0, chunks)
        turns = list(zip(*spent, strict=True))
        costs.bare.append(sum(_middle([bare for bare, _ in turn]) for turn in turns) / chunks)
        added = (_middle([instrumented - bare for bare, instrumented in turn]) for turn in turns)
        costs.reading.append(sum(added) / chunks)
        return pairs, others

    def _deliver(self, before: Counter[str], generations: int, tokens: int) -> int:
        """Have everything delivered that was recorded; CPU ns.

        Args:
            before: what had arrived before that was recorded, of which full batches are sent at once.
        """
        (((_, reading),),), others = self._ask(0, 0, 0)
        arrived = self._collector.totals() - before
        steps = tokens if self._way in ("otelkit", "floor") else 0
        if arrived["steps"] != steps or arrived["spans"] - arrived["steps"] < generations:
            raise Unusable(f"of {generations} spans and {steps} for tokens arrived {dict(arrived)}")
        return int(reading) + others

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _ask(self, pairs: int, further: int, chunks: int) -> tuple[list[Any], int]:
        assert self._process.stdin is not None
        print(pairs, further, chunks, file=self._process.stdin, flush=True)
        spent: list[Any]
        others: int
        spent, others = json.loads(self._answer())
        return spent, others

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Unusable(f"its process ended with status {self._process.wait()}; see stderr")
        return line.strip()


@dataclass
class Costs:
    """CPU ns per chunk, of one way and one length of a stream; each of one process."""

    bare: list[float] = field(default_factory=list)
    """Of streams without instrumentation."""
    reading: list[float] = field(default_factory=list)
    """Of the thread that reads, beyond that of the streams without instrumentation."""
    background: list[float] = field(default_factory=list)
    """Of all other threads up to a delivery, and of the delivery."""

    def total(self) -> float:
        return _middle(self.reading) + _middle(self.background)


def _middle(values: Sequence[float]) -> float:
    """Mean of the middle half: hardly less exact than the mean, and deaf to what stands out."""
    left_out = len(values) // 4
    return statistics.fmean(sorted(values)[left_out : len(values) - left_out])


@contextmanager
def _child(python: str, way: str, lengths: list[int], collector: Collector) -> Iterator[Child]:
    child = Child(python, way, collector)
    try:
        child.warm_up(lengths)
        yield child
    finally:
        child.close()


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


def compare(peers: Sequence[str], restarts: int, lengths: list[int]) -> dict[str, Any]:
    """All ways at all lengths of a stream, in turn."""
    skipped: dict[str, str] = {}
    pythons = dict.fromkeys(OURS, sys.executable)
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
                children: dict[str, Child] = {}
                for way in [way for way in pythons if way not in skipped]:
                    print(f"start {restart + 1}/{restarts}: {way}", file=sys.stderr)
                    try:
                        children[way] = stack.enter_context(_child(pythons[way], way, lengths, collector))
                    except Unusable as reason:
                        if way == "otelkit":
                            raise
                        skipped[way] = str(reason)
                        continue
                    versions[way] = children[way].openai
                print(f"start {restart + 1}/{restarts}: reading", file=sys.stderr)
                for chunks, (way, child) in product(lengths, children.items()):
                    child.measure(chunks, found[way, chunks])
            for number in range(1, max(OURS.values())):
                print(f"start {restart + 1}/{restarts}: further processes {number}", file=sys.stderr)
                for way in [way for way, processes in OURS.items() if processes > number]:
                    with _child(pythons[way], way, lengths, collector) as child:
                        for chunks in lengths:
                            child.read(chunks, found[way, chunks])
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
    """In CPU ns per chunk; the quartiles are of processes' reading threads."""
    row: dict[str, Any] = {}
    for chunks, costs in found.items():
        several = len(costs.reading) > 1
        quartiles = statistics.quantiles(costs.reading, n=4) if several else costs.reading
        row[f"{chunks}_chunks"] = {
            "bare_ns": round(_middle(costs.bare)),
            "added_per_chunk_ns": round(costs.total()),
            "of_this_background_ns": round(_middle(costs.background)),
            "quartiles_ns": [round(quartiles[0]), round(quartiles[-1])],
            "processes": len(costs.reading),
        }
    short, long = min(found), max(found)
    if short < long:
        further = (found[long].total() * long - found[short].total() * short) / (long - short)
        row["per_further_chunk_ns"] = round(further)
    return row


def _bars(table: dict[str, dict[str, Any]], chunks: int) -> list[dict[str, Any]]:
    added = {way: row[f"{chunks}_chunks"]["added_per_chunk_ns"] for way, row in table.items()}
    ours, floor = added["otelkit"], added["floor"]
    added = {way: cost for way, cost in added.items() if way not in OURS}
    if not added:
        return []
    best = min(added, key=lambda way: added[way])
    # Nothing measurable counts as one nanosecond.
    times = added[best] / max(1, ours)
    return [
        {
            "name": f"times less CPU than the best peer ({best}), {chunks} chunks",
            "value": round(times, 2),
            "floor_value": round(added[best] / max(1, floor), 2),
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
    parser.add_argument("--restarts", type=int, default=4, help="times that all processes are started")
    parser.add_argument(
        "--chunks", type=int, nargs="+", default=LENGTHS, help="lengths of a stream, 3 or more"
    )
    arguments = parser.parse_args()
    if arguments.traces_only:
        os.environ[TRACES_ONLY] = "1"
    print(json.dumps(compare(arguments.peers, arguments.restarts, arguments.chunks)))


if __name__ == "__main__":
    main()
