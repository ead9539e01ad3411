"""Going round: never two at once, patient with a Prometheus that is away, and a page that says so."""

from __future__ import annotations

import threading
import time

import httpx
import pytest
from prometheus_client import generate_latest

from otelkit.analyse import State
from otelkit.analyse.page import OwnMetrics
from otelkit.analyse.serve import Page, Rounds
from otelkit.errors import BackendUnreachable, UsageError


class Backend:
    """Counts rounds, and is away or slow on demand."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.seconds = 0.0
        self.calls = self.under_way = self.most_under_way = 0
        self.waiting = 0

    def round(self) -> State:
        self.calls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        time.sleep(self.seconds)
        self.under_way -= 1
        if self.error is not None:
            raise self.error
        return State(data_until=1234.0, waiting=self.waiting)


def value(metrics: OwnMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_a_slow_round_delays_the_next_and_rests() -> None:
    """Two rounds would run at once and each make the other slower; or one would take a processor for ever."""
    backend, metrics = Backend(), OwnMetrics()
    backend.seconds = 0.05
    rounds = Rounds(backend.round, 0.01, metrics)
    assert rounds.once() >= 0.0125
    stop = threading.Event()
    thread = threading.Thread(target=rounds.run, args=(stop,))
    thread.start()
    time.sleep(0.4)
    stop.set()
    thread.join(10)
    assert backend.most_under_way == 1
    assert backend.calls >= 3


def test_services_that_wait_need_not_wait_for_the_interval() -> None:
    """After a restart with many services, verdicts would come one interval at a time."""
    backend = Backend()
    rounds = Rounds(backend.round, 100, OwnMetrics())
    assert rounds.once() > 99
    backend.waiting = 3
    assert rounds.once() < 10


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(BackendUnreachable("gone"), "unreachable"), (RuntimeError("a fault"), "failed")],
)
def test_it_backs_off_and_marks_what_is_stale(error: Exception, outcome: str) -> None:
    """A Prometheus that starts again would be asked without end, or old verdicts would pass for new."""
    backend, metrics = Backend(), OwnMetrics()
    rounds = Rounds(backend.round, 15, metrics)
    rounds.once()
    assert (value(metrics, "otelkit_analyser_stale"), rounds.ready) == (0, True)
    backend.error = error
    pauses = [rounds.once() for _ in range(12)]
    assert pauses[0] == 15
    assert pauses == sorted(pauses)
    assert pauses[-1] == 300
    assert value(metrics, "otelkit_analyser_stale") == 1
    assert value(metrics, "otelkit_analyser_rounds_total", outcome=outcome) == 12
    assert value(metrics, "otelkit_analyser_data_timestamp_seconds") == 1234
    backend.error = None
    assert rounds.once() <= 15
    assert value(metrics, "otelkit_analyser_stale") == 0


def test_the_page_tells_health_and_readiness() -> None:
    """A container would be restarted while all is well, or wait for ever."""
    backend, metrics = Backend(), OwnMetrics()
    rounds = Rounds(backend.round, 15, metrics)
    with Page("127.0.0.1", 0, metrics.registry, rounds) as page:
        url = f"http://127.0.0.1:{page.port}"
        assert httpx.get(f"{url}/-/healthy").status_code == 200
        assert httpx.get(f"{url}/-/ready").status_code == 503
        rounds.once()
        assert httpx.get(f"{url}/-/ready").status_code == 200
        assert httpx.get(f"{url}/other").status_code == 404
        answer = httpx.get(f"{url}/metrics", headers={"Accept": "application/openmetrics-text"})
        assert answer.headers["content-type"].startswith("application/openmetrics-text")
        assert answer.text.endswith("# EOF\n")
        with pytest.raises(UsageError, match="can't listen there"):
            Page("127.0.0.1", page.port, metrics.registry, rounds)
    assert b"otelkit_analyser_rounds_total" in generate_latest(metrics.registry)
