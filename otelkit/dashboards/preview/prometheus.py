"""The part of Prometheus' HTTP API that Grafana's data source uses."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import httpx

from otelkit.errors import BackendUnreachable
from otelkit.query.connection import ENV_TOKEN, headers_from, timeout_from, without_credentials


class QueryError(Exception):
    """Prometheus answered that a query is wrong or can't be evaluated; the text is its own."""


class PrometheusApi:
    """Queries, each over the span given or at its end.

    Args:
        url: Address of Prometheus, with any path prefix; a user's name and password in it are never shown.
        client: An HTTP client to use, for instance with credentials; not closed here. Without one,
            credentials are those of the environment (``otelkit.query.connection``).
        headers: Sent with each question, above those of the environment.

    Raises:
        UsageError: the environment's credentials can't be read.

    Every method raises BackendUnreachable when the server does not answer or does not speak Prometheus' API,
    and QueryError when it rejects the query.
    """

    def __init__(
        self,
        url: str,
        client: httpx.Client | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._url = url.rstrip("/")
        self.url = without_credentials(self._url)
        self._own = client is None
        self._client = client or httpx.Client(
            timeout=timeout_from(os.environ), headers=headers_from(os.environ) | dict(headers or {})
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._own:
            self._client.close()

    def at(self, expr: str, time: float) -> list[dict[str, Any]]:
        """Series with one ``[time, "value"]`` each."""
        data = self._get("/api/v1/query", {"query": expr, "time": time})
        if data["resultType"] == "scalar":
            return [{"metric": {}, "value": data["result"]}]
        result: list[dict[str, Any]] = data["result"]
        return result

    def over(self, expr: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
        """Series with a list of ``[time, "value"]`` each."""
        parameters: dict[str, str | float] = {"query": expr, "start": start, "end": end, "step": step}
        result: list[dict[str, Any]] = self._get("/api/v1/query_range", parameters)["result"]
        return result

    def exemplars(self, expr: str, start: float, end: float) -> list[dict[str, Any]]:
        """Exemplars of the raw series in a query, oldest first: labels, value, timestamp."""
        found = self._get("/api/v1/query_exemplars", {"query": expr, "start": start, "end": end})
        flat = [exemplar for series in found for exemplar in series["exemplars"]]
        return sorted(flat, key=lambda exemplar: float(exemplar["timestamp"]))

    def label_values(self, label: str, selector: str, start: float, end: float) -> list[str]:
        """Values of a label, of the series that match; sorted."""
        parameters: dict[str, str | float] = {"start": start, "end": end}
        if selector:
            parameters["match[]"] = selector
        values: list[str] = self._get(f"/api/v1/label/{label}/values", parameters)
        return sorted(values)

    def _get(self, path: str, parameters: Mapping[str, str | float]) -> Any:
        try:
            answer = self._client.get(self._url + path, params=dict(parameters))
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise BackendUnreachable(
                f"{self.url}: no answer: {error or type(error).__name__}",
                hint="Is Prometheus running there? --prometheus URL names another.",
            ) from None
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise BackendUnreachable(
                f"{self.url}: answers {answer.status_code}: it does not take these credentials",
                hint=f"Set {ENV_TOKEN}, or name headers with --header (Mimir: X-Scope-OrgID=TENANT).",
            )
        try:
            body = answer.json()
        except ValueError:
            raise BackendUnreachable(
                f"{self.url}: answers {answer.status_code}, but not as Prometheus does",
                hint="Is the address that of Prometheus itself? --prometheus URL names another.",
            ) from None
        if isinstance(body, dict) and body.get("status") == "error":
            raise QueryError(str(body.get("error", answer.text)))
        if not isinstance(body, dict) or body.get("status") != "success" or "data" not in body:
            raise BackendUnreachable(f"{self.url}: answers {answer.status_code}, but not as Prometheus does")
        return body["data"]
