"""The debug pages over HTTP: mounted in ASGI and WSGI applications, and on a port of their own."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from parameters_declared import SITE, Kept
from parameters_servers import get, uvicorn_server, wsgiref_server
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from otelkit.errors import OtelkitError, UsageError
from otelkit.model import Generation, Outcome, SpanIdentity
from otelkit.record.call_sites import CallSiteParameters
from otelkit.record.parameters.process import ProcessParameters
from otelkit.record.traces import TraceRing
from otelkit.record.web import asgi, wsgi
from otelkit.record.web.access import Caller, is_loopback, permits
from otelkit.record.web.pages import DebugPages
from otelkit.record.web.server import serve_debug_pages


@contextmanager
def served(kind: str, pages: DebugPages) -> Iterator[int]:
    if kind == "asgi":
        with uvicorn_server(asgi.DebugApplication(pages)) as port:
            yield port
    elif kind == "wsgi":
        with wsgiref_server(wsgi.DebugApplication(pages)) as port:
            yield port
    else:
        server = serve_debug_pages(0, pages=pages)
        assert server is not None
        try:
            yield server.port
        finally:
            server.close()


KINDS = pytest.mark.parametrize("kind", ["asgi", "wsgi", "port"])
START = 1_700_000_000_000_000_000


def generation(number: int, *, session_id: str = "", steps: int = 3, **parameters: Any) -> Generation:
    return Generation(
        SITE,
        START,
        START + steps * 10_000_000,
        step_ns=[START + (step + 1) * 10_000_000 for step in range(steps)],
        step_tokens=[1] * steps,
        step_logprobs=[-0.5] * steps,
        outcome=Outcome.COMPLETED,
        streamed=True,
        parameters=parameters,
        span=SpanIdentity(number, 0xB, True),
        session_id=session_id,
        phase_seconds={"vision_encoding": 0.25},
    )


@KINDS
def test_vars_show_value_source_and_whether_a_call_has_used_it_yet(kind: str, tmp_path: Path) -> None:
    """If this fails, no one can tell which value is in force, where it is from, or whether it is in use."""
    process = ProcessParameters()
    store = process.store
    store.register("max_tokens", 256)
    store.set("api_key", "sk-0123456789abcdefghijkl")
    file = tmp_path / "chat.yaml"
    file.write_text("max_tokens: 1024\n")
    before = time.time()
    with served(kind, DebugPages(True, token="", parameters=process)) as port:
        process.watcher.watch(file)

        def shown() -> Any:
            return {one["name"]: one for one in get(port, "/debug/vars").json["parameters"]}

        loaded = shown()["max_tokens"]
        assert (loaded["value"], loaded["source"], loaded["in_use"]) == (1024, "config_file", False)
        assert str(file) in loaded["origin"] and before <= loaded["loaded_at"] <= time.time()
        assert (loaded["effective_at"], loaded["first_trace_id"]) == (None, "")
        assert [(one["value"], one["source"]) for one in loaded["covered"]] == [(256, "default")]
        assert shown()["api_key"]["value"] == "[redacted]"
        assert get(port, "/healthz").json["loaded_not_in_use"] == ["api_key", "max_tokens"]
        with TracerProvider().get_tracer("test").start_as_current_span("first") as span:
            store.get("max_tokens")
        used = shown()["max_tokens"]
        trace_id = f"{span.get_span_context().trace_id:032x}"
        assert used["in_use"] and used["effective_at"] >= loaded["loaded_at"]
        assert used["first_trace_id"] == trace_id
        healthy = get(port, "/healthz").json
        assert healthy["status"] == "ok" and healthy["first_call"]["trace_id"] == trace_id
        assert healthy["loaded_at"] <= healthy["effective_at"]
        file.write_text("max_tokens: [")
        process.watcher.reload()
        page = get(port, "/debug/vars").json
        assert page["files"][0]["problems"][0].startswith(f"{file}:1: is not YAML")
        assert {"input": "file", "outcome": "refused", "count": 1} in page["inputs"]
        assert get(port, "/healthz").json["files_not_in_force"] == [str(file)]
    process.watcher.close()


@KINDS
def test_trace_finds_timelines_by_session_and_by_trace(kind: str) -> None:
    """If this fails, a slow answer can't be looked into while the service runs."""
    process = ProcessParameters()
    with served(kind, DebugPages(True, token="", parameters=process)) as port:
        sink = process.attach(Kept(), "chat")
        for number, session_id in ((1, "a"), (2, "b"), (3, "a")):
            made = generation(
                number, session_id=session_id, max_tokens=8, api_key="x", system_prompt="Be kind."
            )
            sink.generation(lambda made=made: made)  # type: ignore[misc]
        assert get(port, "/debug/trace?session_id=none").status == 404
        assert get(port, "/debug/trace?trace_id=xyz").status == 400
        assert get(port, "/debug/trace?trace=1").status == 400
        overview = get(port, "/debug/trace").json["generations"]
        assert [one["trace_id"][-1] for one in overview] == ["3", "2", "1"] and "timeline" not in overview[0]
        by_session = get(port, "/debug/trace?session_id=a").json["generations"]
        assert [one["trace_id"] for one in by_session] == [f"{3:032x}", f"{1:032x}"]
        (one,) = get(port, f"/debug/trace?trace_id={2:032X}").json["generations"]
        assert (one["model"], one["route"], one["session_id"]) == ("gpt-4o", "app.py:answer", "b")
        assert one["timeline"] == {
            "end_seconds": [0.01, 0.02, 0.03],
            "tokens": [1, 1, 1],
            "logprob": [-0.5, -0.5, -0.5],
        }
        assert one["time_to_first_chunk_seconds"] == 0.01 and one["phase_seconds"] == {
            "vision_encoding": 0.25
        }
        assert one["parameters"]["max_tokens"] == 8 and one["parameters"]["api_key"] == "[redacted]"
        assert one["parameters"]["system_prompt"].startswith("sha256:")


