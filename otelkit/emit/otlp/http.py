"""OTLP over HTTP with protobuf bodies."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import requests

from otelkit.emit.otlp.sender import Reply, accepted

RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
COMPRESSORS: Final[Mapping[str, Callable[[bytes | memoryview], bytes]]] = {
    "gzip": lambda body: gzip.compress(body, compresslevel=1),
    "deflate": lambda body: zlib.compress(body, 1),
}
"""Level 1: token-step spans shrink to a fifth, as at level 9, in a thirteenth of the time."""


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
        self._request: requests.PreparedRequest | None = None
        """Headers, credentials and URL, worked out once: that costs more than to send a body."""
        self._options: Mapping[str, Any] = {}

    @property
    def address(self) -> str:
        return self._url

    def send(self, body: bytes | memoryview, timeout: float) -> Reply:
        data = self._compress(body) if self._compress else body
        try:
            response = self._post(data, timeout)
        except (requests.ConnectionError, requests.Timeout) as error:
            return Reply(delivered=False, retryable=True, message=_reason(error))
        except (requests.RequestException, OSError, ValueError) as error:
            return Reply(delivered=False, message=f"{type(error).__name__}: {error}")
        status = response.status_code
        if 200 <= status < 300:
            return accepted(response.content)
        return Reply(
            delivered=False,
            retryable=status in RETRYABLE_STATUS,
            retry_after=retry_after_seconds(response.headers.get("retry-after")),
            message=f"HTTP {status} {response.reason}",
        )

    def _post(self, data: bytes | memoryview, timeout: float) -> requests.Response:
        session = self._session
        if session is None:
            session = self._session = self._new_session()
        if type(session) is not requests.Session:
            # A session of another class may renew credentials with each request.
            return session.post(
                self._url, data=bytes(data), headers=self._headers, timeout=timeout, allow_redirects=False
            )
        if self._request is None:
            bare = requests.Request("POST", self._url, headers=self._headers)
            self._request = session.prepare_request(bare)
            # `verify` is said again, or REQUESTS_CA_BUNDLE would win over the collector's certificate.
            self._options = session.merge_environment_settings(
                self._url, {}, stream=False, verify=session.verify, cert=session.cert
            )
        request = self._request.copy()
        # What `prepare_body` does with bytes; a view, which is not copied, it would take for a form's fields.
        request.body = data  # type: ignore[assignment]
        request.headers["content-length"] = str(len(data))
        return session.send(request, timeout=timeout, allow_redirects=False, **self._options)

    def close(self) -> None:
        session, self._session, self._request = self._session, None, None
        if session is not None:
            session.close()

    def after_fork(self) -> None:
        self._session = self._request = None


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
