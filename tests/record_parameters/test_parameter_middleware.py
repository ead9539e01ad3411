"""``X-Model-Params`` over HTTP, through real ASGI and WSGI servers."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from parameters_servers import get, uvicorn_server, wsgiref_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from otelkit.model import UNSET
from otelkit.record import parameters
from otelkit.record.parameters.limits import Limits
from otelkit.record.parameters.process import process
from otelkit.record.session import of_block
from otelkit.record.web import asgi, wsgi
from otelkit.record.web.header import HEADER, HeaderPolicy
from otelkit.record.web.requests import RequestParameters

POLICY = HeaderPolicy({"max_tokens": Limits(int, 1, 1024)})
gate: list[Callable[[], None]] = []
"""What the applications below do between the two halves of a response."""


def state() -> bytes:
    return json.dumps([parameters.get("max_tokens"), parameters.get("top_p"), of_block.get()]).encode()


async def _asgi(request: Request) -> StreamingResponse:
    async def body() -> Any:
        yield state() + b"\n"
        await asyncio.to_thread(gate[0])
        yield state() + b"\n"

    return StreamingResponse(body())


def _wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain")])

    def body() -> Iterator[bytes]:
        yield state() + b"\n"
        gate[0]()
        yield state() + b"\n"

    return body()


@contextmanager
def server(kind: str, policy: HeaderPolicy | None) -> Iterator[int]:
    if kind == "asgi":
        app = asgi.ModelParamsMiddleware(Starlette(routes=[Route("/", _asgi)]), policy)
        with uvicorn_server(app) as port:
            yield port
    else:
        with wsgiref_server(wsgi.ModelParamsMiddleware(_wsgi, policy)) as port:
            yield port


KINDS = pytest.mark.parametrize("kind", ["asgi", "wsgi"])


@pytest.fixture(autouse=True)
def _set() -> Iterator[None]:
    parameters.update({"max_tokens": 256, "top_p": 0.9})
    gate[:] = [lambda: None]
    yield
    parameters.update({"max_tokens": UNSET, "top_p": UNSET})


def lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


@KINDS
def test_a_request_gets_what_it_asks_for_and_no_other_does(kind: str) -> None:
    """If this fails, the header has no effect, or one caller's wish leaks into other requests."""
    with server(kind, POLICY) as port, ThreadPoolExecutor(5) as pool:
        both = threading.Barrier(5, timeout=20)
        gate[:] = [lambda: both.wait() and None]

        def ask(number: int) -> tuple[int, list[Any]]:
            headers = {HEADER: json.dumps({"max_tokens": number}), "X-Session-Id": f"s{number}"}
            return number, lines(get(port, "/", headers if number % 2 else {}).body)

        for number, answer in pool.map(ask, range(1, 6)):
            expected = [number, 0.9, f"s{number}"] if number % 2 else [256, 0.9, ""]
            assert answer == [expected, expected]
    assert parameters.get("max_tokens") == 256


@KINDS
def test_a_request_keeps_its_set_to_the_end_of_its_response(kind: str) -> None:
    """If this fails, a reload changes the parameters of a stream in its middle."""
    gate[:] = [lambda: parameters.replace({"max_tokens": 1, "top_p": 0.1})]
    with server(kind, POLICY) as port:
        assert lines(get(port, "/", {HEADER: '{"max_tokens": 64}'}).body) == [[64, 0.9, ""], [64, 0.9, ""]]
        assert lines(get(port, "/").body) == [[1, 0.1, ""], [1, 0.1, ""]]


@KINDS
def test_a_refused_header_is_ignored_or_answered_with_400(kind: str) -> None:
    """If this fails, a bad header breaks requests, or a service that wants to refuse them can't."""
    before = process.input_counts().get(("header", "refused"), 0)
    with server(kind, POLICY) as port:
        assert lines(get(port, "/", {HEADER: '{"max_tokens": 9999}'}).body)[0] == [256, 0.9, ""]
    with server(kind, HeaderPolicy(POLICY.allowed, reject=True)) as port:
        refused = get(port, "/", {HEADER: '{"max_tokens": 9999, "model": "x"}'})
        assert refused.status == 400
        assert refused.json["problems"] == [
            "max_tokens: 9999 is above the maximum 1024",
            "'model' may not be set by callers",
        ]
        assert get(port, "/", {HEADER: "garbage"}).status == 400
        assert get(port, "/", {HEADER: "{}"}).status == 200
    assert process.input_counts()["header", "refused"] == before + 3


@KINDS
def test_without_a_policy_the_header_does_nothing(kind: str) -> None:
    """If this fails, the header is on without anyone having asked for it."""
    with server(kind, None) as port:
        assert lines(get(port, "/", {HEADER: '{"max_tokens": 64}'}).body)[0] == [256, 0.9, ""]


def test_a_header_that_is_there_twice_is_refused() -> None:
    """If this fails, a proxy's header and a caller's are mixed up."""
    with RequestParameters(POLICY).applied([b'{"max_tokens": 1}', b'{"max_tokens": 2}'], ""):
        assert parameters.get("max_tokens") == 256


def test_lists_and_files_go_to_the_wsgi_server_as_they_are() -> None:
    """If this fails, servers no longer know the length of a response, or copy files through Python."""

    class FileWrapper:
        def __init__(self, file: io.BytesIO) -> None:
            self.file = file

    file = FileWrapper(io.BytesIO(b"x"))
    for response in ([b"x"], file):
        app = wsgi.ModelParamsMiddleware(lambda environ, start, response=response: response, POLICY)  # type: ignore[misc]
        assert app({"wsgi.file_wrapper": FileWrapper}, lambda *arguments: lambda data: None) is response  # type: ignore[arg-type,comparison-overlap]


def test_the_response_of_a_wsgi_application_is_closed() -> None:
    """If this fails, applications leak what they close at the end of a response."""
    closed = []

    class Body:
        def __iter__(self) -> Iterator[bytes]:
            return iter([b"a", b"b"])

        def close(self) -> None:
            closed.append(parameters.get("max_tokens"))

    app = wsgi.ModelParamsMiddleware(lambda environ, start: Body(), POLICY)
    response = app({"HTTP_X_MODEL_PARAMS": '{"max_tokens": 5}'}, lambda *arguments: lambda data: None)  # type: ignore[arg-type]
    assert list(response) == [b"a", b"b"]
    response.close()  # type: ignore[attr-defined]
    assert closed == [5]


def test_lifespan_and_websockets_pass_through_the_asgi_middleware() -> None:
    """If this fails, applications behind it never start, or can't be reached by WebSocket."""
    seen: list[tuple[str, object]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["type"], parameters.get("max_tokens")))

    async def nothing(*arguments: Any) -> Any: ...

    def run(
        scope: dict[str, Any], policy: HeaderPolicy = POLICY, send: Callable[..., Awaitable[None]] = nothing
    ) -> None:
        asyncio.run(asgi.ModelParamsMiddleware(app, policy)(scope, nothing, send))  # type: ignore[arg-type]

    run({"type": "lifespan"})
    run({"type": "websocket", "headers": [(b"x-model-params", b'{"max_tokens": 7}')]})
    assert seen == [("lifespan", 256), ("websocket", 7)]
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    run({"type": "websocket", "headers": [(b"x-model-params", b"{}x")]}, HeaderPolicy(reject=True), send)
    assert sent == [{"type": "websocket.close", "code": 1008}] and len(seen) == 2
