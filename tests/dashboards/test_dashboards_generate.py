"""Dashboards as files: stable, complete, current."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from otelkit.cli.main import cli
from otelkit.dashboards import dashboard_json, documents, generate, lint
from otelkit.dashboards.generate import PROVIDER_FILE
from otelkit.dashboards.grafana import SCHEMA_VERSION, Heatmap, NodeGraph, Target, Trend, panels_of
from otelkit.dashboards.runbooks import sections
from otelkit.spec import Duration, Service, Spec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
UIDS = {
    "otelkit-causal",
    "otelkit-overview",
    "otelkit-token-steps",
    "otelkit-parameters",
    "otelkit-topology",
    "otelkit-itself",
    "otelkit-runbook",
}


def _nulls(value: Any, path: str = "") -> list[str]:
    if value is None:
        return [path]
    if isinstance(value, dict):
        return [found for key, below in value.items() for found in _nulls(below, f"{path}/{key}")]
    if isinstance(value, list):
        return [found for below in value for found in _nulls(below, f"{path}/*")]
    return []


def test_the_same_spec_gives_the_same_bytes() -> None:
    """Every generation would show up as a change in version control."""
    assert generate(Spec()) == generate(Spec())


def test_committed_dashboards_are_what_the_code_gives() -> None:
    """A clone without Python would provision dashboards that differ from the documented ones."""
    result = CliRunner().invoke(cli, ["generate", "dashboards", "-o", str(ROOT / "dashboards"), "--check"])
    assert result.exit_code == 0, result.output


def test_uids_and_schema() -> None:
    """Links between dashboards and users' bookmarks go by uid; an older schema is migrated on every load."""
    made = documents(Spec())
    assert set(made) == UIDS
    assert all(document["schemaVersion"] == SCHEMA_VERSION == 42 for document in made.values())
    assert all("version" not in document and "id" not in document for document in made.values())


def test_no_nulls_but_the_first_threshold() -> None:
    """Grafana takes a null for a value that was set, and its editors show it as such."""
    for document in documents(Spec()).values():
        left = [path for path in _nulls(document) if not path.endswith("/thresholds/steps/*/value")]
        assert [path for path in left if not path.endswith("properties/*/value/steps/*/value")] == []


def test_links_lead_to_dashboards_and_sections_that_exist() -> None:
    """A link to nowhere is found by the person on call at night."""
    text = "".join(json.dumps(document) for document in documents(Spec()).values())
    assert set(re.findall(r"/d/([\w-]+)\?", text)) <= UIDS
    sections_linked = {int(number) for number in re.findall(r"viewPanel=(\d+)", text)}
    assert sections_linked
    assert sections_linked <= set(range(1, len(sections()) + 1))


def test_every_dashboard_but_the_runbook_has_its_variables_and_links() -> None:
    """Without them a dashboard works for one installation and one service only."""
    for uid, document in documents(Spec()).items():
        names = [variable["name"] for variable in document["templating"]["list"]]
        assert names[:2] == ["datasource", "tempo"]
        if uid != "otelkit-runbook":
            assert {"service", "model"} <= set(names)
        assert document["links"][0]["tags"] == ["otelkit"]


def test_recorded_series_follow_the_spec() -> None:
    """With other windows in otelkit.yaml, panels would ask for series that no rule records."""
    spec = Spec(windows=(Duration.parse("30s"), Duration.parse("2m")))
    text = json.dumps(documents(spec)["otelkit-causal"])
    assert "quantile_30s" in text
    assert "quantile_1m" not in text


def test_windows_shared_by_all_services_are_used() -> None:
    """A window that only one service has would leave the others' panels empty."""
    spec = Spec(
        services=(
            Service(name="a", windows=(Duration.parse("30s"), Duration.parse("1m"))),
            Service(name="b", windows=(Duration.parse("1m"), Duration.parse("5m"))),
        )
    )
    text = json.dumps(documents(spec)["otelkit-overview"])
    assert "quantile_1m" in text
    assert "quantile_30s" not in text


