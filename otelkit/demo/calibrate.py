"""How much this machine carries: measured through the real service before the load begins."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Final

import httpx

from otelkit.demo import load
from otelkit.demo.model_server import SLOTS
from otelkit.errors import OtelkitError

LOWEST_RATE: Final = 0.3
"""Requests a second below which minutes hold too few answers for a P99."""
HIGHEST_RATE: Final = 8.0
"""More would not make the picture clearer, only the machine hotter."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What closed-loop callers got out of the service."""

    requests_per_second: float
    tokens_per_second: float


async def measure(
    url: str, *, seconds: float, seed: int, callers: int = SLOTS, longest_answer: int | None = None
) -> Capacity:
    """Let ``callers`` ask without a pause for ``seconds``.

    Args:
        longest_answer: tokens that no answer may exceed; None leaves that to the service.

    Raises:
        OtelkitError: a request failed.
    """
    planned = load.plan(rate=100.0, seconds=60.0, seed=seed)
    if longest_answer is not None:
        planned = tuple(replace(one, max_tokens=min(one.max_tokens, longest_answer)) for one in planned)
    requests = iter(planned)
    begin = time.monotonic()
    answers = tokens = 0

    async def caller(client: httpx.AsyncClient) -> None:
        nonlocal answers, tokens
        while time.monotonic() - begin < seconds:
            chunks, error = await load.send(client, url, next(requests))
            if error:
                raise OtelkitError(
                    f"{url}: a request failed while the machine was measured: {error}.",
                    hint="The logs of the service and the model server are in the run's folder.",
                )
            answers += 1
            tokens += chunks

    # A model server may close a connection in the very moment in which its next request is on its way.
    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=60.0, limits=limits) as client:
        # The first answers pay for caches that every later one finds warm.
        await load.send(client, url, next(requests))
        begin = time.monotonic()
        tasks = [asyncio.create_task(caller(client)) for _ in range(callers)]
        try:
            # A machine too slow to even end the answers begun is measured by those it did end.
            ended, _ = await asyncio.wait(tasks, timeout=3 * seconds, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            # An interrupt comes this way too: it must leave no task whose end nobody looks at.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in ended:
            task.result()
    took = time.monotonic() - begin
    return Capacity(answers / took, tokens / took)


def choose_rate(capacity: Capacity, *, utilisation: float, wanted: float | None) -> float:
    """Requests a second for the load: what the user wants if the machine carries it, else a share of its
    capacity.

    Raises:
        OtelkitError: the machine is too slow for the rate wanted, or for any useful one.
    """
    carried = capacity.requests_per_second
    if wanted is not None:
        if wanted > carried:
            raise OtelkitError(
                f"--rate {wanted:g}: this machine is too slow: under the script's heaviest settings it "
                f"carries {carried:.2f} requests/s, so queues would grow without end.",
                hint=f"Use --rate {carried * utilisation:.2g} or less, or leave it out.",
            )
        return wanted
    rate = min(HIGHEST_RATE, carried * utilisation)
    if rate < LOWEST_RATE:
        raise OtelkitError(
            f"this machine is too slow for the demo: it carries {carried:.2f} requests/s "
            f"({capacity.tokens_per_second:.0f} tokens/s), and a P99 needs at least "
            f"{LOWEST_RATE / utilisation:.2f}.",
            hint="Close other programs, or give --model a smaller model.",
        )
    return rate
