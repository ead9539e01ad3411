"""Merging of reports, and errors of the sources, without a Prometheus."""

from __future__ import annotations

import http.server
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from otelkit.errors import BackendUnreachable, DataError, UsageError
from otelkit.model import UNSET, ChangeSource
from otelkit.query import PrometheusSource, ScrapeSource
from otelkit.query.merge import Report, merge_reports
from otelkit.query.pages import PageReader
from otelkit.query.promql import histogram_quantile
from otelkit.query.samples import Grid
from otelkit.spec import Spec

LABELS = {
    "service": "chat",
    "parameter": "max_tokens",
    "old": "8",
    "new": "24",
    "source": "observed",
    "scope": "m",
}


def report(target: str, at: float, **labels: str) -> Report:
    return Report(("job", target, ""), {**LABELS, **labels}, at)


def test_reports_of_one_rollout_are_one_change() -> None:
    """Ten workers that take up a value within two minutes made one change, not ten to be judged apart."""
    reports = [report(f"w{index}", 1000.0 + 13 * index) for index in range(10)]
    (change,) = merge_reports(reversed(reports))
    assert (change.first_seen, change.last_seen, change.workers) == (1000.0, 1117.0, 10)
    assert (change.old, change.new, change.scope, change.source) == (8, 24, "m", ChangeSource.OBSERVED)


def test_different_changes_stay_apart() -> None:
    """Other values, another scope, long after, or twice by one process: each is a change of its own."""
    reports = [
        report("a", 1000),
        report("a", 1010, old="24", new="8"),
        report("a", 1020),
        report("b", 1001, scope="n"),
        report("b", 2500),
    ]
    changes = merge_reports(reports)
    assert [change.first_seen for change in changes] == [1000, 1001, 1010, 1020, 2500]
    assert all(change.workers == 1 for change in changes)


def test_values_come_back_as_they_were() -> None:
    """Text, numbers, absence and what was cut short: a value misread is a change misdescribed."""
    (change,) = merge_reports([report("a", 1, old="unset", new='"unset"')])
    assert change.old is UNSET and change.new == "unset"
    (change,) = merge_reports([report("a", 1, old='{"a":[1,2', new="0.5")])
    assert (change.old, change.new) == ('{"a":[1,2', 0.5)


def test_a_quantile_beyond_the_buckets_is_the_last_bound() -> None:
    """Prometheus answers so, and silently; ours must not extrapolate where it does not."""
    bounds = np.array([1.0, 2.0, np.inf])
    rates = np.array([[0.0, 0.0, 5.0], [0.0, 0.0, 0.0], [5.0, 5.0, 5.0], [np.nan, 4.0, 4.0]])
    np.testing.assert_allclose(histogram_quantile(0.5, bounds, rates), [2.0, np.nan, 0.5, 1.0])
    assert np.isnan(histogram_quantile(0.5, bounds[:2], rates[:, :2])).all()


@pytest.mark.parametrize(("start", "end", "step"), [(10, 5, 1), (0, 10, 0), (0, 10, float("nan"))])
def test_times_that_make_no_grid_are_refused(start: float, end: float, step: float) -> None:
    """An empty panel would look like a service without traffic."""
    with pytest.raises(UsageError):
        Grid.between(start, end, step)


def test_only_wanted_families_are_parsed() -> None:
    """A page may hold thousands of other series; parsing them each second costs what the service needs."""
    page = '# TYPE a counter\na_total 1\n# TYPE ab counter\nab_total{x="a_total 7"} 2\n# EOF\n'
    assert list(PageReader(["a"]).samples(page, "application/openmetrics-text")) == [("a_total", {}, 1.0)]
    assert list(PageReader(["ab"]).samples(page, "text/plain")) == [("ab_total", {"x": "a_total 7"}, 2.0)]


def test_a_mangled_page_is_refused_and_nothing_worse() -> None:
    """A page cut off or garbled in transit must cost one scrape, not the scraping thread."""
    page = (
        '# TYPE a counter\na_total{x="1",y="a b"} 1 # {trace_id="x"} 1 1\n# TYPE h histogram\n'
        'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 2\nh_count 2\nh_sum 3\n'
    )
    chance = random.Random(1)
    reader = PageReader(["a", "h"])
    refused = 0
    for _ in range(1500):
        mangled = list(page)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(mangled))
            mangled[place : place + chance.randint(0, 2)] = chance.choice(
                ["", '"', "{", "}", "=", "\\", "\n", "#", " "]
            )
        for kind in ("application/openmetrics-text", "text/plain"):
            try:
                list(reader.samples("".join(mangled), kind))
            except ValueError:
                refused += 1
    assert refused > 500


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that answers everything with the status and body given as parameter; yields its address."""
    status, body = request.param

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("answering", "said"),
    [
        ((200, "<html>not Prometheus</html>"), "no JSON of Prometheus"),
        ((503, '{"status": "error", "error": "starting up"}'), "503: starting up"),
        ((200, "[]"), "no JSON of Prometheus"),
    ],
    indirect=["answering"],
)
def test_what_is_not_prometheus_is_said_so(answering: str, said: str) -> None:
    """The address is in the message, so that one sees a wrong port at once."""
    with (
        PrometheusSource(answering, Spec()) as source,
        pytest.raises(BackendUnreachable, match=said) as caught,
    ):
        source.changes(0, 10)
    assert answering in str(caught.value)


def test_nothing_there_is_said_with_the_next_step() -> None:
    """Exit code 4 and no traceback when Prometheus or the page is down."""
    with (
        PrometheusSource("http://127.0.0.1:1", Spec()) as source,
        pytest.raises(BackendUnreachable, match="--prometheus"),
    ):
        source.panel(["chat"], 0, 10, 1)
    pages = ScrapeSource(["http://127.0.0.1:1/metrics"], Spec())
    pages.scrape()
    with pytest.raises(BackendUnreachable, match=r"127\.0\.0\.1:1/metrics"):
        pages.panel(["chat"], 0, 10, 1)
    pages.close()


@pytest.mark.parametrize("answering", [(200, '{"status": "success", "data": {"result": []}}')], indirect=True)
def test_a_service_without_data_is_named(answering: str) -> None:
    """A misspelt service must not give an empty table."""
    with ScrapeSource([answering], Spec()) as source:
        source.scrape()
        with pytest.raises(DataError, match="chta"):
            source.panel(["chta"], 0, 10, 1)