def test_objectives_of_the_spec_are_shown_by_their_recorded_burn_rates() -> None:
    """The dashboard would show another burn rate than the one that alerts fire on."""
    spec = parse_spec("slos: [{errors: 1%}]")
    document = documents(spec)["otelkit-overview"]
    assert lint(document) == []
    assert "service_slo:burn_rate:ratio_1h" in json.dumps(document)
    assert "objective" not in [variable["name"] for variable in document["templating"]["list"]]
    assert "$objective" in json.dumps(documents(Spec())["otelkit-overview"])


def test_provider_points_at_the_mounted_folder() -> None:
    """Grafana would start with an empty folder."""
    provider = yaml.safe_load(generate(Spec())[PROVIDER_FILE])["providers"][0]
    assert provider["options"]["path"] == "/etc/grafana/provisioning/dashboards"
    assert provider["folderUid"] == "otelkit"


def test_drift_and_leftovers_are_a_finding(tmp_path: Path) -> None:
    """A hand-edited or forgotten dashboard would stay in the repository unnoticed."""
    runner = CliRunner()
    assert runner.invoke(cli, ["generate", "dashboards", "-o", str(tmp_path)]).exit_code == 0
    causal = tmp_path / "otelkit-causal.json"
    causal.write_text(causal.read_text().replace("P99 now", "p99 now"))
    (tmp_path / "otelkit-old.json").write_text("{}")
    (tmp_path / "mine.json").write_text("{}")
    result = runner.invoke(cli, ["generate", "dashboards", "-o", str(tmp_path), "--check"])
    assert result.exit_code == 3
    assert "p99 now" in result.output
    assert "otelkit-old.json: is left over" in result.output
    assert "mine.json" not in result.output
    assert runner.invoke(cli, ["generate", "dashboards", "-o", str(tmp_path)]).exit_code == 0
    assert not (tmp_path / "otelkit-old.json").exists()
    assert (tmp_path / "mine.json").exists()


def test_standard_output_is_one_json_array() -> None:
    """A script that pipes dashboards on could not parse them."""
    result = CliRunner().invoke(cli, ["generate", "dashboards", "-o", "-"])
    assert {document["uid"] for document in json.loads(result.stdout)} == UIDS


def test_old_grafanalib_panels_are_modernised() -> None:
    """A user's grafanalib dashboard would come out with schema 12, nulls and no data source on its
    targets."""
    from grafanalib import core as g

    dashboard = g.Dashboard(
        title="mine",
        uid="mine",
        panels=[
            g.Stat(
                title="one",
                dataSource={"uid": "${datasource}"},
                targets=[g.Target(expr="up", refId="A")],
                thresholds=[g.Threshold("green", 0, 0.0), g.Threshold("red", 1, 80.0)],
                gridPos=g.GridPos(4, 6, 0, 0),
            ),
            g.Table(title="two", targets=[g.Target(expr="up", refId="A")], gridPos=g.GridPos(4, 6, 6, 0)),
        ],
    )
    document = dashboard_json(dashboard)
    stat, table = panels_of(document)
    assert document["schemaVersion"] == 42
    assert stat["id"] == 1
    assert stat["targets"][0]["datasource"] == {"uid": "${datasource}"}
    assert "step" not in stat["targets"][0]
    assert stat["fieldConfig"]["defaults"]["thresholds"]["steps"] == [
        {"color": "green", "value": None},
        {"color": "red", "value": 80.0},
    ]
    assert table["fieldConfig"]["defaults"]["custom"]["cellOptions"] == {"type": "auto"}
    assert "columns" not in table


@pytest.mark.parametrize(
    ("panel", "kind"), [(NodeGraph, "nodeGraph"), (Heatmap, "heatmap"), (Trend, "trend")]
)
def test_gap_classes_are_used_like_grafanalibs(panel: Any, kind: str) -> None:
    """A grafanalib user could not take them over into dashboards of their own."""
    from grafanalib import core as g

    made = panel(title="t", targets=[Target(expr="up", refId="A", exemplar=True)], dataSource="x")
    document = dashboard_json(g.Dashboard(title="d", uid="d", panels=[made]))
    assert document["panels"][0]["type"] == kind
    assert document["panels"][0]["targets"][0]["exemplar"] is True
