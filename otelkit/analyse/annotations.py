"""The verdicts as annotations in Grafana: one for each change, written once and kept up to date."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx

from otelkit.analyse.looks import Judgement
from otelkit.analyse.state import State
from otelkit.errors import BackendUnreachable, OtelkitError, UsageError
from otelkit.report.wording import change_text, interval_text

logger = logging.getLogger("otelkit.analyse")

_TAG: Final = "otelkit"
_MOST_WRITES: Final = 20
"""In one round: a Grafana is no database."""
_TIMEOUT_SECONDS: Final = 10.0
_MOST_SKIPPED: Final = 20
"""Rounds in which a Grafana that failed is left alone."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """What Grafana shows of one change."""

    change_id: str
    start: float
    """Unix seconds, as ``end``."""
    end: float
    text: str
    tags: tuple[str, ...]

    @property
    def body(self) -> dict[str, Any]:
        """As Grafana's HTTP API takes it."""
        return {
            "time": round(self.start * 1000),
            "timeEnd": round(self.end * 1000),
            "text": self.text,
            "tags": list(self.tags),
        }


def wanted(state: State) -> Iterator[Annotation]:
    """One for each change that has a verdict."""
    for judgements in state.judgements.values():
        yield from (_annotation(one) for one in judgements if one.finding is not None)


def _annotation(one: Judgement) -> Annotation:
    change, finding = one.change, one.finding
    assert finding is not None
    effect = f" {interval_text(finding.effect, unit='ms')}" if finding.effect is not None else ""
    return Annotation(
        change_id=change.id,
        start=change.first_seen,
        end=change.last_seen,
        text=f"{change.service}: {change_text(change, arrow='→')}: {one.verdict}{effect}",
        tags=(_TAG, _tag_of(change.id), change.service, change.parameter, one.verdict),
    )


def _tag_of(change_id: str) -> str:
    """By which the annotation of a change is found again, also by another analyser."""
    return f"{_TAG}:{change_id}"


class Grafana:
    """Keeps a Grafana's annotations as the state says.

    Args:
        url: Address, with any path prefix.
        token: A service account token with the right to write annotations; empty for none.
        dry_run: Say what would be written, and write nothing.

    Every call raises BackendUnreachable when the server does not answer or is no Grafana, UsageError when the
    token lacks a right, and OtelkitError with Grafana's words for everything else.
    """

    def __init__(self, url: str, token: str = "", *, dry_run: bool = False) -> None:
        self._url = url.rstrip("/")
        self._dry_run = dry_run
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, headers=headers)
        self._written: dict[str, tuple[int, Annotation]] = {}
        """Change id -> Grafana's id, and what is there."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self._client.close()

    def show(self, state: State) -> Iterator[str]:
        """Write what is new or differs; yields ``created`` or ``updated`` for each annotation written."""
        new = {one.change_id: one for one in wanted(state)}
        self._written = {id_: one for id_, one in self._written.items() if id_ in new}
        writes = 0
        for change_id, annotation in new.items():
            if writes == _MOST_WRITES:
                break
            known = self._written.get(change_id) or self._found(annotation)
            if known is not None and known[1].body == annotation.body:
                self._written[change_id] = known
                continue
            outcome = "created" if known is None else "updated"
            if self._dry_run:
                logger.info("would be %s in %s: %s", outcome, self._url, annotation.text)
                self._written[change_id] = (0, annotation)
                continue
            writes += 1
            # If it fails, for instance since somebody deleted it, it is looked for anew next time.
            self._written.pop(change_id, None)
            self._written[change_id] = (self._write(annotation, known and known[0]), annotation)
            yield outcome

    def _write(self, annotation: Annotation, id_: int | None) -> int:
        """Create it, or update the one that has an id; gives the id."""
        if id_ is None:
            return int(self._call("POST", "/api/annotations", annotation.body)["id"])
        self._call("PATCH", f"/api/annotations/{id_}", annotation.body)
        return id_

    def _found(self, annotation: Annotation) -> tuple[int, Annotation] | None:
        """What Grafana has for a change, from whoever wrote it."""
        asked: Mapping[str, str | int] = {
            "tags": _tag_of(annotation.change_id),
            "type": "annotation",
            "limit": 1,
        }
        for one in self._call("GET", "/api/annotations", asked=asked):
            there = Annotation(
                change_id=annotation.change_id,
                start=one.get("time", 0) / 1000,
                end=one.get("timeEnd", one.get("time", 0)) / 1000,
                text=one.get("text", ""),
                tags=tuple(one.get("tags") or ()),
            )
            same = sorted(there.tags) == sorted(annotation.tags)  # Grafana keeps them in no order
            return int(one["id"]), annotation if same and _is_same(there, annotation) else there
        return None

    def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        asked: Mapping[str, str | int] | None = None,
    ) -> Any:
        try:
            answer = self._client.request(method, self._url + path, json=body, params=asked)
            content = answer.json()
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise BackendUnreachable(
                f"{self._url}: no answer: {error or type(error).__name__}", hint="Is Grafana running there?"
            ) from None
        except ValueError:
            raise BackendUnreachable(
                f"{self._url}: answers {answer.status_code}, but not as Grafana does",
                hint="Is the address complete, with any path that Grafana is served under?",
            ) from None
        if answer.is_success:
            return content
        words = content.get("message", answer.text) if isinstance(content, dict) else answer.text
        said = f"{self._url}{path}: {answer.status_code}: {words}"
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UsageError(
                said, hint="Put a service account token that may write annotations into GRAFANA_TOKEN."
            )
        raise OtelkitError(said, hint="See Grafana's log for more.")


def _is_same(one: Annotation, other: Annotation) -> bool:
    return {**one.body, "tags": None} == {**other.body, "tags": None}


class Teller:
    """Tells a Grafana after each round; its being away never holds verdicts up.

    Args:
        count: Called with ``created``, ``updated`` or ``failed``.
    """

    def __init__(self, grafana: Grafana, count: Callable[[str], None]) -> None:
        self._grafana, self._count = grafana, count
        self._failures = 0
        self._skip = 0

    def __call__(self, state: State) -> None:
        if self._skip:
            self._skip -= 1
            return
        try:
            for outcome in self._grafana.show(state):
                self._count(outcome)
        except OtelkitError as error:
            if not self._failures:
                logger.warning("%s; the annotations wait until it works again", error)
            self._failures = min(self._failures + 1, _MOST_SKIPPED.bit_length())
            self._skip = min(2**self._failures - 1, _MOST_SKIPPED)
            self._count("failed")
        else:
            self._failures = 0
