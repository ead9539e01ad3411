"""Traces from Tempo's HTTP API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Self

import httpx

from otelkit.errors import BackendUnreachable
from otelkit.model import Generation
from otelkit.query.connection import without_credentials
from otelkit.query.traces import generations, spans_of

_TIMEOUT_SECONDS: Final = 20.0
_MOST_FOUND: Final = 50


class Tempo:
    """One Tempo.

    Args:
        url: Its address, with any path prefix; a user's name and password in it are sent and never shown.
        headers: Sent with each question, for instance ``X-Scope-OrgID``.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self.shown = without_credentials(self._url)
        self._client = httpx.Client(
            timeout=_TIMEOUT_SECONDS, headers={"accept": "application/json", **(headers or {})}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._client.close()

    def generations(self, trace_id: str, service: str) -> tuple[Generation, ...]:
        """The generations of a service in one trace; none where Tempo has not, or no longer, got it.

        Raises:
            BackendUnreachable: Tempo does not answer, or not as Tempo does.
        """
        document = self._get(f"api/traces/{trace_id}", {})
        if document is None:
            return ()
        try:
            return generations(spans_of(document), service)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise BackendUnreachable(
                f"{self.shown}/api/traces/{trace_id} answered with no trace: {error!r}",
                hint="Does the address point at Tempo itself, with its path prefix?",
            ) from error

    def search(self, service: str, start: float, end: float, low: float, high: float) -> tuple[str, ...]:
        """Ids of traces of a service between two Unix times whose call took ``low`` to ``high`` seconds.

        Raises:
            BackendUnreachable: Tempo does not answer, or not as Tempo does.
        """
        query = (
            f"{{ resource.service.name = {json.dumps(service)} && span.gen_ai.operation.name != nil"
            f" && duration >= {low * 1e3:.0f}ms && duration <= {high * 1e3:.0f}ms }}"
        )
        found = self._get(
            "api/search", {"q": query, "start": int(start), "end": int(end) + 1, "limit": _MOST_FOUND}
        )
        try:
            return tuple(str(one["traceID"]).zfill(32) for one in (found or {}).get("traces") or ())
        except (TypeError, KeyError, AttributeError) as error:
            raise BackendUnreachable(
                f"{self.shown}/api/search answered with no list of traces: {error!r}",
                hint="Does the address point at Tempo itself, with its path prefix?",
            ) from error

    def _get(self, path: str, parameters: Mapping[str, str | int]) -> Any:
        """The JSON of an answer; None for 404."""
        try:
            response = self._client.get(f"{self._url}/{path}", params=parameters)
            if response.status_code == httpx.codes.NOT_FOUND:
                return None
            response.raise_for_status()
            return response.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            said = str(error).split("\n")[0].replace(self._url, self.shown) or type(error).__name__
            raise BackendUnreachable(
                f"Tempo at {self.shown} does not answer: {said}",
                hint="Is it running? Its address is --traces URL.",
            ) from error
