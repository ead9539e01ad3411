"""Takes finished generations out of the request's path: a bounded queue and one daemon thread."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from otelkit.emit import self_metrics
from otelkit.emit.pipeline import Pipeline
from otelkit.model import CallSite, Generation, ParameterChange
from otelkit.record import guard

FORK_WAIT_SECONDS: Final = 1.0
REST_SECONDS: Final = 0.05
"""Pause after a round of work. Under load one wake-up then serves all generations that ended meanwhile;
waking for each would cost more than the work on a short one."""


@dataclass(slots=True)
class _Flush:
    """Asks the thread to ship what waits; ``stop`` ends it."""

    stop: bool = False
    done: threading.Event = field(default_factory=threading.Event)


_Item = Callable[[], Generation] | ParameterChange | _Flush


class QueueSink:
    """The ``model.Sink`` of a service.

    ``generation`` may be called by a finaliser, in the middle of anything, the background thread included: it
    takes no lock that Python code could hold. Thread and queue are made at the first use, so that a server
    which forks after loading has none, and so that gevent, patched in by then, gets its own kind.

    Args:
        pipeline: does the work.
        capacity: finished generations that may wait; beyond it they are lost, and counted.
    """

    def __init__(self, pipeline: Pipeline, capacity: int) -> None:
        self._pipeline = pipeline
        self._capacity = capacity
        self._lost: deque[None] = deque()
        self._closed = False
        self._new()
        _sinks.add(self)

    def _new(self) -> None:
        self._queue: queue.SimpleQueue[_Item] | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        """Reentrant, for a finaliser that runs while the thread is started and ends a generation itself."""
        self._hurry = threading.Event()
        """Set while somebody waits for a flush."""
        self._working = threading.Lock()
        """Held while an item is worked on, so that a fork finds no lock of the metrics taken by the thread.
        """

    def generation_started(self, call_site: CallSite) -> None:
        try:
            self._pipeline.started(call_site)
        except Exception:
            guard.fault("count a call that begins")

    def generation(self, build: Callable[[], Generation]) -> None:
        waiting = self._queue if self._queue is not None else self._start()
        if waiting.qsize() >= self._capacity or self._closed:
            self._lost.append(None)
        else:
            waiting.put(build)

    def change(self, change: ParameterChange) -> None:
        if threading.current_thread() is self._thread:
            # Found while a generation was built; queued, it would come after a flush that already waits.
            self._pipeline.change(change)
        elif not self._closed:
            (self._queue if self._queue is not None else self._start()).put(change)

    def ends_late(self) -> bool:
        """Whether a generation's span may be ended where its record is built: nobody sees it before a batch
        is exported, and what is handed in now will surely be worked on."""
        waiting = self._queue
        room = not self._closed and (waiting is None or 2 * waiting.qsize() < self._capacity)
        return room and self._pipeline.shows_spans_late()

    def pending(self) -> int:
        """Items that wait for the thread."""
        return self._queue.qsize() if self._queue is not None else 0

    def flush(self, timeout: float) -> bool:
        """Work off all that was handed in before, and deliver it.

        Returns:
            False when that takes longer than ``timeout`` seconds.
        """
        if self._closed:
            return True
        end = time.monotonic() + timeout
        if not self._ask(_Flush(), timeout):
            return False
        return self._pipeline.settle(max(0.0, end - time.monotonic()))

    def shutdown(self, timeout: float) -> None:
        """Flush within ``timeout`` seconds, then stop; what comes later is not taken."""
        end = time.monotonic() + timeout
        stopped = self._ask(_Flush(stop=True), timeout)
        self._closed = True
        if stopped:
            self._thread = None
        self._pipeline.shutdown(max(0.0, end - time.monotonic()))
        _sinks.discard(self)

    def _ask(self, request: _Flush, timeout: float) -> bool:
        if self._queue is None or self._thread is None:
            return True
        self._hurry.set()
        self._queue.put(request)
        return request.done.wait(timeout)

    def _start(self) -> queue.SimpleQueue[_Item]:
        with self._starting:
            if self._queue is None:
                waiting: queue.SimpleQueue[_Item] = queue.SimpleQueue()
                self._thread = threading.Thread(
                    target=self._run, args=(waiting,), name="otelkit", daemon=True
                )
                self._queue = waiting
                self._thread.start()
            return self._queue

    def _run(self, waiting: queue.SimpleQueue[_Item]) -> None:
        # Nothing of a generation is held on to here, while the thread waits for the next.
        while self._round(waiting):
            self._hurry.wait(REST_SECONDS)

    def _round(self, waiting: queue.SimpleQueue[_Item]) -> bool:
        """Wait for an item or for spans to be due, and work off all there is; False when asked to stop."""
        try:
            item: _Item | None = waiting.get(timeout=self._pipeline.due_in())
        except queue.Empty:
            item = None
        while item is not None:
            self._guarded(item)
            if isinstance(item, _Flush):
                self._hurry.clear()
                item.done.set()
                if item.stop:
                    return False
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                item = None
        self._guarded(None)
        return True

    def _guarded(self, item: _Item | None) -> None:
        try:
            with self._working:
                self._work(item)
        except Exception:
            if isinstance(item, _Flush):
                item.done.set()
            guard.fault("work on a finished generation")

    def _work(self, item: _Item | None) -> None:
        """Work on one item; None stands for the end of a round."""
        pipeline = self._pipeline
        if isinstance(item, ParameterChange):
            pipeline.change(item)
        elif isinstance(item, _Flush):
            self._end_round()
            pipeline.ship()
        elif item is None:
            self._end_round()
        else:
            try:
                generation = item()
            except Exception:
                pipeline.lost(1, self_metrics.FAULT)
                raise
            pipeline.generation(generation)

    def _end_round(self) -> None:
        pipeline = self._pipeline
        if self._lost:
            pipeline.lost(self._drain_lost(), self_metrics.QUEUE_FULL)
        due = pipeline.due_in()
        if due is not None and due <= 0:
            pipeline.ship()
        pipeline.account()

    def _drain_lost(self) -> int:
        count = len(self._lost)
        for _ in range(count):
            self._lost.popleft()
        return count

    def before_fork(self) -> bool:
        """Wait until the thread is between two items; False when it doesn't come to that soon."""
        return self._working.acquire(timeout=FORK_WAIT_SECONDS)

    def after_fork_in_parent(self) -> None:
        self._working.release()

    def after_fork_in_child(self) -> None:
        """The thread is gone, and what waited is the parent's: begin anew."""
        self._lost.clear()
        self._new()
        self._pipeline.after_fork()


_sinks: Final[weakref.WeakSet[QueueSink]] = weakref.WeakSet()
_held: Final[list[QueueSink]] = []


def _before_fork() -> None:
    _held.extend(sink for sink in list(_sinks) if sink.before_fork())


def _after_in_parent() -> None:
    for sink in _held:
        sink.after_fork_in_parent()
    _held.clear()


def _after_in_child() -> None:
    _held.clear()
    for sink in list(_sinks):
        sink.after_fork_in_child()


os.register_at_fork(before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
