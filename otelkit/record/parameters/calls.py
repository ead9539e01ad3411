"""A sink in front of the sink: learns from finished generations which parameters are in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from otelkit.model import CallSite, ChangeSource, Generation, ParameterChange, Sink
from otelkit.record.guard import fault
from otelkit.record.parameters.reporting import Reporter
from otelkit.record.parameters.store import ParameterStore
from otelkit.record.parameters.wishes import HEADER_ORIGIN, Wishes
from otelkit.record.redaction import exported


class CallObserver:
    """Passes on to ``inner`` what it gets, but for observed changes that were declared: those are known.
    Values of the others are put into the form in which they may leave the process.

    A generation is looked at where the inner sink has it built, off the request's path.

    Args:
        wishes: what callers ask for by header.
        keep: called with each generation as well, for debug pages.
    """

    def __init__(
        self,
        inner: Sink,
        store: ParameterStore,
        reporter: Reporter,
        wishes: Wishes,
        keep: Callable[[Generation], None],
    ) -> None:
        self._inner = inner
        self._store = store
        self._reporter = reporter
        self._wishes = wishes
        self._keep = keep

    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        self._store.call_begins()
        # From now on the inner sink is told directly: in the request's path a function costs a microsecond.
        self.generation_started = self._inner.generation_started  # type: ignore[method-assign]
        self._inner.generation_started(call_site)

    def generation(self, build: Callable[[], Generation]) -> None:
        def observed() -> Generation:
            generation = build()
            try:
                self._store.call_used(generation)
                self._keep(generation)
            except Exception:
                fault("look at the parameters of a call")
            return generation

        self._inner.generation(observed)

    def change(self, change: ParameterChange) -> None:
        if change.source is ChangeSource.OBSERVED:
            if self._reporter.is_known(change):
                return
            if self._wishes.explain(change):
                change = replace(change, source=ChangeSource.HEADER, origin=HEADER_ORIGIN)
            name = change.parameter
            change = replace(change, old=exported(name, change.old), new=exported(name, change.new))
        self._inner.change(change)
