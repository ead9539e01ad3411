"""WSGI: the middleware for ``X-Model-Params``, and the debug pages as an application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from http import HTTPStatus
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from otelkit.record.web.access import Caller
from otelkit.record.web.header import HEADER, HeaderPolicy, HeaderRefusedError
from otelkit.record.web.pages import DebugPages, Page
from otelkit.record.web.requests import SESSION_HEADER, RequestParameters, refusal


class ModelParamsMiddleware:
    """Puts the parameters that a request asks for in force for that request, as far as ``policy`` allows.

    The request keeps one set of parameters from its beginning to the end of its response, whatever is
    reloaded meanwhile; and calls it makes belong to the session that its session header names. The
    application and its response run in a copy of the server's context, so that nothing is left behind between
    two chunks.

    Args:
        policy: what callers may set; by default that of ``OTELKIT_MODEL_PARAMS_HEADER``, and without it
            nothing.
    """

    def __init__(
        self,
        app: WSGIApplication,
        policy: HeaderPolicy | None = None,
        *,
        session_header: str = SESSION_HEADER,
    ) -> None:
        self._app = app
        self._requests = RequestParameters(
            policy or HeaderPolicy.from_environment(), session_header=session_header
        )
        self._names = (_key(HEADER), _key(self._requests.session_header))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        wish = environ.get(self._names[0])
        # PEP 3333: header values are bytes dressed up as Latin-1.
        values = [] if wish is None else [wish.encode("latin-1", "replace")]
        context = copy_context()
        try:
            context.run(self._requests.keep, values, environ.get(self._names[1], ""))
        except HeaderRefusedError as error:
            return _respond(Page(400, refusal(error)), start_response)
        response = context.run(self._app, environ, start_response)
        wrapper = environ.get("wsgi.file_wrapper")
        known = (list, tuple, wrapper) if isinstance(wrapper, type) else (list, tuple)
        if isinstance(response, known):
            return response  # the application has run, and servers know these by their type
        return _Response(response, context)


class _Response:
    """An application's response, each step of which runs in the request's context."""

    def __init__(self, response: Iterable[bytes], context: Context) -> None:
        self._response = response
        self._context = context
        self._iterator: Iterator[bytes] | None = None

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._iterator is None:
            self._iterator = self._context.run(iter, self._response)
        return self._context.run(next, self._iterator)

    def close(self) -> None:
        close: Callable[[], Any] | None = getattr(self._response, "close", None)
        if close is not None:
            self._context.run(close)


class DebugApplication:
    """The debug pages as a WSGI application, to be mounted or to stand in front of another.

    Args:
        pages: None for pages that are off unless the environment asks for them.
        app: gets every request that is not for a debug page; None to answer those with 404.
    """

    def __init__(self, pages: DebugPages | None = None, app: WSGIApplication | None = None) -> None:
        self._pages = pages or DebugPages()
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if self._app is not None and not self._pages.has(path):
            return self._app(environ, start_response)
        headers = {
            name.removeprefix("HTTP_").replace("_", "-").lower(): value
            for name, value in environ.items()
            if name.startswith("HTTP_")
        }
        page = self._pages.answer(
            environ["REQUEST_METHOD"],
            path,
            environ.get("QUERY_STRING", ""),
            Caller(environ.get("REMOTE_ADDR", ""), headers),
        )
        return _respond(page, start_response)


def _key(header: str) -> str:
    return "HTTP_" + header.upper().replace("-", "_")


def _respond(page: Page, start_response: StartResponse) -> Iterable[bytes]:
    start_response(f"{page.status} {HTTPStatus(page.status).phrase}", list(page.headers))
    return [page.body]
