"""Rounds over a source that is scripted: what is read, kept, counted and left for later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from otelkit.analyse import Analyser, Limits
from otelkit.errors import BackendUnreachable, DataError
from otelkit.model import ParameterChange
from otelkit.query import Panel, ServiceSeries
from otelkit.query.connection import Api
from otelkit.spec import Duration, Spec

NOW = 1_800_000_000.0


class ScriptedSource:
    """Steady services, of which some changed."""

    def __init__(self, names: Sequence[str], changes: Sequence[ParameterChange]) -> None:
        self.names, self.found = tuple(names), list(changes)
        self.read: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.warnings: tuple[str, ...] = ()

    def service_names(self, start: float, end: float) -> tuple[str, ...]:
        return self.names

    def changes(self, start: float, end: float, service: str | None = None) -> tuple[ParameterChange, ...]:
        return tuple(one for one in self.found if start <= one.first_seen <= end)

    def panel(self, services: Sequence[str] | None, start: float, end: float, step: float) -> Panel:
        (name,) = services or ()
        self.read.append(name)
        if name in self.broken:
            raise self.broken[name]
        times = np.arange(start, end + 1, step)
        dice = np.random.default_rng(len(self.read))
        bounds = np.array([0.1, 0.2, 0.3, 0.5, 1.0, np.inf])
        counts = dice.poisson((5, 10, 10, 4, 1, 0), (len(times), 6)).astype(float)
        p99 = dice.normal(0.8, 0.02, len(times))
        series = ServiceSeries(name, {0.99: p99}, 60.0, bounds, counts)
        return Panel(times, step, {name: series})


class NothingRecorded(Api):
    """A server without recorded series and without an earlier analyser's page."""

    def __init__(self) -> None:
        pass

    def get(self, path: str, parameters: Any) -> Any:
        return {"result": []}


class Counting:
    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []

    def flipped(self, service: str, old: str, new: str) -> None:
        self.events.append(("flipped", service, old, new))

    def evicted(self, service: str, changes: int) -> None:
        self.events.append(("evicted", service, changes))

    def fault(self, service: str) -> None:
        self.events.append(("fault", service))


def change(service: str, parameter: str, age: float) -> ParameterChange:
    at = NOW - age
    return ParameterChange(service, parameter, 1, 2, at, at)


def analyser(source: ScriptedSource, limits: Limits | None = None) -> tuple[Analyser, Counting, list[float]]:
    counting, now = Counting(), [NOW]
    made = Analyser(
        source,
        NothingRecorded(),
        Spec(scrape_interval=Duration.parse("1m")),
        limits=limits or Limits(),
        watcher=counting,
        clock=lambda: now[0],
    )
    return made, counting, now


def test_nothing_is_read_while_nothing_is_due() -> None:
    """Every round would read hours of data of every service, whatever happened."""
    source = ScriptedSource(["a", "b"], [change("a", "top_k", 5)])
    made, _, now = analyser(source)
    (one,) = made.round().judgements["a"]
    assert (one.verdict, source.read) == ("too early", [])
    now[0] += 400
    made.round()
    assert sorted(source.read) == ["a", "b"]
    made.round()
    assert sorted(source.read) == ["a", "b"]


def test_few_services_a_round_newest_first_and_few_controls() -> None:
    """After a restart one round would take minutes, and the change that matters be the last to be judged."""
    names = [f"s{number:03}" for number in range(60)]
    source = ScriptedSource(names, [change(name, "top_k", 1200 + 10 * n) for n, name in enumerate(names)])
    made, _, _ = analyser(source, Limits(services=2))
    state = made.round()
    assert state.waiting == 58
    assert [len(some) for some in state.judgements.values()] == [1] * 60
    judged = {name for name, some in state.judgements.items() if some[0].finding is not None}
    assert judged == {"s000", "s001"}
    assert len(source.read) <= 15
    assert made.round().waiting == 56


def test_evictions_are_bounded_and_counted() -> None:
    """The page would grow with every change, or lose changes without a word."""
    source = ScriptedSource(["a"], [change("a", f"p{number}", 1000 + number) for number in range(5)])
    made, counting, _ = analyser(source, Limits(changes_of_a_service=5))
    assert len(made.round().judgements["a"]) == 5
    source.found += [change("a", "newer", 20), change("a", "newest", 10)]
    kept = made.round().judgements["a"]
    assert [one.change.parameter for one in kept] == ["p2", "p1", "p0", "newer", "newest"]
    assert ("evicted", "a", 2) in counting.events
    made, _, _ = analyser(source, Limits(changes=3))
    assert sum(map(len, made.round().judgements.values())) == 3


def test_one_service_without_data_or_with_a_fault_leaves_the_others_alone() -> None:
    """A service that went away, or one odd series, would keep all verdicts back."""
    source = ScriptedSource(["a", "b", "c"], [change(name, "top_k", 2000) for name in ("a", "b", "c")])
    source.broken = {"b": DataError("no series"), "c": ZeroDivisionError("odd")}
    made, counting, _ = analyser(source)
    state = made.round()
    assert state.judgements["a"][0].finding is not None
    assert state.judgements["b"][0].verdict == "cannot separate"
    assert state.judgements["c"][0].verdict == "cannot separate"
    assert counting.events == [("fault", "c")]


def test_a_server_that_goes_away_in_a_round_loses_nothing() -> None:
    """Half of a round would replace what was known."""
    source = ScriptedSource(["a"], [change("a", "top_k", 2000)])
    made, _, _ = analyser(source)
    before = made.round()
    source.found.append(change("a", "seed", 500))
    source.broken = {"a": BackendUnreachable("gone")}
    with pytest.raises(BackendUnreachable):
        made.round()
    assert made.state.judgements["a"][0] == before.judgements["a"][0]
    source.broken = {}
    assert [one.change.parameter for one in made.round().judgements["a"]] == ["top_k", "seed"]


def test_changes_out_of_reach_are_left_out() -> None:
    """A change that lies before all that is read would stay "too early" for ever."""
    source = ScriptedSource(["a"], [change("a", "top_k", 5 * 3600), change("a", "seed", 2000)])
    made, _, _ = analyser(source)
    assert [one.change.parameter for one in made.round().judgements["a"]] == ["seed"]


def test_services_with_ever_new_changes_do_not_keep_others_waiting() -> None:
    """The last looks at a quiet service would wait for as long as a busy one goes on changing."""
    busy = [change("busy", f"p{number}", 1000 - 100 * number) for number in range(10)]
    source = ScriptedSource(["busy", "quiet"], [*busy, change("quiet", "top_k", 2000)])
    made, _, now = analyser(source, Limits(services=1))
    made.round()
    for _ in range(2):
        now[0] += 400
        source.found.append(change("busy", f"at{now[0]}", NOW - now[0] + 90))
        made.round()
    assert made.state.judgements["quiet"][0].finding is not None
