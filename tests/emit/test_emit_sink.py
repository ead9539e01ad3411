"""The sink keeps work off the request's path, whatever happens to its thread, its queue and its process."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
from emit_collector import until
from emit_generations import SITE, generation

from otelkit.emit import sink as sink_module
from otelkit.emit.pipeline import Pipeline
from otelkit.emit.sink import MANY, QueueSink
from otelkit.model import CallSite, Generation, ParameterChange


@dataclass
class Recorder:
    """Stands in for the pipeline: keeps what the sink's thread hands it."""

    generations: list[Generation] = field(default_factory=list)
    changes: list[ParameterChange] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)
    lost_by: dict[str, int] = field(default_factory=dict)
    shipped: int = 0
    delay: float | None = None
    slow: float = 0.0

    def started(self, call_site: CallSite, calls: int) -> None:
        self.threads.add(threading.get_ident())

    def work_on(self, done: Sequence[Generation]) -> None:
        time.sleep(self.slow * len(done))
        self.generations += done
        self.threads.add(threading.get_ident())

    def change(self, change: ParameterChange) -> None:
        self.changes.append(change)

    def lost(self, generations: int, reason: str) -> None:
        self.lost_by[reason] = self.lost_by.get(reason, 0) + generations

    def due_in(self) -> float | None:
        return self.delay

    def ship(self) -> None:
        self.shipped += 1

    def account(self) -> None:
        """Nothing to count."""

    def settle(self, timeout: float) -> bool:
        return True

    def shutdown(self, timeout: float) -> None:
        """Nothing to end."""

    def after_fork(self) -> None:
        self.generations.clear()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def sink(recorder: Recorder) -> Iterator[QueueSink]:
    made = QueueSink(as_pipeline(recorder), capacity=100)
    yield made
    made.shutdown(5)


def as_pipeline(recorder: Recorder) -> Pipeline:
    return recorder  # type: ignore[return-value]


