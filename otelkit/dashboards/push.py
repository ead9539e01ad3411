"""Put dashboards into a Grafana through its HTTP API: first what would be done, then only what was asked
for."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from otelkit.errors import BackendUnreachable, OtelkitError, UsageError

_TIMEOUT_SECONDS: Final = 30.0
MESSAGE: Final = "otelkit dashboards push"
"""Every version written from here carries it, so that others' edits can be told."""
_SET_BY_GRAFANA: Final = frozenset({"id", "version"})


class Action(enum.Enum):
    """What becomes of one dashboard."""

    CREATE = "create"
    UPDATE = "update"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    """There is one with other content that was not pushed from here; only ``force`` replaces it."""


@dataclass(frozen=True, slots=True)
class Step:
    uid: str
    title: str
    action: Action
    reason: str = ""
    version: int | None = None
    """The version in Grafana: before pushing the one that is there, after it the new one."""


class Grafana:
    """A Grafana, by its documented HTTP API (folders and dashboards).

    Args:
        url: Address, with any path prefix.
        token: A service account token with the right to write dashboards; empty for none.
        client: An HTTP client to use; not closed here.

    Every method raises BackendUnreachable when the server does not answer or is no Grafana, UsageError when
    the
    token lacks a right, and OtelkitError with Grafana's own words for everything else.
    """

    def __init__(self, url: str, token: str = "", client: httpx.Client | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._own = client is None
        self._client = client or httpx.Client(timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._own:
            self._client.close()

    def plan(self, documents: Iterable[Mapping[str, Any]], *, force: bool = False) -> list[Step]:
        """What pushing would do; changes nothing.

        A dashboard that somebody edited in Grafana is a conflict: its last version does not carry the
        message that
        :meth:`push` leaves.
        """
        return [self._plan(document, force=force) for document in documents]

    def push(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        folder_uid: str,
        folder_title: str,
        message: str,
        force: bool = False,
    ) -> list[Step]:
        """Create the folder if there is none, then every dashboard that is new, older or, with ``force``, in
        conflict.

        Grafana keeps the version before as history; ``overwrite`` is never sent without ``force``, so an
        edit made
        between planning and pushing is not lost either.
        """
        documents = list(documents)
        steps = self.plan(documents, force=force)
        if any(step.action in (Action.CREATE, Action.UPDATE) for step in steps):
            self._ensure_folder(folder_uid, folder_title)
        return [
            self._write(step, document, folder_uid, message, force=force)
            if step.action in (Action.CREATE, Action.UPDATE)
            else step
            for step, document in zip(steps, documents, strict=True)
        ]

    def _plan(self, document: Mapping[str, Any], *, force: bool) -> Step:
        uid, title = document["uid"], document["title"]
        found = self._call("GET", f"/api/dashboards/uid/{uid}", missing_is_none=True)
        if found is None:
            return Step(uid, title, Action.CREATE)
        version = int(found["dashboard"].get("version", 0))
        if _content(found["dashboard"]) == _content(document):
            return Step(uid, title, Action.UNCHANGED, version=version)
        if found.get("meta", {}).get("provisioned"):
            reason = "is provisioned from a file there; change that file, Grafana refuses anything else"
            return Step(uid, title, Action.CONFLICT, reason, version)
        if force or self._was_pushed(uid):
            return Step(uid, title, Action.UPDATE, version=version)
        reason = f"version {version} was edited in Grafana; --force replaces it (its history stays)"
        return Step(uid, title, Action.CONFLICT, reason, version)

    def _was_pushed(self, uid: str) -> bool:
        answer = self._call("GET", f"/api/dashboards/uid/{uid}/versions?limit=1")
        versions = answer["versions"] if isinstance(answer, dict) else answer
        return bool(versions) and str(versions[0].get("message", "")).startswith(MESSAGE)

    def _ensure_folder(self, uid: str, title: str) -> None:
        if self._call("GET", f"/api/folders/{uid}", missing_is_none=True) is None:
            self._call("POST", "/api/folders", {"uid": uid, "title": title})

    def _write(
        self, step: Step, document: Mapping[str, Any], folder_uid: str, message: str, *, force: bool
    ) -> Step:
        body = {
            "dashboard": {**document, "id": None, "version": step.version or 0},
            "folderUid": folder_uid,
            "message": f"{MESSAGE} {message}".strip(),
            "overwrite": force,
        }
        answer = self._call("POST", "/api/dashboards/db", body)
        return Step(step.uid, step.title, step.action, version=int(answer["version"]))

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing_is_none: bool = False
    ) -> Any:
        try:
            answer = self._client.request(method, self.url + path, json=body, headers=self._headers)
        except httpx.HTTPError as error:
            raise BackendUnreachable(
                f"{self.url}: no answer: {error or type(error).__name__}", hint="Is Grafana running there?"
            ) from None
        try:
            content = answer.json()
        except ValueError:
            raise BackendUnreachable(
                f"{self.url}: answers {answer.status_code}, but not as Grafana does",
                hint="Is the address complete, with any path that Grafana is served under?",
            ) from None
        if answer.status_code == httpx.codes.NOT_FOUND and missing_is_none:
            return None
        if answer.is_success:
            return content
        words = content.get("message", answer.text) if isinstance(content, dict) else answer.text
        said = f"{self.url}{path}: {answer.status_code}: {words}"
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UsageError(
                said, hint="Put a service account token with the role Editor into GRAFANA_TOKEN."
            )
        if answer.status_code in (httpx.codes.CONFLICT, httpx.codes.PRECONDITION_FAILED):
            raise OtelkitError(said, hint="Somebody changed it meanwhile: run again to see what differs now.")
        raise OtelkitError(said, hint="See Grafana's log for more.")


def _content(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in _SET_BY_GRAFANA}
