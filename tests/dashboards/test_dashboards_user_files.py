"""``*.dashboard.py`` files of a user, good and bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from dashboards_history import FilledPrometheus

from otelkit.cli.main import cli

GOOD = """
from grafanalib.core import Dashboard, GridPos, Target, TimeSeries

dashboard = Dashboard(
    title="Mine",
    {uid}
    panels=[
        TimeSeries(
            title="Calls",
            targets=[Target(expr="{expr}", refId="A")],
            gridPos=GridPos(h=8, w=12, x=0, y=0),
        )
    ],
)
"""
KNOWN = "sum(rate(otelkit_generations_started_total[5m]))"


def _write(directory: Path, name: str, *, uid: str = "", expr: str = KNOWN) -> Path:
    path = directory / f"{name}.dashboard.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(GOOD.format(uid=f'uid="{uid}",' if uid else "", expr=expr))
    return path


def _generate(directory: Path, *more: str) -> tuple[int, str]:
    import otelkit.errors

    result = CliRunner().invoke(cli, ["generate", "dashboards", "--from", str(directory), *more])
    if isinstance(result.exception, otelkit.errors.OtelkitError):
        return result.exception.exit_code, str(result.exception)
    return result.exit_code, result.output


def test_a_users_dashboards_are_written_beside_each_other(tmp_path: Path) -> None:
    """grafanalib's own convention would not work with this command."""
    _write(tmp_path, "mine", uid="mine-1")
    _write(tmp_path, "team b")
    code, _ = _generate(tmp_path, "-o", str(tmp_path / "out"))
    assert code == 0
    mine = json.loads((tmp_path / "out/mine.json").read_text())
    assert (mine["uid"], mine["schemaVersion"]) == ("mine-1", 42)
    assert json.loads((tmp_path / "out/team b.json").read_text())["uid"] == "team-b"
    assert _generate(tmp_path, "-o", str(tmp_path / "out"), "--check")[0] == 0


def test_two_dashboards_with_one_uid(tmp_path: Path) -> None:
    """Grafana would show whichever came last."""
    one, other = _write(tmp_path, "a", uid="same"), _write(tmp_path, "b", uid="same")
    _write(tmp_path, "c", uid="otelkit-causal")
    code, text = _generate(tmp_path)
    assert code == 2
    assert f"{other}: uid 'same' is that of {one} too" in text
    assert "uid 'otelkit-causal' is that of a dashboard of otelkit" in text


def test_all_bad_files_are_named_at_once(tmp_path: Path) -> None:
    """A user would repair one file after another, with a run for each."""
    (tmp_path / "raises.dashboard.py").write_text("import os\n\nos.environ['NOT THERE']\n")
    (tmp_path / "nothing.dashboard.py").write_text("dash = 1\n")
    (tmp_path / "other.dashboard.py").write_text("dashboard = {'title': 'x'}\n")
    (tmp_path / "syntax.dashboard.py").write_text("x = 1\ndashboard = (\n")
    code, text = _generate(tmp_path)
    assert code == 2
    assert "raises.dashboard.py:3: raises KeyError" in text
    assert "nothing.dashboard.py: has no variable `dashboard`" in text
    assert "other.dashboard.py: `dashboard` is a dict" in text
    assert "syntax.dashboard.py:2: raises SyntaxError" in text


def test_an_unknown_metric_is_named_with_file_and_panel(tmp_path: Path) -> None:
    """A misspelt metric would be an empty panel in production."""
    path = _write(tmp_path, "typo", expr="rate(otelkit_generations_begun_total[5m])")
    code, text = _generate(tmp_path)
    assert code == 2
    assert f"{path}: panel 'Calls': unknown metric 'otelkit_generations_begun_total'" in text


def test_a_folder_without_dashboards(tmp_path: Path) -> None:
    """Nothing would be written, and nothing said."""
    code, text = _generate(tmp_path)
    assert code == 2
    assert "holds no *.dashboard.py file" in text
    assert _generate(tmp_path / "missing")[0] == 2


def test_lint_of_a_users_dashboard_is_asked_for(tmp_path: Path) -> None:
    """House rules of this project would be forced upon every user, or could not be had at all."""
    _write(tmp_path, "mine")
    assert _generate(tmp_path, "-o", str(tmp_path))[0] == 0
    code, text = _generate(tmp_path, "-o", str(tmp_path), "--lint")
    assert code == 3
    assert "panel 'Calls': has no unit" in text


