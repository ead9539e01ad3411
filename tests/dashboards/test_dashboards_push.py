"""Pushing dashboards, against a server that speaks Grafana's documented API (not a Grafana)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result
from grafana_stand_in import TOKEN, Store, grafana_stand_in

from otelkit.cli.main import cli
from otelkit.dashboards import documents
from otelkit.dashboards.push import Action, Grafana, Step
from otelkit.errors import BackendUnreachable, OtelkitError, UsageError
from otelkit.spec import Spec

NAMES = ("otelkit-causal", "otelkit-runbook")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Store]]:
    monkeypatch.setenv("GRAFANA_TOKEN", TOKEN)
    with grafana_stand_in() as found:
        yield found


def _push(url: str, *more: str) -> Result:
    result = CliRunner().invoke(cli, ["dashboards", "push", "--url", url, *NAMES, *more])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def _actions(result: Result) -> dict[str, str]:
    return {line.split()[1]: line.split()[0] for line in result.stdout.splitlines()}


def test_without_yes_nothing_is_changed(server: tuple[str, Store]) -> None:
    """Trying the command out would already write into somebody's Grafana."""
    url, store = server
    result = _push(url)
    assert result.exit_code == 0
    assert _actions(result) == dict.fromkeys(NAMES, "create")
    assert "folder 'otelkit' is not there and would be created" in result.stderr
    assert "nothing was changed" in result.stderr
    assert store.writes == []


def test_dashboards_are_created_in_their_folder(server: tuple[str, Store]) -> None:
    """The folder would be missing, or dashboards land in the general one."""
    url, store = server
    assert _push(url, "--yes", "--folder", "team", "--folder-title", "Team").exit_code == 0
    assert store.folders == {"team": "Team"}
    assert set(store.versions) == set(NAMES)
    assert {versions[-1]["folderUid"] for versions in store.versions.values()} == {"team"}
    ours = documents(Spec())["otelkit-causal"]
    assert {**store.newest("otelkit-causal")} == {**ours, "version": 1}


def test_pushing_again_writes_nothing(server: tuple[str, Store]) -> None:
    """Every run in a pipeline would add a version to every dashboard's history."""
    url, store = server
    _push(url, "--yes")
    before = len(store.writes)
    assert set(_actions(_push(url, "--yes")).values()) == {"unchanged"}
    assert len(store.writes) == before


def test_what_was_pushed_before_is_updated(server: tuple[str, Store]) -> None:
    """A new release could not be rolled out without --force."""
    url, store = server
    _push(url, "--yes")
    store.versions["otelkit-causal"][-1]["dashboard"]["title"] = "of an older release"
    assert _actions(_push(url))["otelkit-causal"] == "update"
    assert _push(url, "--yes", "--message", "release 2").exit_code == 0
    last = store.versions["otelkit-causal"][-1]
    assert last["dashboard"]["title"] == documents(Spec())["otelkit-causal"]["title"]
    assert last["message"].endswith("release 2")
    assert len(store.versions["otelkit-causal"]) == 2


def test_edits_in_grafana_are_not_clobbered(server: tuple[str, Store]) -> None:
    """Somebody's work in the browser would be gone."""
    url, store = server
    _push(url, "--yes")
    store.edit("otelkit-causal", title="with my notes")
    result = _push(url, "--yes")
    assert result.exit_code == 3
    assert _actions(result)["otelkit-causal"] == "conflict"
    assert "version 2 was edited in Grafana; --force" in result.stdout
    assert store.newest("otelkit-causal")["title"] == "with my notes"
    assert _push(url, "--yes", "--force").exit_code == 0
    assert store.newest("otelkit-causal")["title"] != "with my notes"
    assert len(store.versions["otelkit-causal"]) == 3


