"""Load from a real trace: when requests come, how long their prompts are, and how long an answer they ask
for.

The generator is open-loop: it sends each request at its planned time and never waits for answers, as real
callers do. A service that falls behind therefore meets queues, and latencies are not flattered by requests
that were held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import itertools
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import httpx

EXTRACT: Final = "azure_llm_conversation_extract.csv"
CONTEXT_SCALE: Final = 512
"""Prompt tokens of the trace per word in ours: what a small model on a small machine carries."""
MOST_PROMPT_WORDS: Final = 8
OUTPUT_SCALE: Final = 3
"""Likewise for the length of the answer that a caller asks for."""
LATE_AFTER_SECONDS: Final = 0.05
"""A request sent later than this after its planned time counts as late: the generator, not the service, was
behind."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of the trace."""

    seconds: float
    context_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class RateSpan:
    """A span of time in which requests come ``factor`` times as often as usual."""

    start: float
    """Seconds from the start of the load."""
    end: float
    factor: float


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request to be sent ``at`` seconds from the start of the load."""

    at: float
    prompt: str
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one planned request, in seconds from the start of the load."""

    planned: float
    started: float
    ended: float
    chunks: int
    error: str = ""
    """Empty when the answer came whole."""


@cache
def trace() -> tuple[TraceRow, ...]:
    """The extract of the Azure trace that is shipped with the demo."""
    text = resources.files("otelkit.demo").joinpath("data", EXTRACT).read_text(encoding="utf-8")
    return tuple(
        TraceRow(float(row["seconds"]), int(row["context_tokens"]), int(row["generated_tokens"]))
        for row in csv.DictReader(text.splitlines())
    )


