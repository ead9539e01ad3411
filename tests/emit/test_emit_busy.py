"""While threads read streams without pause: the process forks, and otelkit is taken off and put on again."""

from __future__ import annotations

from collections import Counter

from emit_collector import HttpCollector
from emit_process import run

READ_STREAMS = """
    import collections, threading, time
    made, wrong, over = collections.Counter(), [], threading.Event()

    def read(model):
        words = ["a", "b", "c"] * 7
        stream = otelkit.watch(iter(words), model=model)
        watched = type(stream).__name__ == "WatchedIterator"
        if [word for word in stream] != words:
            wrong.append(model)
        made[model] += watched

    def read_on(model):
        while not over.is_set():
            read(model)
            time.sleep(0.001)

    handle = otelkit.instrument()
    read("first")  # loads all there is: a child forked in the middle of an import waits for its end for ever
    threads = [threading.Thread(target=read_on, args=(f"thread-{i}",)) for i in range(3)]
    for thread in threads:
        thread.start()
"""
STOP = """
    over.set()
    for thread in threads:
        thread.join()
    assert handle.flush(30) and not wrong
    print(dict(made))
"""
EVERYTHING = {"OTELKIT_TOKEN_SPANS_PER_SECOND": "inf", "OTEL_BSP_SCHEDULE_DELAY": "20"}


def spans_by_name(collector: HttpCollector) -> Counter[str]:
    """Those of each name, none of which came twice."""
    spans = collector.spans()
    assert len({span.span_id for span in spans}) == len(spans)
    return Counter(span.name.removeprefix("text_completion ") for span in spans)


def test_a_process_that_forks_while_it_exports_sends_everything_once() -> None:
    """Broken: a child hangs at a lock that its parent's threads held, sends what is its parent's once more,
    or takes from its parent what that was about to send."""
    with HttpCollector() as collector:
        done = run(
            READ_STREAMS
            + """
    import warnings
    from otelkit.emit import sink
    sink.FORK_WAIT_SECONDS = 30  # a service waits for a second at most, which a starved machine may overrun
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    for number in range(6):
        child = os.fork()
        if not child:
            read("child")
            os._exit(not handle.flush(30))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
            + STOP,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **EVERYTHING},
        )
        assert done.returncode == 0, done.stderr
        made = Counter(eval(done.stdout)) + Counter(child=6)
        assert spans_by_name(collector) == made + Counter(token_step=21 * made.total())


def test_taking_otelkit_off_and_on_again_loses_no_span_of_a_busy_service() -> None:
    """Broken: the user's thread gets an error or other words than it was sent, a stream that is being read
    while otelkit is taken off has no span, or taking it off doesn't come to an end."""
    with HttpCollector() as collector:
        done = run(
            READ_STREAMS
            + """
    for number in range(8):
        time.sleep(0.02)
        otelkit.uninstrument()
        time.sleep(0.005)
        handle = otelkit.instrument()
    """
            + STOP,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, **EVERYTHING},
        )
        assert done.returncode == 0, done.stderr
        made = +Counter(eval(done.stdout))
        spans = spans_by_name(collector)
        steps = spans.pop("token_step")
        assert spans == made
        # A stream that was open when otelkit was taken off has the steps that it had by then.
        assert 21 * (made.total() - 8 * 3) <= steps <= 21 * made.total()
