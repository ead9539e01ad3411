"""What is done with each finished generation and each change, in the background thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from otelkit.emit import notices, self_metrics
from otelkit.emit.attach import Attachment
from otelkit.emit.events import emit_change
from otelkit.emit.metrics import GenerationMetrics
from otelkit.emit.route import NoRoute, Route
from otelkit.emit.selection import Selected, StepSelection
from otelkit.emit.self_metrics import SelfMetrics
from otelkit.model import CallSite, Generation, ParameterChange
from otelkit.record import guard

ACCOUNT_SECONDS: Final = 1.0
_Item = TypeVar("_Item")


class Pipeline:
    """Metrics and token-step spans; nothing here waits for the network.

    All but ``started``, ``settle`` and ``shutdown`` is for the background thread alone.

    Args:
        service: ``service.name`` of the process.
        prepare: called once, before the first call or change.
        say_in_child: said by a forked child that records a generation.
        write_files: called after work, and again after as many seconds as it returns; 0 says that it has
            written all there is.
    """

    def __init__(
        self,
        service: str,
        metrics: GenerationMetrics,
        own: SelfMetrics,
        selection: StepSelection,
        attachment: Attachment,
        *,
        prepare: Callable[[], None] | None = None,
        say_in_child: str = "",
        write_files: Callable[[], float] | None = None,
    ) -> None:
        self._service = service
        self._metrics = metrics
        self._own = own
        self._selection = selection
        self._attachment = attachment
        self._prepare = prepare
        self._say_in_child = say_in_child
        self._write_files = write_files
        self._stale_files = False
        self._files_due: float | None = None
        """When, by ``time.monotonic``, the last work is to be written, if it is not yet."""
        self._is_child = False
        self._route: Route = NoRoute()
        self._cpu_seconds: float | None = None
        self._accounted_at = 0.0

    def started(self, call_site: CallSite, calls: int = 1) -> None:
        """Count calls that have begun. The first of a process in the request's path, as the provider may have
        to be set up for it."""
        self._prepare_once()
        self._attachment.hook()
        self._metrics.started(call_site, calls)

    def work_on(self, generations: Sequence[Generation]) -> None:
        """All there is to do with these; a fault costs one stage of one of them."""
        if not generations:
            return
        if self._is_child and self._say_in_child:
            notices.say_once(self._say_in_child)
        self._stale_files = True
        selected: list[tuple[Generation, Selected]] = []
        _each(generations, lambda one: selected.append((one, self._selection.select(one))))
        _each(selected, lambda one: self._metrics.ended(one[0], traced=one[1].traced))
        if any(one[1].steps for one in selected):
            self._route = self._attachment.route()
        _each(selected, lambda one: self._write_steps(*one))

    def _write_steps(self, generation: Generation, selected: Selected) -> None:
        if selected.steps:
            self._route.write(generation, selected.steps)
        if selected.left_out:
            self._own.not_selected(selected.left_out, selected.reason)

    def take_span(self, span: bytes) -> bool:
        """Take the encoded span of a generation that is being built; False where spans go another way."""
        self._route = self._attachment.route()
        return self._route.take(span)

    def lost(self, generations: int, reason: str) -> None:
        """Generations that ended and of which nothing else is known."""
        self._own.lost(generations, reason)
        for _ in range(generations):
            self._metrics.lost(self._service)

    def change(self, change: ParameterChange) -> None:
        self._prepare_once()
        self._stale_files = True
        # A change is reported again when the first call uses it; that is news for the log alone.
        if self._metrics.changed(change) or change.effective_at is not None:
            emit_change(change)

    def _prepare_once(self) -> None:
        if self._prepare is not None:
            prepare, self._prepare = self._prepare, None
            prepare()

    def due_in(self) -> float | None:
        """Seconds until ``ship`` or ``account`` should be called; None when nothing waits."""
        due = self._route.due_in()
        if self._files_due is None:
            return due
        files = max(0.0, self._files_due - time.monotonic())
        return files if due is None else min(due, files)

    def ship(self) -> None:
        self._route.ship()

    def account(self) -> None:
        """Count the CPU time of the calling thread since the last call, about once a second."""
        now = time.monotonic()
        self._bring_files_up_to_date(now)
        if self._cpu_seconds is not None and now - self._accounted_at < ACCOUNT_SECONDS:
            return
        spent = time.thread_time()
        self._own.overhead(self_metrics.STAGE_BUILD, spent - (self._cpu_seconds or 0.0))
        self._cpu_seconds, self._accounted_at = spent, now

    def _bring_files_up_to_date(self, now: float) -> None:
        if self._write_files is None or not self._stale_files:
            return
        self._stale_files, self._files_due = False, None  # also where it fails, lest it be tried without end
        seconds = self._write_files()
        if seconds:
            self._stale_files, self._files_due = True, now + seconds

    def settle(self, timeout: float) -> bool:
        return self._route.settle(timeout)

    def shutdown(self, timeout: float) -> None:
        self._attachment.shutdown(timeout)

    def after_fork(self) -> None:
        self._is_child = True
        self._route = NoRoute()
        self._cpu_seconds = None
        self._metrics.after_fork()
        self._attachment.after_fork()


def _each(items: Iterable[_Item], act: Callable[[_Item], None]) -> None:
    for item in items:
        try:
            act(item)
        except Exception:
            guard.fault("work on a finished generation")