def plan(
    *,
    rate: float,
    seconds: float,
    seed: int,
    surges: Sequence[RateSpan] = (),
    rows: Sequence[TraceRow] | None = None,
) -> tuple[PlannedRequest, ...]:
    """Requests over ``seconds``, at ``rate`` a second on average outside of surges.

    Gaps between arrivals, prompts and lengths follow the trace from a row that ``seed`` chooses; only the
    unit of time is scaled, so its bursts stay.

    Args:
        rate: requests a second.
        surges: must not overlap.
        rows: the trace to follow, by default the shipped extract.
    """
    rows = rows or trace()
    clock = _LoadClock(rate, seconds, surges)
    start = random.Random(seed).randrange(len(rows))
    # One row more than is needed: n arrivals have n gaps before them, the first of which follows row `start`.
    chosen = [rows[(start + n) % len(rows)] for n in range(round(clock.total) + 1)]
    period = rows[-1].seconds - rows[0].seconds
    gaps = [max(0.0, (b.seconds - a.seconds) % period) for a, b in itertools.pairwise(chosen)]
    # The stretch's own mean gap becomes one unit, so that the rate asked for is the rate planned.
    unit = sum(gaps) / len(gaps) if gaps else 1.0
    planned: list[PlannedRequest] = []
    position = 0.0
    for number, (gap, row) in enumerate(zip(gaps, chosen[1:], strict=False)):
        position += gap / unit
        at = clock.time_of(position)
        if at >= seconds:
            break
        words = min(MOST_PROMPT_WORDS, max(1, row.context_tokens // CONTEXT_SCALE))
        wish = max(1, row.generated_tokens // OUTPUT_SCALE)
        planned.append(PlannedRequest(at, prompt(words, seed * 1_000_003 + number), wish))
    return tuple(planned)


class _LoadClock:
    """Turns a count of arrivals into the time at which that many have come, where the rate varies by
    spans."""

    def __init__(self, rate: float, seconds: float, surges: Sequence[RateSpan]) -> None:
        edges = sorted({0.0, seconds, *(t for s in surges for t in (s.start, s.end) if 0.0 < t < seconds)})
        self._spans: list[tuple[float, float, float]] = []
        """(time at the start, arrivals before it, rate in it)"""
        arrivals = 0.0
        for begin, end in itertools.pairwise(edges):
            factor = next((s.factor for s in surges if s.start <= begin < s.end), 1.0)
            self._spans.append((begin, arrivals, rate * factor))
            arrivals += (end - begin) * rate * factor
        self.total = arrivals

    def time_of(self, arrivals: float) -> float:
        begin, before, rate = next(span for span in reversed(self._spans) if span[1] <= arrivals)
        return begin + (arrivals - before) / rate


_WORDS: Final = (
    *("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school"),
    *("family", "group", "country", "problem", "hand", "part", "place", "case", "week", "company", "system"),
    *("program", "question", "work", "night", "point", "home", "water", "room", "area", "money", "story"),
)


def prompt(words: int, seed: int) -> str:
    """A request for a story about ``words`` common words, which are about a token each.

    The same for the same arguments.
    """
    return f"Write a long story about: {' '.join(random.Random(seed).choices(_WORDS, k=words))}."


async def send(client: httpx.AsyncClient, url: str, request: PlannedRequest) -> tuple[int, str]:
    """Send one request and read its answer to the end; the number of chunks and the error, empty if none."""
    body = {
        "stream": True,
        "max_tokens": request.max_tokens,
        "messages": [{"role": "user", "content": request.prompt}],
    }
    chunks = 0
    finished = False
    try:
        async with client.stream("POST", url, json=body) as response:
            if response.status_code != 200:
                return 0, f"HTTP {response.status_code}"
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    finished = line == "data: [DONE]"
                    chunks += not finished
    except httpx.HTTPError as error:
        return chunks, type(error).__name__
    return chunks, "" if finished else "the stream broke off"


async def run(
    url: str,
    requests: Sequence[PlannedRequest],
    *,
    stop: asyncio.Event,
    on_sent: Callable[[Sent], None],
) -> None:
    """Send each of ``requests`` at its time, until ``stop`` is set.

    Answers under way at the end are waited for; briefly, when it was stopped.

    Args:
        url: of the chat completion endpoint.
        requests: in the order of their times.
        on_sent: called with what became of a request when its answer has ended.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(timeout=httpx.Timeout(60.0), limits=limits) as client:
        begin = time.monotonic()

        async def one(request: PlannedRequest) -> None:
            started = time.monotonic() - begin
            chunks, error = await send(client, url, request)
            on_sent(Sent(request.at, started, time.monotonic() - begin, chunks, error))

        tasks: set[asyncio.Task[None]] = set()
        for request in requests:
            wait = request.at - (time.monotonic() - begin)
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), wait)
            if stop.is_set():
                break
            task = asyncio.create_task(one(request))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        if tasks:
            _, unfinished = await asyncio.wait(set(tasks), timeout=5.0 if stop.is_set() else 30.0)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class LoadReport:
    """How well the plan was held."""

    planned: int
    sent: int
    errors: int
    late: int
    """Sent more than ``LATE_AFTER_SECONDS`` after their time."""
    seconds: float
    """Length of the load."""

    @classmethod
    def of(cls, requests: Sequence[PlannedRequest], sent: Sequence[Sent], *, seconds: float) -> LoadReport:
        """Compare what was sent within ``seconds`` with what was planned for them."""
        return cls(
            planned=sum(request.at <= seconds for request in requests),
            sent=len(sent),
            errors=sum(bool(one.error) for one in sent),
            late=sum(one.started - one.planned > LATE_AFTER_SECONDS for one in sent),
            seconds=seconds,
        )

    def __str__(self) -> str:
        seconds = max(self.seconds, 1e-9)
        return (
            f"load: {self.sent / seconds:.2f} requests/s held of {self.planned / seconds:.2f}/s planned "
            f"over {self.seconds:.0f} s: {self.sent} sent, {self.late} of them more than "
            f"{LATE_AFTER_SECONDS * 1e3:.0f} ms late, {self.errors} failed"
        )
