"""How a PromQL API is asked, whoever serves it: credentials, patience, and what its refusals mean.

Prometheus, Thanos, Mimir and VictoriaMetrics answer the same questions at the same paths. They differ in
where those paths begin, in who may ask, in how much may be asked at once, and in how they say that an answer
lacks a part.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import httpx

from otelkit.errors import BackendUnreachable, UsageError

ENV_HEADERS: Final = "OTELKIT_PROMETHEUS_HEADERS"
"""``name=value,name=value`` with values percent-encoded, as in OTEL_EXPORTER_OTLP_HEADERS."""
ENV_TOKEN: Final = "OTELKIT_PROMETHEUS_TOKEN"
"""Sent as a bearer token."""
ENV_USERNAME: Final = "OTELKIT_PROMETHEUS_USERNAME"
ENV_PASSWORD: Final = "OTELKIT_PROMETHEUS_PASSWORD"
ENV_TIMEOUT: Final = "OTELKIT_PROMETHEUS_TIMEOUT_SECONDS"

_TIMEOUT_SECONDS: Final = 60.0
_BUSY: Final = frozenset({429, 502, 503, 504})
_PAUSES_SECONDS: Final = (0.5, 1.0, 2.0)
_LONGEST_PAUSE_SECONDS: Final = 10.0
_MOST_WARNINGS: Final = 10
_WARNING_LENGTH: Final = 300
_TOO_MUCH_WORDS: Final = (
    "too many",
    "exceed",
    "maximum",
    "limit",
    "memory",
    "timeout",
    "timed out",
    "too long",
)
_T = TypeVar("_T")


class TooMuch(BackendUnreachable):
    """The server gave up on a question; a smaller one may be answered."""


def headers_from(environ: Mapping[str, str]) -> dict[str, str]:
    """Headers, a bearer token or a user's name and password, as the environment states them.

    Raises:
        UsageError: they can't be read, or contradict each other.
    """
    found = {}
    for pair in filter(None, (part.strip() for part in environ.get(ENV_HEADERS, "").split(","))):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            # The value may be a secret, so it is not repeated.
            raise UsageError(
                f"{ENV_HEADERS}: an entry has no name and value joined by =",
                hint="Write for instance X-Scope-OrgID=team-a.",
            )
        found[name.strip()] = unquote(value.strip())
    token, username = environ.get(ENV_TOKEN, ""), environ.get(ENV_USERNAME, "")
    if token and username:
        raise UsageError(f"{ENV_TOKEN} and {ENV_USERNAME} are both set", hint="Unset one of them.")
    if token:
        found["Authorization"] = f"Bearer {token}"
    if username:
        basic = httpx.BasicAuth(username, environ.get(ENV_PASSWORD, ""))
        found["Authorization"] = next(basic.auth_flow(httpx.Request("GET", "http://x"))).headers[
            "Authorization"
        ]
    return found


def timeout_from(environ: Mapping[str, str]) -> float:
    """Seconds that one answer may take.

    Raises:
        UsageError: the environment gives no number above 0.
    """
    text = environ.get(ENV_TIMEOUT, "")
    if not text:
        return _TIMEOUT_SECONDS
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < float("inf"):
            return seconds
    raise UsageError(
        f"{ENV_TIMEOUT}: {text!r} is no number of seconds above 0", hint="Write for instance 120."
    )


class Api:
    """The HTTP API at one address.

    Args:
        url: Its address, with any path prefix; a user's name and password in it are sent and never shown.
        warn: Called with what a reader should know of the answers.
        headers: Sent with each question, above those of the environment.
        client: An HTTP client to use, for instance with credentials; not closed here. The environment's
            headers are then left to it.
        environ: Where credentials and the timeout are read from.
        sleep: Waits some seconds before a busy server is asked again.

    Raises:
        UsageError: the environment's settings can't be read.
    """

    def __init__(
        self,
        url: str,
        warn: Callable[[str], None],
        *,
        headers: Mapping[str, str] | None = None,
        client: httpx.Client | None = None,
        environ: Mapping[str, str] = os.environ,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url.rstrip("/")
        self.shown = without_credentials(self._url)
        self._warn = warn
        self._warned = 0
        self._timeout = timeout_from(environ)
        self._own = client is None
        self._client = client or httpx.Client(
            timeout=self._timeout, headers=headers_from(environ) | dict(headers or {})
        )
        self._sleep = sleep

    def close(self) -> None:
        """Close the connections that were opened here."""
        if self._own:
            self._client.close()

    def get(self, path: str, parameters: Mapping[str, str | float | int]) -> Any:
        """The ``data`` of an answer.

        Raises:
            TooMuch: the server gave up; a smaller question may be answered.
            BackendUnreachable: it does not answer, does not speak Prometheus' API, or refuses.
        """
        for pause in (*_PAUSES_SECONDS, None):
            response, text = self._ask(path, parameters)
            if response.status_code not in _BUSY or _gave_up(text) or pause is None:
                break
            self._sleep(_pause(response, pause))
        return self._read(path, parameters, response, text)

    def _ask(self, path: str, parameters: Mapping[str, str | float | int]) -> tuple[httpx.Response, str]:
        try:
            return self._receive(f"{self._url}/api/v1/{path}", parameters)
        except (httpx.ReadTimeout, httpx.WriteTimeout) as error:
            raise TooMuch(
                f"Prometheus at {self.shown} gave no whole answer within {self._timeout:g} s",
                hint=f"Ask for a shorter span, or give it more time with {ENV_TIMEOUT}.",
            ) from error
        except httpx.HTTPError as error:
            raise BackendUnreachable(
                f"Prometheus at {self.shown} does not answer: {error or type(error).__name__}",
                hint="Is it running? Its address is --prometheus URL, or prometheus: in otelkit.yaml.",
            ) from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise BackendUnreachable(
                f"{self.shown!r} is not an address: {error}", hint="Write for instance http://127.0.0.1:9090."
            ) from error

    def _receive(self, url: str, parameters: Mapping[str, str | float | int]) -> tuple[httpx.Response, str]:
        """The whole answer, within the timeout: nobody waits for ever for a server that trickles."""
        deadline = time.monotonic() + self._timeout
        with self._client.stream("GET", url, params=parameters) as response:
            body = bytearray()
            for part in response.iter_bytes():
                body += part
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer trickles", request=response.request)
        return response, body.decode(response.charset_encoding or "utf-8", errors="replace")

    def _read(
        self, path: str, parameters: Mapping[str, str | float | int], response: httpx.Response, text: str
    ) -> Any:
        code = response.status_code
        if code in (401, 403):
            raise BackendUnreachable(
                f"Prometheus at {self.shown} answered {code}: it does not take these credentials",
                hint=f"Set {ENV_TOKEN}, or {ENV_USERNAME} and {ENV_PASSWORD}, or name headers with "
                f"{ENV_HEADERS} or --header (Mimir: X-Scope-OrgID=TENANT).",
            )
        try:
            body = json.loads(text)
            status = body["status"]
        except (ValueError, KeyError, TypeError):
            kind = TooMuch if code in _BUSY or code == 413 else BackendUnreachable
            said = f": {' '.join(text.split())[:_WARNING_LENGTH]}" if code >= 400 and "<" not in text else ""
            raise kind(
                f"{self.shown}/api/v1/{path} answered {code} and no JSON of Prometheus{said}",
                hint="Does the address point at the PromQL API itself, with its path prefix? Mimir's is "
                "/prometheus, a VictoriaMetrics cluster's /select/0/prometheus.",
            ) from None
        self._pass_on(body, parameters)
        if status != "success":
            problem = str(body.get("error", "unknown error"))
            kind = TooMuch if code in _BUSY or code == 413 or _is_too_much(code, body) else BackendUnreachable
            raise kind(
                f"Prometheus at {self.shown} answered {code}: {problem}",
                hint=f"The query was {parameters.get('query', path)}",
            )
        if "data" not in body:
            raise BackendUnreachable(f"{self.shown}/api/v1/{path} answered success without any data")
        return body["data"]

    def _pass_on(self, body: Mapping[str, Any], parameters: Mapping[str, str | float | int]) -> None:
        # A limit is only given where one answer is enough, and cutting the rest off is then no news.
        messages = (
            [] if "limit" in parameters else [*(body.get("warnings") or ()), *(body.get("infos") or ())]
        )
        if body.get("isPartial"):
            messages.append("the answer is partial: some of its storage nodes did not answer")
        for message in messages:
            if self._warned < _MOST_WARNINGS:
                self._warned += 1
                self._warn(f"Prometheus at {self.shown}: {str(message)[:_WARNING_LENGTH]}")
            elif self._warned == _MOST_WARNINGS:
                self._warned += 1
                self._warn(f"Prometheus at {self.shown} has given more warnings than are repeated here")


def without_credentials(url: str) -> str:
    """The address as it may be shown."""
    scheme, slashes, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if slashes else url


def in_pieces(
    ask: Callable[[float, float], _T], start: float, end: float, size: float, smallest: float
) -> Iterator[_T]:
    """Ask about ``(start, end]`` in pieces, smaller ones once the server gives up on large ones.

    Args:
        ask: Gets the ends of a piece, in the unit of all the others (seconds, or points).

    Raises:
        TooMuch: the server gave up on a piece of the smallest size.
    """
    at = start
    while at < end:
        until = min(at + size, end)
        try:
            answer = ask(at, until)
        except TooMuch:
            if until - at <= smallest:
                raise
            size = max((until - at) / 2, smallest)
            continue
        yield answer
        at = until


def _is_too_much(code: int, body: Mapping[str, Any]) -> bool:
    """Whether an error speaks of the size of a question, not of the question itself."""
    if body.get("errorType") == "timeout":
        return True
    text = str(body.get("error", "")).lower()
    return code in (400, 422) and any(word in text for word in _TOO_MUCH_WORDS)


def _gave_up(text: str) -> bool:
    """Whether the server worked on the question until its time was up: it would do so again."""
    return '"timeout"' in text or "timed out" in text


def _pause(response: httpx.Response, usual: float) -> float:
    """Seconds to wait, as the server asks for within reason."""
    with contextlib.suppress(ValueError):
        return min(max(float(response.headers.get("retry-after", "")), 0.0), _LONGEST_PAUSE_SECONDS)
    return usual