def test_records_are_built_in_another_thread(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise building a record would add to the latency of the user's call."""
    built_in: list[int] = []

    def build() -> Generation:
        built_in.append(threading.get_ident())
        return generation()

    sink.generation(build)
    assert sink.flush(5)
    assert built_in != [threading.get_ident()]
    assert len(recorder.generations) == 1


def test_no_thread_runs_before_the_first_generation(sink: QueueSink) -> None:
    """Otherwise a server that forks its workers after loading would hold a thread through the fork."""
    sink.generation_started(lambda: SITE)
    assert "otelkit" not in {thread.name for thread in threading.enumerate()}
    sink.generation(generation)
    assert "otelkit" in {thread.name for thread in threading.enumerate()}


def test_the_queue_is_bounded_and_never_blocks(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise a burst would cost the service its memory, or make its requests wait."""
    at_work, may_go_on = threading.Event(), threading.Event()

    def build() -> Generation:
        at_work.set()
        assert may_go_on.wait(60)
        return generation()

    sink.generation(build)
    assert at_work.wait(60)
    # All of this while the sink's thread is in the middle of something that doesn't end.
    burst = threading.Thread(target=lambda: [sink.generation(generation) for _ in range(1000)], daemon=True)
    burst.start()
    burst.join(60)
    waited = burst.is_alive()
    pending = sink.pending()
    may_go_on.set()
    assert not waited
    assert pending == 100
    assert sink.flush(60)
    assert recorder.lost_by == {"queue_full": 900}
    assert len(recorder.generations) == 101


def test_generations_are_worked_on_together(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise each wakes the thread, which costs several times more than to work on it beside others."""
    rounds: list[int] = []
    recorder.account = lambda: rounds.append(len(recorder.generations))  # type: ignore[method-assign]
    for _ in range(MANY // 4):
        sink.generation(generation)
    until(lambda: len(recorder.generations) == MANY // 4)
    until(lambda: len(rounds) > 0)
    assert len(rounds) <= 3  # one, on a machine that does not keep this thread from running for half a second


def test_a_lone_generation_is_worked_on_without_being_asked_for(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise the calls of a quiet service would be seen with the next one only."""
    for number in range(1, 4):
        sink.generation(generation)
        until(lambda expected=number: len(recorder.generations) == expected)  # type: ignore[misc]


def test_many_do_not_wait(sink: QueueSink, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise finished generations would fill the memory of a busy service, or be lost."""
    monkeypatch.setattr(sink_module, "REST_SECONDS", 3600)
    for _ in range(MANY):
        sink.generation(generation)
    until(lambda: len(recorder.generations) == MANY)
    sink.generation(generation)
    assert sink.pending() == 1
    assert sink.work_off(30)
    assert len(recorder.generations) == MANY + 1
    assert recorder.shipped == 0


def test_no_generation_is_forgotten_whatever_the_timing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one handed in while the thread falls asleep would wait for the next, which may never come."""
    monkeypatch.setattr(sink_module, "REST_SECONDS", 0.0001)
    sink = QueueSink(as_pipeline(recorder), capacity=10_000)

    def hand_in(seed: int) -> None:
        pauses = random.Random(seed)
        for _ in range(300):
            sink.generation(generation)
            time.sleep(pauses.random() / 2_000)

    threads = [threading.Thread(target=hand_in, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(recorder.generations) == 1_200)
    sink.shutdown(5)


def test_batches_are_shipped_when_due(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise the last spans before a quiet time would wait for the next request."""
    recorder.delay = 0.0
    sink.generation(generation)
    until(lambda: recorder.shipped > 1)


def test_a_generation_may_end_while_its_stream_is_collected(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise a stream that is dropped could deadlock the thread in which the collector runs."""

    class Stream:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            sink.generation(generation)

    def handle() -> Generation:
        Stream()
        gc.collect()  # within the sink's own thread
        return generation()

    for _ in range(20):
        Stream()
        sink.generation(handle)

    def all_have_ended() -> bool:
        gc.collect()  # does nothing while another thread collects
        return sink.flush(5) and len(recorder.generations) == 60

    until(all_have_ended, seconds=60)


def test_changes_found_while_building_are_part_of_the_flush(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise the event of a change that the last calls of a script revealed would be lost at its end."""
    change = ParameterChange("chat", "max_tokens", 1, 2, 1.0, 1.0)

    def build() -> Generation:
        time.sleep(0.05)  # the flush below is queued meanwhile
        sink.change(change)
        return generation()

    sink.generation(build)
    assert sink.flush(5)
    assert recorder.changes == [change]


def test_nothing_is_taken_after_the_shutdown(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise a late call would start a thread again while the interpreter ends."""
    sink.generation(generation)
    sink.shutdown(5)
    sink.generation(generation)
    assert len(recorder.generations) == 1
    assert "otelkit" not in {thread.name for thread in threading.enumerate()}


def test_without_a_thread_whoever_flushes_does_the_work(
    sink: QueueSink, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken if a generation that ends where no thread can be started, as at the end of a program from
    Python 3.12 on, were lost or its call broken."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    sink.generation(generation)
    assert sink.flush(timeout=1.0) and len(recorder.generations) == 1
    sink.generation(generation)
    sink.shutdown(timeout=1.0)
    assert len(recorder.generations) == 2 and recorder.threads == {threading.get_ident()}


def fail() -> Generation:
    raise LookupError("broken on purpose")


def outside_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a service: faults are logged, not raised."""
    monkeypatch.setattr("otelkit.record.guard.is_testing", lambda: False)


def test_a_fault_costs_one_generation_and_is_said_once(
    sink: QueueSink, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise one odd response would end telemetry for good, or fill the log."""
    outside_tests(monkeypatch)
    for build in (fail, generation, fail, generation):
        sink.generation(build)
    assert sink.flush(5)
    assert len(recorder.generations) == 2
    assert recorder.lost_by == {"fault": 2}
    assert caplog.text.count("build a finished generation") <= 1
    assert all(record.levelname == "WARNING" for record in caplog.records)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_fault_is_loud_under_test(recorder: Recorder) -> None:
    """Otherwise tests, ours and users', would pass over faults of telemetry."""
    raised: list[type[BaseException] | None] = []
    previous = threading.excepthook
    threading.excepthook = lambda details: raised.append(details.exc_type)
    try:
        QueueSink(as_pipeline(recorder), capacity=10).generation(fail)
        until(lambda: bool(raised))
    finally:
        threading.excepthook = previous
    assert raised == [LookupError]


def in_child(work: Callable[[], bool]) -> bool:
    """Whether ``work`` returns True in a forked process."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_records_its_own_and_only_that(sink: QueueSink, recorder: Recorder) -> None:
    """Otherwise workers forked after loading would record nothing, or report the parent's calls again."""
    recorder.slow = 0.01
    for _ in range(5):
        sink.generation(generation)

    def work() -> bool:
        sink.generation(generation)
        return sink.flush(5) and len(recorder.generations) == 1

    assert in_child(work)
    assert sink.flush(5)
    assert len(recorder.generations) == 5


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_in_the_middle_of_work_do_not_hang(sink: QueueSink) -> None:
    """Otherwise a lock that the thread held at the moment of the fork would stay locked in the child."""
    busy = threading.Event()

    def feed() -> None:
        while not busy.is_set():
            sink.generation(generation)
            time.sleep(0.0001)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        for _ in range(10):

            def work() -> bool:
                sink.generation(generation)
                return sink.flush(5)

            assert in_child(work)
    finally:
        busy.set()
        feeder.join()
