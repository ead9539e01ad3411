"""Put dashboards into a Grafana through its HTTP API: first what would be done, then only what was asked
for."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import httpx

from otelkit.errors import BackendUnreachable, OtelkitError, UsageError
from otelkit.query.connection import without_credentials

_TIMEOUT_SECONDS: Final = 30.0
MESSAGE: Final = "otelkit dashboards push"
"""Every version written from here carries it, so that others' edits can be told."""
_SET_BY_GRAFANA: Final = frozenset({"id", "version"})
_DENIED: Final = frozenset({httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN})
_CHANGED: Final = frozenset({httpx.codes.CONFLICT, httpx.codes.PRECONDITION_FAILED})
_AWAY: Final = frozenset(
    {
        httpx.codes.TOO_MANY_REQUESTS,
        httpx.codes.BAD_GATEWAY,
        httpx.codes.SERVICE_UNAVAILABLE,
        httpx.codes.GATEWAY_TIMEOUT,
    }
)
_LONGEST_WORDS: Final = 300


class Action(enum.Enum):
    """What becomes of one dashboard."""

    CREATE = "create"
    UPDATE = "update"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    """There is one with other content that was not pushed from here; only ``force`` replaces it."""
    FAILED = "failed"
    """Grafana refused it, or did not answer; the reason says which."""


@dataclass(frozen=True, slots=True)
class Step:
    uid: str
    title: str
    action: Action
    reason: str = ""
    version: int | None = None
    """The version in Grafana: before pushing the one that is there, after it the new one."""
    folder_uid: str | None = None
    """Folder that the dashboard is in; None where there is none yet."""


class _Changed(OtelkitError):  # noqa: N818  (states a condition)
    """Somebody else wrote between reading and writing."""