def test_vars_show_what_call_sites_use_though_nothing_was_declared() -> None:
    """If this fails, the page is empty for a service that keeps its parameters to itself."""
    process = ProcessParameters()
    pages = DebugPages(True, token="", parameters=process)
    sink = process.attach(Kept(), "chat")
    process.store.set("top_p", 0.5)

    def call(at: float, model: str, **parameters: Any) -> None:
        site, start = replace(SITE, model=model), int(at * 1e9)
        sink.generation(lambda: Generation(site, start, start + 1, parameters=parameters))

    call(100.0, "a", max_tokens=256, top_p=0.5, system_prompt="Be kind.")
    call(110.0, "a", max_tokens=512, top_p=0.5, system_prompt="Be kind.")
    call(120.0, "a", max_tokens=512, top_p=0.5, system_prompt="Be kind.")
    call(115.0, "b")
    page = pages.answer("GET", "/debug/vars", "", Caller("127.0.0.1", {"host": "localhost"}))
    other, one = json.loads(page.body)["call_sites"]
    assert (other["model"], other["calls"], other["parameters"]) == ("b", 1, [])
    assert (one["model"], one["calls"], one["last_call_at"]) == ("a", 3, 120.0)
    shown = {each["name"]: each for each in one["parameters"]}
    assert shown["max_tokens"] == {"name": "max_tokens", "value": 512, "source": "observed", "since": 110.0}
    assert (shown["top_p"]["source"], shown["top_p"]["since"]) == ("declared", 100.0)
    assert shown["system_prompt"]["value"].startswith("sha256:")


def test_call_sites_are_bounded() -> None:
    """If this fails, a service with a model per customer fills its memory."""
    sites = CallSiteParameters(max_sites=3)
    for number in (1, 2, 3, 1, 4):
        sites.add(Generation(replace(SITE, model=str(number)), START, START + 1))
    assert [site.model for site, _ in sites.all()] == ["4", "1", "3"]