def test_an_edit_between_plan_and_push_is_kept(
    server: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two people who deploy at once would overwrite each other."""
    url, store = server
    _push(url, "--yes")
    store.versions["otelkit-causal"][-1]["dashboard"]["title"] = "of an older release"
    planned = Grafana.plan

    def plan_then_somebody_edits(self: Grafana, *args: object, **more: object) -> object:
        steps = planned(self, *args, **more)  # type: ignore[arg-type]
        store.edit("otelkit-causal", title="just now")
        return steps

    monkeypatch.setattr(Grafana, "plan", plan_then_somebody_edits)
    result = _push(url, "--yes")
    assert result.exit_code == 3
    assert "changed by someone else" in result.stdout
    assert store.newest("otelkit-causal")["title"] == "just now"


def test_a_dashboard_stays_in_the_folder_that_somebody_put_it_into(server: tuple[str, Store]) -> None:
    """Every release would undo how a team has sorted its dashboards; or a folder asked for be ignored."""
    url, store = server
    _push(url, "--yes")
    last = store.versions["otelkit-causal"][-1]
    last["folderUid"] = "theirs"
    store.folders["theirs"] = "Theirs"
    assert _actions(_push(url))["otelkit-causal"] == "unchanged"
    last["dashboard"]["title"] = "of an older release"
    assert _push(url, "--yes").exit_code == 0
    assert store.versions["otelkit-causal"][-1]["folderUid"] == "theirs"
    assert _actions(_push(url, "--folder", "otelkit"))["otelkit-causal"] == "update"
    assert _push(url, "--yes", "--folder", "otelkit").exit_code == 0
    assert store.versions["otelkit-causal"][-1]["folderUid"] == "otelkit"


def test_provisioned_dashboards_are_left_to_their_files(server: tuple[str, Store]) -> None:
    """Grafana refuses such a write, and its message does not say where the file is."""
    url, store = server
    _push(url, "--yes")
    store.versions["otelkit-causal"][-1]["dashboard"]["title"] = "from a file"
    store.provisioned.add("otelkit-causal")
    result = _push(url, "--yes", "--force")
    assert result.exit_code == 3
    assert "is provisioned from a file" in result.stdout


def test_a_missing_right_is_said_with_the_variable_to_set(
    server: tuple[str, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user would not learn where the token comes from."""
    monkeypatch.delenv("GRAFANA_TOKEN")
    with pytest.raises(UsageError, match="401: Invalid API key") as raised:
        _push(server[0])
    assert "GRAFANA_TOKEN" in raised.value.hint


def test_no_answer_is_its_own_exit_code() -> None:
    """A pipeline could not tell a Grafana that is down from a dashboard that is wrong."""
    with pytest.raises(BackendUnreachable, match=r"http://127\.0\.0\.1:9: no answer") as raised:
        _push("http://127.0.0.1:9")
    assert raised.value.exit_code == 4


def test_json_for_scripts(server: tuple[str, Store]) -> None:
    """A pipeline would have to parse a table."""
    answer = json.loads(_push(server[0], "--yes", "--format", "json").stdout)
    assert (answer["version"], answer["done"]) == (1, True)
    assert [one["version"] for one in answer["dashboards"]] == [1, 1]


Answer = tuple[int, Any]
NOT_FOUND: Answer = (404, {"message": "Dashboard not found"})
MADE: Answer = (200, {"version": 1})


def _answering(reads: Answer, writes: Answer = MADE, folders: Answer = MADE) -> httpx.Client:
    def answer(request: httpx.Request) -> httpx.Response:
        status, content = (
            reads if request.method == "GET" else folders if "/folders" in request.url.path else writes
        )
        if isinstance(content, str):
            return httpx.Response(status, text=content, headers={"Location": "/login"})
        return httpx.Response(status, json=content)

    return httpx.Client(transport=httpx.MockTransport(answer))


def _steps(client: httpx.Client) -> list[Step]:
    pushed = [document for uid, document in documents(Spec()).items() if uid in NAMES]
    with Grafana("http://user:secret@grafana.test/x", "t", client) as grafana:
        return grafana.push(pushed, folder_uid="f", folder_title="F", message="")


@pytest.mark.parametrize(
    ("reads", "error", "said"),
    [
        ((401, {"message": "no"}), UsageError, "401: no"),
        ((403, {"message": "no"}), UsageError, "403: no"),
        ((429, {"message": "slow down"}), BackendUnreachable, "429: slow down"),
        ((500, {"message": "broken"}), OtelkitError, "500: broken"),
        ((502, "<html>"), BackendUnreachable, "answers 502"),
        ((503, {"message": "starting"}), BackendUnreachable, "503: starting"),
        ((404, "<html>"), BackendUnreachable, "not as Grafana does"),
        ((404, {"error": "no such page"}), BackendUnreachable, "not as Grafana does"),
        ((302, ""), BackendUnreachable, "leads to /login"),
        ((200, "<html>"), BackendUnreachable, "not as Grafana does"),
        ((200, []), BackendUnreachable, "not as Grafana does"),
        ((200, {}), BackendUnreachable, "not as Grafana does"),
        ((200, None), BackendUnreachable, "not as Grafana does"),
        ((200, '"hello"'), BackendUnreachable, "not as Grafana does"),
    ],
)
def test_answers_that_stop_a_push(reads: Answer, error: type[OtelkitError], said: str) -> None:
    """Something else at the address would be taken for an empty Grafana, or be a traceback."""
    with pytest.raises(error, match=said) as raised:
        _steps(_answering(reads))
    assert raised.value.hint
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("writes", "action", "said"),
    [
        ((412, {"message": "changed", "status": "version-mismatch"}), Action.CONFLICT, "412: changed"),
        ((500, {"message": "broken"}), Action.FAILED, "500: broken"),
        ((400, {"message": "bad uid"}), Action.FAILED, "400: bad uid"),
        ((200, {}), Action.FAILED, "not as Grafana does"),
        ((503, "<html>"), Action.FAILED, "answers 503"),
    ],
)
def test_a_refused_dashboard_is_one_line_of_the_result(writes: Answer, action: Action, said: str) -> None:
    """What was pushed before it would not be told, and what comes after it not be pushed."""
    steps = _steps(_answering(NOT_FOUND, writes))
    assert [one.action for one in steps] == [action] * len(NAMES)
    assert all(said in one.reason for one in steps)


