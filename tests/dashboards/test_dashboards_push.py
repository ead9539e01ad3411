"""Pushing dashboards, against a server that speaks Grafana's documented API (not a Grafana)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from grafana_stand_in import TOKEN, Store, grafana_stand_in

from otelkit.cli.main import cli
from otelkit.dashboards import documents
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
    from otelkit.dashboards.push import Grafana

    url, store = server
    _push(url, "--yes")
    store.versions["otelkit-causal"][-1]["dashboard"]["title"] = "of an older release"
    planned = Grafana.plan

    def plan_then_somebody_edits(self: Grafana, *args: object, **more: object) -> object:
        steps = planned(self, *args, **more)  # type: ignore[arg-type]
        store.edit("otelkit-causal", title="just now")
        return steps

    monkeypatch.setattr(Grafana, "plan", plan_then_somebody_edits)
    with pytest.raises(OtelkitError, match="changed by someone else") as raised:
        _push(url, "--yes")
    assert "run again" in raised.value.hint
    assert store.newest("otelkit-causal")["title"] == "just now"


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