def test_a_timeline_is_json_whatever_the_model_answered() -> None:
    """If this fails, one impossible token makes the answer unreadable."""
    process = ProcessParameters()
    pages = DebugPages(True, token="", parameters=process)
    odd = Generation(SITE, START, START + 1, [START + 1], step_logprobs=[float("-inf")], session_id="a")
    process.traces.add(odd)
    page = pages.answer("GET", "/debug/trace", "session_id=a", Caller("127.0.0.1", {"host": "localhost"}))

    def refuse(name: str) -> None:
        raise AssertionError(name)

    (one,) = json.loads(page.body, parse_constant=refuse)["generations"]
    assert one["timeline"]["logprob"] == [None] and one["trace_id"] == ""


def test_the_ring_is_bounded_in_generations_and_in_steps() -> None:
    """If this fails, debug pages fill the memory of a busy service."""
    ring = TraceRing(max_steps=100)
    ring.add(generation(1))
    assert ring.find(lambda one: True) == [], "off until it is turned on"
    ring.turn_on(5)
    for number in range(10):
        ring.add(generation(number))
    assert [one.span.trace_id for one in ring.find(lambda one: True) if one.span] == [9, 8, 7, 6, 5]
    ring.add(generation(10, steps=95))
    assert len(ring.find(lambda one: True)) == 2
    ring.add(generation(11, steps=1_000))
    assert len(ring.find(lambda one: True)) == 1, "the newest is kept, whatever its length"


