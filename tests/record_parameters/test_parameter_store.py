"""Declared parameters: limits, layers, atomic replacement, and what is reported as a change."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opentelemetry.sdk.trace import TracerProvider
from parameters_declared import SITE, Declared, Kept

from otelkit.errors import ConfigError
from otelkit.model import UNSET, ChangeSource, Generation, ParameterChange, SpanIdentity
from otelkit.record.parameters import counts, fingerprint
from otelkit.record.parameters.calls import CallObserver
from otelkit.record.parameters.snapshot import Snapshot
from otelkit.record.parameters.wishes import Wishes


@contextmanager
def _fast_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_readers_never_see_half_of_a_replaced_set() -> None:
    """If this fails, a request is served with one parameter of the old set and one of the new."""
    declared = Declared()
    store = declared.store
    names = [f"p{number}" for number in range(20)]
    store.replace(dict.fromkeys(names, 0))
    store.call_begins()
    stop = threading.Event()
    mixes: list[list[object]] = []
    reads = [0] * 4

    def read(number: int) -> None:
        while not stop.is_set():
            with store.hold():
                values = [store.get(name) for name in names]
            taken = store.snapshot()
            if len(set(values)) > 1 or len(set(taken.values())) > 1:
                mixes.append(values)
            reads[number] += 1

    def write(start: int) -> None:
        for value in range(start, start + 300):
            store.replace(dict.fromkeys(names, value))

    with _fast_switching():
        readers = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        writers = [threading.Thread(target=write, args=(start,)) for start in (1_000, 2_000)]
        for thread in (*readers, *writers):
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in readers:
            thread.join()
    assert not mixes
    assert min(reads) > 0
    reported = [change for change in declared.sink.changes if change.effective_at is None]
    assert len(reported) == 20 * 600, "each step of each parameter, once"
    assert set(store.snapshot().values()) <= {1_299, 2_299}


def test_a_generation_in_flight_keeps_the_set_it_started_with() -> None:
    """If this fails, a stream changes its parameters in the middle, or its span names another set."""
    store = Declared().store
    store.set("max_tokens", 256)
    started_with = store.snapshot()
    with store.hold(started_with):
        store.set("max_tokens", 1024)
        assert store.get("max_tokens") == 256
    assert store.get("max_tokens") == 1024
    assert dict(started_with) == {"max_tokens": 256}
    assert started_with.fingerprint != store.snapshot().fingerprint
    assert started_with.version < store.snapshot().version


def test_a_held_set_is_not_seen_by_other_threads() -> None:
    """If this fails, one request's parameters leak into another."""
    store = Declared().store
    store.set("max_tokens", 256)
    seen: list[object] = []
    with store.hold():
        store.set("max_tokens", 1)
        thread = threading.Thread(target=lambda: seen.append(store.get("max_tokens")))
        thread.start()
        thread.join()
    assert seen == [1]


def test_values_that_readers_get_are_theirs_to_change() -> None:
    """If this fails, a caller that appends to its stop sequences changes everyone's."""
    store = Declared().store
    store.set("stop", ["\n"])
    store.get("stop").append("User:")
    store.snapshot()["stop"].append("User:")
    assert store.get("stop") == ["\n"]
    given = {"level": ["high"]}
    store.set("safety", given)
    given["level"].append("low")
    assert store.get("safety") == {"level": ["high"]}
    locks = [threading.Lock()]
    store.set("locks", locks)
    assert store.get("locks") == locks, "what can't be copied is still a value"


