"""Ways to instrument the openai client, each served in a process of its own for ``stream_overhead.py``.

    python benchmarks/stream_ways.py WAY

Reads streams, with the instrumentation or without, or delivers what was recorded, as told on stdin; answers
with CPU times on stdout.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry import trace

TRACES_ONLY: Final = "BENCHMARK_TRACES_ONLY"
"""Environment variable: peers get no meter provider."""

CHUNKS_IN_TURN: Final = 10
"""They take a millisecond: what else runs on the machine then slows both streams of a pair alike."""

DEPTHS: Final = 64
"""Where on its stack the interpreter runs makes the client up to two percent faster or slower, and a
generator more around it moves that: in each process by another amount. So it is another depth at each
turn."""

Finish = Callable[[], object]


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

    def read(stream: Any, span: trace.Span) -> Iterator[Any]:
        yield from stream
        span.end()

    return _one_span(read)


def stamps() -> Finish:
    """``least``, and the time of every chunk: less can't be added by what tells chunks apart."""

    def read(stream: Any, span: trace.Span) -> Iterator[Any]:
        stamp, now = [].append, time.perf_counter_ns
        for chunk in stream:
            stamp(now())
            yield chunk
        span.end()

    return _one_span(read)


def _one_span(read: Callable[[Any, trace.Span], Iterator[Any]]) -> Finish:
    from openai.resources.chat.completions import Completions
    from opentelemetry import trace

    finish = _sdk()
    tracer = trace.get_tracer("benchmark")
    create = Completions.create

    def recorded(*arguments: Any, **parameters: Any) -> Any:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini"}
        span = tracer.start_span("chat gpt-4o-mini", kind=trace.SpanKind.CLIENT, attributes=attributes)
        return read(create(*arguments, **parameters), span)

    Completions.create = recorded  # type: ignore[method-assign, assignment]
    return finish


def floor() -> Finish:
    """The least that records what otelkit is to record."""
    from stream_floor import Recorder

    return Recorder().deliver


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
    "otelkit": otelkit,
    "floor": floor,
    "least": least,
    "stamps": stamps,
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


def _beginner() -> Callable[[bytes], Iterator[Any]]:
    """A function that has the client begin to read one stream."""
    import openai

    # The client's HTTP library is httpx or httpx2, by its version.
    http = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__.partition(".")[0]]
    body = b""

    def answer(request: object) -> Any:
        return http.Response(200, headers={"content-type": "text/event-stream"}, content=body)

    client = openai.OpenAI(
        api_key="none", http_client=openai.DefaultHttpxClient(transport=http.MockTransport(answer))
    )

    def begin(events: bytes) -> Iterator[Any]:
        nonlocal body
        body = events
        return iter(
            client.chat.completions.create(
                model="gpt-4o-mini",
                messages=[{"role": "user", "content": "Say something."}],
                temperature=0.7,
                max_tokens=512,
                stream=True,
            )
        )

    return begin


class Switch:
    """Takes the instrumentation off the client, and puts it on again.

    Both go through ``_Either``, so that nothing has to be replaced for that, to which the interpreter would
    have to adapt itself each time.

    Args:
        instrument: puts it on, which is to replace methods of the client's classes.
    """

    def __init__(self, instrument: Callable[[], Finish]) -> None:
        before = _attributes()
        self.finish = instrument()
        """Delivers what was recorded."""
        self.on = True
        classes = {owner for owner, _ in before}
        found = 0
        for (owner, name), value in _attributes().items():
            if owner in classes and before.get((owner, name)) is not value:
                plain = before.get((owner, name)) or _inherited(owner, name)
                setattr(owner, name, _Either(self, plain, value))
                found += 1
        assert found, "nothing was instrumented"


class _Either:
    """A method that is one or the other."""

    def __init__(self, switch: Switch, plain: Any, instrumented: Any) -> None:
        self._switch = switch
        self._plain = plain
        self._instrumented = instrumented

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return (self._instrumented if self._switch.on else self._plain).__get__(instance, owner)


def _inherited(owner: type, name: str) -> Any:
    return next(vars(base)[name] for base in owner.__mro__[1:] if name in vars(base))


def _attributes() -> dict[tuple[type, str], Any]:
    """What the client's classes hold, by class and name."""
    classes = {
        value
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] == "openai"
        for value in list(vars(module).values())
        # Not ``isinstance``, for which the client's lazy objects would load all that there is of it.
        if issubclass(type(value), type) and value.__module__.partition(".")[0] == "openai"
    }
    return {
        (owner, name): value
        for owner in classes
        for name, value in vars(owner).items()
        if not name.startswith("__pydantic_")  # made when a type is first used
    }


def serve(way: str) -> None:
    """Read streams, or deliver what was recorded, as told on stdin; answer with CPU ns of the reading
    thread, and that of all others since the last answer."""
    answers, sys.stdout = sys.stdout, sys.stderr  # a peer may print
    if hasattr(os, "sched_setaffinity"):  # two processors are seldom equally fast on a shared machine
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    begin = _beginner()
    _read_through(begin(_events(3)))  # the client imports parts of itself at the first call
    switch = Switch(WAYS[way])
    print(importlib.metadata.version("openai"), file=answers, flush=True)
    last = _spent()
    for line in sys.stdin:
        pairs, further, chunks = map(int, line.split())
        if chunks:
            events = _events(chunks)
            spent = [_read_pair(begin, switch, events, chunks, number % 2 == 0) for number in range(pairs)]
            switch.on = True
            for _ in range(further):
                _read_through(begin(events))
        else:
            switch.finish()
            spent = [[(0, _spent()[0] - last[0])]]
        now = _spent()
        print(json.dumps([spent, now[1] - last[1]]), file=answers, flush=True)
        last = now


def _read_through(stream: Iterator[Any]) -> None:
    for _ in stream:
        pass


def _read_pair(
    begin: Callable[[bytes], Iterator[Any]], switch: Switch, events: bytes, chunks: int, first: bool
) -> list[tuple[int, int]]:
    """Read two streams, one without instrumentation and one with it, some chunks of each in turn.

    Args:
        first: which goes first.

    Returns:
        CPU ns of the one without, and of the one with it, for each turn: to begin, to read some, to end.
    """
    streams: dict[bool, Iterator[Any]] = {}
    read, turns = [0, 0], []

    def open_one() -> None:
        streams[switch.on] = begin(events)

    def read_some() -> None:
        for _ in islice(streams[switch.on], CHUNKS_IN_TURN):
            read[switch.on] += 1

    def end_one() -> None:
        assert next(streams.pop(switch.on), None) is None, f"more than {chunks} chunks arrived"

    for act in (open_one, *[read_some] * -(-chunks // CHUNKS_IN_TURN), end_one):
        first, depth, spent = not first, random.randrange(DEPTHS), [0, 0]
        for switch.on in (first, not first):
            spent[switch.on] = _spent_by(act, depth)
        turns.append((spent[False], spent[True]))
    assert read == [chunks, chunks], f"{chunks} chunks were sent, {read} arrived"
    return turns


def _spent_by(act: Callable[[], None], depth: int) -> int:
    """CPU ns of this thread, when it is called at that depth of the interpreter's own stack."""
    if depth:
        return next(map(_spent_by, (act,), (depth - 1,)))  # a function in C, which takes of that stack
    start = time.thread_time_ns()
    act()
    return time.thread_time_ns() - start


def _spent() -> tuple[int, int]:
    """CPU ns of this thread, and of all others."""
    own = time.thread_time_ns()
    return own, time.process_time_ns() - own


if __name__ == "__main__":
    serve(sys.argv[1])
