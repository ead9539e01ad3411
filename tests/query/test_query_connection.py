"""PromQL APIs other than Prometheus, busy ones, slow ones, and those that want to know who asks."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from promql_stand_in import Question, Reply, StandIn, error, stand_in, success

from otelkit import semconv
from otelkit.errors import BackendUnreachable, UsageError
from otelkit.query import PrometheusSource
from otelkit.query.connection import Api, TooMuch, headers_from, in_pieces, timeout_from, without_credentials
from otelkit.query.samples import Grid
from otelkit.spec import Spec

BOUNDS = ("0.5", "1.0", "+Inf")


def ask(server: StandIn, environ: dict[str, str] | None = None, **more: object) -> tuple[object, list[str]]:
    """One query's data, and what was warned of."""
    warnings: list[str] = []
    api = Api(server.url, warnings.append, environ=environ or {}, sleep=lambda seconds: None, **more)  # type: ignore[arg-type]
    try:
        return api.get("query", {"query": "up"}), warnings
    finally:
        api.close()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"OTELKIT_PROMETHEUS_TOKEN": "secret"}, ("authorization", "Bearer secret")),
        (
            {"OTELKIT_PROMETHEUS_USERNAME": "ann", "OTELKIT_PROMETHEUS_PASSWORD": "p:w"},
            ("authorization", "Basic " + base64.b64encode(b"ann:p:w").decode()),
        ),
        ({"OTELKIT_PROMETHEUS_HEADERS": "X-Scope-OrgID=team%20a, X-Other=1"}, ("x-scope-orgid", "team a")),
    ],
    ids=["bearer", "basic", "tenant"],
)
def test_credentials_of_the_environment_are_sent(environ: dict[str, str], expected: tuple[str, str]) -> None:
    """Broken if a server behind a login, or Mimir with tenants, could not be asked."""
    with stand_in(lambda question: success([])) as server:
        ask(server, environ)
        assert server.headers[0][expected[0]] == expected[1]


def test_a_name_and_password_in_the_address_are_sent_and_never_shown() -> None:
    """Broken if a password ended in a log."""
    with stand_in(lambda question: error(422, "bad", "bad_data")) as server:
        address = server.url.replace("://", "://ann:pw@")
        api = Api(address, print, environ={})
        with pytest.raises(BackendUnreachable) as caught:
            api.get("query", {"query": "up"})
        api.close()
        assert server.headers[0]["authorization"] == "Basic " + base64.b64encode(b"ann:pw").decode()
    assert "pw" not in str(caught.value) and server.url in str(caught.value)
    assert without_credentials("http://a:b@c/d@e") == "http://c/d@e"


@pytest.mark.parametrize(
    "environ",
    [
        {"OTELKIT_PROMETHEUS_TOKEN": "a", "OTELKIT_PROMETHEUS_USERNAME": "b"},
        {"OTELKIT_PROMETHEUS_HEADERS": "secret-without-a-name"},
    ],
)
def test_credentials_that_make_no_sense_are_told_without_them(environ: dict[str, str]) -> None:
    """Broken if one of two were silently taken, or a secret printed."""
    with pytest.raises(UsageError) as caught:
        headers_from(environ)
    assert "secret-without-a-name" not in str(caught.value)


def test_a_timeout_that_is_none_is_told() -> None:
    """Broken if a typing error made every question fail at once, or wait for ever."""
    assert timeout_from({}) == 60 and timeout_from({"OTELKIT_PROMETHEUS_TIMEOUT_SECONDS": "5"}) == 5
    for text in ("0", "-1", "soon", "inf", "nan"):
        with pytest.raises(UsageError, match="OTELKIT_PROMETHEUS_TIMEOUT_SECONDS"):
            timeout_from({"OTELKIT_PROMETHEUS_TIMEOUT_SECONDS": text})


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_told_with_where_they_are_set(status: int) -> None:
    """Broken if a login page passed for a server that is no Prometheus."""
    with (
        stand_in(lambda question: Reply(status, "<html>login</html>")) as server,
        pytest.raises(BackendUnreachable, match="does not take these credentials") as caught,
    ):
        ask(server)
    assert "OTELKIT_PROMETHEUS_TOKEN" in str(caught.value) and "X-Scope-OrgID" in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"warnings": ["store sidecar-2 is down"]}, "store sidecar-2 is down"),
        ({"infos": ["metric might not be a counter"]}, "metric might not be a counter"),
        ({"isPartial": True}, "the answer is partial"),
        ({"warnings": None, "infos": None}, None),
    ],
    ids=["Thanos", "Prometheus", "VictoriaMetrics", "none"],
)
def test_partial_answers_are_used_and_said(more: dict[str, object], said: str | None) -> None:
    """Broken if a verdict on half of the data looked like one on all of it."""
    with stand_in(lambda question: success([1], **more)) as server:
        data, warnings = ask(server)
    assert data == {"resultType": "vector", "result": [1]}
    assert [said in warning for warning in warnings] == ([True] if said else [])