def test_limits_are_kept_and_all_problems_are_told_at_once() -> None:
    """If this fails, a bad value reaches the model, or a user fixes one mistake at a time."""
    store = Declared().store
    assert store.register("max_tokens", 256, kind=int, minimum=1, maximum=4096) == 256
    store.register("temperature", 0.7, minimum=0, maximum=2)
    store.register("mode", "fast", choices=["fast", "good"])
    with pytest.raises(ConfigError) as caught:
        store.update({"max_tokens": 5000, "temperature": True, "mode": "slow", "free": object})
    assert caught.value.problems == (
        "max_tokens: 5000 is above the maximum 4096",
        "temperature: true is not a number",
        'mode: "slow" is none of "fast", "good"',
    )
    assert dict(store.snapshot()) == {"max_tokens": 256, "temperature": 0.7, "mode": "fast"}
    store.set("max_tokens", 512.0)
    assert store.get("max_tokens") == 512 and isinstance(store.get("max_tokens"), int)
    with pytest.raises(ConfigError, match=r"nan is no finite number"):
        store.set("temperature", float("nan"))
    with pytest.raises(ConfigError, match=r"default: x: 9 is above the maximum 5"):
        store.register("x", 9, maximum=5)
    store.set("later", 100)
    with pytest.raises(ConfigError, match=r"later: 100 is above the maximum 10"):
        store.register("later", 1, maximum=10)


def test_the_environment_sets_values_at_start_and_a_bad_one_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If this fails, deployments can't set parameters, or a typo in one takes the service down."""
    monkeypatch.setenv("OTELKIT_PARAMETER_MAX_TOKENS", "512")
    monkeypatch.setenv("OTELKIT_PARAMETER_TOP_P", "lots")
    monkeypatch.setenv("CHAT_STOP", '["\\n"]')
    monkeypatch.setenv("OTELKIT_PARAMETER_ROUTE", "12")
    store = Declared().store
    assert store.register("max_tokens", 256, kind=int) == 512
    assert store.register("top_p", 0.9) == 0.9
    assert store.register("stop", [], env="CHAT_STOP") == ["\n"]
    assert store.register("route", "", kind=str) == "12"
    assert 'OTELKIT_PARAMETER_TOP_P: top_p: "lots" is not a number' in caplog.text
    assert store.counts.read()[counts.ENVIRONMENT, counts.REFUSED] == 1
    assert store.counts.read()[counts.ENVIRONMENT, counts.APPLIED] == 3


def test_a_scope_has_its_own_values_and_falls_back_to_those_of_the_service() -> None:
    """If this fails, a route can't have its own parameters, or gets none at all."""
    store = Declared().store
    store.set("temperature", 0.7)
    store.set("temperature", 0.1, scope="/extract")
    assert store.get("temperature", scope="/extract") == 0.1
    assert store.get("temperature", scope="/chat") == 0.7
    assert dict(store.snapshot()) == {"temperature": 0.7}
    store.set("temperature", UNSET, scope="/extract")
    assert store.get("temperature", scope="/extract") == 0.7


def test_nothing_is_a_change_before_the_first_call_and_everything_after() -> None:
    """If this fails, every restarted worker reports its start-up as changes, or real changes are lost."""
    declared = Declared()
    store = declared.store
    store.register("max_tokens", 256)
    store.set("max_tokens", 512)
    assert declared.sink.changes == []
    store.call_begins()
    declared.time = 2_000.0
    store.set("max_tokens", 512.0)  # the same
    store.set("max_tokens", 1024, origin="admin page")
    store.set("stop", ["\n"])
    store.replace({"max_tokens": 1024})
    assert declared.sink.steps == [
        ("max_tokens", 512, 1024),
        ("stop", UNSET, ["\n"]),
        ("stop", ["\n"], UNSET),
    ]
    first = declared.sink.changes[0]
    assert (first.service, first.source, first.first_seen) == ("chat", ChangeSource.DECLARED, 2_000.0)
    assert first.origin == "admin page"
    assert declared.sink.changes[1].origin.startswith("test_parameter_store.py:test_nothing_is_a_change")


