"""Delivers encoded requests to one endpoint: buffered, in order, retried, bounded in bytes and time, all
counted."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from otelkit.emit import notices, self_metrics
from otelkit.emit.otlp.batch import Memory, Unwritten
from otelkit.emit.otlp.sender import Reply, Sender
from otelkit.record import guard

FIRST_BACKOFF: Final = 0.5
LARGEST_BACKOFF: Final = 10.0
JITTER: Final = 0.2
DEFAULT_TIMEOUT: Final = 10.0
JOIN_GRACE: Final = 0.5
"""Seconds beyond the given time for an attempt that is under way to notice it."""
_random: Final = random.Random()
"""Our own, so that a user's seeded stream is left alone."""


class Counts(Protocol):
    """Told what becomes of items; ``SelfMetrics`` for spans."""

    def written(self, spans: int) -> None: ...
    def delivered(self, spans: int) -> None: ...
    def dropped(self, spans: int, reason: str) -> None: ...
    def export_failed(self) -> None: ...
    def overhead(self, stage: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class _Request:
    body: bytes | Unwritten
    items: int


class Delivery:
    """A daemon thread that sends what ``put`` leaves in a buffer.

    Retries follow the OTLP specification: only where it allows them, after exponentially growing pauses with
    jitter, or after as long as the collector asks for. Nothing here runs in a request's path.

    Args:
        sender: the endpoint.
        counts: told what becomes of the items.
        timeout: seconds for one attempt.
        buffer_bytes: requests beyond this are dropped.
        retry_seconds: a request that still fails after this long is dropped.
    """

    def __init__(
        self,
        sender: Sender,
        counts: Counts,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        buffer_bytes: int,
        retry_seconds: float,
    ) -> None:
        self._sender = sender
        self.counts = counts
        self._timeout = timeout
        self._buffer_bytes = buffer_bytes
        self._retry_seconds = retry_seconds
        self._unreachable = False
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._buffer: deque[_Request] = deque()
        self._bytes = 0
        self._busy = False
        self._closed = False
        self._give_up_at: float | None = None
        self._thread: threading.Thread | None = None
        self._memory = Memory()

    @property
    def address(self) -> str:
        return self._sender.address

    def put(self, body: bytes | Unwritten, items: int) -> None:
        """Leave a request for the thread. Never waits for the network; drops and counts what doesn't fit."""
        self.counts.written(items)
        with self._changed:
            if self._closed:
                self.counts.dropped(items, self_metrics.SHUT_DOWN)
                return
            if self._bytes + len(body) > self._buffer_bytes:
                self.counts.dropped(items, self_metrics.BUFFER_FULL)
                return
            self._buffer.append(_Request(body, items))
            self._bytes += len(body)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        """Start the thread, if that can be: Python 3.12 allows none once a program has come to its end, which
        is when a short one has its first spans to send. ``flush`` and ``join`` then do its work."""
        thread = threading.Thread(target=self._run, name="otelkit-export", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def flush(self, timeout: float) -> bool:
        """Wait until all that was put is delivered or dropped.

        Returns:
            False when that takes longer than ``timeout`` seconds; the rest stays in the buffer.
        """
        if self._thread is None:
            self._deliver_here(time.monotonic() + timeout)
        with self._changed:
            return self._changed.wait_for(lambda: not self._buffer and not self._busy, timeout)

    def close(self, give_up_at: float) -> None:
        """Take nothing more, and give up at that time (monotonic seconds) on what is left."""
        with self._changed:
            self._closed = True
            self._give_up_at = give_up_at
            self._changed.notify_all()

    def join(self) -> None:
        """After ``close``: wait for the thread's end; what it could not deliver is dropped and counted."""
        thread, give_up_at = self._thread, self._give_up_at
        if thread is None:
            self._deliver_here(give_up_at)
        elif give_up_at is not None:
            thread.join(max(0.0, give_up_at - time.monotonic()) + JOIN_GRACE)
        with self._changed:
            self._drop_buffer()
        self._sender.close()

    def after_fork(self) -> None:
        """In the child: what is buffered is the parent's to send, and thread and connection are gone."""
        self._reset()
        self._sender.after_fork()

    def _drop_buffer(self) -> None:
        self.counts.dropped(sum(request.items for request in self._buffer), self_metrics.SHUT_DOWN)
        self._buffer.clear()
        self._bytes = 0

    def _run(self) -> None:
        # A user's instrumentation of the HTTP client must not trace our own requests, or they would beget
        # others.
        context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        while self._deliver_next():
            pass  # nothing of a request is held on to while the thread waits for the next

    def _deliver_here(self, give_up_at: float | None) -> None:
        """Deliver in the calling thread, as there is no other; what is not delivered by then is dropped."""
        token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        before, self._give_up_at = self._give_up_at, give_up_at
        try:
            while self._buffer and self._deliver_next():
                pass
        finally:
            self._give_up_at = before
            context.detach(token)

    def _deliver_next(self) -> bool:
        request = self._next()
        if request is None:
            return False
        start = time.thread_time()
        try:
            self._deliver(request)
        except Exception:
            self.counts.dropped(request.items, self_metrics.EXPORT_FAILED)
            guard.fault("send spans")
        finally:
            self.counts.overhead(self_metrics.STAGE_EXPORT, time.thread_time() - start)
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        return True

    def _next(self) -> _Request | None:
        with self._changed:
            self._changed.wait_for(lambda: self._buffer or self._closed)
            if not self._buffer:
                return None
            request = self._buffer.popleft()
            self._bytes -= len(request.body)
            self._busy = True
            return request

    def _deliver(self, request: _Request) -> None:
        body: bytes | memoryview
        if isinstance(request.body, Unwritten):
            body, lost = request.body.write(self._memory)
            self.counts.dropped(lost, self_metrics.EXPORT_FAILED)
            self._send(body, request.items - lost)
        else:
            self._send(request.body, request.items)

    def _send(self, body: bytes | memoryview, items: int) -> None:
        give_up_at = time.monotonic() + self._retry_seconds
        backoff = FIRST_BACKOFF
        while True:
            limit = give_up_at if self._give_up_at is None else min(give_up_at, self._give_up_at)
            left = limit - time.monotonic()
            if left <= 0:
                self.counts.dropped(items, self_metrics.EXPORT_FAILED)
                return
            reply = self._sender.send(body, min(self._timeout, left))
            self._note(reply)
            if reply.delivered:
                self.counts.dropped(reply.rejected, self_metrics.REJECTED)
                self.counts.delivered(items - reply.rejected)
                return
            self.counts.export_failed()
            if not reply.retryable:
                self.counts.dropped(items, self_metrics.EXPORT_FAILED)
                return
            pause = backoff * _random.uniform(1 - JITTER, 1 + JITTER)
            if reply.retry_after is not None:
                pause = max(pause, reply.retry_after)
            self._pause(pause, limit)
            backoff = min(2 * backoff, LARGEST_BACKOFF)

    def _pause(self, seconds: float, limit: float) -> None:
        """Wait before the next attempt; the end of the process cuts the wait short, for one last attempt."""
        with self._changed:
            if self._closed:
                # The wait that counts now is the one until the process gives up.
                seconds = min(seconds, FIRST_BACKOFF)
            end = min(time.monotonic() + seconds, limit)
            already_closed = self._closed
            self._changed.wait_for(lambda: self._closed != already_closed, max(0.0, end - time.monotonic()))

    def _note(self, reply: Reply) -> None:
        """Say in the log when the collector stops and starts to take requests, not at every attempt."""
        if reply.delivered:
            if self._unreachable:
                notices.logger.warning("otelkit: %s takes spans again", self.address)
            self._unreachable = False
            if reply.rejected:
                notices.say_once(f"otelkit: {self.address} refused some spans: {reply.message}")
        elif not self._unreachable:
            self._unreachable = True
            notices.logger.warning(
                "otelkit can't deliver to %s (%s). Up to %d MiB are kept, then dropped and counted in "
                "otelkit_spans_dropped_total. Check the collector, or OTEL_EXPORTER_OTLP_ENDPOINT.",
                self.address,
                reply.message,
                self._buffer_bytes >> 20,
            )


def shut_down(deliveries: Sequence[Delivery], timeout: float) -> None:
    """Deliver what is buffered within ``timeout`` seconds, all at once, and stop; the rest is dropped and
    counted."""
    give_up_at = time.monotonic() + timeout
    for delivery in deliveries:
        delivery.close(give_up_at)
    for delivery in deliveries:
        delivery.join()