def test_a_server_that_warns_of_everything_is_cut_short() -> None:
    """Broken if a thousand warnings hid the verdict."""
    with stand_in(lambda question: success([], warnings=[f"{n}" + "x" * 5000 for n in range(500)])) as server:
        _, warnings = ask(server)
    assert len(warnings) == 11 and all(len(one) < 400 for one in warnings)
    assert "more warnings" in warnings[-1]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(status: int) -> None:
    """Broken if one full queue ended the whole explanation."""
    replies = iter([Reply(status, "busy"), error(status, "too many outstanding requests"), success([7])])
    with stand_in(lambda question: next(replies)) as server:
        data, _ = ask(server)
        assert len(server.asked) == 3
    assert data == {"resultType": "vector", "result": [7]}


def test_it_waits_as_long_as_the_server_asks_within_reason() -> None:
    """Broken if a server in trouble were hammered, or one that says "in an hour" waited for."""
    waits: list[float] = []
    replies = iter(
        [Reply(429, "", {"retry-after": "3"}), Reply(503, "", {"retry-after": "3600"}), success([])]
    )
    with stand_in(lambda question: next(replies)) as server:
        api = Api(server.url, print, environ={}, sleep=waits.append)
        api.get("query", {"query": "up"})
        api.close()
    assert waits == [3.0, 10.0]


@pytest.mark.parametrize(
    "reply",
    [
        error(503, "query timed out in expression evaluation", "timeout"),
        error(422, "query processing would load too many samples into memory in query execution"),
        error(422, "the query exceeded the maximum number of chunks (limit: 2000000 chunks)"),
        error(
            422,
            "cannot evaluate: more than -search.maxSamplesPerQuery=1000 samples; exceeds the limit",
            "422",
        ),
        error(400, "exceeded maximum resolution of 11,000 points per timeseries", "bad_data"),
        Reply(413, "too large"),
        Reply(503, "<html>down</html>"),
    ],
    ids=["timeout", "samples", "Mimir", "VictoriaMetrics", "points", "size", "proxy"],
)
def test_what_is_too_much_at_once_can_be_told_from_what_is_wrong(reply: Reply) -> None:
    """Broken if a long range were given up on where two halves of it would have been answered."""
    with stand_in(lambda question: reply) as server, pytest.raises(TooMuch):
        ask(server)


@pytest.mark.parametrize(
    "reply",
    [
        error(400, 'parse error: unexpected "}"', "bad_data"),
        error(422, "found duplicate series for the match group"),
        Reply(404, "404 page not found"),
        Reply(200, "<html>Grafana</html>"),
        Reply(200, {"status": "success"}),
        Reply(200, [1, 2]),
        Reply(302, "", {"location": "/login"}),
    ],
    ids=["syntax", "execution", "404", "html", "no data", "other JSON", "redirect"],
)
def test_what_is_wrong_is_not_asked_in_halves(reply: Reply) -> None:
    """Broken if an hour's range were halved sixty times over a wrong address."""
    with stand_in(lambda question: reply) as server:
        with pytest.raises(BackendUnreachable) as caught:
            ask(server)
        assert len(server.asked) == 1
    assert not isinstance(caught.value, TooMuch)
    assert server.url in str(caught.value)


def test_a_server_that_trickles_is_not_waited_for() -> None:
    """Broken if a byte a minute could hold the command for hours."""
    with (
        stand_in(lambda question: Reply(trickle_seconds=3.0)) as server,
        pytest.raises(TooMuch, match=r"0\.3 s"),
    ):
        ask(server, {"OTELKIT_PROMETHEUS_TIMEOUT_SECONDS": "0.3"})


def test_pieces_cover_the_span_once_and_shrink_where_they_must() -> None:
    """Broken if an hour were read twice, or a server that takes ten minutes at a time were asked for more."""
    asked: list[tuple[float, float]] = []

    def piece(start: float, end: float) -> tuple[float, float]:
        if end - start > 600:
            raise TooMuch("too much")
        asked.append((start, end))
        return start, end

    answers = list(in_pieces(piece, 0, 5000, 3600, 60))
    assert answers == asked and answers[0][0] == 0 and answers[-1][1] == 5000
    assert all(one[1] == other[0] for one, other in itertools.pairwise(answers))

    def never(start: float, end: float) -> None:
        asked.append((start, end))
        raise TooMuch("too much")

    asked.clear()
    with pytest.raises(TooMuch):
        list(in_pieces(never, 0, 5000, 3600, 60))
    assert len(asked) < 10