def test_declaring_a_parameter_late_is_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, each module imported after the first call reports its parameters as changes."""
    declared = Declared()
    store = declared.store
    store.call_begins()
    monkeypatch.setenv("OTELKIT_PARAMETER_TOP_P", "0.5")
    store.register("top_p", 0.9)
    store.register("limit", 10)
    store.register("top_p", 0.8)
    assert declared.sink.changes == []
    store.register("limit", 20)
    assert declared.sink.steps == [("limit", 10, 20)], "another default is another value"


def test_a_read_value_that_is_replaced_is_a_change_without_any_call() -> None:
    """If this fails, parameters of services that otelkit sees no calls of (rate limits, say) never change."""
    declared = Declared()
    declared.store.register("limit", 10)
    assert declared.store.get("limit") == 10
    declared.store.set("limit", 20)
    assert declared.sink.steps == [("limit", 10, 20)]


def test_secrets_and_prompts_are_not_in_changes() -> None:
    """If this fails, a rotated key or a new system prompt is exported."""
    declared = Declared()
    store = declared.store
    store.call_begins()
    store.update({"api_key": "sk-old-0123456789abcdefghij", "system_prompt": "Be kind."})
    store.update({"api_key": "sk-new-0123456789abcdefghij", "system_prompt": "Be terse."})
    assert "0123456789" not in repr(declared.sink.changes) and "Be " not in repr(declared.sink.changes)
    rotated = declared.sink.changes[2]
    assert (rotated.parameter, rotated.old, rotated.new) == ("api_key", "[redacted]", "[redacted]")
    assert declared.sink.changes[3].old != declared.sink.changes[3].new
    assert store.get("api_key") == "sk-new-0123456789abcdefghij", "the service itself reads the real value"


def test_loaded_values_become_effective_with_the_first_call_that_uses_them() -> None:
    """If this fails, a reader can't tell a value that waits from one that is in force in calls."""
    declared = Declared()
    store = declared.store
    store.register("max_tokens", 256)
    store.call_begins()
    store.set("max_tokens", 1024)
    entry = store.snapshot().entry("max_tokens")
    assert entry is not None and entry.first_use is None and entry.loaded_at == 1_000.0
    declared.time = 1_030.0
    with TracerProvider().get_tracer("test").start_as_current_span("request") as span:
        store.get("max_tokens")
    assert entry.first_use is not None
    assert entry.first_use.at == 1_030.0
    assert entry.first_use.trace_id == f"{span.get_span_context().trace_id:032x}"
    loaded, used = declared.sink.changes
    assert (loaded.effective_at, used.effective_at) == (None, 1_030.0)
    assert loaded.id == used.id, "one change, reported twice"
    declared.time = 1_060.0
    store.get("max_tokens")
    assert entry.first_use.at == 1_030.0


def _generation(at: float, **parameters: object) -> Generation:
    return Generation(
        SITE, int(at * 1e9), int(at * 1e9) + 1, parameters=parameters, span=SpanIdentity(0xABC, 0xDEF, True)
    )


def test_a_generation_that_carries_a_value_makes_it_effective() -> None:
    """If this fails, services that keep values of their own seem never to use what was declared."""
    declared = Declared()
    store, sink = declared.store, Kept()
    kept: list[Generation] = []
    observer = CallObserver(sink, store, declared.reporter, Wishes(), kept.append)
    store.register("max_tokens", 256)
    store.register("top_p", 0.5)
    observer.generation_started(lambda: SITE)
    store.set("max_tokens", 1024)
    declared.time = 2_000.0
    observer.generation(lambda: _generation(900.0, max_tokens=1024))  # began before the value was loaded
    observer.generation(lambda: _generation(1_500.0, max_tokens=512, top_p=0.9))
    entry = store.snapshot().entry("max_tokens")
    assert entry is not None and entry.first_use is None
    observer.generation(lambda: _generation(1_600.0, max_tokens=1024))
    assert entry.first_use is not None and entry.first_use.at == 1_600.0
    assert entry.first_use.trace_id == f"{0xABC:032x}"
    assert (sink.started, len(sink.generations)) == (1, 3) and kept == sink.generations


