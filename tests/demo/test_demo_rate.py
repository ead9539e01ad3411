"""The rate that the demo takes from what the machine carries."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time

import pytest
from demo_servers import serving
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from otelkit.demo import stack
from otelkit.demo.calibrate import HIGHEST_RATE, LOWEST_RATE, Capacity, choose_rate, measure
from otelkit.errors import OtelkitError


def capacity(requests_per_second: float) -> Capacity:
    return Capacity(requests_per_second, tokens_per_second=20 * requests_per_second)


def test_rate_is_a_share_of_what_the_machine_carries() -> None:
    """Broken if a fast machine were bored, or a slow one drowned in its own queues."""
    assert choose_rate(capacity(5.0), utilisation=0.6, wanted=None) == pytest.approx(3.0)
    assert choose_rate(capacity(500.0), utilisation=0.6, wanted=None) == HIGHEST_RATE


def test_wanted_rate_is_taken_if_it_can_be_held() -> None:
    """Broken if --rate were ignored."""
    assert choose_rate(capacity(5.0), utilisation=0.6, wanted=4.9) == 4.9


def test_machine_too_slow_is_said_with_what_it_carries() -> None:
    """Broken if a slow machine ran for minutes only to show nothing."""
    slow = LOWEST_RATE / 0.6 * 0.9
    with pytest.raises(
        OtelkitError, match=f"too slow for the demo: it carries {slow:.2f} requests/s"
    ) as caught:
        choose_rate(capacity(slow), utilisation=0.6, wanted=None)
    assert caught.value.exit_code == 1 and caught.value.hint
    with pytest.raises(OtelkitError, match=r"--rate 9: this machine is too slow: .* carries 5\.00"):
        choose_rate(capacity(5.0), utilisation=0.6, wanted=9.0)


def test_fine_buckets_lie_where_latencies_will_be() -> None:
    """Broken if P99 fell into coarse buckets, in which no shift can be seen."""
    light, middle, heavy = stack.objectives(4.0)
    assert light < middle < heavy
    assert heavy == pytest.approx(1.0), "four slots at four answers a second take a second each"


def answering_after(seconds: float, status: int = 200) -> Starlette:
    """A service that answers with one chunk, ``seconds`` late."""

    async def complete(request: Request) -> Response:
        if request.app.state.asked:
            await asyncio.sleep(seconds)
        request.app.state.asked = True
        body = "data: {}\n\ndata: [DONE]\n\n"
        return Response(body, media_type="text/event-stream", status_code=status)

    app = Starlette(routes=[Route("/", complete, methods=["POST"])])
    app.state.asked = False
    return app


@pytest.mark.parametrize(("latency", "expected"), [(0.2, 10.0), (60.0, 0.0)])
def test_capacity_is_what_busy_callers_get(latency: float, expected: float) -> None:
    """Broken if the rate were chosen from something else, or a machine that hangs were waited for."""
    with serving(answering_after(latency)) as url:
        begin = time.monotonic()
        found = asyncio.run(measure(url, seconds=1.0, seed=1, callers=2))
        took = time.monotonic() - begin
    # Never more than the service gives; how much less depends on what else the machine does.
    assert 0.3 * expected <= found.requests_per_second <= 1.05 * expected
    assert took < 30.0, "the answers of a machine that hangs take a minute"


def test_failing_service_is_not_taken_for_a_fast_one() -> None:
    """Broken if refusals, which come quickly, counted as answers."""
    with (
        serving(answering_after(0.0, status=500)) as url,
        pytest.raises(OtelkitError, match="a request failed while the machine was measured: HTTP 500"),
    ):
        asyncio.run(measure(url, seconds=1.0, seed=1))


def test_interrupt_while_measuring_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    """Broken if Ctrl-C while callers wait for their answers printed the callers' tracebacks."""
    with serving(answering_after(0.05)) as url:
        interrupt = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(measure(url, seconds=20.0, seed=1))
        interrupt.join()
    gc.collect()
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []
