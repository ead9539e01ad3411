"""``*.dashboard.py`` files of a user, good and bad."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

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
