"""What the tests of declared parameters share: a sink that keeps all, and a store on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from otelkit.model import CallSite, Generation, ParameterChange
from otelkit.record.parameters.reporting import Reporter
from otelkit.record.parameters.store import ParameterStore

SITE = CallSite("chat", "openai", "chat", "gpt-4o", "app.py:answer")


@dataclass
class Kept:
    """A sink that keeps what it gets."""

    changes: list[ParameterChange] = field(default_factory=list)
    generations: list[Generation] = field(default_factory=list)
    started: int = 0

    def generation_started(self, call_site: Callable[[], CallSite]) -> None:
        self.started += 1

    def generation(self, build: Callable[[], Generation]) -> None:
        self.generations.append(build())

    def change(self, change: ParameterChange) -> None:
        self.changes.append(change)

    @property
    def steps(self) -> list[tuple[str, object, object]]:
        return [(change.parameter, change.old, change.new) for change in self.changes]


class Declared:
    """A store of its own, with a clock that the test moves."""

    def __init__(self) -> None:
        self.time = 1_000.0
        self.sink = Kept()
        self.reporter = Reporter()
        self.reporter.attach(self.sink, "chat")
        self.store = ParameterStore(self.reporter, lambda: self.time)