BAD = {
    "raise SystemExit(5)": ":2: exits (5) when it is run",
    "import sys\nsys.exit('set TEAM first')": ":3: exits (set TEAM first) when it is run",
    "def f(): f()\nf()": ":2: raises RecursionError",
    "import not_there_at_all": ":2: raises ModuleNotFoundError",
    "dashboard = [g.Dashboard(title='a', panels=[])]": "is a list, not a grafanalib Dashboard; one",
    "dashboard = g.Dashboard(title=5, panels=[])": "the dashboard's title is 5; give it a text",
    "dashboard = g.Dashboard(title='a', uid=5, panels=[])": "uid 5: Grafana takes up to 40 letters",
    "dashboard = g.Dashboard(title='a', uid='../x', panels=[])": "uid '../x': Grafana takes up to 40 letters",
    "dashboard = g.Dashboard(title='a', uid='x' * 41, panels=[])": "Grafana takes up to 40 letters",
    "dashboard = g.Dashboard(title='a', panels=['x'])": "panel 1 of `dashboard` is a str, not a panel",
    "dashboard = g.Dashboard(title='a', panels=None)": "TypeError: 'panels' must be <class 'list'>",
    "dashboard = g.Dashboard(title='a\\ud800', panels=[])": "holds '\\ud800', half a character",
    "dashboard = g.Dashboard(title='a', panels=[g.Stat(title='s', decimals=float('nan'))])": "not JSON",
    "dashboard = g.Dashboard(title='a', panels=[g.Stat(title='s', targets=[g.Target(expr=5)])])": (
        "panel 's': query 5 is no text"
    ),
    "dashboard = g.Dashboard(title='a', panels=[g.Stat(title=7)])": "panel 7: its title is no text",
}


@pytest.mark.parametrize("text", BAD)
def test_what_can_be_wrong_with_a_file_is_said(text: str, tmp_path: Path) -> None:
    """The user would see a traceback, another program's exit code, or a file that Grafana refuses."""
    path = tmp_path / "x.dashboard.py"
    path.write_text(f"from grafanalib import core as g\n{text}")
    code, said = _generate(tmp_path, "-o", str(tmp_path / "out"))
    assert code == 2
    assert f"{path}" in said
    assert BAD[text] in said
    assert not (tmp_path / "out").exists()


def test_files_of_one_name_in_two_folders(tmp_path: Path) -> None:
    """One team's dashboard would replace the other's without a word."""
    _write(tmp_path, "a/load")
    _write(tmp_path, "b/load")
    code, _ = _generate(tmp_path, "-o", str(tmp_path / "out"))
    assert code == 0
    made = {name: json.loads((tmp_path / "out" / name / "load.json").read_text()) for name in "ab"}
    assert {name: document["uid"] for name, document in made.items()} == {"a": "a-load", "b": "b-load"}


def test_a_file_imports_its_neighbour_and_prints(tmp_path: Path) -> None:
    """Shared panels could not be had; or the JSON on standard output would begin with what a file printed."""
    (tmp_path / "our_own_panels.py").write_text("TITLE = 'Ours'\n")
    text = "import our_own_panels\nprint('at work')\n" + GOOD.format(uid="", expr=KNOWN)
    (tmp_path / "x.dashboard.py").write_text(text.replace('"Mine"', "our_own_panels.TITLE"))
    result = CliRunner().invoke(cli, ["generate", "dashboards", "--from", str(tmp_path), "-o", "-"])
    assert [document["title"] for document in json.loads(result.stdout)] == ["Ours"]
    assert "at work" in result.stderr


def test_checks_of_a_users_dashboards_need_some(tmp_path: Path) -> None:
    """An option that does nothing would be taken for a check that passed."""
    for option in (["--lint"], ["--prometheus", "http://127.0.0.1:9"]):
        assert (
            CliRunner().invoke(cli, ["generate", "dashboards", "-o", str(tmp_path), *option]).exit_code == 2
        )


@pytest.mark.prometheus
def test_a_live_prometheus_judges_every_metric_query_and_variable(
    filled: FilledPrometheus, tmp_path: Path
) -> None:
    """Only otelkit's own names would be checked; others' slips, and queries that are refused, stay empty
    panels."""
    good = _write(tmp_path, "good", expr="sum by (server) (rate(traces_service_graph_request_total[5m]))")
    code, said = _generate(tmp_path, "-o", str(tmp_path / "out"), "--prometheus", filled.url)
    assert code == 0, said
    good.write_text(good.read_text().replace("graph_request_total", "graph_requests_total"))
    _write(tmp_path, "refused", expr="sum(rate(up))")
    (tmp_path / "empty.dashboard.py").write_text(
        "from grafanalib.core import *\n"
        "dashboard = Dashboard(title='e', panels=[], templating=Templating(list=["
        "Template(name='pod', query='label_values(kube_pod_info, pod)', dataSource='x')]))\n"
    )
    code, said = _generate(tmp_path, "-o", str(tmp_path / "out"), "--prometheus", filled.url)
    assert code == 2
    assert (
        f"{good}: panel 'Calls': unknown metric 'traces_service_graph_requests_total'; "
        "did you mean 'traces_service_graph_request_total'?" in said
    )
    assert "refused.dashboard.py: panel 'Calls': " in said
    assert "expected type range vector" in said
    assert "empty.dashboard.py: variable 'pod' selects nothing" in said
    assert "empty.dashboard.py: variable 'pod': unknown metric 'kube_pod_info'" in said


def test_a_prometheus_that_does_not_answer_has_its_own_exit_code(tmp_path: Path) -> None:
    """A pipeline could not tell a Prometheus that is down from a dashboard that is wrong."""
    _write(tmp_path, "mine")
    assert _generate(tmp_path, "-o", str(tmp_path), "--prometheus", "http://127.0.0.1:9")[0] == 4
