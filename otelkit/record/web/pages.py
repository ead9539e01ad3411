"""The debug pages, free of any server: ``/debug/vars``, ``/debug/trace`` and ``/healthz`` as JSON.

They are off unless the service asks for them, by argument or by ``OTELKIT_DEBUG_PAGES=1``. Secrets are hidden
in them as everywhere. ``/healthz`` answers anyone, with less.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

from otelkit.record.parameters.process import ProcessParameters, process
from otelkit.record.web.access import Caller, permits
from otelkit.record.web.timelines import WrongQueryError, find
from otelkit.record.web.variables import health, variables

PAGES_VARIABLE: Final = "OTELKIT_DEBUG_PAGES"
PORT_VARIABLE: Final = "OTELKIT_DEBUG_PORT"
TOKEN_VARIABLE: Final = "OTELKIT_DEBUG_TOKEN"
VARIABLES_PATH: Final = "/debug/vars"
TRACE_PATH: Final = "/debug/trace"
HEALTH_PATH: Final = "/healthz"
_PATHS: Final = (VARIABLES_PATH, TRACE_PATH, HEALTH_PATH)


@dataclass(frozen=True, slots=True)
class Page:
    """An answer."""

    status: int
    body: bytes
    extra: tuple[tuple[str, str], ...] = ()

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        return (
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(self.body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            *self.extra,
        )


class DebugPages:
    """Answers requests for debug pages.

    Args:
        enabled: None to have ``OTELKIT_DEBUG_PAGES`` decide.
        token: bearer token that readers must send; None for ``OTELKIT_DEBUG_TOKEN``. Without any, only
            requests that come straight from this machine are answered.
    """

    def __init__(
        self,
        enabled: bool | None = None,
        *,
        token: str | None = None,
        parameters: ProcessParameters = process,
    ) -> None:
        asked_for = os.environ.get(PAGES_VARIABLE, "").strip().lower() in ("1", "true", "yes", "on")
        self.enabled = asked_for if enabled is None else enabled
        self.token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
        self._parameters = parameters
        if self.enabled and not parameters.traces.capacity:
            parameters.traces.turn_on()

    def has(self, path: str) -> bool:
        """Whether ``path`` is a debug page."""
        return self.enabled and path in _PATHS

    def answer(self, method: str, path: str, query: str, caller: Caller) -> Page:
        """The answer to one request.

        Args:
            path: below the place where the pages are mounted.
            query: the part after ``?``, still encoded.
        """
        if not self.has(path):
            return _json(404, {"error": f"no page {path[:200]!r}"})
        if method not in ("GET", "HEAD"):
            return _json(405, {"error": f"{method[:20]} is not allowed"}, ("Allow", "GET, HEAD"))
        page = self._permitted(path, query, permits(caller, self.token))
        return Page(page.status, b"", page.extra) if method == "HEAD" else page

    def _permitted(self, path: str, query: str, permitted: bool) -> Page:
        if path == HEALTH_PATH:
            return _json(200, health(self._parameters) if permitted else {"status": "ok"})
        if not permitted and self.token:
            return _json(401, {"error": "a bearer token is required"}, ("WWW-Authenticate", "Bearer"))
        if not permitted:
            text = f"only requests from this machine are answered; set {TOKEN_VARIABLE} to allow others"
            return _json(403, {"error": text})
        if path == VARIABLES_PATH:
            return _json(200, variables(self._parameters))
        try:
            found = find(self._parameters.traces, dict(parse_qsl(query, keep_blank_values=True)))
        except WrongQueryError as error:
            return _json(error.status, {"error": str(error)})
        return _json(200, found)


def _json(status: int, content: Any, *extra: tuple[str, str]) -> Page:
    text = json.dumps(content, ensure_ascii=False, indent=1, default=str)
    return Page(status, text.encode("utf-8", "replace"), extra)
