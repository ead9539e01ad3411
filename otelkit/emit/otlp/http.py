"""OTLP over HTTP with protobuf bodies."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import Any, Final, NamedTuple

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, Retry, Timeout
from urllib3.exceptions import (
    ClosedPoolError,
    HTTPError,
    MaxRetryError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)
from urllib3.util import wait_for_read

from otelkit.emit.otlp.sender import Reply, accepted

RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
COMPRESSORS: Final[Mapping[str, Callable[[bytes | memoryview], bytes]]] = {
    "gzip": lambda body: gzip.compress(body, compresslevel=1),
    "deflate": lambda body: zlib.compress(body, 1),
}
"""Level 1: token-step spans shrink to a fifth, as at level 9, in a thirteenth of the time."""
_PASSING: Final = (
    ProtocolError,
    MaxRetryError,
    ClosedPoolError,
    ReadTimeoutError,
    ProxyError,
    SSLError,
    OSError,
)
"""What requests calls an error of the connection, or a timeout."""


class HttpSender:
    """Posts requests to one URL, over a connection that is kept.

    Args:
        url: the full URL, ``/v1/traces`` included.
        headers: sent with each request, content type and user agent included.
        compression: ``gzip``, ``deflate`` or ``none``.
        new_session: makes the connection pool, with the user's certificates and credentials.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        compression: str,
        new_session: Callable[[], requests.Session],
    ) -> None:
        self._url = url
        self._headers = dict(headers)
        self._compress = COMPRESSORS.get(compression)
        if self._compress is not None:
            self._headers["content-encoding"] = compression
        self._new_session = new_session
        self._session: requests.Session | None = None
        self._direct: _Direct | _Plain | None = None

    @property
    def address(self) -> str:
        return self._url

    def send(self, body: bytes | memoryview, timeout: float) -> Reply:
        data = self._compress(body) if self._compress else body
        try:
            answer = self._post(data, timeout)
        except (requests.ConnectionError, requests.Timeout) as error:
            return Reply(delivered=False, retryable=True, message=_reason(error))
        except (HTTPError, requests.RequestException, OSError, ValueError) as error:
            return Reply(delivered=False, message=f"{type(error).__name__}: {error}")
        if 200 <= answer.status < 300:
            return accepted(answer.content)
        return Reply(
            delivered=False,
            retryable=answer.status in RETRYABLE_STATUS,
            retry_after=retry_after_seconds(answer.headers.get("retry-after")),
            message=f"HTTP {answer.status} {answer.reason}",
        )

    def _post(self, data: bytes | memoryview, timeout: float) -> _Answer:
        session = self._session
        if session is None:
            session = self._session = self._new_session()
            self._direct = _direct(session, self._url, self._headers)
        if self._direct is not None:
            return self._direct.post(data, timeout)
        response = session.post(
            self._url, data=bytes(data), headers=self._headers, timeout=timeout, allow_redirects=False
        )
        return _Answer(response.status_code, response.reason, response.headers, response.content)

    def close(self) -> None:
        session, self._session, self._direct = self._session, None, None
        if session is not None:
            session.close()

    def after_fork(self) -> None:
        self._session = self._direct = None


class _Answer(NamedTuple):
    status: int
    reason: str | None
    headers: Mapping[str, str] | HTTPMessage
    content: bytes


class _Direct(NamedTuple):
    """Posts over a session's own connections, with all that it would say of a request worked out once: for
    each anew that takes requests longer than to send a body of a few kilobytes."""

    pool: HTTPConnectionPool
    target: str
    """What goes in the request's first line."""
    headers: Mapping[str, Any]
    retries: Retry

    def post(self, data: bytes | memoryview, timeout: float) -> _Answer:
        try:
            response = self.pool.urlopen(
                "POST",
                self.target,
                data,  # type: ignore[arg-type]  # whose length is known: sent as it is
                {**self.headers, "content-length": str(len(data))},
                redirect=False,
                assert_same_host=False,  # a proxy's pool gets a whole URL
                retries=self.retries,
                timeout=Timeout(connect=timeout, read=timeout),
            )
        except _PASSING as error:
            raise requests.ConnectionError(error) from error
        return _Answer(response.status, response.reason, response.headers, response.data)


class _Plain:
    """Posts over a connection without TLS and proxy. All that urllib3 does for a request is of no use there,
    and takes as long again as the request itself."""

    def __init__(self, host: str, port: int | None, target: str, headers: Mapping[str, Any]) -> None:
        self._connection = HTTPConnection(host, port)
        self._target = target
        # An answer is not decompressed here.
        given = {name: value for name, value in headers.items() if name.lower() != "accept-encoding"}
        self._headers = {**given, "accept-encoding": "identity"}

    def __del__(self) -> None:
        self._connection.close()

    def post(self, data: bytes | memoryview, timeout: float) -> _Answer:
        connection = self._connection
        connection.timeout = timeout
        try:
            if connection.sock is not None:
                if wait_for_read(connection.sock, timeout=0):  # the collector has closed it meanwhile
                    connection.close()
                else:
                    connection.sock.settimeout(timeout)
            try:
                connection.request("POST", self._target, data, self._headers)
            except (BrokenPipeError, ConnectionResetError):
                if connection.sock is None:
                    raise
                # It may have answered before it had read all, and say why.
            response = connection.getresponse()
            return _Answer(response.status, response.reason, response.headers, response.read())
        except (HTTPException, OSError) as error:
            connection.close()
            raise requests.ConnectionError(error) from error


def _direct(session: requests.Session, url: str, headers: Mapping[str, str]) -> _Direct | _Plain | None:
    """None for a session that may do something about each request, such as to renew credentials."""
    if type(session) is not requests.Session or callable(session.auth):
        return None
    request = session.prepare_request(requests.Request("POST", url, headers=headers))
    adapter = session.get_adapter(url)
    if type(adapter) is not HTTPAdapter or any(request.hooks.values()) or not request.url:
        return None
    if not hasattr(adapter, "get_connection_with_tls_context"):  # requests before 2.32
        return None
    # `verify` is said again, or REQUESTS_CA_BUNDLE would win over the collector's certificate.
    options = session.merge_environment_settings(
        url, {}, stream=False, verify=session.verify, cert=session.cert
    )
    verify, cert, proxies = options["verify"], options["cert"], options["proxies"]
    pool = adapter.get_connection_with_tls_context(request, verify, proxies=proxies, cert=cert)
    adapter.cert_verify(pool, request.url, verify, cert)
    given = {name: value for name, value in request.headers.items() if name.lower() != "content-length"}
    target, retries = adapter.request_url(request, proxies), adapter.max_retries
    if type(pool) is HTTPConnectionPool and pool.proxy is None and not retries.total:
        return _Plain(pool.host, pool.port, target, given)
    return _Direct(pool, target, given, retries)


def _reason(error: Exception) -> str:
    """The innermost cause: requests wraps "connection refused" in three layers of its own text."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return f"{type(cause).__name__}: {cause}"


def retry_after_seconds(value: str | None) -> float | None:
    """Seconds from a ``Retry-After`` header, which holds seconds or a date; None when it is missing or
    unreadable."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if math.isfinite(seconds):
        return max(0.0, seconds)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
