"""The least that records streams of the openai client as otelkit is to: a span for every call and token.

Written by hand for the response of ``stream_overhead.py``: a call at a time, no other way out of a stream
than its end, no metrics, no parameters, no look for changes, no span that anybody could ask for while it
lasts. It keeps the time and the text of each chunk; a thread writes the spans of all calls of a request from
templates, into memory that is used for one request after the other, and sends it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from http.client import HTTPConnection
from itertools import pairwise
from queue import SimpleQueue
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from openai.resources.chat.completions import Completions
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, SpanFlags

from otelkit.emit.otlp.envelope import varint

BATCH_BYTES: Final = 1 << 20
"""Of a request, as with otelkit."""
ROOM: Final = 256
"""Bytes kept free before the spans for what goes before them, which is known last."""
INDICES: Final = (0, 1 << 7, 1 << 14)
"""From which on an index takes one byte, and two; these streams have no more tokens."""

_TRACE, _SPAN, _PARENT = b"\xa1" * 16, b"\xa2" * 8, b"\xa3" * 8
_START, _END = b"\xa4" * 8, b"\xa5" * 8


class Call(NamedTuple):
    start: int
    times: list[int]
    """When each chunk came."""
    texts: list[str]


class Recorder:
    """Replaces the client's method, and delivers what was recorded when a request is full, or when asked."""

    def __init__(self) -> None:
        self._waiting: deque[Call] = deque()
        self._chunks = 0
        self._steps = [_Steps(begin, end) for begin, end in pairwise(INDICES)]
        self._memory = bytearray(ROOM)
        self._most = BATCH_BYTES // self._steps[-1].width
        self._call = _encoded(
            name="chat gpt-4o-mini",
            kind=Span.SPAN_KIND_CLIENT,
            attributes=[
                _attribute("gen_ai.operation.name", AnyValue(string_value="chat")),
                _attribute("gen_ai.request.model", AnyValue(string_value="gpt-4o-mini")),
            ],
        )
        self._bell: SimpleQueue[threading.Event | None] = SimpleQueue()
        self._anchor = time.time_ns() - time.perf_counter_ns()
        endpoint = urlsplit(os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
        self._connection = HTTPConnection(endpoint.hostname or "", endpoint.port)
        threading.Thread(target=self._run, daemon=True).start()
        self._replace(Completions.create)

    def _replace(self, create: Callable[..., Any]) -> None:
        now, take = time.perf_counter_ns, self._take

        def recorded(*arguments: Any, **parameters: Any) -> Iterator[Any]:
            start = now()
            return read(create(*arguments, **parameters), start)

        def read(stream: Any, start: int) -> Iterator[Any]:
            times: list[int] = []
            texts: list[str] = []
            stamp, keep = times.append, texts.append
            for chunk in stream:
                stamp(now())
                keep(chunk.choices[0].delta.content)
                yield chunk
            take(Call(start, times, texts))

        Completions.create = recorded  # type: ignore[method-assign, assignment]

    def _take(self, call: Call) -> None:
        self._waiting.append(call)
        self._chunks += len(call.times)
        if self._chunks > self._most:
            self._chunks = 0
            self._bell.put(None)

    def deliver(self) -> None:
        done = threading.Event()
        self._bell.put(done)
        done.wait(60)

    def _run(self) -> None:
        while True:
            asked = self._bell.get()
            waiting = self._waiting
            calls = [waiting.popleft() for _ in range(len(waiting))]
            if calls:
                self._send(self._request(calls))
            if asked is not None:
                asked.set()

    def _send(self, body: memoryview) -> None:
        headers = {"content-type": "application/x-protobuf"}
        self._connection.request("POST", "/v1/traces", body, headers)
        self._connection.getresponse().read()

    def _request(self, calls: Sequence[Call]) -> memoryview:
        """Spans of calls, and of all their tokens: neither the first chunk is one nor the last."""
        anchor, into, end = self._anchor, self._memory, ROOM
        for start, times, _ in calls:
            trace, span = random.randbytes(16), random.randbytes(6) + b"\xff\xff"
            first, last = (time + anchor for time in (start, times[-1]))
            written = _filled(self._call, trace, span, first, last)
            into[end : end + len(written)] = written
            end += len(written)
            times[0] = start
            raw = _shifted(times, anchor)
            changing = ((first ^ last).bit_length() + 7) // 8
            columns = [raw[k::8] for k in range(changing)]
            for steps in self._steps:
                end = steps.write(into, end, trace, span, raw[:8], columns)
        scope = ScopeSpans(scope=InstrumentationScope(name="benchmark")).SerializeToString()
        resource = Resource(attributes=[_attribute("service.name", AnyValue(string_value="benchmark"))])
        inner = len(scope) + end - ROOM
        outer = ResourceSpans(resource=resource).SerializeToString() + b"\x12" + varint(inner)
        head = b"".join((b"\x0a", varint(len(outer) + inner), outer, scope))
        begin = ROOM - len(head)
        into[begin:ROOM] = head
        return memoryview(into)[begin:end]


class _Steps:
    """Spans of tokens whose indices take the same number of bytes."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        index = AnyValue(int_value=begin or 1)
        self._one = _encoded(
            parent_span_id=_PARENT,
            name="token_step",
            kind=Span.SPAN_KIND_INTERNAL,
            attributes=[_attribute("otelkit.step.index", index)],
        )
        self.width = len(self._one)
        """Bytes of a span."""
        marks = _TRACE, _PARENT, _SPAN, _START, _END
        self._at = [self._one.index(mark) for mark in marks]
        varints = [varint(index) for index in range(begin, end)]
        written = index.SerializeToString()
        index_at = self._one.index(written) + len(written) - len(varints[0])
        numbers = [number.to_bytes(2) for number in range(begin, end)]
        self._differing = [
            (at + k, bytes(column))
            for at, values in ((index_at, varints), (self._at[2] + 6, numbers))
            for k, column in enumerate(zip(*values, strict=True))
            if any(column)
        ]
        """What differs from one to the next in each call: indices, and the last bytes of ids."""

    def write(
        self,
        into: bytearray,
        begin: int,
        trace: bytes,
        span: bytes,
        first: bytes,
        columns: Sequence[bytes],
    ) -> int:
        """Spans of a call's tokens; each begins where the one before it ends.

        Args:
            first: when the call began.
            columns: the bytes, by column, in which the times of its beginning and of its chunks differ.
        """
        low, width = self._begin, self.width
        high = min(self._end, len(columns[0]) - 2)
        if high <= low:
            return begin
        one = bytearray(self._one)
        trace_at, parent_at, span_at, start_at, end_at = self._at
        one[trace_at : trace_at + 16] = trace
        one[parent_at : parent_at + 8] = span
        one[span_at : span_at + 8] = span[:6] + bytes(2)
        one[start_at : start_at + 8] = one[end_at : end_at + 8] = first
        count = high - low
        end = begin + count * width
        into[begin:end] = one * count
        for at, column in self._differing:
            into[begin + at : end : width] = column[:count]
        start_at, end_at = begin + start_at, begin + end_at
        for k, column in enumerate(columns):
            into[start_at + k : end : width] = column[low:high]
            into[end_at + k : end : width] = column[low + 1 : high + 1]
        return end


def _shifted(times: Sequence[int], by: int) -> bytes:
    """``times`` and ``by`` together, eight bytes each: as one addition of long integers."""
    together = int.from_bytes(array("Q", times), "little") + by * _ones(len(times))
    return together.to_bytes(8 * len(times), "little")


@cache
def _ones(count: int) -> int:
    return int.from_bytes((1).to_bytes(8, "little") * count, "little")


def _attribute(key: str, value: AnyValue) -> KeyValue:
    return KeyValue(key=key, value=value)


def _encoded(**fields: Any) -> bytes:
    """A span with its tag and length, and marks for what is to be filled in."""
    start, end = (int.from_bytes(part, "little") for part in (_START, _END))
    flags = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
    span = Span(trace_id=_TRACE, span_id=_SPAN, start_time_unix_nano=start, end_time_unix_nano=end, **fields)
    span.flags = flags
    written: bytes = ScopeSpans(spans=[span]).SerializeToString()
    return written


def _filled(one: bytes, trace: bytes, span: bytes, start: int, end: int) -> bytes:
    for mark, value in (
        (_TRACE, trace),
        (_SPAN, span),
        (_START, start.to_bytes(8, "little")),
        (_END, end.to_bytes(8, "little")),
    ):
        one = one.replace(mark, value, 1)
    return one
