"""The load that the demo plans and sends."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import AsyncIterator, Iterator

import pytest
from demo_servers import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from otelkit.demo import load
from otelkit.demo.load import LoadReport, PlannedRequest, RateSpan, Sent


def test_plan_holds_the_rate_asked_for() -> None:
    """Broken if the trace's own rate shows through, whichever part of it a seed chooses."""
    for seed in range(20):
        planned = load.plan(rate=3.0, seconds=330.0, seed=seed)
        assert len(planned) == pytest.approx(990, rel=0.01)
        assert all(0 <= a.at <= b.at < 330.0 for a, b in itertools.pairwise(planned))


def test_plan_keeps_the_trace_s_bursts() -> None:
    """Broken if arrivals were evened out: real ones come in bursts, evenly spaced ones make no queues."""
    planned = load.plan(rate=3.0, seconds=330.0, seed=5)
    gaps = [b.at - a.at for a, b in itertools.pairwise(planned)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert deviation > 0.8 * mean


def test_plan_surges_in_the_span_given() -> None:
    """Broken if a surge comes at another time or by another factor."""
    surge = RateSpan(start=100.0, end=140.0, factor=1.6)
    within = outside = 0
    for seed in range(10):
        for request in load.plan(rate=3.0, seconds=300.0, seed=seed, surges=[surge]):
            within += surge.start <= request.at < surge.end
            outside += not surge.start <= request.at < surge.end
    assert within / 40.0 == pytest.approx(1.6 * outside / 260.0, rel=0.15)


def test_same_seed_gives_same_load_and_another_one_another() -> None:
    """Broken if a run could not be repeated."""
    first, again = (load.plan(rate=2.0, seconds=60.0, seed=7) for _ in range(2))
    assert first == again
    assert first != load.plan(rate=2.0, seconds=60.0, seed=8)


def test_prompts_and_lengths_follow_the_trace_scaled_down() -> None:
    """Broken if every request were alike, or one too long for the model's context."""
    planned = load.plan(rate=5.0, seconds=600.0, seed=1)
    wishes = {request.max_tokens for request in planned}
    assert len(wishes) > 50 and min(wishes) >= 1 and max(wishes) <= 1000 // load.OUTPUT_SCALE
    words = [len(request.prompt.split()) for request in planned]
    assert len(set(words)) > 4 and max(words) <= load.MOST_PROMPT_WORDS + 5


def test_load_does_not_wait_for_answers() -> None:
    """Broken if a slow service slowed the load: its queues would then not be seen."""

    async def complete(request: Request) -> Response:
        await request.body()

        async def events() -> AsyncIterator[str]:
            await asyncio.sleep(3.0)
            yield "data: {}\n\ndata: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    requests = [PlannedRequest(0.05 * n, "hello", 4) for n in range(10)]
    sent: list[Sent] = []

    async def all_of_it(url: str) -> None:
        await load.run(url, requests, stop=asyncio.Event(), on_sent=sent.append)

    with serving(Starlette(routes=[Route("/", complete, methods=["POST"])])) as url:
        asyncio.run(all_of_it(url))
    assert [one.error for one in sent] == [""] * 10
    assert all(one.ended - one.started > 2.5 for one in sent)
    # All were under way at once, however slowly a busy machine got round to each.
    assert max(one.started for one in sent) < min(one.ended for one in sent)


@pytest.fixture(scope="module")
def faulty_service() -> Iterator[str]:
    """A service that fails in the way the prompt asks for."""

    async def complete(request: Request) -> Response:
        how = json.loads(await request.body())["messages"][0]["content"]
        if how == "refuse":
            return Response(status_code=503)

        async def events() -> AsyncIterator[str]:
            yield "data: {}\n\n"
            if how == "whole":
                yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    with serving(Starlette(routes=[Route("/", complete, methods=["POST"])])) as url:
        yield url


@pytest.mark.parametrize(
    ("how", "error"),
    [("whole", ""), ("refuse", "HTTP 503"), ("break off", "the stream broke off")],
)
def test_failed_answers_are_counted_as_such(faulty_service: str, how: str, error: str) -> None:
    """Broken if the statement of the load held called a failed answer a good one."""
    sent: list[Sent] = []

    async def one() -> None:
        await load.run(
            faulty_service, [PlannedRequest(0.0, how, 4)], stop=asyncio.Event(), on_sent=sent.append
        )

    asyncio.run(one())
    assert [outcome.error for outcome in sent] == [error]


def test_report_says_what_was_held() -> None:
    """Broken if lateness, failures or a rate that was not held went unsaid."""
    planned = [PlannedRequest(float(n), "", 1) for n in range(10)]
    sent = [
        Sent(float(n), n + (0.2 if n == 3 else 0.001), n + 1.0, 1, "HTTP 500" if n == 5 else "")
        for n in range(8)
    ]
    report = LoadReport.of(planned, sent, seconds=10.0)
    assert (report.planned, report.sent, report.late, report.errors) == (10, 8, 1, 1)
    text = str(report)
    assert "0.80 requests/s held of 1.00/s planned" in text and "1 of them more than 50 ms late" in text