@KINDS
def test_pages_are_off_unless_asked_for(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a service exposes its parameters without anyone having asked for it."""
    process = ProcessParameters()
    pages = DebugPages(parameters=process)
    assert not process.traces.capacity, "and nothing is kept in memory for them"
    with served(kind, pages) as port:
        for path in ("/debug/vars", "/debug/trace", "/healthz"):
            assert get(port, path).status == 404
    monkeypatch.setenv("OTELKIT_DEBUG_PAGES", "1")
    assert DebugPages(parameters=process).enabled and process.traces.capacity
    monkeypatch.delenv("OTELKIT_DEBUG_PORT", raising=False)
    assert serve_debug_pages() is None


@KINDS
def test_with_a_token_only_its_bearers_read_and_health_says_little_to_others(kind: str) -> None:
    """If this fails, whoever reaches the port reads the service's parameters."""
    process = ProcessParameters()
    process.store.set("limit", 1)
    with served(kind, DebugPages(True, token="tökén", parameters=process)) as port:
        for headers in (
            {},
            {"Authorization": "Bearer no"},
            {"Authorization": "Basic t"},
            {"Authorization": "Bearer"},
        ):
            refused = get(port, "/debug/vars", headers)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
            assert b"limit" not in refused.body
            assert get(port, "/healthz", headers).json == {"status": "ok"}
        token = {"Authorization": "bearer " + "tökén".encode().decode("latin-1")}
        assert get(port, "/debug/vars", token).status == 200
        assert get(port, "/healthz", token).json["loaded_not_in_use"] == ["limit"]


@KINDS
def test_without_a_token_only_direct_requests_from_this_machine_are_answered(kind: str) -> None:
    """If this fails, a reverse proxy or a web page that rebinds its name publishes the pages."""
    with served(kind, DebugPages(True, token="", parameters=ProcessParameters())) as port:
        assert get(port, "/debug/vars").status == 200
        assert get(port, "/debug/vars", {"Host": f"localhost:{port}"}).status == 200
        for headers in (
            {"X-Forwarded-For": "10.0.0.1"},
            {"Forwarded": "for=10.0.0.1"},
            {"Host": "evil.example"},
            {"Host": "127.0.0.1.evil.example:80"},
        ):
            assert get(port, "/debug/vars", headers).status == 403


@KINDS
def test_answers_are_plain_json_for_get_only_and_never_cached(kind: str) -> None:
    """If this fails, a browser or proxy keeps or runs what it got, or pages can be posted to."""
    with served(kind, DebugPages(True, token="", parameters=ProcessParameters())) as port:
        page = get(port, "/debug/vars?x=1")
        assert page.headers["content-type"] == "application/json"
        assert (page.headers["cache-control"], page.headers["x-content-type-options"]) == (
            "no-store",
            "nosniff",
        )
        posted = get(port, "/debug/vars", method="POST")
        assert (posted.status, posted.headers["allow"]) == (405, "GET, HEAD")
        head = get(port, "/debug/vars", method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert get(port, "/debug/../etc/passwd").status == 404


def test_pages_stand_in_front_of_an_application_or_are_mounted_in_one() -> None:
    """If this fails, pages take requests away from the application, or aren't found below a prefix."""
    pages = DebugPages(True, token="", parameters=ProcessParameters())

    async def hello(request: Any) -> PlainTextResponse:
        return PlainTextResponse("hello")

    mounted = Starlette(
        routes=[Mount("/internal", asgi.DebugApplication(pages)), Route("/debug/other", hello)]
    )
    with uvicorn_server(mounted) as port:
        assert get(port, "/internal/debug/vars").status == 200
        assert get(port, "/debug/vars").status == 404
    with uvicorn_server(asgi.DebugApplication(pages, mounted)) as port:
        assert get(port, "/debug/vars").status == 200
        assert get(port, "/debug/other").body == b"hello"

    def application(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"hello"]

    with wsgiref_server(wsgi.DebugApplication(pages, application)) as port:
        assert get(port, "/healthz").json["status"] == "ok"
        assert get(port, "/other").body == b"hello"


def test_the_port_refuses_to_start_open_to_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a service in a container shows its parameters to everyone around."""
    monkeypatch.delenv("OTELKIT_DEBUG_TOKEN", raising=False)
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.org"):
        with pytest.raises(UsageError, match="without a token would be open to the network"):
            serve_debug_pages(0, host=host)
    for port in (-1, 65536):
        with pytest.raises(UsageError, match="is no port"):
            serve_debug_pages(port)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(
            OtelkitError, match=rf"can't be served on 127\.0\.0\.1:{number}: Address already in use"
        ):
            serve_debug_pages(number)


def test_a_client_that_says_nothing_holds_no_one_up() -> None:
    """If this fails, one open connection blocks the pages for everyone."""
    server = serve_debug_pages(0, pages=DebugPages(True, token="", parameters=ProcessParameters()))
    assert server is not None
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.sendall(b"GET /debug/vars HT")
        assert get(server.port, "/healthz").status == 200
    server.close()
    with pytest.raises(OSError):
        http.client.HTTPConnection("127.0.0.1", server.port, timeout=5).request("GET", "/healthz")


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("[::1]", True), ("::ffff:127.0.0.1", True),
        ("localhost", True), ("0.0.0.0", False), ("::", False), ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False), ("localhost.evil.example", False), ("", False), ("2130706433", False),
    ],
)  # fmt: skip
def test_what_counts_as_this_machine(host: str, loopback: bool) -> None:
    """If this fails, another machine is taken for this one."""
    assert is_loopback(host) is loopback


def test_a_unix_socket_has_no_address_and_needs_a_token() -> None:
    """If this fails, whatever sits in front of a socket reads the pages."""
    assert not permits(Caller("", {"host": "localhost"}), "")
    assert permits(Caller("", {"host": "x", "authorization": "Bearer t"}), "t")
    assert not permits(Caller("127.0.0.1", {}), "")


def test_the_environment_starts_pages_and_a_mistake_in_it_never_stops_a_service() -> None:
    """If this fails, ``otelkit run`` can't open the pages, or a wrong port number takes the service down."""
    program = """
        import os, sys
        from otelkit.record.web import startup
        os.environ["OTELKIT_DEBUG_PORT"] = "0"
        os.environ["OTELKIT_DEBUG_HOST"] = "0.0.0.0"
        startup.start_from_environment()
        del os.environ["OTELKIT_DEBUG_HOST"]
        assert startup._servers == []
        startup.start_from_environment()
        startup.start_from_environment()
        import urllib.request
        (server,) = startup._servers
        print(urllib.request.urlopen(server.url + "/healthz").status)
        startup.stop()
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "200"
    assert "without a token would be open to the network" in done.stderr