class Grafana:
    """A Grafana, by its documented HTTP API (folders and dashboards).

    Args:
        url: Address, with any path prefix.
        token: A service account token with the right to write dashboards; empty for none.
        client: An HTTP client to use; not closed here.

    Every method raises BackendUnreachable when the server does not answer or is no Grafana, UsageError when
    the token lacks a right, and OtelkitError with Grafana's own words for everything else.
    """

    def __init__(self, url: str, token: str = "", client: httpx.Client | None = None) -> None:
        self._url = url.rstrip("/")
        self.url = without_credentials(self._url)
        token = token.strip()
        if not (token.isascii() and token.isprintable()):
            raise UsageError(
                "GRAFANA_TOKEN holds characters that no token has",
                hint="Copy the token again; it is one line.",
            )
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._own = client is None
        self._client = client or httpx.Client(timeout=_TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._own:
            self._client.close()

    def has_folder(self, uid: str) -> bool:
        return self._get(f"/api/folders/{uid}", needs="uid") is not None

    def plan(
        self, documents: Iterable[Mapping[str, Any]], *, folder_uid: str | None = None, force: bool = False
    ) -> list[Step]:
        """What pushing would do; changes nothing.

        A dashboard that somebody edited in Grafana is a conflict: its last version does not carry the message
        that :meth:`push` leaves.

        Args:
            folder_uid: Where all dashboards are to be; None leaves those that are there in their folders.
        """
        return [self._plan(document, folder_uid, force=force) for document in documents]

    def push(
        self,
        documents: Iterable[Mapping[str, Any]],
        *,
        folder_uid: str,
        folder_title: str,
        message: str,
        force: bool = False,
        move: bool = False,
    ) -> list[Step]:
        """Create the folder if there is none, then every dashboard that is new, older or, with ``force``, in
        conflict.

        Grafana keeps the version before as history; ``overwrite`` is never sent without ``force``, so an edit
        made between planning and pushing is not lost either. A dashboard that is refused does not stop the
        others.

        Args:
            move: Also move dashboards that are in other folders.
        """
        documents = list(documents)
        steps = self.plan(documents, folder_uid=folder_uid if move else None, force=force)
        writing = (Action.CREATE, Action.UPDATE)
        if any(
            step.action in writing and _goes_to(step, folder_uid, move=move) == folder_uid for step in steps
        ):
            self._ensure_folder(folder_uid, folder_title)
        done: list[Step] = []
        away = ""
        for step, document in zip(steps, documents, strict=True):
            if step.action not in writing:
                done.append(step)
            elif away:
                done.append(replace(step, action=Action.FAILED, reason=f"not tried: {away}"))
            else:
                try:
                    folder = _goes_to(step, folder_uid, move=move)
                    done.append(self._write(step, document, folder, message, force=force))
                except _Changed as error:
                    done.append(replace(step, action=Action.CONFLICT, reason=error.message))
                except UsageError:
                    if not any(step.action in writing for step in done):
                        raise
                    done.append(replace(step, action=Action.FAILED, reason="the token may not write it"))
                except OtelkitError as error:
                    away = error.message if isinstance(error, BackendUnreachable) else ""
                    done.append(replace(step, action=Action.FAILED, reason=error.message))
        return done

    def _plan(self, document: Mapping[str, Any], folder_uid: str | None, *, force: bool) -> Step:
        step = Step(document["uid"], document["title"], Action.CREATE)
        found = self._get(f"/api/dashboards/uid/{step.uid}", needs="dashboard")
        if found is None:
            return step
        there, meta = found["dashboard"], found.get("meta") or {}
        folder = str(meta.get("folderUid") or "")
        step = replace(step, version=int(there.get("version") or 0), folder_uid=folder)
        elsewhere = folder_uid is not None and folder_uid != folder
        if _content(there) == _content(document) and not elsewhere:
            return replace(step, action=Action.UNCHANGED)
        if meta.get("provisioned"):
            reason = "is provisioned from a file there; change that file, Grafana refuses anything else"
            return replace(step, action=Action.CONFLICT, reason=reason)
        if force or _content(there) == _content(document) or self._was_pushed(step.uid):
            return replace(step, action=Action.UPDATE, reason="moves to its folder" if elsewhere else "")
        reason = f"version {step.version} was edited in Grafana; --force replaces it (its history stays)"
        return replace(step, action=Action.CONFLICT, reason=reason)

    def _was_pushed(self, uid: str) -> bool:
        answer = self._call("GET", f"/api/dashboards/uid/{uid}/versions?limit=1")
        versions = answer.get("versions") if isinstance(answer, dict) else answer
        newest = versions[0] if isinstance(versions, list) and versions else {}
        return isinstance(newest, dict) and str(newest.get("message", "")).startswith(MESSAGE)

    def _ensure_folder(self, uid: str, title: str) -> None:
        if self.has_folder(uid):
            return
        try:
            self._call("POST", "/api/folders", {"uid": uid, "title": title})
        except _Changed as error:
            # Somebody else may have made it just now; else another one has its title.
            if not self.has_folder(uid):
                raise OtelkitError(
                    error.message,
                    hint="--folder UID names a folder that is there, --folder-title another title.",
                ) from None

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
        if not isinstance(answer, dict) or not isinstance(answer.get("version"), int):
            raise self._no_grafana(httpx.codes.OK)
        return replace(step, version=answer["version"], folder_uid=folder_uid)

    def _get(self, path: str, *, needs: str) -> dict[str, Any] | None:
        """An object that has the key ``needs``; None where Grafana knows none."""
        found = self._call("GET", path, missing_is_none=True)
        if found is not None and not (isinstance(found, dict) and found.get(needs)):
            raise self._no_grafana(httpx.codes.OK)
        return found

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, missing_is_none: bool = False
    ) -> Any:
        """An answer's JSON, which is never None; that stands for what is missing, where that is asked for."""
        try:
            answer = self._client.request(method, self._url + path, json=body, headers=self._headers)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise BackendUnreachable(
                f"{self.url}: no answer: {error or type(error).__name__}",
                hint="Is Grafana running there? Write for instance https://grafana.example.org.",
            ) from None
        code = answer.status_code
        try:
            content = answer.json()
        except ValueError:
            content = None
        words = content.get("message") if isinstance(content, dict) else None
        if answer.is_success and content is not None:
            return content
        said = f"{self.url}{path}: {code}: {str(words)[:_LONGEST_WORDS]}"
        if code in _AWAY:
            raise BackendUnreachable(
                said if words else f"{self.url}: answers {code}", hint="Grafana is not there now: try again."
            )
        if code in _DENIED:
            raise UsageError(
                said, hint="Put a service account token with the role Editor into GRAFANA_TOKEN."
            )
        if words is None:
            raise self._no_grafana(code, answer.headers.get("location", ""))
        if code == httpx.codes.NOT_FOUND and missing_is_none:
            return None
        if code in _CHANGED:
            raise _Changed(said, hint="Somebody changed it meanwhile: run again to see what differs now.")
        raise OtelkitError(said, hint="See Grafana's log for more.")

    def _no_grafana(self, code: int, location: str = "") -> BackendUnreachable:
        leads = f" and leads to {location}" if location else ""
        return BackendUnreachable(
            f"{self.url}: answers {code}{leads}, but not as Grafana does",
            hint="Is the address complete, with any path that Grafana is served under?",
        )


def _goes_to(step: Step, folder_uid: str, *, move: bool) -> str:
    return folder_uid if move or step.folder_uid is None else step.folder_uid


def _content(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in _SET_BY_GRAFANA}
