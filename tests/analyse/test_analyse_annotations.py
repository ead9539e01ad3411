"""Annotations over real HTTP, in a small server that answers as Grafana's documentation says its API does."""

from __future__ import annotations

import contextlib
import http.server
import json
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from otelkit.analyse import Judgement, State
from otelkit.analyse.annotations import Grafana, Teller
from otelkit.causal import Finding, Interval, Verdict
from otelkit.errors import BackendUnreachable, UsageError
from otelkit.model import ParameterChange

TOKEN = "glsa_test"


class Store:
    """The annotations, and how often something was asked or written."""

    def __init__(self) -> None:
        self.annotations: dict[int, dict[str, Any]] = {}
        self.requests: list[str] = []
        self.down = False
        self.url = ""


@contextlib.contextmanager
def grafana() -> Iterator[Store]:
    store = Store()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            wanted = set(asked["tags"])
            found = [
                {"id": id_, **one} for id_, one in store.annotations.items() if wanted <= set(one["tags"])
            ]
            self._answer(found[: int(asked["limit"][0])])

        def do_POST(self) -> None:
            id_ = len(store.annotations) + 1
            if body := self._body():
                store.annotations[id_] = body
                self._answer({"id": id_, "message": "Annotation added"})

        def do_PATCH(self) -> None:
            id_ = int(self.path.rpartition("/")[2])
            body = self._body()
            if body and id_ in store.annotations:
                store.annotations[id_].update(body)
                self._answer({"message": "Annotation patched"})
            elif body:
                self._answer({"message": "Annotation not found"}, 404)

        def _body(self) -> dict[str, Any] | None:
            body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.headers["authorization"] != f"Bearer {TOKEN}":
                self._answer({"message": "Permission denied"}, 403)
                return None
            return body

        def _answer(self, content: Any, status: int = 200) -> None:
            store.requests.append(self.command)
            text = b"<html>" if store.down else json.dumps(content).encode()
            self.send_response(502 if store.down else status)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def judgement(verdict: Verdict | None, parameter: str = "max_tokens") -> Judgement:
    change = ParameterChange("chat", parameter, 64, 256, 1000.0, 1030.0)
    if verdict is None:
        return Judgement(change)
    return Judgement(
        change, Finding(change, verdict, "because", effect=Interval(0.2, 0.1, 0.3)), 2000.0, 2000.0
    )


def state(*judgements: Judgement) -> State:
    return State(judgements={"chat": judgements})


def test_each_change_has_one_annotation_that_is_kept_up_to_date() -> None:
    """Every round, restart or second analyser would add another mark for the same change."""
    with grafana() as store:
        with Grafana(store.url, TOKEN) as first:
            assert list(first.show(state(judgement(None)))) == []
            assert list(first.show(state(judgement(Verdict.CAUSAL)))) == ["created"]
            before = len(store.requests)
            assert list(first.show(state(judgement(Verdict.CAUSAL)))) == []
            assert len(store.requests) == before
        (one,) = store.annotations.values()
        assert one["text"] == "chat: max_tokens 64 → 256: causal +200 ms [100, 300]"
        assert (one["time"], one["timeEnd"]) == (1_000_000, 1_030_000)
        assert {"otelkit", "chat", "max_tokens", "causal"} < set(one["tags"])
        with Grafana(store.url, TOKEN) as again:
            assert list(again.show(state(judgement(Verdict.CAUSAL)))) == []
            assert list(again.show(state(judgement(Verdict.NO_EFFECT)))) == ["updated"]
        (one,) = store.annotations.values()
        assert "no effect" in one["text"]


def test_a_dry_run_writes_nothing_and_says_what_it_would(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody who looks first would find their Grafana written to."""
    with grafana() as store, Grafana(store.url, TOKEN, dry_run=True) as told:
        with caplog.at_level(logging.INFO):
            assert list(told.show(state(judgement(Verdict.CAUSAL)))) == []
        assert "would be created" in caplog.text
        assert (store.annotations, set(store.requests)) == ({}, {"GET"})


def test_a_deleted_annotation_is_written_anew() -> None:
    """One that somebody deleted would be an error for ever."""
    with grafana() as store, Grafana(store.url, TOKEN) as told:
        counted: list[str] = []
        teller = Teller(told, counted.append)
        teller(state(judgement(Verdict.CAUSAL)))
        store.annotations.clear()
        other = state(judgement(Verdict.CORRELATED_ONLY))
        for _ in range(4):
            teller(other)
        assert counted == ["created", "failed", "created"]
        assert len(store.annotations) == 1


def test_a_grafana_that_fails_is_left_alone_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Verdicts would wait for Grafana, it would be asked each round while down, and the log would fill."""
    with grafana() as store, Grafana(store.url, TOKEN) as told:
        counted: list[str] = []
        teller = Teller(told, counted.append)
        store.down = True
        for _ in range(60):
            teller(state(judgement(Verdict.CAUSAL)))
        assert 3 <= len(store.requests) <= 10
        assert len(caplog.records) == 1
        store.down = False
        for _ in range(25):
            teller(state(judgement(Verdict.CAUSAL)))
        assert counted[-1] == "created"


def test_messages_name_the_address_and_the_next_step() -> None:
    """A reader would see a status code and not know what to do."""
    one = state(judgement(Verdict.CAUSAL))
    with grafana() as store:
        with Grafana(store.url, "wrong") as told, pytest.raises(UsageError, match="403") as refused:
            list(told.show(one))
        assert "GRAFANA_TOKEN" in refused.value.hint
        url = store.url
    with Grafana(url) as told, pytest.raises(BackendUnreachable, match=url):
        list(told.show(one))


def test_many_changes_are_written_a_few_at_a_time() -> None:
    """A first start over a long history would flood Grafana with requests."""
    many = [replace(judgement(Verdict.NO_EFFECT, f"p{number}")) for number in range(50)]
    with grafana() as store, Grafana(store.url, TOKEN) as told:
        assert [len(list(told.show(state(*many)))) for _ in range(4)] == [20, 20, 10, 0]
        assert len(store.annotations) == 50
