"""Takes finished generations out of the request's path: a bounded queue and one daemon thread."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final

from otelkit.emit import self_metrics
from otelkit.emit.pipeline import Pipeline
from otelkit.model import CallSite, Generation, ParameterChange
from otelkit.record import guard

FORK_WAIT_SECONDS: Final = 1.0
REST_SECONDS: Final = 2.0
"""How long finished generations wait for others, so that one run of the thread serves them all: run for each
of them alone, it costs up to six times as much, since nothing it needs is in the processor's caches."""
MANY: Final = 32
"""Generations that are not let wait for more; they are worked on together."""
MANY_STEPS: Final = 20_000
"""Generations with so many steps in all are not worked on together with more."""
PAUSE_SECONDS: Final = 0.05
"""At least, before spans are shipped for their age alone: where that fails it is not tried without pause."""
_NEVER: Final = sys.maxsize


@dataclass(slots=True)
class _Flush:
    """Asks the thread to work off what waits; ``ship`` to deliver it besides, ``stop`` to end then."""

    ship: bool = True
    stop: bool = False
    done: threading.Event = field(default_factory=threading.Event)


_Build = Callable[[], Generation]


class QueueSink:
    """The ``model.Sink`` of a service.

    ``generation`` may be called by a finaliser, in the middle of anything, the background thread included: it
    takes no lock that Python code could hold. Thread and queue are made at the first use, so that a server
    which forks after loading has none, and so that gevent, patched in by then, gets its own kind.

    What is handed in is worked on within ``REST_SECONDS``, sooner where many wait or somebody flushes.

    Args:
        pipeline: does the work.
        capacity: finished generations that may wait; beyond it they are lost, and counted.
        count_at_once: whether a call that begins is counted then, and not when this process is asked: where
            others are asked too.
    """

    def __init__(self, pipeline: Pipeline, capacity: int, *, count_at_once: bool = False) -> None:
        self._pipeline = pipeline
        self._count_at_once = count_at_once
        self._prepared = False
        self._capacity = capacity
        self._many = max(1, min(MANY, capacity // 2))
        self._lost: deque[None] = deque()
        self._closed = False
        self._new()
        _sinks.add(self)

    def _new(self) -> None:
        self._begun: deque[Callable[[], CallSite]] = deque()
        """Calls that are still to be counted."""
        self._waiting: deque[_Build] = deque()
        self._requests: deque[ParameterChange | _Flush] = deque()
        self._bell: queue.SimpleQueue[None] | None = None
        """What the thread waits at: unlike an event or a condition, it can be rung by a finaliser."""
        self._rings_at = _NEVER
        """Number of waiting generations at which the thread is to be woken. Whoever wakes it sets this to
        never before, and the thread sets it anew before it looks whether anything waits: so none is missed.
        """
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        """Reentrant, for a finaliser that runs while the thread is started and ends a generation itself."""
        self._working = threading.Lock()
        """Held while there is work on something, so that a fork finds no lock of the metrics taken by the
        thread."""

    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        if not self._closed:
            self._begun.append(call_site)
        if self._count_at_once or not self._prepared:
            self._prepared = True
            self._count_begun()

    def _count_begun(self) -> None:
        """Before anything is said of those calls."""
        begun: list[Callable[[], CallSite]] = []
        with contextlib.suppress(IndexError):  # another thread may do the same
            while self._begun:
                begun.append(self._begun.popleft())
        try:
            for site, calls in groupby([call_site() for call_site in begun]):
                self._pipeline.started(site, len(list(calls)))
        except Exception:
            guard.fault("count calls that begin")

    def generation(self, build: Callable[[], Generation]) -> None:
        bell = self._bell if self._bell is not None else self._start()
        waiting = self._waiting
        if len(waiting) >= self._capacity or self._closed:
            self._lost.append(None)
            return
        waiting.append(build)
        if len(waiting) >= self._rings_at:
            self._rings_at = _NEVER
            bell.put(None)

    def change(self, change: ParameterChange) -> None:
        if threading.current_thread() is self._thread:
            # Found while a generation was built; queued, it would come after a flush that already waits.
            self._pipeline.change(change)
        elif not self._closed:
            bell = self._bell if self._bell is not None else self._start()
            self._requests.append(change)
            bell.put(None)

    def has_room(self) -> bool:
        """Whether a generation that is handed in now will surely be worked on."""
        return not self._closed and 2 * len(self._waiting) < self._capacity

    def pending(self) -> int:
        """Finished generations that wait for the thread."""
        return len(self._waiting)

    def uncounted(self) -> int:
        """Generations that have ended and that the pipeline has not been told of; it knows then of all that
        have begun."""
        self._count_begun()
        return len(self._waiting) + len(self._lost)

    def work_off(self, timeout: float) -> bool:
        """Have all that was handed in before worked on, without delivering it.

        Returns:
            False when that takes longer than ``timeout`` seconds.
        """
        if not self.uncounted() or self._closed or threading.current_thread() is self._thread:
            return True
        return self._ask(_Flush(ship=False), timeout)

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
            self._work_here()  # what was handed in while the thread ended
        self._pipeline.shutdown(max(0.0, end - time.monotonic()))
        _sinks.discard(self)

    def _ask(self, request: _Flush, timeout: float) -> bool:
        if self._bell is None:
            return True
        self._requests.append(request)
        if self._thread is None:
            self._work_here()
            return True
        self._bell.put(None)
        return request.done.wait(timeout)

    def _work_here(self) -> None:
        """Work off all there is in the calling thread, where there is no other."""
        with self._starting:
            if self._bell is not None:
                self._round(self._bell)

    def _start(self) -> queue.SimpleQueue[None]:
        with self._starting:
            if self._bell is None:
                bell: queue.SimpleQueue[None] = queue.SimpleQueue()
                self._thread = threading.Thread(target=self._run, args=(bell,), name="otelkit", daemon=True)
                self._bell = bell
                try:
                    self._thread.start()
                except RuntimeError:
                    # The system gives no more threads, or Python 3.12 ends: whoever flushes does the work.
                    self._thread = None
            return self._bell

    def _run(self, bell: queue.SimpleQueue[None]) -> None:
        # Nothing of a generation is held on to here, while the thread waits for the next.
        busy = False
        while True:
            if not busy:
                due = self._pipeline.due_in()
                self._wait(bell, rings_at=1, timeout=None if due is None else max(due, PAUSE_SECONDS))
            if not self._requests and (busy or self._waiting):
                self._wait(bell, rings_at=self._many, timeout=REST_SECONDS)
            worked = self._round(bell)
            if worked is None:
                return
            # Where one alone came the next may be far off; else its coming needn't wake anybody.
            busy = worked > 1

    def _wait(self, bell: queue.SimpleQueue[None], *, rings_at: int, timeout: float | None) -> None:
        """Wait until so many generations wait, or a request, or for ``timeout`` seconds."""
        self._rings_at = rings_at
        if len(self._waiting) < rings_at and not self._requests:
            with contextlib.suppress(queue.Empty):
                bell.get(timeout=timeout)
        self._rings_at = _NEVER

    def _round(self, bell: queue.SimpleQueue[None]) -> int | None:
        """Work off all there is.

        Returns:
            How many generations that were; None when asked to stop.
        """
        worked = 0
        with contextlib.suppress(queue.Empty):
            while True:
                bell.get_nowait()
        while self._waiting or self._requests:
            # Taken first: all that was handed in before it is then among those that wait.
            request = self._requests.popleft() if self._requests else None
            count = len(self._waiting)
            worked += count
            while count:
                count -= self._work_together(count)
            if request is None:
                continue
            try:
                self._guarded(request)
            finally:
                if isinstance(request, _Flush):
                    request.done.set()
            if isinstance(request, _Flush) and request.stop:
                return None
        self._guarded(None)
        return worked

    def _work_together(self, most: int) -> int:
        """Work on up to ``most`` of those that wait: all are built first, then each of the next stages is
        done for all of them. A quarter less work than one after the other, whose stages drive each other out
        of the processor's caches.

        Returns:
            How many they were.
        """
        generations: list[Generation] = []
        taken = steps = 0
        with self._working:
            self._count_begun()
            while taken < min(most, MANY) and steps < MANY_STEPS:
                taken += 1
                try:
                    generation = self._waiting.popleft()()
                except Exception:
                    self._pipeline.lost(1, self_metrics.FAULT)
                    guard.fault("build a finished generation")
                else:
                    generations.append(generation)
                    steps += len(generation.step_ns)
        with self._working:
            self._pipeline.work_on(generations)
        return taken

    def _guarded(self, request: ParameterChange | _Flush | None) -> None:
        """Work on a request; None stands for the end of a round."""
        try:
            with self._working:
                if isinstance(request, ParameterChange):
                    self._pipeline.change(request)
                    return
                self._end_round()
                if request is not None and request.ship:
                    self._pipeline.ship()
        except Exception:
            guard.fault("work on finished generations")

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