def samples(question: Question, every: int = 15) -> tuple[list[int], float]:
    """Times of scrapes in the range that a question ends with, both ends included as Prometheus 2 does."""
    seconds = question["query"].rpartition("[")[2].rstrip("]")
    units = {"h": 3600, "m": 60, "s": 1}
    span, number = 0, ""
    for char in seconds:
        if char.isdigit():
            number += char
        elif char in units:
            span, number = span + int(number) * units[char], ""
    end = float(question["time"])
    first = -(-int(end - span) // every) * every
    return list(range(first, int(end) + 1, every)), span


def history(limit_seconds: float = 1e9) -> Callable[[Question], Reply]:
    """A server with one service whose ten calls in each scrape all take less than half a second."""

    def answer(question: Question) -> Reply:
        if question["path"].endswith("query_range"):
            start, end, step = (float(question[name]) for name in ("start", "end", "step"))
            times = np.arange(start, end + 1e-6, step)
            if len(times) > 11_000:
                return error(400, "exceeded maximum resolution of 11,000 points per timeseries", "bad_data")
            # VictoriaMetrics moves the ends to multiples of the step unless its cache is off.
            moved = times if question.get("nocache") else times - start % step
            values = [[float(at), "0.4"] for at in [*moved, moved[-1] + step]]
            return success([{"metric": {"service": "chat"}, "values": values}])
        if (
            "timestamp" in question["query"]
            or "settled" in question["query"]
            or "change" in question["query"]
        ):
            return success([])
        times, span = samples(question)  # type: ignore[assignment]
        if span > limit_seconds:
            return error(422, "the query exceeded the maximum number of chunks (limit: 10 chunks)")
        name = semconv.METRIC_OPERATION_DURATION
        series = [
            {
                "metric": {"__name__": f"{name}_bucket", "service": "chat", "le": bound},
                "values": [[at, str(at // 15 * 10)] for at in times],
            }
            for bound in BOUNDS
        ]
        return success(series)

    return answer


def test_thirty_days_are_read_in_pieces_and_each_sample_once() -> None:
    """Broken if Prometheus' 11,000 points were asked for at once, or samples at the seam of two pieces were
    counted twice, as ranges of Prometheus 2 share their ends."""
    grid = Grid.between(0, 30 * 86400, 60)
    with stand_in(history()) as server, PrometheusSource(server.url, Spec()) as source:
        values = source._range('service:p99{service="chat"}', grid)
        assert values is not None and np.isfinite(values).all() and len(values) > 43_000
        panel = source.panel(["chat"], 7200, 7200 + 4 * 3600, 15)
    counts = panel.services["chat"].bucket_counts
    assert counts is not None
    assert (counts[:, 0] == 10).all() and (counts[:, 1:] == 0).all()


def test_a_server_with_a_limit_gives_the_same_series() -> None:
    """Broken if Mimir's or VictoriaMetrics' limits ended what smaller questions get through."""
    panels = []
    for limit in (1e9, 700):
        with stand_in(history(limit)) as server, PrometheusSource(server.url, Spec()) as source:
            panels.append(source.panel(["chat"], 7200, 7200 + 3600, 15).services["chat"])
    one, other = panels
    np.testing.assert_array_equal(one.bucket_counts, other.bucket_counts)
    np.testing.assert_array_equal(one.quantiles[0.99], other.quantiles[0.99])


def test_of_what_processes_settled_on_the_latest_piece_counts() -> None:
    """Broken if, on a server that refuses long ranges, a report stayed listed that its process had taken
    back: "varies since long ago" is a lesser number than what it said before."""

    def answer(question: Question) -> Reply:
        query, at = question["query"], float(question["time"])
        if samples({"query": query.partition(":")[0], "time": question["time"]})[1] > 4000:
            return error(422, "the query exceeded the maximum number of chunks (limit: 10 chunks)")
        place = {"service": "chat", "scope": "m", "parameter": "max_tokens"}
        if semconv.METRIC_PARAMETER_SETTLED not in query:
            return success(
                [{"metric": {**place, "old": "8", "new": "24", "source": "observed"}, "value": [at, "5000"]}]
            )
        varies = {"metric": {**place, "value": semconv.VARIES}, "value": [at, "6000" if at < 8000 else "100"]}
        if query.startswith("max"):
            varies["value"] = [at, str(at)]
        return success([{"metric": {**place, "value": "24"}, "value": [at, "5000"]}, varies])

    with stand_in(answer) as server, PrometheusSource(server.url, Spec()) as source:
        assert source.changes(1000, 9000) == ()


def test_answers_outside_the_range_asked_for_do_not_spill_over() -> None:
    """Broken if a server that rounds the ends of a range put its last value at the beginning."""
    grid = Grid.between(1007.0, 1607.0, 60)
    with stand_in(history()) as server, PrometheusSource(server.url, Spec()) as source:
        values = source._range("x", grid)
    assert values is not None and len(values) == 11 and (values == 0.4).all()


def test_no_exemplars_are_no_error() -> None:
    """Broken if VictoriaMetrics, which keeps none, could not be asked for an explanation with traces."""
    for reply in (Reply(404, "unsupported path"), Reply(200, {"status": "success", "data": []})):

        def answer(question: Question, reply: Reply = reply) -> Reply:
            return reply

        with stand_in(answer) as server, PrometheusSource(server.url, Spec()) as source:
            assert source.exemplars("chat", 0, 10) == ()
