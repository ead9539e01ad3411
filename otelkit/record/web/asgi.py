"""ASGI: the middleware for ``X-Model-Params``, and the debug pages as an application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any

from otelkit.record.web.access import Caller
from otelkit.record.web.header import HEADER, HeaderPolicy, HeaderRefusedError
from otelkit.record.web.pages import DebugPages, Page
from otelkit.record.web.requests import SESSION_HEADER, RequestParameters, refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class ModelParamsMiddleware:
    """Puts the parameters that a request asks for in force for that request, as far as ``policy`` allows.

    The request keeps one set of parameters from its beginning to the end of its response, whatever is
    reloaded meanwhile; and calls it makes belong to the session that its session header names.

    Args:
        policy: what callers may set; by default that of ``OTELKIT_MODEL_PARAMS_HEADER``, and without it
            nothing.
    """

    def __init__(
        self, app: Application, policy: HeaderPolicy | None = None, *, session_header: str = SESSION_HEADER
    ) -> None:
        self._app = app
        self._requests = RequestParameters(
            policy or HeaderPolicy.from_environment(), session_header=session_header
        )
        self._names = (HEADER.lower().encode(), self._requests.session_header.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        wishes = [value for name, value in scope["headers"] if name.lower() == self._names[0]]
        sessions = [value for name, value in scope["headers"] if name.lower() == self._names[1]]
        with ExitStack() as stack:
            try:
                session_id = sessions[0].decode("latin-1") if sessions else ""
                stack.enter_context(self._requests.applied(wishes, session_id))
            except HeaderRefusedError as error:
                if scope["type"] == "websocket":
                    await send({"type": "websocket.close", "code": 1008})
                else:
                    await _send(send, Page(400, refusal(error)))
                return
            await self._app(scope, receive, send)


class DebugApplication:
    """The debug pages as an ASGI application, to be mounted or to stand in front of another.

    Args:
        pages: None for pages that are off unless the environment asks for them.
        app: gets every request that is not for a debug page; None to answer those with 404.
    """

    def __init__(self, pages: DebugPages | None = None, app: Application | None = None) -> None:
        self._pages = pages or DebugPages()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._app is not None and not self._pages.has(path):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        client = scope.get("client")
        page = self._pages.answer(
            scope["method"],
            path,
            scope.get("query_string", b"").decode("latin-1"),
            Caller(client[0] if client else "", headers),
        )
        await _send(send, page)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            while (await receive())["type"] != "lifespan.shutdown":
                await send({"type": "lifespan.startup.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "websocket.close", "code": 1000})


async def _send(send: Send, page: Page) -> None:
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in page.headers]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": page.body})
