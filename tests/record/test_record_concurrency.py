"""Recording under threads, fork and gevent, over long streams, and with trace context on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai_wire
import pytest
from openai import AsyncOpenAI, OpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from wire_server import Exchange, Wire

from otelkit import semconv
from otelkit.model import Outcome
from otelkit.record import instrumentation
from otelkit.testing import Recorded

MESSAGES: Any = [{"role": "user", "content": "secret"}]
PIECES = ("one", " two", " three")


def ask(client: Any, **parameters: Any) -> Any:
    return client.chat.completions.create(model="m", messages=MESSAGES, stream=True, **parameters)


def test_threads_in_parallel(wire: Wire, recorded: Recorded) -> None:
    """Broken: streams read by many threads mix, or some are lost."""
    wire.answer = openai_wire.stream(*PIECES)
    with OpenAI(base_url=wire.url, api_key="k") as client, ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: len(list(ask(client, seed=seed))), range(40))) == [5] * 40
    assert sorted(generation.parameters["seed"] for generation in recorded.wait(40)) == list(range(40))
    assert {len(generation.step_ns) for generation in recorded.generations} == {3}
    assert len({span.context.span_id for span in recorded.spans}) == 40


def test_stream_closed_by_another_thread(wire: Wire, recorded: Recorded) -> None:
    """Broken: a watchdog thread closes a stream that is being read: two spans, or an end by the wrong
    side."""
    wire.answer = openai_wire.stream(*PIECES, pause=0.2)
    with OpenAI(base_url=wire.url, api_key="k", max_retries=0) as client:
        stream = ask(client)
        next(stream)
        closer = threading.Timer(0.1, stream.close)
        closer.start()
        with contextlib.suppress(Exception):  # what the client does with it is its own affair
            list(stream)
        closer.join()
    assert len(recorded.wait(1)) == 1
    assert len(recorded.spans) == 1


@pytest.mark.timeout(900)  # the client takes six seconds of CPU time for it, on a machine that may be shared
def test_long_stream(wire: Wire, recorded: Recorded) -> None:
    """Broken: steps are lost, or kept chunks fill the memory, over 50,000 tokens."""

    def answer(exchange: Exchange) -> None:
        exchange.begin_events()
        document = openai_wire.chunk("x")
        line = f"data: {json.dumps(document)}\n\n".encode()
        for _ in range(500):
            exchange.raw(line * 100)
        exchange.event(openai_wire.chunk(finish="length"))
        exchange.done()

    wire.answer = answer
    with OpenAI(base_url=wire.url, api_key="k") as client:
        assert sum(1 for _ in ask(client)) == 50_001
    (generation,) = recorded.wait(1)
    assert len(generation.step_ns) == 50_000
    assert generation.finish_reasons == ("length",)
    assert generation.repeated_token_share == pytest.approx(1 - 1 / 50_000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_fork_after_instrumentation(wire: Wire, recorded: Recorded) -> None:
    """Broken: a preforking server's workers record nothing, or report the parent's open stream as well."""
    wire.answer = openai_wire.stream(*PIECES)
    client = OpenAI(base_url=wire.url, api_key="k")
    stream = ask(client)
    next(stream)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            before = len(recorded.generations)
            instrumentation.flush()
            inherited = len(recorded.generations) - before
            with OpenAI(base_url=wire.url, api_key="k") as own:
                list(ask(own))
            status = 0 if inherited == 0 and len(recorded.generations) - before == 1 else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    list(stream)
    client.close()
    assert [generation.outcome for generation in recorded.wait(1)] == [Outcome.COMPLETED]


def test_gevent(wire: Wire) -> None:
    """Broken: greenlets block each other, mix their streams, or a killed one has no record."""
    pytest.importorskip("gevent", reason="gevent is not installed")
    wire.answer = openai_wire.stream(*PIECES, pause=0.05)
    program = textwrap.dedent(f"""
        from gevent import monkey; monkey.patch_all()
        import gevent, time
        from otelkit import testing
        from openai import OpenAI
        client = OpenAI(base_url={wire.url!r}, api_key="k")
        def ask(seed):
            return [c for c in client.chat.completions.create(
                model="m", messages=[{{"role": "user", "content": "x"}}], stream=True, seed=seed)]
        with testing.recording() as recorded:
            jobs = [gevent.spawn(ask, seed) for seed in range(5)]
            killed = gevent.spawn(ask, 5)
            gevent.sleep(0.12)
            killed.kill()
            gevent.joinall(jobs)
            outcomes = {{g.parameters["seed"]: g.outcome.value for g in recorded.wait(6)}}
            steps = {{len(g.step_ns) for g in recorded.generations if g.parameters["seed"] != 5}}
            print(outcomes, steps, len(recorded.spans))
    """)
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    expected = {**dict.fromkeys(range(5), "completed"), 5: "cancelled"}
    assert result.stderr == ""
    outcomes, _, rest = result.stdout.partition("}")
    assert eval(outcomes + "}") == expected
    assert rest.strip() == "{3} 6"


def trace_ids(wire: Wire) -> list[str]:
    return [
        headers["traceparent"].split("-")[1] for _, headers, _ in wire.requests if "traceparent" in headers
    ]


def test_context_propagation(wire: Wire, recorded: Recorded) -> None:
    """Broken: a generation is no child of the request around it, or what follows it becomes a child of the
    generation."""
    wire.answer = openai_wire.stream(*PIECES)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("user")

    async def main() -> None:
        async with AsyncOpenAI(base_url=wire.url, api_key="k") as client:

            async def serve(number: int) -> None:
                with tracer.start_as_current_span(f"request {number}") as parent:
                    stream = await ask(client, seed=number)
                    assert trace.get_current_span() is parent
                    async for _ in stream:
                        assert trace.get_current_span() is parent
                        if number % 2:
                            break
                    assert trace.get_current_span() is parent
                    parents[number] = parent.get_span_context().span_id

            parents: dict[int, int] = {}
            await asyncio.gather(*(serve(number) for number in range(6)))
            assert trace.get_current_span() is trace.INVALID_SPAN
            await asyncio.sleep(0.05)
            for span in recorded.spans:
                assert span.parent is not None
                assert span.attributes is not None
                seed = span.attributes[semconv.REQUEST_SEED]
                assert isinstance(seed, int)
                assert span.parent.span_id == parents[seed]

    asyncio.run(main())
    assert len(recorded.spans) == 6


def test_span_is_current_while_the_request_is_sent(wire: Wire, recorded: Recorded) -> None:
    """Broken: the HTTP client's own span, and the server's, are not children of the generation."""
    import httpx2

    seen: list[int] = []

    class Transport(httpx2.HTTPTransport):
        def handle_request(self, request: Any) -> Any:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return super().handle_request(request)

    wire.answer = openai_wire.stream(*PIECES)
    with OpenAI(base_url=wire.url, api_key="k", http_client=httpx2.Client(transport=Transport())) as client:
        list(ask(client))
    (span,) = recorded.spans
    assert seen == [span.context.span_id]
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_without_a_tracer(wire: Wire) -> None:
    """Broken: with only the OpenTelemetry API, and no tracer provider, nothing is recorded."""
    program = textwrap.dedent(f"""
        from otelkit.record import instrumentation
        from openai import OpenAI
        class Sink:
            def generation_started(self, call_site): print("started", call_site().service)
            def generation(self, build): print(len(build().step_ns), build().span)
            def change(self, change): pass
        instrumentation.install(Sink())
        client = OpenAI(base_url={wire.url!r}, api_key="k")
        for _ in client.chat.completions.create(
                model="m", messages=[{{"role": "user", "content": "x"}}], stream=True):
            pass
    """)
    wire.answer = openai_wire.stream(*PIECES)
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OTEL_SERVICE_NAME": "chat"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert result.stderr == ""
    assert result.stdout == "started chat\n3 None\n"


def test_uninstall_leaves_the_client_as_it_was(wire: Wire) -> None:
    """Broken: functions stay wrapped after `uninstall`, or wrapped twice after two installs."""
    import openai

    from otelkit import testing

    def functions() -> tuple[Any, ...]:
        definer = next(base for base in OpenAI.__mro__ if "request" in vars(base))
        return vars(definer)["request"], openai.Stream.__init__

    before = functions()
    with testing.recording() as recorded:
        instrumentation.install(recorded)
        assert functions() != before
        wire.answer = lambda exchange: exchange.json(openai_wire.completion())
        with OpenAI(base_url=wire.url, api_key="k") as client:
            client.chat.completions.create(model="m", messages=MESSAGES)
        assert len(recorded.generations) == 1
    assert functions() == before