def test_the_others_are_pushed_and_the_exit_code_tells(server: tuple[str, Store]) -> None:
    """One bad dashboard would keep all others from being rolled out."""
    url, store = server
    store.refused.add("otelkit-causal")
    result = _push(url, "--yes")
    assert result.exit_code == 1
    assert _actions(result) == {"otelkit-causal": "failed", "otelkit-runbook": "create"}
    assert set(store.versions) == {"otelkit-runbook"}


def test_a_token_that_may_not_write_is_said_at_once() -> None:
    """The same refusal for every dashboard would hide what to do about it."""
    with pytest.raises(UsageError, match="403: viewer"):
        _steps(_answering(NOT_FOUND, (403, {"message": "viewer"})))


def test_a_folder_whose_title_is_taken() -> None:
    """The user would be told to run again, for ever."""
    with pytest.raises(OtelkitError, match="409: exists") as raised:
        _steps(_answering(NOT_FOUND, folders=(409, {"message": "exists"})))
    assert "--folder UID" in raised.value.hint


def test_a_token_is_never_shown() -> None:
    """A secret would stand in a build's log: HTTP libraries repeat headers that they refuse."""
    assert [one.action for one in _plan_with_token("glsa_x\n")] == [Action.CREATE] * len(NAMES)
    with pytest.raises(UsageError, match="GRAFANA_TOKEN") as raised:
        _plan_with_token("glsa\nx")
    assert "glsa" not in str(raised.value)


def _plan_with_token(token: str) -> list[Step]:
    client = _answering(NOT_FOUND)
    with Grafana("http://grafana.test", token, client) as grafana:
        return grafana.plan([document for uid, document in documents(Spec()).items() if uid in NAMES])


@pytest.mark.parametrize("url", ["localhost:3000", "http://", "http://[", "http://127.0.0.1:99999"])
def test_addresses_that_are_none(url: str) -> None:
    """A slip in an address would be a traceback."""
    with pytest.raises(BackendUnreachable, match="no answer"):
        _push(url)