def test_an_observed_change_that_was_declared_is_reported_once() -> None:
    """If this fails, each declared change is counted twice and no cause can be told from its double."""
    declared = Declared()
    store, sink = declared.store, declared.sink
    observer = CallObserver(sink, store, declared.reporter, Wishes(), lambda generation: None)
    store.set("max_tokens", 256)
    store.call_begins()
    store.set("max_tokens", 1024)

    def observed(new: int, at: float, parameter: str = "max_tokens") -> ParameterChange:
        return ParameterChange("chat", parameter, 256, new, at, at, "app.py:answer")

    observer.change(observed(1024, 1_020.0))
    assert len(sink.changes) == 1
    observer.change(observed(512, 1_020.0))  # another value
    observer.change(observed(1024, 3_000.0))  # long after
    observer.change(observed(1024, 1_020.0, "top_k"))
    assert len(sink.changes) == 4


def test_values_of_an_observed_change_are_redacted() -> None:
    """If this fails, a secret that requests carry is exported when it changes."""
    declared = Declared()
    observer = CallObserver(
        declared.sink, declared.store, declared.reporter, Wishes(), lambda generation: None
    )
    secret = "Bearer abcdefghijklmnopqrst"
    observer.change(
        ParameterChange("chat", "extra_headers", UNSET, {"Authorization": secret, "X": 1}, 1.0, 1.0)
    )
    observer.change(ParameterChange("chat", "system_prompt", "Be kind.", "Be terse.", 1.0, 1.0))
    headers, prompt = declared.sink.changes
    assert (headers.old, headers.new) == (UNSET, {"Authorization": "[redacted]", "X": 1})
    assert prompt.old != prompt.new and "Be" not in f"{prompt.old}{prompt.new}"


def test_changes_before_there_is_a_sink_are_kept_for_it() -> None:
    """If this fails, what changes before ``instrument()`` is lost."""
    declared = Declared()
    declared.reporter.detach()
    declared.store.register("limit", 10)
    declared.store.get("limit")
    declared.store.set("limit", 20)
    declared.time = 1_010.0
    declared.store.get("limit")
    late = Kept()
    declared.reporter.attach(late, "chat")
    assert [(c.service, c.new, c.effective_at) for c in late.changes] == [("chat", 20, 1_010.0)]


def test_a_broken_sink_does_not_break_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a fault of telemetry keeps a service from changing its own parameters."""

    class Broken(Kept):
        def change(self, change: ParameterChange) -> None:
            raise RuntimeError("no disk")

    declared = Declared()
    declared.reporter.attach(Broken(), "chat")
    declared.store.call_begins()
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    declared.store.set("limit", 20)
    assert declared.store.get("limit") == 20


def test_the_fingerprint_names_what_the_set_means() -> None:
    """If this fails, traces split by it mix sets, or one set falls into several groups."""
    one = fingerprint({"max_tokens": 256, "stop": ["a"], "temperature": 1})
    assert one == fingerprint({"temperature": 1.0, "stop": ("a",), "max_tokens": 256})
    assert one == fingerprint({"temperature": 1, "stop": ["a"], "max_tokens": 256, "seed": UNSET})
    others = [{"temperature": value} for value in (0, None, False, "0", 1, True)]
    assert len({fingerprint(other) for other in others}) == len(others)
    assert fingerprint({}) == fingerprint({"seed": UNSET}) == ""
    assert fingerprint({"api_key": "one"}) == fingerprint({"api_key": "another"})
    assert len(one) == 12


def test_too_many_parameters_are_refused() -> None:
    """If this fails, a generated configuration file fills the memory of every worker."""
    store = Declared().store
    with pytest.raises(ConfigError, match="more than 1000 parameters"):
        store.update({f"p{number}": number for number in range(1001)})
    assert not store.snapshot()


def test_a_snapshot_is_a_mapping_of_values() -> None:
    """If this fails, a snapshot can't be passed where a mapping is asked for."""
    store = Declared().store
    store.update({"a": 1, "b": None})
    taken = store.snapshot()
    assert isinstance(taken, Snapshot)
    assert (len(taken), list(taken), taken["b"]) == (2, ["a", "b"], None)
    with pytest.raises(KeyError):
        taken["c"]
    assert taken.get("c", 5) == 5 and taken.get("c") is UNSET
